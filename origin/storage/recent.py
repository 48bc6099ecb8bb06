"""A run of appends in memory: the whole stream in memory mode, its newest part in other modes."""

from bisect import bisect_left, bisect_right


class RecentAppends:
    """Appends from `start` to `end`; a part is one append, so its ends are message boundaries."""

    __slots__ = ("_starts", "end", "parts")

    def __init__(self, start: int) -> None:
        self.parts: list[bytes] = []
        self._starts: list[int] = []
        self.end = start

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else self.end

    def append(self, data: bytes) -> None:
        if data:
            self._starts.append(self.end)
            self.parts.append(data)
            self.end += len(data)

    def read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        first = bisect_right(self._starts, start) - 1
        last = bisect_left(self._starts, end)
        parts = self.parts[first:last]
        cut = start - self._starts[first]
        if len(parts) == 1:
            part = parts[0]
            return part if not cut and len(part) == end - start else part[cut : cut + end - start]
        return b"".join(parts)[cut : cut + end - start]

    def slices(self, start: int, end: int) -> list[bytes]:
        """The result of `read`, one piece per append."""
        if start >= end:
            return []
        first = bisect_right(self._starts, start) - 1
        last = bisect_left(self._starts, end)
        return [
            part[max(0, start - begin) : end - begin]
            for begin, part in zip(self._starts[first:last], self.parts[first:last], strict=True)
        ]

    def boundary(self, at_or_after: int) -> int:
        index = bisect_left(self._starts, at_or_after)
        return self._starts[index] if index < len(self._starts) else self.end

    def drop_below(self, position: int) -> None:
        """Forget parts that end at or before `position`."""
        count = bisect_left(self._starts, position)
        if count and (self._starts[count] if count < len(self._starts) else self.end) > position:
            count -= 1  # `position` is within the last of them
        del self._starts[:count]
        del self.parts[:count]
