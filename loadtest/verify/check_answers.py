"""Whether each answer is whole, and continues its stream exactly where it was asked to. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from loadtest.verify.history import Change, Fault, ReadResult
from loadtest.verify.messages import generation_of
from loadtest.verify.plan import CLUSTER, ENVOY, NETWORK
from loadtest.verify.timeline import Life, Timeline, Violation, seen_by
from protocol.offsets import NOW, START

CUT = "cut"
# Who sends answers at a door that is more than one process; which gateway it was is not known. The
# origin is no excuse for others: a gateway has all of an answer of this size before it begins one.
WAYS = {ENVOY: (ENVOY, "gateway"), NETWORK: (NETWORK, ENVOY, "gateway")}


def torn_answers(line: Timeline) -> Iterator[Violation]:
    for read in line.reads:
        if read.damage and read.outcome == "ok":
            yield seen_by("torn", read, f"a whole {read.status} with a broken body: {read.damage}")


def truncated_answers(line: Timeline) -> Iterator[Violation]:
    """A 200 that has begun is brought to its end, unless a process on its way is killed, or the
    network does harm, or its stream is deleted. Who is stopped finishes what he has begun."""
    deleted: defaultdict[str, list[Change]] = defaultdict(list)
    for change in line.changes:
        if change.action == "delete":
            deleted[change.stream].append(change)
    for read in line.reads:
        if read.trouble != CUT or read.status != 200 or read.mode == "sse":
            continue
        is_gone = any(_met(change, read) for change in deleted[read.stream])
        if not is_gone and not any(_may_have_cut(fault, read) for fault in line.faults):
            yield seen_by(
                "truncated", read, "a 200 was cut short, and nobody on its way was killed"
            )


def _may_have_cut(fault: Fault, read: ReadResult) -> bool:
    if fault.target == CLUSTER:  # any node may have forwarded it to any other
        return _met(fault, read)
    on_the_way = fault.target.startswith(WAYS.get(read.door, (read.door,)))
    does_harm = fault.what == ("inject" if fault.target == NETWORK else "kill")
    return on_the_way and does_harm and _met(fault, read)


def _met(one: Fault | Change, other: ReadResult) -> bool:
    """Whether they were going on at the same time."""
    return one.began <= other.ended and other.began <= one.ended


def mixed_answers(line: Timeline) -> Iterator[Violation]:
    for read in line.reads:
        if any("/" in id_ for id_ in read.ids):
            yield seen_by("foreign", read, f"has messages of another stream: {read.ids[:3]}")
        elif len(set(map(generation_of, read.ids))) > 1:
            yield seen_by("mixed-incarnations", read, "one answer has several incarnations")


def broken_runs(line: Timeline) -> Iterator[Violation]:
    """Each answer continues its stream exactly where it was asked to."""
    reached: dict[tuple[str, int], tuple[int, str, int]] = {}  # generation, offset, place
    for read in line.reads:
        if not read.allowed or read.status not in (200, 204):
            continue
        session = (read.who, read.session)
        generation, offset, place = reached.get(session, (-1, "", -1))
        if _moved_on_empty(read):
            yield seen_by("gap", read, f"without a message from {read.asked} to {read.next}")
            continue
        life = line.life_of(read)
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


def _compare(life: Life, read: ReadResult, expected: int | None) -> Iterator[Violation]:
    places: list[int] = []
    for id_ in read.ids:
        if id_ in life.places:
            places.append(life.places[id_])
        elif not _may_follow(life, id_):
            yield seen_by("never-written", read, f"{id_} was read and is not in the stream")
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
        yield seen_by(name, read, text)


def _jump(read: ReadResult, expected: int, place: int, id_: str) -> Iterator[Violation]:
    if place > expected:
        yield seen_by("gap", read, f"{place - expected} messages are missing before {id_}")
    elif place < expected:
        yield seen_by("repeated", read, f"{id_} again: number {place} where {expected} is next")


def _may_follow(life: Life, id_: str) -> bool:
    """Whether it may have come between the last audit and the deletion."""
    sent = life.sent.get(id_)
    return sent is not None and sent.acknowledged == inf and life.delete_began < inf


def _moved_on_empty(read: ReadResult) -> bool:
    return not read.ids and read.asked not in ("", START, NOW) and read.next > read.asked


def went_back(line: Timeline) -> Iterator[Violation]:
    for read in line.reads:
        if read.cursor and read.cursor_sent and int(read.cursor) < int(read.cursor_sent):
            yield seen_by("cursor-went-back", read, f"from {read.cursor_sent} to {read.cursor}")
        if read.next and read.asked not in ("", START, NOW) and read.next < read.asked:
            yield seen_by("offset-went-back", read, f"from {read.asked} to {read.next}")
