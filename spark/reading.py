"""One task's work: the rows of a range, in the order of the stream. Runs on executors.

Between planning and reading a stream may grow, be replaced by a snapshot, be deleted, or be created
anew under its name. Growth is cut off at the range's end. What an answer shows is given out only
when the stream is known to be the one that was planned.

A snapshot at S stands for all that lies below S. It is read by the part of the range in which S
lies, and by no other; the parts before it have nothing to read any more. When another part of the
same range may have been read without it, nobody can tell who should read it, and the task fails:
a new plan has no such parts.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from spark.http import SourceError
from spark.ranges import Beyond, Range, span
from spark.rows import chunk_rows, failure_rows, message_rows, messages_of, snapshot_rows
from spark.streams import Chunk, OffsetGone, Streams, precedes

MAX_LOOKS = 10  # at a growing stream whose offsets do not tell sizes

_log = logging.getLogger("weir.spark")


class DataLoss(SourceError):
    """What was to be read is not there any more."""


def read_ranges(
    streams: Streams,
    ranges: tuple[Range, ...],
    *,
    fail_on_data_loss: bool,
    fail_on_error: bool = True,
) -> Iterator[pa.RecordBatch]:
    """A failure that does not end the task is the last row of its range."""
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
            raise SourceError(f"stream {stream!r}: {at} is gone, but not below its snapshot")
        if not precedes(wanted.end, snapshot.offset) or _is_taken(wanted, snapshot.offset):
            yield from snapshot_rows(stream, wanted.incarnation, snapshot)
        at = snapshot.offset


def _is_taken(wanted: Range, offset: str) -> bool:
    """Whether a snapshot beyond the range is to be read with it all the same."""
    replaced = f"stream {wanted.stream!r}: a snapshot at {offset} replaced what was to be read"
    if not precedes(wanted.limit, offset):
        raise SourceError(f"{replaced} in parts; read it again")
    if wanted.beyond is Beyond.REFUSE:
        raise DataLoss(f"{replaced} up to {wanted.limit}")
    return wanted.beyond is Beyond.TAKE


def _check_incarnation(streams: Streams, wanted: Range, told: str = "") -> None:
    """A chunk whose offsets are of before does not say which stream it is of: a HEAD does."""
    if not wanted.incarnation or told == wanted.incarnation:
        return
    if not told:
        head = streams.head(wanted.stream)
        told = "" if head is None else head.incarnation
    if told != wanted.incarnation:
        raise DataLoss(f"stream {wanted.stream!r}: deleted or created anew before it was read")


def _rows_of(streams: Streams, wanted: Range, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    if precedes(wanted.end, chunk.next_offset):
        chunk = _shortened(streams, wanted, chunk)
    if chunk.is_json:
        messages = messages_of(chunk, wanted.stream)
        return message_rows(wanted.stream, wanted.incarnation, chunk, messages)
    return chunk_rows(wanted.stream, wanted.incarnation, chunk)


def _shortened(streams: Streams, wanted: Range, chunk: Chunk) -> Chunk:
    """Of a chunk that reaches beyond the end of the range, only what lies before it."""
    size = None if chunk.position is None else span(chunk.offset, wanted.end)
    if size is None:
        chunk = _without_rest(streams, wanted, chunk)
    elif chunk.is_json:
        chunk = replace(chunk, body=chunk.body[:size] + b"]")
    else:
        chunk = replace(chunk, body=chunk.body[:size])
    return replace(chunk, next_offset=wanted.end)


def _without_rest(streams: Streams, wanted: Range, chunk: Chunk) -> Chunk:
    """Where offsets do not tell sizes, reading from the end of the range tells what is too much."""
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
    raise SourceError(f"stream {stream!r}: grows too fast to be read up to {wanted.end}")
