"""Decides what a batch reads: in the driver, with cheap requests.

The ends of streams come from HEAD requests, in a bucket only for streams whose listing changed. A
range that is too large for one task is split at chunk boundaries; finding them costs a request per
chunk, but no bytes (`Streams.border`).

A streaming query's position is {stream: {"offset": ..., "incarnation": ...}}. A stream that is not
in it starts at the option `start`; one with another incarnation was re-created, and starts at its
beginning. A deleted stream keeps its place if it was named explicitly; in a bucket it is forgotten,
or positions would grow forever. A position without streams is marked BEGUN, because the empty
position is the very start: `start=now` skips only what exists then.
"""

from collections.abc import Iterator, Mapping, Sequence

from protocol.heads import ReplyHead
from protocol.offsets import NOW, START
from spark.http import Client, SourceError, ask_each
from spark.options import SourceOptions
from spark.ranges import Beyond, Range, cut, pack, shares, span
from spark.reading import DataLoss
from spark.streams import Listed, OffsetGone, Streams, precedes

Heads = dict[str, ReplyHead]
Position = Mapping[str, Mapping[str, str]]
Partitions = list[tuple[Range, ...]]

BEGUN = ""  # a key that is never a stream's name


class Planner:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._known: dict[str, tuple[Listed, ReplyHead]] = {}

    # -- where streams end ---------------------------------------------------------------------

    def look(self) -> Heads:
        """All existing streams."""
        options = self._options
        if not options.bucket:
            return self._heads(options.streams)
        with Client(options.address) as client:
            listed = list(Streams(client).listing(options.bucket, options.prefix))
        same = {row.name: self._known[row.name] for row in listed if self._is_known(row)}
        heads = self._heads([row.name for row in listed if row.name not in same])
        news = {row.name: (row, heads[row.name]) for row in listed if row.name in heads}
        self._known = same | news
        return {name: head for name, (_, head) in self._known.items()}

    def _is_known(self, row: Listed) -> bool:
        known = self._known.get(row.name)
        return known is not None and known[0] == row and row.tail is not None

    def _heads(self, names: Sequence[str]) -> Heads:
        def ask(client: Client, name: str) -> tuple[str, ReplyHead | None]:
            return name, Streams(client).head(name)

        answers = ask_each(self._options.address, names, ask)
        return {name: head for name, head in answers if head is not None}

    # -- batches -------------------------------------------------------------------------------

    def plan_all(self) -> Partitions:
        """For a batch read: from `start` to `end`, or to the current ends."""
        options, found = self._options, self.look()
        missing = [name for name in options.streams if name not in found]
        if missing and options.fail_on_data_loss:
            raise DataLoss(f"stream {missing[0]!r}: no such stream")
        return self._partitions([self._whole(name, head) for name, head in found.items()])

    def _whole(self, name: str, head: ReplyHead) -> Range:
        start, end = self._options.start_of(name), self._options.end_of(name)
        beyond = Beyond.TAKE if end == NOW else Beyond.REFUSE
        start, end = (head.next_offset if offset == NOW else offset for offset in (start, end))
        _check_within("start", start, name, head)
        _check_within("end", end, name, head)
        return Range(name, head.incarnation, start, end, end, beyond)

    def _partitions(self, ranges: list[Range]) -> Partitions:
        most = self._options.partition_bytes
        with Client(self._options.address) as client:
            streams = Streams(client)
            parts = [
                part
                for whole in sorted(ranges, key=lambda each: each.stream)
                if precedes(whole.start, whole.end)
                for part in cut(whole, _borders(streams, whole, most), most)
            ]
        return list(pack(parts, most))

    # -- streaming -----------------------------------------------------------------------------

    def latest(self, start: Position, found: Heads, budget: int) -> dict[str, dict[str, str]]:
        """The end position of the next batch; at most `budget` bytes further, 0 for no limit."""
        named = self._options.streams
        ends = {name: dict(start[name]) for name in named if name in start}
        waiting: dict[str, int] = {}
        begins: dict[str, str] = {}
        for name, head in found.items():
            ends[name] = {"offset": head.next_offset, "incarnation": head.incarnation}
            begins[name] = self._begin(start, name, head)
            _check_within("start", begins[name], name, head)
            size = span(begins[name], head.next_offset)
            if size and head.incarnation:
                waiting[name] = size
        if budget and sum(waiting.values()) > budget:
            with Client(self._options.address) as client:
                streams = Streams(client)
                for name, share in shares(waiting, budget).items():
                    if share < waiting[name]:
                        end = _reach(streams, name, begins[name], found[name].next_offset, share)
                        ends[name]["offset"] = end
        if not ends:
            return {BEGUN: {}}
        return dict(sorted(ends.items()))  # equal positions must look equal

    def plan_between(self, start: Position, end: Position) -> Partitions:
        ranges = []
        for name, to in end.items():
            if name == BEGUN:
                continue
            head = ReplyHead(next_offset=to["offset"], incarnation=to["incarnation"])
            begin = self._begin(start, name, head)
            tail = head.next_offset
            ranges.append(Range(name, head.incarnation, begin, tail, tail, Beyond.LATER))
        return self._partitions(ranges)

    def _begin(self, start: Position, name: str, head: ReplyHead) -> str:
        before = start.get(name)
        if before is None:
            asked = self._options.start_of(name)
            if asked != NOW:
                return asked
            return START if start else head.next_offset  # only what is there at first is skipped
        is_other = before["incarnation"] != head.incarnation
        has_shrunk = precedes(head.next_offset, before["offset"])
        return START if is_other or has_shrunk else before["offset"]


def _check_within(option: str, offset: str, name: str, head: ReplyHead) -> None:
    if precedes(head.next_offset, offset):
        tail = head.next_offset
        raise SourceError(f"stream {name!r}: {option} {offset} is beyond the tail {tail}")


def _borders(streams: Streams, whole: Range, part_bytes: int) -> Iterator[str]:
    """Chunk boundaries, if the range is worth splitting."""
    at = whole.start
    if not whole.incarnation or whole.size_bytes <= part_bytes:
        return
    while precedes(at, whole.end):
        border = streams.border(whole.stream, at)
        if isinstance(border, OffsetGone) and precedes(at, border.earliest):
            at = border.earliest
        elif isinstance(border, str) and precedes(border, whole.end):
            yield border
            at = border
        else:
            return


def _reach(streams: Streams, name: str, begin: str, tail: str, budget: int) -> str:
    """The last message boundary within the budget, but at least the first one."""
    at, left = begin, max(1, budget)
    while precedes(at, tail):
        border = streams.border(name, at)
        if isinstance(border, OffsetGone) and precedes(at, border.earliest):
            at = border.earliest  # the snapshot itself is not counted
            continue
        if not isinstance(border, str):
            return tail
        size = span(at, border) or 0
        if size > left:
            last = streams.border(name, at, left)
            if not isinstance(last, str):
                return tail
            return last if at == begin or (span(at, last) or 0) <= left else at
        at, left = border, left - size
        if not left:
            break
    return at if precedes(at, tail) else tail
