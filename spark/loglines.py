"""Lines of one piece of a log file, as Arrow batches. Runs on executors: standard library and
pyarrow only.

A piece has the lines that start in it. Only one block is in memory: a line longer than
MAX_LINE_BYTES is reported instead of read.
"""

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from socket import gethostname

import pyarrow as pa
import pyarrow.compute as pc

from spark.http import SourceError

COLUMNS = "file string, position long, line string, problem string"
BLOCK_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
SAMPLE_CHARACTERS = 1024  # of an unreadable line

PACKED = ".gz"
GONE = "gone"  # the file no longer exists
SHARED = "all executors must be able to access --logs and --out under the same paths"

BAD_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)

_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("line", pa.string()),
        ("problem", pa.string()),
    ]
)


def foreign_file(name: str) -> pa.RecordBatch:
    return _row(name, 0, b"", "foreign-file")


def read_lines(
    folder: Path, name: str, start: int, end: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """A missing file is reported as a row: nothing is skipped silently."""
    try:
        file = _open(folder / name)
    except FileNotFoundError:
        if not folder.is_dir():
            raise SourceError(f"{folder} does not exist on {gethostname()}: {SHARED}") from None
        yield _row(name, start, b"", GONE)
        return
    except OSError as error:
        raise SourceError(f"{folder / name} on {gethostname()}: {error.strerror}") from None
    is_whole = name.endswith(PACKED)
    with file:
        try:
            yield from _read(file, name, start, None if is_whole else end, block_bytes)
        except BAD_GZIP as error:
            yield _row(name, -1, str(error).encode(), "damaged-gzip")


def _open(path: Path) -> "BufferedReader | gzip.GzipFile":
    """Compression removes the plain file last, so one of the two exists."""
    if path.name.endswith(PACKED):
        return gzip.open(path)
    try:
        return path.open("rb")
    except FileNotFoundError:
        return gzip.open(path.with_name(path.name + PACKED))


def _read(
    file: "BufferedReader | gzip.GzipFile", name: str, start: int, end: int | None, block_bytes: int
) -> Iterator[pa.RecordBatch]:
    at = start  # of the first byte not returned yet: held back, or still in the file
    if start > 0:  # a line that reaches into this piece belongs to the previous one
        file.seek(start - 1)
        at += _skip_line(file) - 1
    held = b""  # the start of a line
    while end is None or at < end:
        most = block_bytes if end is None else min(block_bytes, end - at - len(held))
        block = _read_some(file, most) if most > 0 else file.readline(MAX_LINE_BYTES)
        if not block:
            break
        held += block
        cut = held.rfind(b"\n") + 1
        if cut:
            yield _batch(name, at, held[: cut - 1])
            at, held = at + cut, held[cut:]
        if len(held) > MAX_LINE_BYTES:
            yield _row(name, at, held, "too-long")
            at, held = at + len(held) + _skip_line(file), b""
    if held:
        yield _row(name, at, held, "truncated")


def _batch(name: str, at: int, block: bytes) -> pa.RecordBatch:
    """A batch of complete lines, without the last newline."""
    lines = pa.array(block.split(b"\n"), pa.binary())
    ends = pc.cumulative_sum(pc.add(pc.cast(pc.binary_length(lines), pa.int64()), 1), start=at)
    starts = pa.concat_arrays([pa.array([at], pa.int64()), ends.slice(0, len(ends) - 1)])
    longest = pc.max(pc.binary_length(lines)).as_py()
    problems: pa.Array = pa.nulls(len(lines), pa.string())
    try:
        if longest > MAX_LINE_BYTES:
            raise ValueError
        texts = lines.cast(pa.string())
    except ValueError:  # includes pa.ArrowInvalid
        pairs = [_judge(line.as_py()) for line in lines]
        texts = pa.array([text for text, _ in pairs], pa.string())
        problems = pa.array([problem for _, problem in pairs], pa.string())
    names = pa.repeat(pa.scalar(name, pa.string()), len(lines))
    return pa.RecordBatch.from_arrays([names, starts, texts, problems], schema=_SCHEMA)


def _judge(line: bytes) -> tuple[str, str | None]:
    if len(line) > MAX_LINE_BYTES:
        return line[:SAMPLE_CHARACTERS].decode(errors="replace"), "too-long"
    try:
        return line.decode(), None
    except UnicodeDecodeError:
        return line.decode(errors="replace")[:SAMPLE_CHARACTERS], "not-utf-8"


def _row(name: str, at: int, line: bytes, problem: str) -> pa.RecordBatch:
    sample = line[: 4 * SAMPLE_CHARACTERS].decode(errors="replace")[:SAMPLE_CHARACTERS]
    values = {"file": [name], "position": [at], "line": [sample], "problem": [problem]}
    return pa.RecordBatch.from_pydict(values, schema=_SCHEMA)


def _read_some(file: "BufferedReader | gzip.GzipFile", size: int) -> bytes:
    """Return what was read before an error; the next call raises it."""
    pieces: list[bytes] = []
    while size > 0:
        try:
            piece = file.read1(size)
        except BAD_GZIP:
            if not pieces:
                raise
            break
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _skip_line(file: "BufferedReader | gzip.GzipFile") -> int:
    """Returns the number of bytes, including the newline."""
    skipped = 0
    while piece := file.readline(MAX_LINE_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped
