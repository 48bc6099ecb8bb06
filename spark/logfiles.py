"""Which bytes of a folder of access logs to read next. Pure.

Progress records how far each file was read: a plain file up to the byte after a newline, a `.gz` as
a whole with its size, a foreign file not at all. A `.gz` is skipped if its plain file was read up
to the same size. Deleted files are forgotten, and read again if they reappear: duplicate lines
count once, so reading twice is harmless, but no line may go unread.

Lines are read up to the last newline. The rest belongs to a line that is being written. Once the
file can no longer grow, that is read too, and counts as truncated.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from protocol.accesslog import HOUR_MS, parse_file_name

PACKED = ".gz"
SETTLED_MS = 2 * HOUR_MS  # after its hour and its last change, a file no longer grows
PACKING_MS = 60_000  # a .gz next to its plain file may be incomplete for this long

Progress = dict[str, int]


@dataclass(frozen=True, slots=True)
class Found:
    """A file in the folder."""

    name: str  # path below the folder
    size: int
    changed_ms: int
    unpacked_size: int = 0  # of a .gz: as stated in its last bytes

    @property
    def is_packed(self) -> bool:
        return self.name.endswith(PACKED)

    @property
    def plain_name(self) -> str:
        return self.name.removesuffix(PACKED)

    @property
    def hour_ms(self) -> int | None:
        """None for a foreign name."""
        parsed = parse_file_name(self.name.rpartition("/")[2])
        return None if parsed is None else parsed.hour_ms


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of one file, [start, end)."""

    name: str
    start: int
    end: int

    @property
    def is_packed(self) -> bool:
        return self.name.endswith(PACKED)


# The end of the last complete line of a file between two positions, or the first position.
LastLineEnd = Callable[[str, int, int], int]
# The end of the first line that ends after one position and before another.
NextLineEnd = Callable[[str, int, int], int]


def advance(
    progress: Progress,
    found: Iterable[Found],
    most_bytes: int | None,
    now_ms: int,
    last_line_end: LastLineEnd,
    next_line_end: NextLineEnd,
) -> Progress:
    """Progress after the next batch of at most this many bytes, or one line more."""
    files = sorted(found, key=lambda file: (file.hour_ms or 0, file.name))
    sizes = {file.name: file.size for file in files}
    read = _remembered(progress, sizes)
    left = most_bytes
    for file in files:
        if left is not None and left <= 0:
            break
        before = read.get(file.name, 0)
        if file.hour_ms is None:
            read[file.name] = 0  # reported once, however it grows
        elif file.is_packed:
            if before == file.size or _is_copy(file, sizes, read):
                continue
            if file.plain_name in sizes and now_ms - file.changed_ms < PACKING_MS:
                continue
            read[file.name] = file.size
            left = None if left is None else left - file.size
        else:
            start = before if before <= file.size else 0
            end = _end(file, start, now_ms, last_line_end)
            if left is not None and end - start > left:
                cut = last_line_end(file.name, start, start + left)
                end = cut if cut > start else next_line_end(file.name, start + left, end)
                left = 0
            if end > start or start != before:
                read[file.name] = end
            left = None if left is None else left - (end - start)
    return read


def spans(start: Progress, end: Progress, piece_bytes: int) -> list[Span]:
    """The spans of one batch; large plain files in pieces, which need not end at a line."""
    pieces = []
    for name, stop in end.items():
        first = start.get(name, -1)
        if first == stop:
            continue
        whole = parse_file_name(name.rpartition("/")[2]) is None or name.endswith(PACKED)
        if whole:
            pieces.append(Span(name, 0, stop))
            continue
        first = first if 0 <= first <= stop else 0
        pieces += [
            Span(name, at, min(at + piece_bytes, stop)) for at in range(first, stop, piece_bytes)
        ]
    return pieces


def _remembered(read: Progress, sizes: Mapping[str, int]) -> Progress:
    """A deleted plain file is remembered as long as its .gz exists."""
    return {name: at for name, at in read.items() if name in sizes or name + PACKED in sizes}


def _is_copy(file: Found, sizes: Mapping[str, int], read: Progress) -> bool:
    """Whether its plain file has the same size, and so is read itself, or was read up to it."""
    size = sizes.get(file.plain_name, read.get(file.plain_name, 0))
    return size > 0 and size % 2**32 == file.unpacked_size


def _end(file: Found, start: int, now_ms: int, last_line_end: LastLineEnd) -> int:
    """How far the file can be read now."""
    assert file.hour_ms is not None
    if now_ms - max(file.hour_ms + HOUR_MS, file.changed_ms) >= SETTLED_MS:
        return file.size
    return last_line_end(file.name, start, file.size)
