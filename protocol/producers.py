"""Idempotent producers: an (epoch, seq) pair compared with the stream's memory.

The table of DS 5.2.1 and nothing else; storing the new state is `stream.apply`'s work.
"""

from enum import Enum
from typing import NamedTuple

from msgspec import Struct


class Verdict(Enum):
    ACCEPT = "accept"
    DUPLICATE = "duplicate"
    STALE_EPOCH = "stale epoch"
    BAD_EPOCH_START = "a new epoch starts at sequence 0"
    GAP = "sequence gap"


UNDATED = -1


class Known(NamedTuple):
    """A stream's memory of a producer; the time of its last append was added later."""

    epoch: int
    last: int
    at_ms: int = UNDATED


class Producer(Struct, frozen=True, gc=False):
    """The producer, from the three Producer-* headers."""

    id: str
    epoch: int
    seq: int


def judge_producer(known: tuple[int, int] | None, producer: Producer) -> Verdict:
    """`known` is the (epoch, highest accepted seq) the stream holds for this producer id."""
    if known is None:
        return Verdict.ACCEPT if producer.seq == 0 else Verdict.GAP
    epoch, last = known
    if producer.epoch < epoch:
        return Verdict.STALE_EPOCH
    if producer.epoch > epoch:
        return Verdict.ACCEPT if producer.seq == 0 else Verdict.BAD_EPOCH_START
    if producer.seq <= last:
        return Verdict.DUPLICATE
    return Verdict.ACCEPT if producer.seq == last + 1 else Verdict.GAP


def expected_seq(known: tuple[int, int] | None, producer: Producer) -> int:
    """The sequence that the response to a gap asks for."""
    return 0 if known is None or known[0] != producer.epoch else known[1] + 1
