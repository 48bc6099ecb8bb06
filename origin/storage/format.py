"""The byte formats of the journal, the segments and the catalog. Pure.

docs/storage-format.md has the tables. All integers are little-endian; every checksum is CRC-32C.
A journal's checksums are seeded with its random salt, so that user data that looks like a batch,
by accident or on purpose, is never mistaken for one.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec
from crc32c import crc32c
from msgspec import Struct

from protocol.stream import Appended, Record, StreamState, date_producers

JOURNAL_MAGIC = b"WEIRJNL1"
JOURNAL_HEADER = struct.Struct("<8sIIQQI")  # magic, flags, salt, file number, size, crc
JOURNAL_HEADER_BYTES = 64
SYNCED = 1

BATCH_MAGIC = b"\xf7WbT"
BATCH_HEADER = struct.Struct("<4sIQII")  # magic, payload length, batch number, payload crc, crc
_LENGTHS = struct.Struct("<II")  # of a record and of the data after it

BLOCK_MAGIC = b"\xf7WbK"
BLOCK_HEADER = struct.Struct("<4sIQQQII")  # magic, appends, stream, start, length, crcs

LARGE_BYTES = 16 * 1024
JOIN_BYTES = 256 * 1024

CATALOG_MAGIC = b"WEIRCAT1"
FRAME_HEADER = struct.Struct("<II")  # length, crc

WATERMARK = struct.Struct("<QQQI")  # batch number, journal file, end position, crc

_encoder = msgspec.msgpack.Encoder()
_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Malformed(ValueError):
    """Invalid bytes, with the reason."""


# -- records ---------------------------------------------------------------------------------


def encode_records(records: Sequence[Record]) -> list[bytes]:
    """Each record as two lengths and its msgpack value; large data follows it uncopied."""
    buffers: list[bytes] = []
    for record in records:
        tail = b""
        if type(record) is Appended and len(record.data) > LARGE_BYTES:
            tail, record = record.data, msgspec.structs.replace(record, data=b"")
        body = _encoder.encode(record)
        buffers.append(_LENGTHS.pack(len(body), len(tail)) + body)
        if tail:
            buffers.append(tail)
    return buffers


def decode_records(payload: bytes) -> Iterator[Record]:
    position = 0
    view = memoryview(payload)
    while position < len(payload):
        length, tail = _LENGTHS.unpack_from(payload, position)
        start = position + _LENGTHS.size
        position = start + length + tail
        record = _record_decoder.decode(view[start : start + length])
        if tail:
            if type(record) is not Appended:
                raise Malformed("unexpected data after a record")
            record = msgspec.structs.replace(record, data=payload[start + length : position])
        yield record


# -- journal ---------------------------------------------------------------------------------


class JournalHead(NamedTuple):
    synced: bool
    salt: int
    number: int
    size_bytes: int


def encode_journal_head(head: JournalHead) -> bytes:
    flags = SYNCED if head.synced else 0
    fields = (JOURNAL_MAGIC, flags, head.salt, head.number, head.size_bytes)
    body = JOURNAL_HEADER.pack(*fields, 0)[:-4]
    return JOURNAL_HEADER.pack(*fields, crc32c(body)).ljust(JOURNAL_HEADER_BYTES, b"\0")


def decode_journal_head(data: bytes) -> JournalHead:
    if len(data) < JOURNAL_HEADER.size:
        raise Malformed("truncated journal header")
    magic, flags, salt, number, size_bytes, crc = JOURNAL_HEADER.unpack_from(data)
    if magic != JOURNAL_MAGIC:
        raise Malformed("not a journal file of this format")
    if crc32c(data[: JOURNAL_HEADER.size - 4]) != crc:
        raise Malformed("journal header checksum mismatch")
    return JournalHead(bool(flags & SYNCED), salt, number, size_bytes)


def encode_batch(buffers: Sequence[bytes], number: int, salt: int) -> list[bytes]:
    """A batch as the buffers to write; the large ones are not copied."""
    payload = [b"".join(buffers)] if sum(map(len, buffers)) <= JOIN_BYTES else _joined(buffers)
    crc = salt
    for buffer in payload:
        crc = crc32c(buffer, crc)
    fields = (BATCH_MAGIC, sum(map(len, payload)), number, crc)
    head = BATCH_HEADER.pack(*fields, 0)[:-4]
    return [BATCH_HEADER.pack(*fields, crc32c(head, salt)), *payload]


def _joined(buffers: Sequence[bytes]) -> list[bytes]:
    """Join runs of small buffers, because a system call accepts a limited number."""
    result: list[bytes] = []
    run: list[bytes] = []
    for buffer in buffers:
        if len(buffer) > LARGE_BYTES:
            result += [b"".join(run), buffer]
            run = []
        else:
            run.append(buffer)
    return [*result, b"".join(run)]


def decode_batch(data: bytes, position: int, salt: int) -> tuple[int, bytes] | None:
    """(batch number, payload) of the batch at `position`, or None if it is not whole."""
    start = position + BATCH_HEADER.size
    if start > len(data):
        return None
    magic, length, number, payload_crc, crc = BATCH_HEADER.unpack_from(data, position)
    if magic != BATCH_MAGIC or crc32c(data[position : start - 4], salt) != crc:
        return None
    payload = data[start : start + length]
    if len(payload) != length or crc32c(payload, salt) != payload_crc:
        return None
    return number, payload


def find_batch(data: bytes, position: int, salt: int, least: int) -> int | None:
    """Position of the first whole batch at or after `position` numbered at least `least`."""
    while (position := data.find(BATCH_MAGIC, position)) >= 0:
        found = decode_batch(data, position, salt)
        if found is not None and found[0] >= least:
            return position
        position += 1
    return None


def encode_watermark(batch: int, journal: int, end: int) -> bytes:
    body = WATERMARK.pack(batch, journal, end, 0)[:-4]
    return WATERMARK.pack(batch, journal, end, crc32c(body))


def decode_watermark(data: bytes) -> tuple[int, int, int]:
    """(batch, journal file, end) of the last acknowledged batch."""
    if len(data) < WATERMARK.size:
        raise Malformed("truncated watermark")
    batch, journal, end, crc = WATERMARK.unpack_from(data)
    if crc32c(data[: WATERMARK.size - 4]) != crc:
        raise Malformed("watermark checksum")
    return batch, journal, end


# -- segments --------------------------------------------------------------------------------


class Extent(NamedTuple):
    """The valid part of a segment file, from its first block to the end of its last."""

    first: int
    end: int


NO_EXTENT = Extent(0, 0)


class BlockHead(NamedTuple):
    """A block is a run of appends: this head, the length of each append, their bytes."""

    appends: int
    stream_id: int
    start: int
    length: int
    body_crc: int

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def table_bytes(self) -> int:
        return 4 * self.appends

    @property
    def size_bytes(self) -> int:
        return BLOCK_HEADER.size + self.table_bytes + self.length


def encode_block(stream_id: int, start: int, parts: Sequence[bytes]) -> list[bytes]:
    """A block as the buffers to write."""
    table = struct.pack(f"<{len(parts)}I", *map(len, parts))
    payload = parts[0] if len(parts) == 1 else b"".join(parts)
    body_crc = crc32c(payload, crc32c(table))
    fields = (BLOCK_MAGIC, len(parts), stream_id, start, len(payload), body_crc)
    head = BLOCK_HEADER.pack(*fields, 0)[:-4]
    return [BLOCK_HEADER.pack(*fields, crc32c(head)) + table, payload]


def decode_block_head(data: bytes | memoryview) -> BlockHead:
    if len(data) < BLOCK_HEADER.size:
        raise Malformed("truncated block header")
    magic, appends, stream_id, start, length, body_crc, crc = BLOCK_HEADER.unpack_from(data)
    if magic != BLOCK_MAGIC or crc32c(data[: BLOCK_HEADER.size - 4]) != crc:
        raise Malformed("block header checksum mismatch")
    return BlockHead(appends, stream_id, start, length, body_crc)


def check_block_body(head: BlockHead, body: memoryview) -> memoryview:
    """The payload of a block whose table and payload are `body`."""
    if len(body) != head.table_bytes + head.length:
        raise Malformed("truncated block")
    if crc32c(body) != head.body_crc:
        raise Malformed("block checksum")
    return body[head.table_bytes :]


def block_boundaries(head: BlockHead, body: memoryview) -> list[int]:
    """Positions where the appends of a block end."""
    lengths = struct.unpack_from(f"<{head.appends}I", body)
    return list(accumulate(lengths, initial=head.start))[1:]


# -- catalog ---------------------------------------------------------------------------------


class CatalogStream(Struct, frozen=True, array_like=True, tag="stream"):
    """A stream as of a checkpoint; its segment holds positions below `flushed`.

    Everything before `segment_first` in the file is below the stream's floor, and punched out.
    """

    id: int
    state: msgspec.Raw
    flushed: int
    segment_bytes: int
    segment_first: int = 0


class CatalogGone(Struct, frozen=True, array_like=True, tag="gone"):
    id: int


class Checkpoint(Struct, frozen=True, array_like=True, tag="checkpoint"):
    """Batches before `next_batch` are in catalog and segments; the rest is in the journal."""

    next_batch: int
    journal: int


Frame = CatalogStream | CatalogGone | Checkpoint
_frame_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
_state_decoder = msgspec.msgpack.Decoder(StreamState)


def encode_state(state: StreamState) -> bytes:
    return _encoder.encode(state)


def decode_state(data: bytes | msgspec.Raw) -> StreamState:
    state = _state_decoder.decode(data)
    if state.producers:
        date_producers(state)
    return state


def encode_frame(frame: Frame) -> bytes:
    body = _encoder.encode(frame)
    return FRAME_HEADER.pack(len(body), crc32c(body)) + body


def decode_frames(data: bytes) -> Iterator[tuple[int, Frame]]:
    """(end position, frame) of each frame, up to the first incomplete or damaged one."""
    position = len(CATALOG_MAGIC)
    view = memoryview(data)
    while position + FRAME_HEADER.size <= len(data):
        length, crc = FRAME_HEADER.unpack_from(data, position)
        start = position + FRAME_HEADER.size
        body = view[start : start + length]
        if len(body) != length or not length or crc32c(body) != crc:
            return
        position = start + length
        yield position, _frame_decoder.decode(body)
