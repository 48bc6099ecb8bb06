"""A program for tests: a keeper of services that behave as told, `kept yes|no BEHAVIOUR...`.

`yes` starts them again when they die. Each behaviour is a group of one, named s0, s1 and so on.
The parent prints `NAME PID` whenever it learns a process id; a service that stops prints `NAME
stopped`.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial

from tests.helpers.crew import wait_for_end
from weir.cluster import keeper
from weir.cluster.keeper import Keeper, Service, keep_running
from weir.exits import warn
from wire.children import Child, ChildFailed


def serve(name: str, behaviour: str, on_ready: Callable[[int], None], child: Child) -> int:
    if behaviour == "refuse":
        raise ChildFailed(3, "no room")
    woken, wake = os.pipe()
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os.close(wake))
    on_ready(os.getpid())
    wait_for_end(woken, child)
    print(f"{name} stopped", flush=True)
    return 0


def start_all(behaviours: list[str], kept: Keeper) -> None:
    for number, behaviour in enumerate(behaviours):
        name = f"s{number}"
        kept.start([Service(name, partial(serve, name, behaviour), f"{name} started")])
    print("ready", flush=True)


def main() -> None:
    restart, *behaviours = sys.argv[1:]
    keeper.FIRST_WAIT_SECS = 0.01
    if "stubborn" in behaviours:
        keeper.KILL_MARGIN_SECS = 0.2  # type: ignore[attr-defined]  # imported there
    try:
        code = keep_running(
            partial(start_all, behaviours),
            restart=restart == "yes",
            on_pid=lambda name, pid: print(name, pid, flush=True),
        )
    except ChildFailed as failure:
        warn(str(failure))
        code = failure.code
    sys.exit(code)


if __name__ == "__main__":
    main()
