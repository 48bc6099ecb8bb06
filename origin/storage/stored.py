"""One stream of the file modes: its segment holds positions below `flushed`, memory the rest."""

from dataclasses import dataclass

from origin.storage.base import BelowFloor
from origin.storage.format import NO_EXTENT, Extent
from origin.storage.recent import RecentAppends
from protocol.stream import StreamState


@dataclass(slots=True)
class Stored:
    """Only positions at or above `floor` are valid. Memory may begin after `flushed` if the floor
    has passed data that was never flushed."""

    state: StreamState
    flushed: int
    extent: Extent = NO_EXTENT
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
