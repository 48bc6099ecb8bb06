"""A request whose body comes in pieces."""

from dataclasses import dataclass, field

from wire.heads import Head
from wire.limits import PROGRESS_BYTES


@dataclass(slots=True)
class Gathering:
    head: Head
    raw: bytes
    body: bytearray = field(default_factory=bytearray)  # a list of pieces would cost many times it
    _mark: int = 0

    def take(self, data: bytes, at: int) -> int:
        """Its part of `data` from there; where the next request may begin."""
        end = min(len(data), at + self.head.content_length - len(self.body))
        self.body += data[at:end]
        return end

    @property
    def is_whole(self) -> bool:
        return len(self.body) == self.head.content_length

    def has_progressed(self) -> bool:
        """Well enough, since the last call, to be waited for."""
        came, self._mark = len(self.body) - self._mark, len(self.body)
        return came >= PROGRESS_BYTES

    def release(self) -> None:
        if self.head.admission is not None:
            self.head.admission.release()
