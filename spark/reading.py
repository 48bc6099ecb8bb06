"""One task's work: the rows of a range, in the order of the stream. Runs on executors.

Between planning and reading, a stream may grow, be replaced by a snapshot, be deleted or be
re-created. Growth is cut off at the end of the range. Rows are returned only if the stream is known
to be the planned one.

A snapshot at S replaces everything below S. It is read by the part of the range that contains S,
and by no other; earlier parts have nothing left to read. If another part of the same range may
have been read without it, it is unclear which part should read it, and the task fails: a new plan
has no such parts.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from spark.http import SourceError
from spark.ranges import Beyond, Range, span
from spark.rows import chunk_rows, failure_rows, message_rows, messages_of, snapshot_rows
from spark.streams import Chunk, OffsetGone, Streams, precedes

MAX_LOOKS = 10  # attempts at a growing stream whose offsets are not positions

_log = logging.getLogger("weir.spark")


class DataLoss(SourceError):
    """The data to read no longer exists."""


def read_ranges(
    streams: Streams,
    ranges: tuple[Range, ...],
    *,
    fail_on_data_loss: bool,
    fail_on_error: bool = True,
) -> Iterator[pa.RecordBatch]:
    """A failure that does not end the task becomes the last row of its range."""
    for each in ranges:
        try:
            yield from read_range(streams, each)
        except DataLoss as error:
            if fail_on_data_loss:
                raise
            _log.warning("%s", error)
        except SourceError as error:
            if fail_on_error:
                raise
            yield from failure_rows(each.stream, each.incarnation, each.start, str(error))


def read_range(streams: Streams, wanted: Range) -> Iterator[pa.RecordBatch]:
    stream, at = wanted.stream, wanted.start
    while precedes(at, wanted.end):
        answer = streams.read(stream, at)
        if isinstance(answer, Chunk):
            _check_incarnation(streams, wanted, answer.incarnation)
            if not precedes(at, answer.next_offset):
                raise DataLoss(f"stream {stream!r}: ends at {at}, before {wanted.end}")
            yield from _rows_of(streams, wanted, answer)
            at = answer.next_offset
            continue
        snapshot = streams.snapshot(stream) if isinstance(answer, OffsetGone) else None
        if snapshot is None:
            raise DataLoss(f"stream {stream!r}: deleted before it was read")
        _check_incarnation(streams, wanted)
        if not precedes(at, snapshot.offset):
            raise SourceError(f"stream {stream!r}: {at} is gone, but not covered by a snapshot")
        if not precedes(wanted.end, snapshot.offset) or _is_taken(wanted, snapshot.offset):
            yield from snapshot_rows(stream, wanted.incarnation, snapshot)
        at = snapshot.offset


def _is_taken(wanted: Range, offset: str) -> bool:
    """Whether to read a snapshot beyond the range anyway."""
    replaced = f"stream {wanted.stream!r}: a snapshot at {offset} replaced the data"
    if not precedes(wanted.limit, offset):
        raise SourceError(f"{replaced} while it was read in parts; try again")
    if wanted.beyond is Beyond.REFUSE:
        raise DataLoss(f"{replaced} up to {wanted.limit}")
    return wanted.beyond is Beyond.TAKE


def _check_incarnation(streams: Streams, wanted: Range, told: str = "") -> None:
    """Chunks with old-style offsets do not name their stream, but a HEAD does."""
    if not wanted.incarnation or told == wanted.incarnation:
        return
    if not told:
        head = streams.head(wanted.stream)
        told = "" if head is None else head.incarnation
    if told != wanted.incarnation:
        raise DataLoss(f"stream {wanted.stream!r}: deleted or re-created before it was read")


def _rows_of(streams: Streams, wanted: Range, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    if precedes(wanted.end, chunk.next_offset):
        chunk = _shortened(streams, wanted, chunk)
    if chunk.is_json:
        messages = messages_of(chunk, wanted.stream)
        return message_rows(wanted.stream, wanted.incarnation, chunk, messages)
    return chunk_rows(wanted.stream, wanted.incarnation, chunk)


def _shortened(streams: Streams, wanted: Range, chunk: Chunk) -> Chunk:
    """A chunk cut at the end of the range."""
    size = None if chunk.position is None else span(chunk.offset, wanted.end)
    if size is None:
        chunk = _without_rest(streams, wanted, chunk)
    elif chunk.is_json:
        chunk = replace(chunk, body=chunk.body[:size] + b"]")
    else:
        chunk = replace(chunk, body=chunk.body[:size])
    return replace(chunk, next_offset=wanted.end)


def _without_rest(streams: Streams, wanted: Range, chunk: Chunk) -> Chunk:
    """If offsets are not positions, reading from the end of the range shows what to cut."""
    stream = wanted.stream
    for _ in range(MAX_LOOKS):
        rest = streams.read(stream, wanted.end)
        if isinstance(rest, Chunk) and rest.next_offset == chunk.next_offset:
            if not chunk.is_json:
                return replace(chunk, body=chunk.body[: len(chunk.body) - len(rest.body)])
            messages = messages_of(chunk, stream)
            kept = messages[: len(messages) - len(messages_of(rest, stream))]
            return replace(chunk, body=f"[{','.join(kept)}]".encode())
        again = streams.read(stream, chunk.offset)
        if not isinstance(again, Chunk):
            raise DataLoss(f"stream {stream!r}: deleted or replaced while it was read")
        chunk = again
    raise SourceError(f"stream {stream!r}: growing too fast to be read up to {wanted.end}")
