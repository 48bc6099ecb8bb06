"""Worker processes as an operator sees them: real forks, real signals, real ports."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import ROOT
from wire.settings import SettingsError
from wire.workers import Pace, reserve_port

WAIT_S = 60.0


class Crew:
    """The running test program."""

    def __init__(self, folder: Path, behaviours: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "tests.helpers.crew", str(len(behaviours)), *behaviours]
        self.folder = folder
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            command,
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
    def printed(self) -> str:
        return (self.folder / "log").read_text()

    def worker(self, number: int, restarts: int = 0) -> int:
        """The process id of a worker, once it is there."""
        note = self.folder / f"worker-{number}-{restarts}"
        wait_until(note.exists, what=f"{note.name} in {self.printed}")
        return int(note.read_text())

    def wait_ready(self) -> None:
        wait_until(lambda: "ready" in self.printed, what="ready")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@contextmanager
def crew(folder: Path, *behaviours: str) -> Iterator[Crew]:
    running = Crew(folder, behaviours)
    try:
        yield running
    finally:
        running.close()


def test_ready_is_said_once_when_all_are(tmp_path: Path) -> None:
    with crew(tmp_path, "serve", "serve", "serve") as running:
        running.wait_ready()
        assert len({running.worker(number) for number in range(3)}) == 3
        assert running.stop() == 0
        assert running.printed == "ready w0 w1 w2\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_reaches_every_worker_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    with crew(tmp_path, "serve", "serve") as running:
        running.wait_ready()
        pids = [running.worker(0), running.worker(1)]
        assert running.stop(number) == 0
        assert all(map(is_gone, pids))


def test_a_killed_worker_is_replaced_and_the_other_left_alone(tmp_path: Path) -> None:
    with crew(tmp_path, "serve", "serve") as running:
        running.wait_ready()
        os.kill(running.worker(1), signal.SIGKILL)
        assert not is_gone(running.worker(1, restarts=1))
        assert not is_gone(running.worker(0))
        assert running.stop() == 0
        assert "worker 1 died (signal 9" in running.printed
        assert not (tmp_path / "worker-0-1").exists()


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    with crew(tmp_path, "serve", "serve") as running:
        running.wait_ready()
        pids = [running.worker(0), running.worker(1)]
        running.process.kill()
        wait_until(lambda: all(map(is_gone, pids)), what="end of the orphans")


def test_an_interrupt_to_a_worker_is_left_to_the_parent(tmp_path: Path) -> None:
    with crew(tmp_path, "serve") as running:
        running.wait_ready()
        os.kill(running.worker(0), signal.SIGINT)
        os.kill(running.worker(0), 0)
        assert running.stop() == 0
        assert "died" not in running.printed


@pytest.mark.parametrize(("behaviour", "why"), [("crash", "exit code 7"), ("raise", "exit code 1")])
def test_workers_that_die_at_once_are_given_up(tmp_path: Path, behaviour: str, why: str) -> None:
    with crew(tmp_path, behaviour, behaviour) as running:
        assert running.process.wait(WAIT_S) == 1
        assert f"keeps dying ({why})" in running.printed
        assert running.printed.count("failed: ") == 1
        assert "ready" not in running.printed


def test_a_mistake_in_a_worker_is_logged(tmp_path: Path) -> None:
    with crew(tmp_path, "raise") as running:
        assert running.process.wait(WAIT_S) == 1
        assert "RuntimeError: a mistake" in running.printed


def test_a_worker_that_refuses_to_start_is_not_tried_again(tmp_path: Path) -> None:
    with crew(tmp_path, "serve", "refuse") as running:
        assert running.process.wait(WAIT_S) == 2
        assert running.printed == "failed: no keys\n"
        assert is_gone(running.worker(0))


def test_the_same_refusal_of_all_is_told_once(tmp_path: Path) -> None:
    with crew(tmp_path, "refuse", "refuse", "refuse") as running:
        assert running.process.wait(WAIT_S) == 2
        assert running.printed == "failed: no keys\n"


def test_one_that_serves_keeps_the_parent_patient(tmp_path: Path) -> None:
    with crew(tmp_path, "serve", "once") as running:
        running.wait_ready()
        os.kill(running.worker(1), signal.SIGKILL)
        running.worker(1, restarts=8)  # twice the patience
        assert not is_gone(running.worker(0))
        assert running.stop() in (0, 1)  # 1 when a successor dies in that very moment


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    with crew(tmp_path, "serve", "stubborn") as running:
        running.wait_ready()
        assert running.stop() == 1
        assert is_gone(running.worker(1))
        assert "did not stop in time" in running.printed


@pytest.mark.parametrize(
    ("early_deaths", "wait_s"), [(0, 0), (1, 0), (2, 0.1), (3, 0.2), (4, 0.4), (9, 5.0), (999, 5.0)]
)
def test_waits_double_up_to_a_limit(early_deaths: int, wait_s: float) -> None:
    assert Pace().wait_secs(early_deaths) == wait_s


def listen_shared(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_a_reserved_port_is_free_for_workers_alone() -> None:
    [held], port = reserve_port("gateway.port", "127.0.0.1", 0)
    with closing(held), closing(listen_shared(port)), closing(listen_shared(port)):
        with closing(socket.create_connection(("127.0.0.1", port))):
            pass
        with pytest.raises(SettingsError, match=rf"^gateway\.port: .* port {port}"):
            reserve_port("gateway.port", "127.0.0.1", port)


def test_a_reserved_port_takes_no_connections_itself() -> None:
    [held], port = reserve_port("gateway.port", "127.0.0.1", 0)
    with closing(held), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_every_address_of_a_name_gets_the_same_port() -> None:
    held, port = reserve_port("gateway.port", "localhost", 0)
    assert {each.getsockname()[1] for each in held} == {port}
    for each in held:
        each.close()


def test_a_host_that_cannot_be_bound_is_one_line() -> None:
    with pytest.raises(SettingsError, match=r"^gateway\.port: .*192\.0\.2\.1"):
        reserve_port("gateway.port", "192.0.2.1", 0)
