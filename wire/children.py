"""Child processes forked by a parent without an event loop: start them, hear them, wait for them.

Two pipes connect them. Over the first, a child reports that it is ready, or why it failed. Nothing
is ever written to the second, the lifeline: only the parent holds its other end, so every child
sees it close when the parent dies, even if it is killed. Children ignore SIGINT, which a terminal
sends to all at once: the parent handles it and stops them in its own order.

When to stop and restart them is decided elsewhere.
"""

import logging
import math
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Self

import msgspec

log = logging.getLogger("weir.processes")

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
# A report must fit into PIPE_BUF (4096 bytes) to arrive whole, escaped as JSON at its worst.
MAX_TEXT = 500
READ_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Ready:
    pid: int
    text: str


@dataclass(frozen=True, slots=True)
class Died:
    """`code` is the exit code, or the negative number of the signal."""

    pid: int
    code: int
    complaint: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """SIGTERM or SIGINT came, or this process's own parent is gone."""


Event = Ready | Died | StopAsked


class ChildFailed(Exception):
    """A child failed and said why; `code` is its exit code."""

    def __init__(self, code: int, complaint: str) -> None:
        super().__init__(complaint)
        self.code = code


class _Report(msgspec.Struct, array_like=True):
    pid: int
    ready: bool
    text: str


@dataclass(frozen=True, slots=True)
class Child:
    """Passed to a forked function: a way to report, and a descriptor that ends with the parent."""

    life_fd: int
    report_fd: int

    @property
    def is_orphan(self) -> bool:
        return _has_ended(self.life_fd)

    def ready(self, text: str = "") -> None:
        self._report(True, text)

    def complain(self, text: str) -> None:
        """Say why this process is about to exit; the parent decides whether to show it."""
        self._report(False, text)

    def _report(self, ready: bool, text: str) -> None:
        report = _Report(os.getpid(), ready, text[:MAX_TEXT])
        with suppress(BrokenPipeError):  # the parent is gone, which the lifeline tells as well
            os.write(self.report_fd, msgspec.json.encode(report) + b"\n")


Work = Callable[[Child], int]


class Children:
    """The parent's side. A context manager: it handles signals inside."""

    def __init__(self, parent: Child | None = None) -> None:
        """`parent` is given if this process is itself a forked child."""
        self._parent = parent
        self._complaints: dict[int, str] = {}
        self._unread = b""
        self._events: deque[Event] = deque()
        self.alive: set[int] = set()

    def __enter__(self) -> Self:
        self._life, self._life_held = os.pipe()
        self._reports, self._report_fd = os.pipe()
        os.set_blocking(self._reports, False)
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._poll = select.poll()
        for fd in (self._woken.fileno(), self._reports):
            self._poll.register(fd, select.POLLIN)
        if self._parent is not None:
            self._poll.register(self._parent.life_fd, select.POLLIN)
        self._take_signals()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._close_own()
        os.close(self._life)
        os.close(self._report_fd)

    def _take_signals(self) -> None:
        """Python's handlers do nothing: signal numbers arrive over the socket pair."""
        numbers = {signal.SIGTERM, signal.SIGCHLD}
        if self._parent is None:
            numbers.add(signal.SIGINT)
        self._old_handlers: dict[signal.Signals, Any] = {
            number: signal.signal(number, _do_nothing) for number in numbers
        }
        self._old_wakeup = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def _close_own(self) -> None:
        """Close what only the parent may keep open."""
        os.close(self._life_held)
        os.close(self._reports)
        self._woken.close()
        self._wake.close()

    def start(self, work: Work) -> int:
        """Fork a process that runs `work` and exits with its result; returns its id."""
        sys.stdout.flush()
        sys.stderr.flush()
        # No signal may reach the child while it still has its parent's handlers.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {*STOP_SIGNALS, signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            self._become_child(work, old)
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
        self.alive.add(pid)
        return pid

    def _become_child(self, work: Work, mask: "set[signal.Signals | int]") -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            self._close_own()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = work(Child(self._life, self._report_fd))
        except BaseException:
            log.exception("process %d failed", os.getpid())
        finally:
            # None of the parent's code may run here, neither `finally` blocks nor exit handlers.
            logging.shutdown()
            _flush()
            os._exit(code)

    def send(self, pid: int, number: signal.Signals) -> None:
        """Does nothing if the process has ended: its id is released only by `wait`."""
        if pid in self.alive:
            os.kill(pid, number)

    def wait(self, until: float = math.inf) -> Event | None:
        """The next event, or None at `until`, a time of `time.monotonic`."""
        while not self._events:
            left = until - time.monotonic()
            self._listen(max(left, 0.0))
            if left <= 0 and not self._events:
                return None
        return self._events.popleft()

    def _listen(self, seconds: float) -> None:
        self._poll.poll(None if math.isinf(seconds) else math.ceil(seconds * 1000))
        self._events.extend(self._stops())
        # Reap first: a dead child's reports are then certainly in the pipe.
        dead = list(self._reaped())
        self._events.extend(self._heard())
        self._events.extend(Died(pid, code, self._complaints.pop(pid, "")) for pid, code in dead)

    def _stops(self) -> Iterator[StopAsked]:
        try:
            numbers = self._woken.recv(READ_BYTES)
        except BlockingIOError:
            numbers = b""
        if STOP_SIGNALS.intersection(numbers):
            yield StopAsked()
        if self._parent is not None and self._parent.is_orphan:
            self._poll.unregister(self._parent.life_fd)
            self._parent = None
            yield StopAsked()

    def _reaped(self) -> Iterator[tuple[int, int]]:
        for pid in sorted(self.alive):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self.alive.discard(pid)
                yield pid, os.waitstatus_to_exitcode(status)

    def _heard(self) -> Iterator[Ready]:
        try:
            self._unread += os.read(self._reports, READ_BYTES)
        except BlockingIOError:
            return
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            report = msgspec.json.decode(line, type=_Report)
            if report.ready:
                yield Ready(report.pid, report.text)
            else:
                self._complaints[report.pid] = report.text


def describe_exit(code: int) -> str:
    """An exit code in words."""
    return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


def _has_ended(life_fd: int) -> bool:
    poll = select.poll()
    poll.register(life_fd, select.POLLIN)
    return bool(poll.poll(0))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
