"""How long each shard took no writes after a fault, as its pulse saw it. Pure.

A pause is the longest time between two acknowledgements, counted from the fault on. A request that
waits and is then acknowledged is a pause as well: this is what a client feels.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadtest.verify.history import Round
from loadtest.verify.timeline import Timeline
from protocol.clustermap import shard_of

PULSE = "pulse"  # the name of those writers


@dataclass(frozen=True, slots=True)
class Pause:
    fault: str
    shard: int
    secs: float
    was_hit: bool  # the shard was the victim's


def find_pauses(line: Timeline, shards: int) -> list[Pause]:
    beats: dict[int, list[float]] = defaultdict(list)
    for append in line.appends:
        if append.who == PULSE and append.outcome == "ok":
            beats[shard_of(append.stream, shards)].append(append.ended)
    for times in beats.values():
        times.sort()
    return [
        Pause(each.fault, shard, _longest(times, each), shard in each.shards)
        for each in line.rounds
        for shard, times in sorted(beats.items())
    ]


def _longest(times: Sequence[float], round_: Round) -> float:
    """Up to the first acknowledgement after everything had recovered."""
    first = bisect_right(times, round_.began)
    last = bisect_right(times, round_.recovered or times[-1]) + 1
    seen = [round_.began, *times[first:last]]
    return max((after - before for before, after in pairwise(seen)), default=0.0)


def quantile(values: Iterable[float], share: float) -> float:
    """0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
