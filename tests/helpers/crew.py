"""A program for tests: a parent with workers that behave as told, `crew COUNT BEHAVIOUR...`.

Behaviour n is that of worker n. Each worker leaves `worker-<number>-<restarts>` with its process
id in the current folder; the parent prints what it knows.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

from wire import workers as wire_workers
from wire.children import Child, ChildFailed
from wire.workers import Pace, Worker, Workers

QUICK = Pace(early_secs=60.0, first_wait_secs=0.01, longest_wait_secs=0.05, patience=4)


def work(worker: Worker) -> int:
    behaviour = sys.argv[2 + worker.number]
    note = Path(f"worker-{worker.number}-{worker.restarts}")
    note.with_suffix(".new").write_text(str(os.getpid()))
    note.with_suffix(".new").rename(note)
    match behaviour:
        case "crash":
            return 7
        case "raise":
            raise RuntimeError("a mistake")
        case "refuse":
            while not Path("worker-0-0").exists():  # the parent will stop it, so it must be there
                time.sleep(0.01)
            worker.child.complain("no keys")
            return 2
        case "once":  # serves, but its successors cannot start
            return serve(worker) if worker.restarts == 0 else 7
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return serve(worker)


def serve(worker: Worker) -> int:
    woken, wake = os.pipe()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: os.close(wake))
    worker.child.ready(f"w{worker.number}")
    wait_for_end(woken, worker.child)
    return 0


def wait_for_end(woken: int, child: Child) -> None:
    poll = select.poll()
    for fd in (woken, child.life_fd):
        poll.register(fd, select.POLLIN)
    poll.poll(60_000)


def main() -> None:
    wire_workers.KILL_MARGIN_SECS = 0.0
    count = int(sys.argv[1])
    workers = Workers(
        count,
        work,
        on_ready=lambda told: print("ready", *told, flush=True),
        drain_secs=0.2 if "stubborn" in sys.argv else 10.0,
        pace=QUICK,
    )
    try:
        code = workers.run()
    except ChildFailed as failure:
        print("failed:", failure, flush=True)
        code = failure.code
    sys.exit(code)


if __name__ == "__main__":
    main()
