"""What a cluster promises beyond one machine: no request hangs, shards come back, forks are whole.
Pure."""

from collections import Counter
from collections.abc import Iterator

from loadtest.verify.history import LIVE, ForkResult, Operation, ReadResult, Round, Stall
from loadtest.verify.timeline import Timeline, Violation, seen_by

HANG_SECS = 5.0
# A redirect, and where it leads; what a gateway asks for again because it is too large to keep.
TWICE = ("snapshot", "bootstrap")
GRACE_SECS = 1.0  # for the client itself, each time: it shares its processors with all servers


def hangs(line: Timeline) -> Iterator[Violation]:
    """Of requests that wait for nothing but an outcome, at doors that are able to answer. A large
    body takes its time, once it has begun."""
    for operation in line.operations if line.rounds else ():
        answered = operation.answered or operation.ended
        took = answered - operation.began - _stalled(line.stalls, operation)
        mode = operation.mode if isinstance(operation, ReadResult) else ""
        requests = 2 if mode in TWICE else 1
        if took <= (HANG_SECS + GRACE_SECS) * requests or mode in LIVE:
            continue
        if not any(_was_stopped(each, operation) for each in line.rounds):
            answer = operation.status or operation.trouble
            yield seen_by("hang", operation, f"waited {took:.1f} s for {answer}")


def _stalled(stalls: list[Stall], operation: Operation) -> float:
    """Seconds in which the client could not have noticed its answer."""
    return sum(
        max(0.0, min(each.ended, operation.ended) - max(each.began, operation.began))
        for each in stalls
    )


def _was_stopped(round_: Round, operation: Operation) -> bool:
    met = round_.began <= operation.ended and operation.began <= round_.healed
    return round_.paused and met and operation.door in round_.victims


def unrecovered(line: Timeline) -> Iterator[Violation]:
    for each in line.rounds:
        if not each.recovered:
            since = f"after {each.fault} of {', '.join(each.victims)}"
            text = f"no writes {since}: {'; '.join(each.stuck) or 'unknown'}"
            yield Violation("unrecovered", "the cluster", each.healed, text)


def wrong_forks(line: Timeline) -> Iterator[Violation]:
    """A fork has its source up to where it was forked, then its own, each once and in order."""
    for fork in line.forks:
        inherited = [id_ for id_ in fork.ids if "/" in id_]
        own = [id_ for id_ in fork.ids if "/" not in id_]
        if fork.damage:
            yield _of_fork("torn", fork, fork.damage)
        elif fork.ids != inherited + own:
            yield _of_fork("fork-order", fork, "messages of its source stand behind its own")
        yield from _wrong_own(fork, own)
        yield from _wrong_inheritance(line, fork, inherited)


def _wrong_own(fork: ForkResult, own: list[str]) -> Iterator[Violation]:
    counts = Counter(own)
    for id_ in fork.acknowledged:
        if id_ not in counts:
            yield _of_fork("lost-acknowledgement", fork, f"{id_} was acknowledged and is not there")
    for id_, count in counts.items():
        if count > 1:
            yield _of_fork("written-twice", fork, f"{id_} is there {count} times")
    numbers = [int(id_.rpartition(".")[2]) for id_ in own]
    if numbers != sorted(numbers):
        yield _of_fork("out-of-order", fork, f"its own messages are {own}")


def _wrong_inheritance(
    line: Timeline, fork: ForkResult, inherited: list[str]
) -> Iterator[Violation]:
    """Where it is certain which incarnation was forked, and how long that was at the offset."""
    life = line.certain_life(fork.source, fork.began, fork.ended)
    if life is None or life.generation != fork.generation or not life.is_audited:
        return
    length = life.offsets.get(fork.offset)
    if length is None or any(change.began < fork.ended for change in life.snapshots):
        return
    expected = [f"{fork.source}/{id_}" for id_ in life.ids[:length]]
    if inherited != expected:
        text = f"has {len(inherited)} messages of {fork.source}, where {length} were before it"
        yield _of_fork("wrong-fork", fork, text)


def _of_fork(name: str, fork: ForkResult, text: str) -> Violation:
    return Violation(name, fork.stream, fork.ended, f"fork by {fork.door}: {text}")
