"""Responses to rows, as Arrow batches. Runs on executors: standard library and pyarrow only.

`offset` and `position` together order the rows of a stream and are unique. If offsets are byte
positions, each message has its own readable offset, and `position` is 0; otherwise the messages of
a response share its offset and `position` counts from 0. A snapshot's messages come just before
those at its offset: they count up to -1. A snapshot without messages is one row with its bytes,
because it still replaces earlier data.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from json.scanner import make_scanner

import pyarrow as pa

from protocol.media import media_type
from protocol.names import JSON_TYPE
from protocol.offsets import moved_to
from spark.http import SourceError
from spark.streams import Chunk, Snapshot

SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.string()),
        ("offset", pa.string()),
        ("position", pa.int32()),
        ("next_offset", pa.string()),
        ("kind", pa.string()),
        ("content_type", pa.string()),
        ("message", pa.string()),
        ("data", pa.binary()),
    ]
)
BATCH_ROWS = 10_000

# Only the ends of values are needed; numbers may be longer than Python accepts. The decoder's
# `raw_decode` would work, but is a third slower.
_decoder = json.JSONDecoder(parse_int=len, parse_float=len, strict=False)
_scan = make_scanner(_decoder)  # type: ignore[arg-type]  # it takes any decoder
_BLANKS = " \t\r\n"


def split_array(body: bytes) -> list[str]:
    """The texts of an array's elements, unchanged; ValueError if it is not an array."""
    text = body.decode().strip(_BLANKS)
    if text[:1] != "[" or text[-1:] != "]":
        raise ValueError("not an array")
    if not text[1:-1].strip(_BLANKS):
        return []
    try:
        return _elements(text)
    except (ValueError, StopIteration, IndexError, RecursionError):
        raise ValueError("malformed, or nested too deeply") from None


def _elements(text: str) -> list[str]:
    found: list[str] = []
    at = 1
    while True:
        while text[at] in _BLANKS:
            at += 1
        end = _scan(text, at)[1]
        found.append(text[at:end])
        while text[end] in _BLANKS:
            end += 1
        if text[end] != ",":
            break
        at = end + 1
    if end != len(text) - 1:
        raise IndexError(end)
    return found


def messages_of(chunk: Chunk, stream: str) -> list[str]:
    try:
        return split_array(chunk.body)
    except ValueError as error:
        place = f"stream {stream!r} at {chunk.offset}"
        raise SourceError(f"{place}: not a JSON array of messages: {error}") from None


def message_rows(
    stream: str, incarnation: str, chunk: Chunk, messages: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """One row for each message of a JSON chunk."""
    count, position = len(messages), chunk.position
    offsets, nexts = [chunk.offset] * count, [chunk.next_offset] * count
    positions: Sequence[int] = range(count)
    if position is not None:
        lengths = map(len, messages if chunk.body.isascii() else map(str.encode, messages))
        bounds = [
            moved_to(chunk.next_offset, at)
            for at in accumulate((n + 1 for n in lengths), initial=position)
        ]
        offsets, nexts, positions = bounds[:-1], bounds[1:], [0] * count
    same = (stream, incarnation, "message", chunk.content_type)
    return _batches(same, offsets, positions, nexts, messages, [None] * count)


def chunk_rows(stream: str, incarnation: str, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """One row with the bytes of a non-JSON chunk, if it has any."""
    if not chunk.body:
        return iter(())
    at = chunk.position
    offset = chunk.offset if at is None else moved_to(chunk.next_offset, at)
    same = (stream, incarnation, "chunk", chunk.content_type)
    return _batches(same, [offset], [0], [chunk.next_offset], [None], [chunk.body])


def snapshot_rows(stream: str, incarnation: str, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
    messages = _snapshot_messages(snapshot)
    count = len(messages) or 1
    at = [snapshot.offset] * count
    data = [None] * count if messages else [snapshot.body]
    same = (stream, incarnation, "snapshot", snapshot.content_type)
    return _batches(same, at, range(-count, 0), at, messages or [None], data)


def failure_rows(stream: str, incarnation: str, offset: str, text: str) -> Iterator[pa.RecordBatch]:
    """One row that describes the failure."""
    return _batches((stream, incarnation, "failure", ""), [offset], [0], [offset], [text], [None])


def _snapshot_messages(snapshot: Snapshot) -> list[str]:
    """Empty if it is not a JSON array, which is allowed."""
    if media_type(snapshot.content_type) != JSON_TYPE:
        return []
    try:
        return split_array(snapshot.body)
    except ValueError:
        return []


def _batches(
    same: tuple[str, str, str, str],
    offsets: Sequence[str],
    positions: Sequence[int],
    nexts: Sequence[str],
    messages: Sequence[str | None],
    data: Sequence[bytes | None],
) -> Iterator[pa.RecordBatch]:
    stream, incarnation, kind, content_type = same
    for at in range(0, len(offsets), BATCH_ROWS):
        part = slice(at, at + BATCH_ROWS)
        count = len(offsets[part])
        columns = [
            pa.repeat(stream, count),
            pa.repeat(pa.scalar(incarnation or None, pa.string()), count),
            pa.array(offsets[part], pa.string()),
            pa.array(positions[part], pa.int32()),
            pa.array(nexts[part], pa.string()),
            pa.repeat(kind, count),
            pa.repeat(content_type, count),
            pa.array(messages[part], pa.string()),
            pa.array(data[part], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
