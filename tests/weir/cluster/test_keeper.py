"""Services as an operator sees them: real forks, real signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import ROOT
from weir.cluster.keeper import LONGEST_WAIT_SECS, wait_secs

WAIT_S = 60.0


class Kept:
    """The running test program."""

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.kept", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=self._log,
            stderr=self._log,
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    @property
    def lines(self) -> list[str]:
        return Path(self._log.name).read_text().splitlines()

    def wait_for(self, line: str, times: int = 1) -> None:
        wait_until(lambda: self.lines.count(line) >= times, WAIT_S, f"{line} in {self.lines}")

    def wait_for_pids(self, name: str, count: int) -> None:
        wait_until(lambda: len(self.pids(name)) == count, WAIT_S, f"{name} in {self.lines}")

    def pids(self, name: str) -> list[int]:
        """As the parent learned them, the last one last."""
        words = (line.split() for line in self.lines)
        return [int(word[1]) for word in words if word[0] == name and word[1].isdigit()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


@contextmanager
def kept(folder: Path, *arguments: str) -> Iterator[Kept]:
    running = Kept(folder, arguments)
    try:
        yield running
    finally:
        running.close()


def test_groups_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    with kept(tmp_path, "yes", "serve", "serve", "serve") as running:
        running.wait_for("ready")
        started = [line for line in running.lines if "started" in line]
        assert started == ["s0 started", "s1 started", "s2 started"]
        assert running.stop() == 0
        stopped = [line for line in running.lines if "stopped" in line]
        assert stopped == ["s2 stopped", "s1 stopped", "s0 stopped"]


def test_who_is_killed_comes_back_and_the_others_are_left_alone(tmp_path: Path) -> None:
    with kept(tmp_path, "yes", "serve", "serve") as running:
        running.wait_for("ready")
        for times in (1, 2):
            os.kill(running.pids("s0")[-1], signal.SIGKILL)
            running.wait_for("s0 None", times)  # told while it is away
            running.wait_for_pids("s0", times + 1)
        assert len(running.pids("s1")) == 1
        assert running.stop() == 0


def test_without_restarts_the_dead_stay_dead(tmp_path: Path) -> None:
    with kept(tmp_path, "no", "serve", "serve") as running:
        running.wait_for("ready")
        os.kill(running.pids("s0")[0], signal.SIGKILL)
        running.wait_for("weir: s0 died (signal 9 (Killed))")
        assert not is_gone(running.pids("s1")[0])
        assert running.stop() == 0
        assert len(running.pids("s0")) == 1


def test_what_cannot_start_ends_the_start(tmp_path: Path) -> None:
    with kept(tmp_path, "yes", "serve", "refuse", "serve") as running:
        assert running.process.wait(WAIT_S) == 3
        assert running.lines[-2:] == ["s0 None", "weir: s1 did not start: no room"]
        assert running.pids("s2") == []
        assert is_gone(running.pids("s0")[0])


def test_who_does_not_stop_is_killed(tmp_path: Path) -> None:
    with kept(tmp_path, "yes", "serve", "stubborn") as running:
        running.wait_for("ready")
        assert running.stop() == 1
        assert "weir: s1 did not stop cleanly (signal 9 (Killed))" in running.lines


def test_services_end_with_a_killed_parent(tmp_path: Path) -> None:
    with kept(tmp_path, "yes", "serve", "serve") as running:
        running.wait_for("ready")
        pids = running.pids("s0") + running.pids("s1")
        running.process.kill()
        wait_until(lambda: all(map(is_gone, pids)), WAIT_S, "end of the orphans")


@pytest.mark.parametrize(("deaths", "secs"), [(0, 1), (1, 2), (3, 8), (4, LONGEST_WAIT_SECS)])
def test_waits_grow_up_to_a_limit(deaths: int, secs: float) -> None:
    assert wait_secs(deaths) == secs
