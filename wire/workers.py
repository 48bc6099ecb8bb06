"""Identical worker processes behind one port: started, replaced when they die, drained at the end.

Each worker listens on the port itself (SO_REUSEPORT), and the kernel distributes connections. The
parent accepts none. It holds the port without listening, so that no other process can take it
while workers are restarted.

A worker that keeps dying early is restarted after increasing delays. As long as another one
serves, this continues forever; when none is left, the parent gives up.
"""

import logging
import math
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from wire.children import Child, ChildFailed, Children, Died, Ready, StopAsked, describe_exit
from wire.settings import SettingsError

log = logging.getLogger("weir.processes")

KILL_MARGIN_SECS = 5.0  # for a worker's work besides draining


@dataclass(frozen=True, slots=True)
class Pace:
    """When a dead worker is restarted. A death is early if it is before or soon after readiness."""

    early_secs: float = 2.0
    first_wait_secs: float = 0.1
    longest_wait_secs: float = 5.0
    patience: int = 5  # early deaths in a row, of one worker

    def wait_secs(self, early_deaths: int) -> float:
        """The first restart is immediate."""
        if early_deaths < 2:
            return 0.0
        doubled = self.first_wait_secs * 2.0 ** min(early_deaths - 2, 30)
        return min(doubled, self.longest_wait_secs)


@dataclass(frozen=True, slots=True)
class Worker:
    """The number of a worker process, and how often it was restarted."""

    number: int
    restarts: int
    child: Child


@dataclass(slots=True)
class _Place:
    number: int
    pid: int = 0  # 0 while there is no process
    starts: int = 0
    start_at: float = 0.0
    ready_at: float = math.inf
    early_deaths: int = 0
    told: str = ""


class Workers:
    """`run` returns the exit code: 0 if all workers stopped cleanly on request."""

    def __init__(
        self,
        count: int,
        work: Callable[[Worker], int],
        *,
        on_ready: Callable[[list[str]], None],
        drain_secs: float,
        pace: Pace | None = None,
    ) -> None:
        """`on_ready` gets the workers' reports, once, when all are ready for the first time."""
        self._places = [_Place(number) for number in range(count)]
        self._work = work
        self._on_ready = on_ready
        self._stop_secs = drain_secs + KILL_MARGIN_SECS
        self._pace = pace or Pace()
        self._announced = False
        self._kill_at = math.inf  # finite once we are stopping
        self._failure: ChildFailed | None = None
        self._code = 0

    def run(self, parent: Child | None = None) -> int:
        """Raises ChildFailed if a worker cannot start the first time, or none can continue."""
        with Children(parent) as children:
            self._children = children
            while not self._stopping or children.alive:
                self._keep_up(time.monotonic())
                self._handle(children.wait(self._next_time()))
        if self._failure is not None:
            raise self._failure
        return self._code

    @property
    def _stopping(self) -> bool:
        return self._kill_at < math.inf

    def _next_time(self) -> float:
        waiting = [place.start_at for place in self._places if not place.pid]
        return self._kill_at if self._stopping else min(waiting, default=math.inf)

    def _keep_up(self, now: float) -> None:
        """Do what is due."""
        if now >= self._kill_at:
            self._kill_all()
        elif not self._stopping:
            for place in self._places:
                if not place.pid and now >= place.start_at:
                    self._start(place)

    def _start(self, place: _Place) -> None:
        number, restarts = place.number, place.starts
        place.starts += 1
        place.ready_at = math.inf
        place.pid = self._children.start(lambda child: self._work(Worker(number, restarts, child)))

    def _handle(self, event: Ready | Died | StopAsked | None) -> None:
        match event:
            case Ready():
                self._note_ready(self._place_of(event.pid), event.text)
            case Died() if self._stopping:
                self._note_leaving(event)
            case Died():
                self._note_death(self._place_of(event.pid), event)
            case StopAsked():
                self._stop_all()

    def _place_of(self, pid: int) -> _Place:
        return next(place for place in self._places if place.pid == pid)

    def _note_ready(self, place: _Place, text: str) -> None:
        place.ready_at = time.monotonic()
        place.told = text
        if not self._announced and not self._stopping and all(map(_is_ready, self._places)):
            self._announced = True
            self._on_ready([place.told for place in self._places])

    def _note_death(self, place: _Place, death: Died) -> None:
        early = time.monotonic() < place.ready_at + self._pace.early_secs
        place.early_deaths = place.early_deaths + 1 if early else 0
        place.pid, place.ready_at = 0, math.inf
        why = death.complaint or describe_exit(death.code)
        if death.complaint and not self._announced:
            self._end(ChildFailed(death.code, why))
        elif place.early_deaths >= self._pace.patience and not any(map(_is_ready, self._places)):
            self._end(ChildFailed(1, f"worker {place.number} keeps dying ({why})"))
        else:
            self._plan_restart(place, why)

    def _end(self, failure: ChildFailed) -> None:
        self._failure = failure
        self._stop_all()

    def _plan_restart(self, place: _Place, why: str) -> None:
        wait_s = self._pace.wait_secs(place.early_deaths)
        place.start_at = time.monotonic() + wait_s
        log.warning("worker %d died (%s): restarting in %.1f s", place.number, why, wait_s)

    def _note_leaving(self, death: Died) -> None:
        same_failure = self._failure is not None and death.complaint != ""
        # A worker without its handler installed yet is ended by the signal itself.
        if death.code not in (0, -signal.SIGTERM) and not same_failure:
            log.error("a worker did not stop cleanly: %s", describe_exit(death.code))
            self._code = 1

    def _stop_all(self) -> None:
        if not self._stopping:
            self._kill_at = time.monotonic() + self._stop_secs
            self._signal_all(signal.SIGTERM)

    def _kill_all(self) -> None:
        log.error("%d workers did not stop in time and were killed", len(self._children.alive))
        self._kill_at = time.monotonic() + self._stop_secs
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._children.alive:
            self._children.send(pid, number)


def _is_ready(place: _Place) -> bool:
    return place.ready_at < math.inf


def reserve_port(key: str, host: str, port: int) -> tuple[list[socket.socket], int]:
    """Hold the port for this process and its children; `key` is the setting to blame.

    The sockets are bound alone and opened for sharing afterwards: bound as shared from the start,
    they would silently join the workers of another gateway on the same port.
    """
    held: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bare = socket.socket(family, kind, protocol)
            held.append(_bind(bare, (address[0], port, *address[2:])))
            port = held[0].getsockname()[1]
    except OSError as error:
        close_all(held)
        raise SettingsError(key, f"cannot listen on {host} port {port}: {error}") from error
    return held, port


def close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _bind(bare: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bare.family == socket.AF_INET6:
            bare.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bare.bind(address)
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        bare.close()
        raise
    return bare
