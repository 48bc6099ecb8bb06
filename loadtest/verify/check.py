"""Which promises a history shows to be broken. Pure: the same history has the same verdict.

The order of a stream is what the origin itself said at the end of each incarnation (`Truth`).
Everything else is held against that: what writers were told, and each answer that a reader got. An
operation that overlaps a change may see either side of it; one that began after a change was
acknowledged may not see the time before it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from loadtest.verify.completeness import find_missing
from loadtest.verify.history import FINAL, LIVE, SHUT_OUT, Append, Fault, Operation, Read, Record
from loadtest.verify.messages import generation_of
from loadtest.verify.plan import ENVOY, NETWORK
from loadtest.verify.timeline import Life, Timeline, sort_history

START, NOW = "-1", "now"
CUT = "cut"
# Who sends answers at a door that is more than one process; which gateway it was is not known. The
# origin is no excuse for others: a gateway has all of an answer of this size before it begins one.
WAYS = {ENVOY: (ENVOY, "gateway"), NETWORK: (NETWORK, ENVOY, "gateway")}
PLAIN = ("catch-up", FINAL)  # reads that must see what was acknowledged before they began
# In which everyone has fetched the key set again, even if it was paused meanwhile.
KEY_SET_SECS = 12.0


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: its name, where and when, and what was seen."""

    name: str
    stream: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.stream} at {self.at:.3f} s: {self.text}"


@dataclass(frozen=True, slots=True)
class Findings:
    violations: list[Violation]
    tolerated: list[Violation]  # what the documentation excepts from its promises
    missing: list[str]  # without which the silence of the checks means nothing


def check_history(records: Iterable[Record]) -> Findings:
    line = sort_history(records)
    found = [violation for check in CHECKS for violation in check(line)]
    excused = list(_stale_incarnations(line, excused=True))
    by_time = sorted(found, key=lambda violation: violation.at)
    return Findings(by_time, excused, find_missing(line))


# -- writing ---------------------------------------------------------------------------------------


def lost_acknowledgements(line: Timeline) -> Iterator[Violation]:
    for life in _audited(line):
        for sent in life.sent.values():
            if sent.acknowledged < inf and sent.id not in life.places:
                text = f"{sent.id} was acknowledged and is not in the stream"
                yield Violation("lost-acknowledgement", life.stream, sent.acknowledged, text)


def written_twice(line: Timeline) -> Iterator[Violation]:
    for life in _audited(line):
        for id_, count in Counter(life.ids).items():
            if count > 1:
                text = f"{id_} is there {count} times"
                yield Violation("written-twice", life.stream, _sent_at(life, id_), text)


def never_sent(line: Timeline) -> Iterator[Violation]:
    for life in _audited(line):
        for id_ in life.ids:
            sent = life.sent.get(id_)
            if sent is None:
                text = f"{id_} is in incarnation {life.generation}, where nobody sent it"
                yield Violation("never-sent", life.stream, life.created, text)
            elif not sent.may_be_there:
                text = f"{id_} was refused each time and is there"
                yield Violation("refused-but-written", life.stream, sent.began, text)


def out_of_order(line: Timeline) -> Iterator[Violation]:
    """Of one producer: by number. Of all: who was acknowledged before another began is first."""
    for life in _audited(line):
        expected: dict[str, int] = defaultdict(int)
        latest = -inf
        for id_ in dict.fromkeys(life.ids):
            _, producer, number = id_.split(".")
            if int(number) != expected[producer]:
                text = f"{id_} stands where number {expected[producer]} of {producer} belongs"
                yield Violation("out-of-order", life.stream, _sent_at(life, id_), text)
            expected[producer] = int(number) + 1
            sent = life.sent.get(id_)
            if sent is None:
                continue
            if sent.acknowledged < latest:
                text = f"{id_} was acknowledged before something began that stands before it"
                yield Violation("out-of-order", life.stream, sent.acknowledged, text)
            latest = max(latest, sent.began)


def wrong_offsets(line: Timeline) -> Iterator[Violation]:
    """What a writer was told is the end of his message is the end of it for all."""
    for life in _audited(line):
        for sent in life.sent.values():
            place = life.places.get(sent.id)
            for offset in filter(None, sent.offsets):  # a fault on the way may have taken it
                if place is not None and life.offsets.get(offset) != place + 1:
                    text = f"{sent.id} is number {place}, but its offset {offset} is elsewhere"
                    yield Violation("wrong-offset", life.stream, sent.acknowledged, text)


def lost_producers(line: Timeline) -> Iterator[Violation]:
    """A producer goes on after an acknowledgement: a gap means that the server forgot it."""
    for append in line.appends:
        life = line.certain_life(append.stream, append.began, append.ended)
        if append.code == "sequence-gap" and life is not None:
            if life.generation == generation_of(append.id):
                text = f"{append.id} is a gap for the server: what came before it is forgotten"
                yield Violation("lost-acknowledgement", append.stream, append.ended, text)


def torn_streams(line: Timeline) -> Iterator[Violation]:
    for life in _audited(line):
        for damage in life.damage:
            yield Violation("torn", life.stream, life.created, f"at the origin: {damage}")


# -- reading ---------------------------------------------------------------------------------------


def torn_answers(line: Timeline) -> Iterator[Violation]:
    for read in line.reads:
        if read.damage and read.outcome == "ok":
            yield _seen("torn", read, f"a whole {read.status} with a broken body: {read.damage}")


def truncated_answers(line: Timeline) -> Iterator[Violation]:
    """A 200 that has begun is brought to its end, unless a process on its way is killed, or the
    network does harm. Who is stopped finishes what he has begun."""
    for read in line.reads:
        if read.trouble != CUT or read.status != 200 or read.mode == "sse":
            continue
        if not any(_may_have_cut(fault, read) for fault in line.faults):
            yield _seen("truncated", read, "a 200 was cut short, and nobody on its way was killed")


def _may_have_cut(fault: Fault, read: Read) -> bool:
    on_the_way = fault.target.startswith(WAYS.get(read.door, (read.door,)))
    does_harm = fault.what == ("inject" if fault.target == NETWORK else "kill")
    return on_the_way and does_harm and fault.began <= read.ended and read.began <= fault.ended


def mixed_answers(line: Timeline) -> Iterator[Violation]:
    for read in line.reads:
        if any("/" in id_ for id_ in read.ids):
            yield _seen("foreign", read, f"has messages of another stream: {read.ids[:3]}")
        elif len(set(map(generation_of, read.ids))) > 1:
            yield _seen("mixed-incarnations", read, "one answer has several incarnations")


def broken_runs(line: Timeline) -> Iterator[Violation]:
    """Each answer continues its stream exactly where it was asked to."""
    reached: dict[tuple[str, int], tuple[int, str, int]] = {}  # generation, offset, place
    for read in line.reads:
        if not read.allowed or read.status not in (200, 204):
            continue
        session = (read.who, read.session)
        generation, offset, place = reached.get(session, (-1, "", -1))
        if _moved_on_empty(read):
            yield _seen("gap", read, f"without a message from {read.asked} to {read.next}")
            continue
        life = _life_of(line, read)
        if life is None:
            continue
        expected = life.offsets.get(read.asked)
        if expected is None and (generation, offset) == (life.generation, read.asked):
            expected = place
        if read.snapshot >= 0:
            expected = read.snapshot
        elif read.asked == START:
            expected = 0
        yield from _compare(life, read, expected)
        end = life.places.get(read.ids[-1], -2) + 1 if read.ids else expected
        if end is not None and end >= 0 and read.next:
            reached[session] = (life.generation, read.next, end)


def _compare(life: Life, read: Read, expected: int | None) -> Iterator[Violation]:
    places: list[int] = []
    for id_ in read.ids:
        if id_ in life.places:
            places.append(life.places[id_])
        elif not _may_follow(life, id_):
            yield _seen("never-written", read, f"{id_} was read and is not in the stream")
            return
    if places and expected is not None:
        yield from _jump(read, expected, places[0], read.ids[0])
    for (before, after), id_ in zip(pairwise(places), read.ids[1:], strict=False):
        yield from _jump(read, before + 1, after, id_)
    if len(places) < len(read.ids) or not read.next:
        return
    end = places[-1] + 1 if places else expected
    told = life.offsets.get(read.next)
    if end is not None and told is not None and read.asked != NOW and told != end:
        name = "gap" if told > end else "wrong-offset"
        text = f"ends after {end} messages, but says {read.next}, which is after {told}"
        yield _seen(name, read, text)


def _jump(read: Read, expected: int, place: int, id_: str) -> Iterator[Violation]:
    if place > expected:
        yield _seen("gap", read, f"{place - expected} messages are missing before {id_}")
    elif place < expected:
        yield _seen("repeated", read, f"{id_} again: number {place} where {expected} is next")


def stale_incarnations(line: Timeline) -> Iterator[Violation]:
    return _stale_incarnations(line, excused=False)


def _stale_incarnations(line: Timeline, *, excused: bool) -> Iterator[Violation]:
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
                yield _seen("stale-incarnation", read, text)


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
            yield _seen("missed-write", read, f"ends at {read.next}, but {told} was acknowledged")
        if life.closed <= read.began and not read.closed:
            yield _seen("reopened", read, "is open, but was closed before")
        if read.mode == FINAL and life.is_audited and read.next != life.tail:
            yield _seen("incomplete", read, f"ends at {read.next} instead of {life.tail}")


def unfinished_looks(line: Timeline) -> Iterator[Violation]:
    """At the end, when all is well again, every door shows every stream to its end."""
    last: dict[tuple[str, str], Read] = {}
    for read in line.reads:
        if read.mode == FINAL:
            last[read.stream, read.who] = read
    for read in last.values():
        if line.is_over and not read.up_to_date:
            yield _seen("incomplete", read, f"never came to the end, but to {read.asked}")


def undelivered(line: Timeline) -> Iterator[Violation]:
    """At the end, when all is well again, whoever waits at a door is told what comes."""
    waiting: dict[tuple[str, str], list[Read]] = defaultdict(list)
    for read in line.reads:
        if read.last:
            waiting[read.stream, read.who].append(read)
    for reads in waiting.values():
        life = line.certain_life(reads[-1].stream, reads[0].began, reads[-1].ended)
        heard = max((read.next for read in reads if read.mode in LIVE), default="")
        if life is not None and life.is_audited and heard < life.tail:
            text = f"was told up to {heard or 'nothing'} of {life.tail}"
            yield _seen("undelivered", reads[-1], text)


def reopened(line: Timeline) -> Iterator[Violation]:
    """After a close, nothing more: neither by writers nor for readers."""
    for append in line.appends:
        life = line.lives.get((append.stream, generation_of(append.id)))
        if life and append.outcome == "ok" and append.status == 200 and life.closed < append.began:
            text = f"{append.id} was accepted after the close"
            yield Violation("reopened", append.stream, append.ended, text)
    for life in _audited(line):
        if life.closed < inf and not life.ends_closed:
            yield Violation("reopened", life.stream, life.closed, "the origin forgot the close")
    for read in line.reads:
        known = _life_of(line, read)
        if known is None or not read.closed or not known.is_audited:
            continue
        if known.close_began > read.ended:
            yield _seen("closed-early", read, "says closed before anyone closed it")
        elif read.next != known.tail:
            yield _seen("reopened", read, f"closed at {read.next}, but it ends at {known.tail}")


def vanished(line: Timeline) -> Iterator[Violation]:
    """A stream that is there is found, and an offset that was given out is good."""
    operations: list[Append | Read] = [*line.appends, *line.reads]
    for operation in operations:
        if operation.status not in (400, 404, 410) or not operation.allowed:
            continue
        life = line.certain_life(operation.stream, operation.began, operation.ended)
        if life is None or (operation.status == 410 and _is_trimmed(life, operation)):
            continue
        if isinstance(operation, Read) and operation.mode == "snapshot":
            done = [each for each in life.snapshots if each.ended < operation.began]
            if not done or any(map(operation.may_have_met, life.snapshots)):
                continue  # none yet; or one replaced another between the redirect and its target
        if isinstance(operation, Append) and generation_of(operation.id) != life.generation:
            continue
        if isinstance(operation, Read) and _is_of_another(life, operation):
            continue
        text = f"{operation.who} got {operation.status} while it was there"
        yield Violation("vanished", operation.stream, operation.ended, text)


def _is_of_another(life: Life, read: Read) -> bool:
    """Whether it was refused for an offset of an incarnation before this one."""
    if read.status == 400:
        reached = life.acknowledged_before(read.began)
        return read.asked not in life.offsets or read.asked > reached
    given = read.asked not in ("", START, NOW)
    return read.status == 410 and given and read.asked not in life.offsets


def went_back(line: Timeline) -> Iterator[Violation]:
    for read in line.reads:
        if read.cursor and read.cursor_sent and int(read.cursor) < int(read.cursor_sent):
            yield _seen("cursor-went-back", read, f"from {read.cursor_sent} to {read.cursor}")
        if read.next and read.asked not in ("", START, NOW) and read.next < read.asked:
            yield _seen("offset-went-back", read, f"from {read.asked} to {read.next}")


# -- doors -----------------------------------------------------------------------------------------


def leaked_scopes(line: Timeline) -> Iterator[Violation]:
    for operation in line.operations:
        if operation.allowed or not operation.status:
            continue
        ids = operation.ids if isinstance(operation, Read) else []
        if ids or _was_let_in(operation):
            text = f"{operation.who} has no scope for it and got {operation.status} {ids[:3]}"
            yield Violation("leaked-scope", operation.stream, operation.ended, text)
    for append in line.appends:
        life = line.lives[append.stream, generation_of(append.id)]
        if not append.allowed and append.id in life.places:
            text = f"{append.who} has no scope for it and wrote {append.id}"
            yield Violation("leaked-scope", append.stream, append.ended, text)


def dead_tokens(line: Timeline) -> Iterator[Violation]:
    for operation in line.operations:
        withdrawn = line.withdrawn.get(operation.key, inf)
        if _was_let_in(operation) and operation.began > withdrawn + KEY_SET_SECS:
            since = operation.began - withdrawn
            text = f"a token of {operation.key} was good {since:.1f} s after its key had gone"
            yield Violation("dead-token", operation.stream, operation.ended, text)


def shut_out(line: Timeline) -> Iterator[Violation]:
    """Whoever has a good token is let in; a key that is quite new may not be known everywhere."""
    for operation in line.operations:
        known = line.published.get(operation.key, inf) + KEY_SET_SECS
        gone = line.withdrawn.get(operation.key, inf)
        if operation.allowed and operation.status in SHUT_OUT:
            if known < operation.began and operation.ended < gone:
                text = f"{operation.who} by {operation.door} got {operation.status} in spite of "
                text += f"a good token of {operation.key}"
                yield Violation("shut-out", operation.stream, operation.ended, text)


CHECKS: tuple[Callable[[Timeline], Iterator[Violation]], ...] = (
    lost_acknowledgements,
    written_twice,
    never_sent,
    out_of_order,
    wrong_offsets,
    lost_producers,
    torn_streams,
    torn_answers,
    truncated_answers,
    mixed_answers,
    broken_runs,
    stale_incarnations,
    missed_writes,
    unfinished_looks,
    undelivered,
    reopened,
    vanished,
    went_back,
    leaked_scopes,
    dead_tokens,
    shut_out,
)


# -- pieces ----------------------------------------------------------------------------------------


def _audited(line: Timeline) -> list[Life]:
    """A run that was cut short leaves others: they are `Findings.missing`."""
    return [life for life in line.lives.values() if life.is_audited]


def _seen(name: str, read: Read, text: str) -> Violation:
    return Violation(
        name, read.stream, read.ended, f"{read.who} by {read.door}, {read.mode}: {text}"
    )


def _was_let_in(operation: Operation) -> bool:
    """Whether the answer is one that only a good token gets: a 304 or 404 as well as a 200."""
    status = operation.status
    return 0 < status < 500 and status not in SHUT_OUT and status != 429


def _sent_at(life: Life, id_: str) -> float:
    sent = life.sent.get(id_)
    return life.created if sent is None else sent.began


def _life_of(line: Timeline, read: Read) -> Life | None:
    """The incarnation that an answer is of; None where it cannot be told, or was never audited."""
    if read.ids:
        own = [id_ for id_ in read.ids if "/" not in id_]
        life = line.lives.get((read.stream, generation_of(own[0]))) if own else None
    elif read.snapshot_of >= 0:
        life = line.lives.get((read.stream, read.snapshot_of))
    else:
        life = line.certain_life(read.stream, read.began, read.ended)
    return life if life is not None and life.is_audited else None


def _may_follow(life: Life, id_: str) -> bool:
    """Whether it may have come between the last audit and the deletion."""
    sent = life.sent.get(id_)
    return sent is not None and sent.acknowledged == inf and life.delete_began < inf


def _moved_on_empty(read: Read) -> bool:
    return not read.ids and read.asked not in ("", START, NOW) and read.next > read.asked


def _is_trimmed(life: Life, operation: Operation) -> bool:
    """Whether a snapshot may have replaced what was asked for."""
    asked = operation.asked if isinstance(operation, Read) else ""
    return any(
        change.began < operation.ended and (asked == START or asked < change.offset)
        for change in life.snapshots
    )
