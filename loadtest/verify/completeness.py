"""What a history must show before silence about it means anything. Pure.

A run that was killed, whose clients were never served or to which nothing was done breaks no
promise that anybody saw.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import inf

from loadtest.verify.history import FINAL, LIVE, MODES, NO_SPACE
from loadtest.verify.plan import FAULT_RATES, FULL_JOURNAL
from loadtest.verify.timeline import Timeline

# What a step leaves in the history, where that is not a record of its own name. A snapshot may be
# refused: the stream can be empty, or another one by then.
LEAVES = {"recreate": ("delete", "create"), "rotate": ("withdrawal",), "snapshot": ()}


def find_missing(line: Timeline) -> list[str]:
    """In words; nothing if the history is complete."""
    return [
        *_frame(line),
        *_traffic(line),
        *_steps(line),
        *_effects(line),
        *_full_journals(line),
        *_audits(line),
        *_last_looks(line),
    ]


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


def _steps(line: Timeline) -> Iterator[str]:
    """Each step of the plan was carried out."""
    planned = Counter(
        (what, step.target)
        for step in line.plan
        for what in LEAVES.get(step.action, (step.action,))
    )
    done = Counter((fault.what, fault.target) for fault in line.faults)
    done["withdrawal", "keys"] = len(line.withdrawn)
    for change in line.changes:
        if change.outcome == "ok" and (change.action, change.generation) != ("create", 0):
            done[change.action, change.stream] += 1
    for what, target in sorted(planned - done):
        yield f"the planned {what} of {target}"


def _effects(line: Timeline) -> Iterator[str]:
    """And it had the effect that it is there for."""
    actions = {step.action for step in line.plan}
    snapshots = [change for change in line.changes if change.action == "snapshot"]
    if "snapshot" in actions and not any(change.outcome == "ok" for change in snapshots):
        yield "a snapshot that was acknowledged"
    if "rotate" in actions and not any(map(line.was_refused_for_its_key, line.operations)):
        yield "a token that was refused because its key had gone"
    # Each proxy did harm, and of each kind there was some: seldom ones need not be at both.
    places = {step.target for step in line.plan if step.action == "inject"}
    for place in sorted(places - {injected.place for injected in line.injected}):
        yield f"an injected fault at {place}"
    kinds = {kind for place in places for kind in FAULT_RATES[place]}
    for kind in sorted(kinds - {injected.fault for injected in line.injected}):
        yield f"an injected {kind}"


def _full_journals(line: Timeline) -> Iterator[str]:
    """A journal that is filled is full at some time."""
    for each in line.rounds:
        if each.fault == FULL_JOURNAL and not any(
            append.status == NO_SPACE and each.began <= append.ended <= each.recovered
            for append in line.appends
        ):
            yield f"a refusal for want of room at {each.began:.1f} s"


def _audits(line: Timeline) -> Iterator[str]:
    for life in line.lives.values():
        if life.created < inf and not life.is_audited:
            yield f"the audit of {life.stream}, incarnation {life.generation}, at its end"


def _last_looks(line: Timeline) -> Iterator[str]:
    """Of each stream through each door that anyone used."""
    streams = {life.stream for life in line.lives.values() if life.created < inf}
    doors = {operation.door for operation in line.operations}
    last = (read for read in line.reads if read.mode == FINAL or read.last)
    looks = {(read.stream, read.door, read.mode) for read in last}
    for look in product(sorted(streams), sorted(doors), (FINAL, *LIVE)):
        if look not in looks:
            stream, door, mode = look
            how = "" if mode == FINAL else f" by {mode}"
            yield f"the last look at {stream} through {door}{how}"
