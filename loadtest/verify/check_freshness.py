"""Whether readers see what was acknowledged, closed, deleted and created in time. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from loadtest.verify.history import FINAL, HEAD, LIVE, Append, Operation, ReadResult
from loadtest.verify.messages import generation_of
from loadtest.verify.timeline import Life, Timeline, Violation, is_first, seen_by
from protocol.offsets import NOW, START

PLAIN = ("catch-up", HEAD, FINAL)  # reads that must see what was acknowledged before they began


def stale_incarnations(line: Timeline, *, excused: bool = False) -> Iterator[Violation]:
    """`excused` are those while gateways could not tell each other of the deletion."""
    for read in line.reads:
        generations = {generation_of(id_) for id_ in read.ids if "/" not in id_}
        if read.snapshot_of >= 0:
            generations.add(read.snapshot_of)
        for generation in generations:
            life = line.lives.get((read.stream, generation))
            if life is None or read.began <= life.deleted:
                continue
            if line.notices_were_late(life, read.began) == excused:
                since = read.began - life.deleted
                text = f"incarnation {generation} {since:.2f} s after it was deleted"
                yield seen_by("stale-incarnation", read, text)


def missed_writes(line: Timeline) -> Iterator[Violation]:
    """A plain read that says it is up to date has all that was acknowledged before it began."""
    for read in line.reads:
        if read.mode not in PLAIN or not read.up_to_date or read.status not in (200, 304):
            continue
        life = line.certain_life(read.stream, read.began, read.ended)
        if life is None or not read.allowed:
            continue
        told = life.acknowledged_before(read.began)
        if read.next < told:
            yield seen_by("missed-write", read, f"ends at {read.next}, but {told} was acknowledged")
        if life.closed <= read.began and not read.closed:
            yield seen_by("reopened", read, "is open, but was closed before")
        if read.mode == FINAL and life.is_audited and read.next != life.tail:
            yield seen_by("incomplete", read, f"ends at {read.next} instead of {life.tail}")


def unfinished_looks(line: Timeline) -> Iterator[Violation]:
    """At the end, when all is well again, every door shows every stream to its end."""
    last: dict[tuple[str, str], ReadResult] = {}
    for read in line.reads:
        if read.mode == FINAL:
            last[read.stream, read.who] = read
    for read in last.values():
        if line.is_over and not read.up_to_date:
            yield seen_by("incomplete", read, f"never came to the end, but to {read.asked}")


def undelivered(line: Timeline) -> Iterator[Violation]:
    """At the end, when all is well again, whoever waits at a door is told what comes."""
    waiting: dict[tuple[str, str], list[ReadResult]] = defaultdict(list)
    for read in line.reads:
        if read.last:
            waiting[read.stream, read.who].append(read)
    for reads in waiting.values():
        life = line.certain_life(reads[-1].stream, reads[0].began, reads[-1].ended)
        heard = max((read.next for read in reads if read.mode in LIVE), default="")
        if life is not None and life.is_audited and heard < life.tail:
            text = f"was told up to {heard or 'nothing'} of {life.tail}"
            yield seen_by("undelivered", reads[-1], text)


def reopened(line: Timeline) -> Iterator[Violation]:
    """After a close, nothing more: neither by writers nor for readers."""
    for append in line.appends:
        life = line.lives.get((append.stream, generation_of(append.id)))
        if life and is_first(append) and life.closed < append.began:
            yield seen_by("reopened", append, f"{append.id} was accepted after the close")
    for life in line.audited:
        if life.closed < inf and not life.ends_closed:
            yield Violation("reopened", life.stream, life.closed, "the origin forgot the close")
    for read in line.reads:
        known = line.life_of(read)
        if known is None or not read.closed:
            continue
        if known.close_began > read.ended:
            yield seen_by("closed-early", read, "says closed before anyone closed it")
        elif read.next != known.tail:
            yield seen_by("reopened", read, f"closed at {read.next}, but it ends at {known.tail}")


def vanished(line: Timeline) -> Iterator[Violation]:
    """A stream that is there is found, and an offset that was given out is good."""
    operations: list[Append | ReadResult] = [*line.appends, *line.reads]
    for operation in operations:
        if operation.status not in (400, 404, 410) or not operation.allowed:
            continue
        life = line.certain_life(operation.stream, operation.began, operation.ended)
        if life is None or (operation.status == 410 and _is_trimmed(life, operation)):
            continue
        if isinstance(operation, ReadResult) and operation.mode == "snapshot":
            done = [each for each in life.snapshots if each.ended < operation.began]
            if not done or any(map(operation.may_have_met, life.snapshots)):
                continue  # none yet; or one replaced another between the redirect and its target
        if isinstance(operation, Append) and generation_of(operation.id) != life.generation:
            continue
        if isinstance(operation, ReadResult) and _is_of_another(life, operation):
            continue
        yield seen_by("vanished", operation, f"got {operation.status} while it was there")


def _is_of_another(life: Life, read: ReadResult) -> bool:
    """Whether it was refused for an offset of an incarnation before this one."""
    if read.status == 400:
        reached = life.acknowledged_before(read.began)
        return read.asked not in life.offsets or read.asked > reached
    given = read.asked not in ("", START, NOW)
    return read.status == 410 and given and read.asked not in life.offsets


def _is_trimmed(life: Life, operation: Operation) -> bool:
    """Whether a snapshot may have replaced what was asked for."""
    asked = operation.asked if isinstance(operation, ReadResult) else ""
    return any(
        change.began < operation.ended and (asked == START or asked < change.offset)
        for change in life.snapshots
    )
