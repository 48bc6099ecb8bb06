"""Services as child processes: started in groups, each group beside each other; started again when
one dies; stopped in reverse order.

Unlike `weir.parent`, which stops everything when one process dies: a cluster goes on without one.
A service that dies before it was ever ready ends the start, because nobody killed it to see what
happens.
"""

import gc
import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from weir.exits import run_child, warn
from wire.children import Child, ChildFailed, Children, Died, Ready, StopAsked, describe_exit
from wire.workers import KILL_MARGIN_SECS

START_SECS = 90.0
FIRST_WAIT_SECS = 1.0
LONGEST_WAIT_SECS = 10.0
STEADY_SECS = 30.0  # a service that lived this long starts from the first wait again

Serve = Callable[[Callable[[int], None], Child], int]
OnPid = Callable[[str, int | None], None]


class StopRequested(Exception):
    """SIGTERM or Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Service:
    """`serve` runs in a child and tells the process id that users see when it is ready; `line` is
    printed once its group is."""

    name: str
    serve: Serve
    line: str
    drain_secs: float = 0.0


@dataclass(slots=True)
class _Place:
    service: Service
    pid: int = 0  # of our child; 0 while there is none
    was_ready: bool = False
    started_at: float = 0.0
    start_at: float = field(default=math.inf)  # finite while a restart is due
    early_deaths: int = 0


def wait_secs(early_deaths: int) -> float:
    """Before a restart: longer, the more often it died soon after its start."""
    return min(FIRST_WAIT_SECS * 2.0 ** min(early_deaths, 30), LONGEST_WAIT_SECS)


def keep_running(start_all: Callable[["Keeper"], None], *, restart: bool, on_pid: OnPid) -> int:
    """Until a stop is requested; returns the exit code, or raises ChildFailed."""
    gc.collect()
    gc.freeze()  # children share this memory until it is written to
    with Children() as children:
        keeper = Keeper(children, restart=restart, on_pid=on_pid)
        try:
            start_all(keeper)
            while True:
                keeper.wait()
        except StopRequested:
            pass
        finally:
            keeper.stop_all()
    return 0 if keeper.clean else 1


class Keeper:
    """`on_pid` is told the process id of a service when it is ready, None when it died."""

    def __init__(self, children: Children, *, restart: bool, on_pid: OnPid) -> None:
        self._children = children
        self._restart = restart
        self._on_pid = on_pid
        self._groups: list[list[_Place]] = []
        self.clean = True

    def start(self, *groups: Sequence[Service]) -> None:
        """Start groups beside each other and wait until all of it was ready; the last one is
        stopped first. Raises ChildFailed, StopRequested."""
        started = [[_Place(service) for service in services] for services in groups]
        self._groups += started
        places = [place for group in started for place in group]
        for place in places:
            self._start(place)
        until = time.monotonic() + START_SECS
        while missing := [place.service.name for place in places if not place.was_ready]:
            self.wait(until)
            if time.monotonic() > until:
                raise ChildFailed(1, f"{', '.join(missing)}: not ready after {START_SECS:.0f} s")
        for place in places:
            print(place.service.line, flush=True)

    def wait(self, until: float = math.inf) -> None:
        """Handle what happens next; return then, or at `until` (`time.monotonic`)."""
        due = min((place.start_at for place in self._places()), default=math.inf)
        match self._children.wait(min(due, until)):
            case StopAsked():
                raise StopRequested
            case Ready(pid, text):
                self._note_ready(self._place_of(pid), msgspec.json.decode(text, type=int))
            case Died() as death:
                self._note_death(self._place_of(death.pid), death)
            case None:
                self._start_due(time.monotonic())

    def stop_all(self) -> None:
        """The last group first; what does not stop in time is killed."""
        for group in reversed(self._groups):
            self._stop(group)

    # -- one service ---------------------------------------------------------------------------

    def _places(self) -> list[_Place]:
        return [place for group in self._groups for place in group]

    def _place_of(self, pid: int) -> _Place:
        return next(place for place in self._places() if place.pid == pid)

    def _start(self, place: _Place) -> None:
        serve = place.service.serve

        def work(child: Child) -> int:
            def tell(pid: int) -> None:
                child.ready(str(pid))

            return run_child(child, lambda: serve(tell, child))

        place.start_at, place.started_at = math.inf, time.monotonic()
        place.pid = self._children.start(work)

    def _start_due(self, now: float) -> None:
        for place in self._places():
            if place.start_at <= now:
                self._start(place)

    def _note_ready(self, place: _Place, pid: int) -> None:
        self._on_pid(place.service.name, pid)
        if place.was_ready:
            print(f"{place.service.name} is back (process {pid})", flush=True)
        place.was_ready = True

    def _note_death(self, place: _Place, death: Died) -> None:
        name, why = place.service.name, death.complaint or describe_exit(death.code)
        place.pid = 0
        self._on_pid(name, None)
        if not place.was_ready:
            raise ChildFailed(max(death.code, 1), f"{name} did not start: {why}")
        if not self._restart:
            return warn(f"{name} died ({why})")
        now = time.monotonic()
        if now > place.started_at + STEADY_SECS:
            place.early_deaths = 0
        pause = wait_secs(place.early_deaths)
        place.early_deaths += 1
        place.start_at = now + pause
        warn(f"{name} died ({why}): starting it again in {pause:.0f} s")

    # -- the end -------------------------------------------------------------------------------

    def _stop(self, group: Sequence[_Place]) -> None:
        running = {place.pid: place.service for place in group if place.pid}
        for pid in running:
            self._children.send(pid, signal.SIGTERM)
        longest = max((service.drain_secs for service in running.values()), default=0.0)
        until = time.monotonic() + longest + KILL_MARGIN_SECS
        while any(place.pid for place in group):
            event = self._children.wait(until)
            if event is None:
                for pid in running:
                    self._children.send(pid, signal.SIGKILL)
                until = math.inf
            elif isinstance(event, Died):
                self._note_end(event)

    def _note_end(self, death: Died) -> None:
        place = self._place_of(death.pid)
        place.pid = 0
        self._on_pid(place.service.name, None)
        if death.code not in (0, -signal.SIGTERM):
            warn(f"{place.service.name} did not stop cleanly ({describe_exit(death.code)})")
            self.clean = False
