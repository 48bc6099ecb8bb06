"""Compose without containers: each service's very command as a process of this machine.

What a container would have of its own is put in its place: volumes are folders, the names of
services are loopback, ports are free ones, programs of images are those of Python packages. Nothing
else is changed, so a wrong flag, path, name, port or condition shows as it would in a container.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from loadtest.peers.process import free_port
from tests.compose.composefile import Json, mounts, seconds
from tests.compose.dockerfile import entrypoint_of, read_stages

ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"
PATIENCE_S = 90.0
POLL_S = 0.05
ENDED_BY_TERM = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


class Stack:
    """The services of a project, wired to each other; `programs` says where each program is."""

    def __init__(
        self, services: Mapping[str, Json], folder: Path, programs: Mapping[str, Path]
    ) -> None:
        self.services = services
        self.folder = folder
        self.ports = {
            (name, int(port)): free_port()
            for name, service in services.items()
            for port in service.get("expose", ())
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.beside: dict[str, str] = {}  # variables that only tests want
        self._stages = read_stages(ROOT / "Dockerfile")
        self._bin = folder / "bin"
        self._bin.mkdir()
        for name, path in programs.items():
            (self._bin / name).write_text(f'#!/bin/sh\nexec "{path}" "$@"\n')
            (self._bin / name).chmod(0o755)

    # -- running ---------------------------------------------------------------------------------

    def up(self) -> None:
        """As compose does: each when what it depends on is done or healthy."""
        for name, service in self.services.items():
            for other, how in service.get("depends_on", {}).items():
                self._await(other, how["condition"])
            self.start(name)
        for name in self.running:
            self.wait_until_healthy(name)

    def start(self, name: str) -> None:
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                self.command(name),
                cwd=self._place(name),
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a container ends with all its processes
            )

    def run(self, name: str) -> str:
        """`docker compose run --rm NAME`: what it printed."""
        self.start(name)
        assert self.running.pop(name).wait(PATIENCE_S) == 0, self.words(name)
        return self.log(name).read_text()

    def check_health(self, name: str) -> bool:
        test = self.services[name].get("healthcheck", {}).get("test")
        if test is None:
            return True
        assert test[0] == "CMD"
        done = subprocess.run(
            [self.wired(name, word) for word in test[1:]],
            cwd=self._place(name),
            env=self.environment(name),
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return done.returncode == 0

    def wait_until_healthy(self, name: str, patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not self.check_health(name):
            assert self.running[name].poll() is None, f"it has ended: {self.words(name)}"
            assert time.monotonic() < deadline, f"not healthy: {self.words(name)}"
            time.sleep(POLL_S)

    def stop(self, *names: str) -> list[int]:
        """SIGTERM to all of them, and their exit codes, in the time that compose would give."""
        ending = [(name, self.running.pop(name)) for name in names]
        for _, process in ending:
            process.send_signal(signal.SIGTERM)
        try:
            return [
                process.wait(seconds(self.services[name]["stop_grace_period"]))
                for name, process in ending
            ]
        finally:
            for _, process in ending:
                _end(process)

    def kill(self) -> None:
        while self.running:
            _end(self.running.popitem()[1])

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def words(self, name: str) -> str:
        return f"{name}: {self.log(name).read_text(errors='replace')[-3000:]}"

    def _await(self, name: str, condition: str) -> None:
        if condition == "service_healthy":
            self.wait_until_healthy(name)
        else:
            assert condition == "service_completed_successfully", condition
            if name in self.running:
                assert self.running.pop(name).wait(PATIENCE_S) == 0, self.words(name)

    # -- wiring ----------------------------------------------------------------------------------

    def command(self, name: str) -> list[str]:
        service = self.services[name]
        entrypoint = service.get("entrypoint")
        if entrypoint is None and "build" in service:
            entrypoint = entrypoint_of(self._stages[service["build"]["target"]])
        words = [*(entrypoint or ()), *service["command"]]
        return [
            # A service's name is a host after an option; elsewhere it is a word.
            LOOPBACK
            if word in self.services and before.startswith("--")
            else self.wired(name, word)
            for before, word in zip(["", *words], words, strict=False)
        ]

    def environment(self, name: str) -> dict[str, str]:
        told = self.services[name].get("environment", {})
        home = self._folder(f"home-{name}")
        path = f"{self._bin}:/usr/bin:/bin"
        ours = {"PATH": path, "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8"}
        return (
            ours
            | self.beside
            | {
                key: LOOPBACK if key.endswith("_HOSTNAME") else self.wired(name, str(value))
                for key, value in told.items()
            }
        )

    def url(self, name: str, port: int, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.ports[name, port]}"

    def wired(self, name: str, text: str) -> str:
        """A word of a service's command or settings, or a whole file, as it must be here."""
        text = _replace_path(text, "/tmp", lambda: self._folder(f"home-{name}"))
        for source, target, _ in mounts(self.services[name]):
            text = _replace_path(text, target, partial(self._source, name, source))
        names = "|".join(map(re.escape, self.services))
        text = re.sub(rf"\b({names}):(\d+)\b", self._address, text)
        own = r"\b(127\.0\.0\.1|0\.0\.0\.0)([:/])(\d+)\b"
        text = re.sub(own, lambda m: f"{LOOPBACK}{m[2]}{self._port(name, m[3])}", text)
        option, equals, value = text.rpartition("=")
        if value == "0.0.0.0":
            value = LOOPBACK
        return option + equals + self._port(name, value)

    def _address(self, found: re.Match[str]) -> str:
        return f"{LOOPBACK}:{self.ports[found[1], int(found[2])]}"

    def _port(self, name: str, text: str) -> str:
        """A free port for one that the service has, or that only one other service has."""
        if not text.isdigit():
            return text
        wanted = int(text)
        if (name, wanted) in self.ports:
            return str(self.ports[name, wanted])
        others = [port for (_, number), port in self.ports.items() if number == wanted]
        return str(others[0]) if len(others) == 1 else text

    def _source(self, name: str, source: str) -> Path:
        """The folder of a volume; a folder of the repository; a wired copy of a file in it."""
        if not source.startswith("."):
            return self._folder(f"volume-{source}")
        path = ROOT / source
        assert path.exists(), source
        if path.is_dir():
            return path
        copy = self.folder / f"{name}-{path.name}"
        copy.write_text(
            "".join(self.wired_line(name, line) for line in path.read_text().splitlines(True))
        )
        return copy

    def wired_line(self, name: str, line: str) -> str:
        """Of a file: addresses, and the paths of other files."""
        for source, target, _ in mounts(self.services[name]):
            line = _replace_path(line, target, partial(self._source, name, source))
        names = "|".join(map(re.escape, self.services))
        return re.sub(
            rf"\b({names}|127\.0\.0\.1):(\d+)\b",
            lambda m: f"127.0.0.1:{self.ports[m[1] if m[1] in self.services else name, int(m[2])]}",
            line,
        )

    def _place(self, name: str) -> Path:
        """The folder where it starts: that of the image has the settings in it."""
        place = self.folder / f"place-{name}"
        if not place.exists():
            ignored = shutil.ignore_patterns("local.toml", "compose")
            shutil.copytree(ROOT / "configs", place / "configs", ignore=ignored)
        return place

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder


@contextmanager
def running(
    services: Mapping[str, Json], folder: Path, programs: Mapping[str, Path]
) -> Iterator[Stack]:
    stack = Stack(services, folder, programs)
    try:
        yield stack
    finally:
        stack.kill()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """All that a container's end would end."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _replace_path(text: str, path: str, find: Callable[[], Path]) -> str:
    """Where the path stands whole, or begins a longer one."""
    there = rf"(?<![\w/.-]){re.escape(path)}(?![\w-])"
    return re.sub(there, str(find()), text) if re.search(there, text) else text


def venv_program(name: str) -> Path:
    return Path(sys.executable).with_name(name)
