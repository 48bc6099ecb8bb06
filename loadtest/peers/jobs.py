"""A program that runs to its end: how long it took, and what it and its children needed."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from loadtest.errors import RunFailedError
from loadtest.peers.memory import PeakMemory, cpu_seconds

LOOK_EVERY_SECS = 0.2  # a Java process has hundreds of threads to look through
LAST_WORDS = 300


@dataclass(frozen=True, slots=True)
class Job:
    took_s: float
    cpu_s: float  # as last seen; what children took that had ended by then is not in it
    peak_bytes: int  # resident; pages that processes share count for each of them
    output: Path
    errors: Path


def run_job(
    command: Sequence[str], name: Path, timeout_s: float, source: Sequence[str] = ()
) -> Job:
    """Its output goes to `name`.out and what it says beside to `name`.err. It reads what the
    command `source` writes, if there is one."""
    output, errors = name.with_suffix(".out"), name.with_suffix(".err")
    started = time.perf_counter()
    with ExitStack() as stack:
        out, err = (stack.enter_context(path.open("wb")) for path in (output, errors))
        stdin: IO[bytes] | int | None = subprocess.DEVNULL
        if source:
            stdin = stack.enter_context(
                _started(source, subprocess.DEVNULL, subprocess.PIPE, err)
            ).stdout
        process = stack.enter_context(_started(command, stdin, out, err))
        cpu_s, peak = _await_end(process, started + timeout_s)
        took_s = time.perf_counter() - started
    if process.returncode:
        said = errors.read_text(errors="replace").strip()[-LAST_WORDS:]
        raise RunFailedError(f"{Path(command[0]).name} ended with {process.returncode}: {said}")
    return Job(took_s, cpu_s, peak.highest, output, errors)


@contextmanager
def _started(
    command: Sequence[str], stdin: IO[bytes] | int | None, out: IO[bytes] | int, err: IO[bytes]
) -> Iterator["subprocess.Popen[bytes]"]:
    """In a session of its own, so that all of it is ended at the end of the block."""
    process = subprocess.Popen(
        list(command), stdin=stdin, stdout=out, stderr=err, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.stdout is not None:
            process.stdout.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_end(process: "subprocess.Popen[bytes]", deadline: float) -> tuple[float, PeakMemory]:
    cpu_s, peak = 0.0, PeakMemory(process.pid)
    while True:
        try:
            process.wait(LOOK_EVERY_SECS)
        except subprocess.TimeoutExpired:
            cpu_s = max(cpu_s, cpu_seconds(process.pid))
            peak.sample()
        else:
            return cpu_s, peak
        if time.perf_counter() > deadline:
            raise RunFailedError("the program did not end in time")
