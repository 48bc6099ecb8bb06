"""Programs that serve: started, found ready, stopped, and started again in the same place.

They run in a folder of their own, without the settings of whoever starts them, in a session of
their own, and end with us.
"""

import asyncio
import os
import random
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.errors import NotStartedError, RunFailedError
from wire.programs import end_with_parent

ROOT = Path(__file__).parents[2]
READY_TIMEOUT_SECS = 60.0
STOP_TIMEOUT_SECS = 30.0
POLL_SECS = 0.005
SERVER_PORTS = (10_000, 32_000)
"""None that Linux gives to outgoing connections: one could take a port while its server is away."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a program is started; it says where it listens unless it was told a port."""

    command: Sequence[str]
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_url: str = ""
    """Answers 200 once it serves; without one it is enough that the port accepts."""
    is_ready: Callable[[], bool] | None = None
    """Decides instead; an `OSError` means no."""
    stops_children: bool = False
    """It ends its children in an order of its own: only it is asked to stop."""


class Process:
    """One program with its children, or the next one in its place; its output goes to the log."""

    def __init__(self, start: Start, log: Path) -> None:
        self._start = start
        self._log = log
        self._log_begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> int:
        """The port it listens on, once it serves."""
        self.launch()
        return self.await_ready()

    def launch(self) -> None:
        """The program ends with the thread that calls this."""
        folder = self._log.parent
        (folder / "configs").mkdir(parents=True, exist_ok=True)  # nobody's local.toml
        env = {name: value for name, value in os.environ.items() if not name.startswith("DS_")}
        env |= {"PYTHONPATH": str(ROOT), **self._start.environment}
        with self._log.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                list(self._start.command),
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that a signal reaches its children as well
                preexec_fn=end_with_parent,
            )

    def await_ready(self) -> int:
        assert self._process is not None
        deadline = time.monotonic() + READY_TIMEOUT_SECS
        while time.monotonic() < deadline:
            port = self._start.port or self._announced_port()
            if port and self._serves(port):
                return port
            if (code := self._process.poll()) is not None:
                ended = f"{self._log.stem} did not start (exit code {code})"
                text = f"{ended}, see {self._log}: {self._last_words()}"
                raise NotStartedError(text, code)
            time.sleep(POLL_SECS)
        raise RunFailedError(f"{self._log.stem} was not ready after {READY_TIMEOUT_SECS:g} s")

    def _serves(self, port: int) -> bool:
        with suppress(OSError):
            if self._start.is_ready is not None:
                return self._start.is_ready()
            if self._start.ready_url:
                with urllib.request.urlopen(self._start.ready_url, timeout=2) as reply:
                    return bool(reply.status == 200)
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        return False

    def _announced_port(self) -> int:
        found = re.search(r"listening on http://[^:/\s]+:(\d+)", self._said())
        return int(found[1]) if found else 0

    def _said(self) -> str:
        """By the program that runs now."""
        with self._log.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace")

    def _last_words(self) -> str:
        lines = self._said().strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def send_signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            alone = self._start.stops_children and number == signal.SIGTERM
            with suppress(ProcessLookupError):
                (os.kill if alone else os.killpg)(self._process.pid, number)

    async def restart(self) -> None:
        await asyncio.to_thread(self.stop)
        await self.start_again()

    async def start_again(self) -> None:
        self.launch()  # by this thread, which will be there when the program is
        await asyncio.to_thread(self.await_ready)

    def stop(self) -> None:
        """Ask it to end; after a while, end it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_SECS)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self._process.wait()
        self._process = None


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; a proxy is read from at its own port and written to at its origin's."""

    first_pid: int
    port: int
    ready_s: float
    origin_port: int = 0
    tokens: Path | None = None
    data_dir: Path | None = None
    """Of its origin, where the disk matters."""
    process: Process | None = None
    name: str = ""

    @property
    def pid(self) -> int:
        """Of the program that runs now: it may have been started again."""
        return self.first_pid if self.process is None else self.process.pid

    @property
    def write_port(self) -> int:
        return self.origin_port or self.port

    async def restart(self) -> None:
        """With the same command; it must have been told its port."""
        assert self.process is not None
        await self.process.restart()


@contextmanager
def run_process(
    start: Start, log: Path, origin_port: int = 0, tokens: Path | None = None
) -> Iterator[Server]:
    """Stopped at the end of the block."""
    process = Process(start, log)
    started = time.perf_counter()
    try:
        port = process.start()
        ready_s = time.perf_counter() - started
        yield Server(
            process.pid, port, ready_s, origin_port, tokens, process=process, name=log.stem
        )
    finally:
        process.stop()


def free_ports(count: int) -> list[int]:
    """Different ones that nobody listens on."""
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(*SERVER_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)


def free_port() -> int:
    return free_ports(1)[0]
