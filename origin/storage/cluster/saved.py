"""Checkpoints as objects: every stream of a shard, or those that changed. Pure.

A checkpoint is a base and the deltas after it. Each is one object: a magic number, the checksum of
its key and the rest, and a compressed msgpack value.
"""

import struct
from collections.abc import Iterable

import msgspec
import zstandard
from crc32c import crc32c
from msgspec import Struct

from origin.storage.base import DamagedData

MAGIC = b"WEIRCKP2"
MAGIC_1 = b"WEIRCKP1"  # of before: its checksum does not cover the key
_CRC = struct.Struct("<I")
MAX_BYTES = 1 << 32


class SavedStream(Struct, frozen=True, array_like=True):
    """A stream as of a checkpoint: positions below `flushed` are in its blocks."""

    id: int
    state: msgspec.Raw
    flushed: int
    blocks: msgspec.Raw


class Saved(Struct, frozen=True, array_like=True):
    streams: list[SavedStream]
    gone: list[int]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Saved)


def encode_saved(saved: Saved, key: str) -> bytes:
    body = zstandard.ZstdCompressor(level=1).compress(_encoder.encode(saved))
    return MAGIC + _CRC.pack(crc32c(body, crc32c(key.encode()))) + body


def decode_saved(data: bytes, key: str) -> Saved:
    start = len(MAGIC) + _CRC.size
    magic = data[: len(MAGIC)]
    if magic not in (MAGIC, MAGIC_1) or len(data) < start:
        raise DamagedData(key, 0, "not a checkpoint")
    body, seed = data[start:], crc32c(key.encode()) if magic == MAGIC else 0
    if _CRC.unpack_from(data, len(MAGIC))[0] != crc32c(body, seed):
        raise DamagedData(key, start, "checkpoint checksum")
    try:
        plain = zstandard.ZstdDecompressor().decompress(body, max_output_size=MAX_BYTES)
        return _decoder.decode(plain)
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise DamagedData(key, start, str(error)) from None


def merged(parts: Iterable[Saved]) -> Saved:
    """One base in place of a base and its deltas."""
    streams: dict[int, SavedStream] = {}
    for part in parts:
        streams.update((stream.id, stream) for stream in part.streams)
        for stream_id in part.gone:
            streams.pop(stream_id, None)
    return Saved(list(streams.values()), [])
