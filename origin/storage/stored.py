"""One stream of a mode with a journal: positions below `flushed` are stored, the rest in memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from origin.storage.base import BelowFloor
from origin.storage.format import NO_EXTENT, Extent, Malformed
from origin.storage.recent import RecentAppends
from protocol.stream import Appended, Created, Record, Removed, StreamState, Trimmed, apply, begin


@dataclass(slots=True)
class Buffered:
    """Only positions at or above `floor` are valid. Memory may begin after `flushed` if the floor
    has passed data that was never flushed."""

    state: StreamState
    flushed: int
    floor: int = 0
    recent: RecentAppends | None = None

    def add(self, data: bytes) -> None:
        if data:
            if self.recent is None:
                self.recent = RecentAppends(self.flushed)
            self.recent.append(data)

    def trim(self, floor: int) -> None:
        self.floor = floor
        if self.recent is not None:
            self.recent.drop_below(floor)

    def check_floor(self, position: int) -> None:
        if position < self.floor:
            raise BelowFloor(self.state.id)

    def read_now(self, start: int, end: int) -> bytes | None:
        """Bytes of a range if all of them are in memory."""
        self.check_floor(start)
        if start < self.flushed or self.recent is None:
            return None
        return self.recent.read(start, end)


@dataclass(slots=True)
class Stored(Buffered):
    """A stream of the file modes."""

    extent: Extent = NO_EXTENT  # of its segment


S = TypeVar("S", bound=Buffered)


def replay(
    record: Record,
    streams: dict[int, S],
    touched: set[int],
    removed: set[int],
    make: Callable[[StreamState, int], S],
) -> None:
    """A record of the journal, read back. Raises ValueError or KeyError if it does not fit."""
    if type(record) is Created:
        state = begin(record)
        streams[record.id] = make(state, state.tail)
        touched.add(record.id)
        return
    stored = streams[record.id]
    if type(record) is Removed:
        del streams[record.id]
        touched.discard(record.id)
        removed.add(record.id)
        return
    if type(record) is Appended:
        if record.start != stored.state.tail:
            raise Malformed(f"append at {record.start}, but the stream ends at {stored.state.tail}")
        stored.add(record.data)
    elif type(record) is Trimmed:
        stored.trim(record.floor)
    apply(stored.state, record)
    touched.add(record.id)
