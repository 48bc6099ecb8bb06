"""The parent of several serving processes: starts them one by one, watches them, and stops them in
reverse order. When one dies, all are stopped.
"""

import math
import signal
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from weir.exits import run_child, warn
from wire.children import Child, ChildFailed, Children, Died, Ready, StopAsked, describe_exit
from wire.workers import KILL_MARGIN_SECS

Address = TypeVar("Address")  # reported by a child
Serve = Callable[[Callable[[Address], None], Child], int]


class _Stopped(Exception):
    """A stop was requested."""


def supervise(start_all: Callable[["Parent"], None]) -> int:
    """Return the exit code, or raise ChildFailed with what went wrong."""
    with Children() as children:
        parent = Parent(children)
        try:
            start_all(parent)
            while True:
                parent.wait()
        except _Stopped:
            pass
        finally:
            parent.stop_all()
    return 0 if parent.clean else 1


class Parent:
    def __init__(self, children: Children) -> None:
        self._children = children
        self._names: dict[int, str] = {}
        self._running: list[tuple[int, float]] = []  # (process id, seconds to stop), as started
        self.clean = True

    def start(
        self, name: str, drain_secs: float, kind: type[Address], serve: Serve[Address]
    ) -> Address:
        """Fork a process that serves; return the address that it reports when it is ready."""

        def work(child: Child) -> int:
            def tell(address: Address) -> None:
                child.ready(msgspec.json.encode(address).decode())

            return run_child(child, lambda: serve(tell, child))

        pid = self._children.start(work)
        self._names[pid] = name
        self._running.append((pid, drain_secs + KILL_MARGIN_SECS))
        while (ready := self.wait()) is None:
            pass
        return msgspec.json.decode(ready.text, type=kind)

    def wait(self) -> Ready | None:
        """Raise _Stopped, or ChildFailed for the first child that died."""
        match self._children.wait():
            case StopAsked():
                raise _Stopped
            case Died() as death:
                raise self._blame(death)
            case Ready() as ready:
                return ready
        return None

    def _blame(self, death: Died) -> ChildFailed:
        if death.complaint:
            return ChildFailed(death.code, death.complaint)
        return ChildFailed(1, f"the {self._names[death.pid]} died ({describe_exit(death.code)})")

    def stop_all(self) -> None:
        for pid, stop_secs in reversed(self._running):
            self._stop(pid, stop_secs)

    def _stop(self, pid: int, stop_secs: float) -> None:
        self._children.send(pid, signal.SIGTERM)
        until = time.monotonic() + stop_secs
        while pid in self._children.alive:
            event = self._children.wait(until)
            if event is None:
                self._children.send(pid, signal.SIGKILL)
                until = math.inf
            elif isinstance(event, Died) and event.code not in (0, -signal.SIGTERM):
                warn(f"the {self._names[event.pid]} did not stop cleanly")
                self.clean = False
