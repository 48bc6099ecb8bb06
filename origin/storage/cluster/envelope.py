"""The messages of a shard's journal. Pure.

A batch is one message, or several parts of which the last one commits it. Every message carries the
epoch of the owner that wrote it, the number of its batch, and a checksum over the batch and all
batches before it: the chain. So a replay notices any message that is missing, changed, repeated or
out of order, and never applies what a deposed owner left unfinished.

docs/storage-format.md has the table. Integers are little-endian; checksums are CRC-32C.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

import msgspec
from crc32c import crc32c
from msgspec import Struct

MAGIC = b"WJM1"
# magic, kind, shard, epoch, number, chain before the batch, chain up to this part, part, parts, crc
_HEADER = struct.Struct("<4sHHQQIIHHI")
_SEED = struct.Struct("<HHQQI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size
MAX_PARTS = 0xFFFF


class Kind(IntEnum):
    RECORDS = 1
    EPOCH = 2
    CHECKPOINT = 3


class Malformed(ValueError):
    """Not a message of this format, or changed since it was written."""


class BrokenChain(ValueError):
    """A message is missing, changed, repeated or out of order."""


class Message(NamedTuple):
    kind: Kind
    shard: int
    epoch: int
    number: int  # of its batch, counted from 1
    previous: int  # chain before the batch
    chain: int  # up to and including this part
    part: int
    parts: int
    payload: bytes

    @property
    def is_last(self) -> bool:
        return self.part == self.parts - 1


class Link(NamedTuple):
    """The end of a chain: what the next batch must continue."""

    epoch: int
    number: int
    chain: int


START = Link(0, 0, 0)


class Batch(NamedTuple):
    kind: Kind
    epoch: int
    number: int
    payload: bytes


class EpochRecord(Struct, frozen=True, array_like=True):
    """From here on only this owner's batches count."""

    node: str
    at_ms: int


class CheckpointRecord(Struct, frozen=True, array_like=True):
    """Batches before `next_batch` are in these objects: the base, then the deltas in order."""

    next_batch: int
    base: str
    deltas: tuple[str, ...]
    at_ms: int


def encode(
    kind: Kind, shard: int, epoch: int, after: Link, payload: bytes, max_bytes: int
) -> tuple[list[bytes], Link]:
    """A batch as messages of at most `max_bytes`, and the end of the chain after it."""
    room = max_bytes - HEADER_BYTES
    pieces = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
    number = after.number + 1
    chain = _seed(kind, shard, epoch, number, after.chain)
    messages = []
    for part, piece in enumerate(pieces):
        chain = crc32c(piece, chain)
        fields = (MAGIC, kind, shard, epoch, number, after.chain, chain, part, len(pieces))
        head = _HEADER.pack(*fields, 0)[: -_CRC.size]
        messages.append(head + _CRC.pack(crc32c(head)) + piece)
    return messages, Link(epoch, number, chain)


def decode(data: bytes) -> Message:
    if len(data) < HEADER_BYTES:
        raise Malformed("truncated")
    magic, kind, shard, epoch, number, previous, chain, part, parts, crc = _HEADER.unpack_from(data)
    if magic != MAGIC or crc32c(data[: HEADER_BYTES - _CRC.size]) != crc:
        raise Malformed("not a journal message, or its header is damaged")
    payload = data[HEADER_BYTES:]
    return Message(Kind(kind), shard, epoch, number, previous, chain, part, parts, payload)


def _seed(kind: int, shard: int, epoch: int, number: int, previous: int) -> int:
    return crc32c(_SEED.pack(kind, shard, epoch, number, previous))


class Chain:
    """Follows the messages of a journal in order and yields its committed batches."""

    def __init__(self, shard: int, end: Link | None) -> None:
        """`end` is the last batch known; None accepts whatever batch comes first."""
        self._shard = shard
        self.end = end
        self._parts: list[Message] = []

    def feed(self, data: bytes) -> Batch | None:
        """The batch that this message completes."""
        try:
            message = decode(data)
        except ValueError as error:
            raise BrokenChain(str(error)) from None
        if message.shard != self._shard:
            raise BrokenChain(f"a message of shard {message.shard}")
        if message.part == 0:
            self._begin(message)
        elif not self._continues(message):
            if self.end is None:  # the rest of a batch that was purged
                return None
            raise BrokenChain(f"part {message.part} of batch {message.number} has no beginning")
        chain = crc32c(message.payload, self._chain_before(message))
        if chain != message.chain:
            raise BrokenChain(f"batch {message.number}: its content has changed")
        self._parts.append(message)
        if not message.is_last:
            return None
        parts, self._parts = self._parts, []
        self.end = Link(message.epoch, message.number, message.chain)
        payload = b"".join([part.payload for part in parts])
        return Batch(message.kind, message.epoch, message.number, payload)

    def _begin(self, message: Message) -> None:
        """Parts of an unfinished batch before it were never committed, if a new owner says so."""
        if self._parts and message.epoch <= self._parts[0].epoch:
            raise BrokenChain(f"batch {message.number} follows an unfinished one")
        self._parts = []
        end = self.end
        if end is None:
            return
        if (message.number, message.previous) != (end.number + 1, end.chain):
            raise BrokenChain(f"batch {message.number} does not continue batch {end.number}")
        starts_epoch = message.kind is Kind.EPOCH and message.epoch > end.epoch
        if message.epoch != end.epoch and not starts_epoch:
            raise BrokenChain(f"batch {message.number} is of epoch {message.epoch}")

    def _continues(self, message: Message) -> bool:
        if not self._parts:
            return False
        last = self._parts[-1]
        here = (message.epoch, message.number, message.part, message.parts)
        return here == (last.epoch, last.number, last.part + 1, last.parts)

    def _chain_before(self, message: Message) -> int:
        if self._parts:
            return self._parts[-1].chain
        return _seed(message.kind, message.shard, message.epoch, message.number, message.previous)


_encoder = msgspec.msgpack.Encoder()
_epoch_decoder = msgspec.msgpack.Decoder(EpochRecord)
_checkpoint_decoder = msgspec.msgpack.Decoder(CheckpointRecord)


def encode_record(record: EpochRecord | CheckpointRecord) -> bytes:
    return _encoder.encode(record)


def decode_epoch(payload: bytes) -> EpochRecord:
    return _epoch_decoder.decode(payload)


def decode_checkpoint(payload: bytes) -> CheckpointRecord:
    return _checkpoint_decoder.decode(payload)
