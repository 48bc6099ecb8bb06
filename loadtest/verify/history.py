"""The history: one JSON line for each thing that was done and how it ended.

A line is written when an operation ends and has the time of its beginning, so that a check knows
what may have overlapped. `outcome` is what the client knows for certain: `ok`, `refused` (it did
not happen) or `unknown` (it may have, or may still). Times are seconds since the run began, of one
clock. Ids are those of `messages.Message.id`.
"""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Literal

import msgspec
from msgspec import Struct

from loadtest.verify.plan import Step

Outcome = Literal["ok", "refused", "unknown"]
Mode = Literal["catch-up", "long-poll", "sse", "final", "head"]
SHUT_OUT = (401, 403)
NO_SPACE = 507
LIVE: tuple[Mode, ...] = ("long-poll", "sse")  # in which a reader waits
MODES: tuple[Mode, ...] = ("catch-up", *LIVE)
FINAL: Mode = "final"  # catch-up in the last look
HEAD: Mode = "head"  # asks for the tail only


class Run(Struct, tag="run", omit_defaults=True):
    """The first line."""

    seed: int
    seconds: float
    started: str
    parts: list[str]
    plan: list[Step] = []


class Operation(Struct, omit_defaults=True, kw_only=True):
    """What one request was and how it ended."""

    stream: str
    who: str
    door: str
    began: float
    ended: float
    answered: float = 0.0  # when the head of the response came; 0: never
    outcome: Outcome
    status: int = 0  # 0: there was none
    trouble: str = ""  # why it failed, in the words of `availability`
    allowed: bool = True  # by the scopes of its token
    key: str = ""  # that signed its token
    next: str = ""  # Stream-Next-Offset

    def may_have_met(self, other: "Operation") -> bool:
        """Whether the other may have happened while this was out."""
        return other.began < self.ended and (self.began < other.ended or other.outcome == "unknown")


class Append(Operation, tag="append", omit_defaults=True, kw_only=True):
    """One try to append one message."""

    id: str
    code: str = ""  # of the refusal


class ReadResult(Operation, tag="read", omit_defaults=True, kw_only=True):
    """One answer, or one event with its control event; then `began` is when it was asked for."""

    mode: str
    last: bool = False  # it waits in the last look, and must come to the end
    session: int = 0
    asked: str = ""
    ids: list[str] = []
    up_to_date: bool = False
    closed: bool = False
    cursor_sent: str = ""
    cursor: str = ""
    damage: str = ""
    snapshot: int = -1  # messages that a snapshot stands for, where the answer began with one
    snapshot_of: int = -1  # and the incarnation it was made of


class Change(Operation, tag="change", omit_defaults=True, kw_only=True):
    """One try to create, close or delete a stream, or to publish a snapshot of it."""

    action: Literal["create", "close", "delete", "snapshot"]
    generation: int
    offset: str = ""


class Truth(Struct, tag="truth", omit_defaults=True, kw_only=True):
    """What the origin itself has, from `asked` on; those of one incarnation follow each other."""

    stream: str
    generation: int
    began: float
    ended: float
    asked: str
    next: str
    ids: list[str]
    closed: bool = False
    damage: str = ""


class Fault(Struct, tag="fault", omit_defaults=True, kw_only=True):
    """Something was done to a part of the fleet, and it was well again at `ended`."""

    what: str
    target: str
    began: float
    ended: float


class Round(Struct, tag="round", omit_defaults=True, kw_only=True):
    """One fault in a cluster, from its beginning until every shard took writes again."""

    fault: str
    victims: list[str]  # processes and links
    shards: list[int]  # that the victim owned, or that were cut off with it
    began: float
    healed: float  # nothing is done to it any more
    recovered: float = 0.0  # 0: it did not within the time that it was given
    stuck: list[str] = []  # what had not recovered by then, and what the cluster says about it
    paused: bool = False  # the victims were stopped, and could not answer


class Stall(Struct, tag="stall", kw_only=True):
    """The clients themselves did not run: the machine was busy with others."""

    began: float
    ended: float


class ForkResult(Struct, tag="fork", omit_defaults=True, kw_only=True):
    """A fork was created, appended to and read through one door. `offset` is where it was forked;
    ids of its source have the source's name before them."""

    stream: str
    source: str
    generation: int  # of the source
    offset: str
    door: str
    began: float
    ended: float
    ids: list[str]
    acknowledged: list[str]
    damage: str = ""


class Injected(Struct, tag="injected", kw_only=True):
    """How often a proxy did one kind of harm, by its own log."""

    place: str
    fault: str
    count: int


class Published(Struct, tag="published", kw_only=True):
    """A key is in the key set from now on."""

    key: str
    at: float


class Withdrawn(Struct, tag="withdrawn", kw_only=True):
    """A key left the key set."""

    key: str
    at: float


class End(Struct, tag="end", kw_only=True):
    """The last line: the run was not cut short."""

    at: float


Record = (
    Run
    | Append
    | ReadResult
    | Change
    | Truth
    | Fault
    | Round
    | Stall
    | ForkResult
    | Injected
    | Published
    | Withdrawn
    | End
)
_decoder = msgspec.json.Decoder(Record)
_encode = msgspec.json.Encoder().encode


class Recorder:
    """Writes a history, and keeps it for the checks."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        self.records.append(record)
        self._file.write(_encode(record) + b"\n")


def parse_lines(lines: Iterable[bytes]) -> Iterator[Record]:
    """Whatever a killed run left behind ends with a whole line or with a part of one."""
    for line in lines:
        if line.endswith(b"\n"):
            yield _decoder.decode(line)
