"""What a history must show before silence about it means anything. Pure.

A run that was killed, or whose clients were never served, breaks no promise that anybody saw.
"""

from collections.abc import Iterator
from math import inf

from loadtest.verify.history import FINAL, LIVE, MODES
from loadtest.verify.timeline import Timeline


def find_missing(line: Timeline) -> list[str]:
    """In words; nothing if the history is complete."""
    return [*_frame(line), *_traffic(line), *_audits(line), *_last_looks(line)]


def _frame(line: Timeline) -> Iterator[str]:
    if line.heading is None:
        yield "the heading of the run"
    if not line.is_over:
        yield "the end of the run"


def _traffic(line: Timeline) -> Iterator[str]:
    if not any(append.allowed and append.outcome == "ok" for append in line.appends):
        yield "an append that was acknowledged"
    served = {read.mode for read in line.reads if read.ids and not read.last}
    for mode in MODES:
        if mode not in served:
            yield f"a message that was read by {mode}"


def _audits(line: Timeline) -> Iterator[str]:
    for life in line.lives.values():
        if life.created < inf and not life.is_audited:
            yield f"the audit of {life.stream}, incarnation {life.generation}, at its end"


def _last_looks(line: Timeline) -> Iterator[str]:
    """Of each stream through each door that anyone used."""
    streams = {life.stream for life in line.lives.values() if life.created < inf}
    doors = {one.door for one in [*line.appends, *line.reads, *line.changes]}
    looks = {
        (read.stream, read.door, read.mode)
        for read in line.reads
        if read.mode == FINAL or read.last
    }
    for stream in sorted(streams):
        for door in sorted(doors):
            for mode in (FINAL, *LIVE):
                if (stream, door, mode) not in looks:
                    how = "" if mode == FINAL else f" by {mode}"
                    yield f"the last look at {stream} through {door}{how}"
