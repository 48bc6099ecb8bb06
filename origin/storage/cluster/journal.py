"""The journal of one shard: a replicated JetStream stream that only one owner can extend.

Every publish names the sequence that it must follow. A new owner publishes its epoch first, which
makes every later publish of the old owner fail, and then replays up to it. That is the only fence;
it needs no clocks. One message is in flight at a time: with two, the second of a deposed owner
could land behind the new owner's epoch.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from origin.storage.base import DamagedData, OutcomeUnknown, StorageFailed, StorageLost
from origin.storage.cluster.envelope import (
    START,
    Batch,
    BrokenChain,
    Chain,
    EpochRecord,
    Kind,
    Link,
    Message,
    decode,
    encode,
    encode_record,
)
from origin.storage.cluster.jetstream import (
    NO_SPACE,
    NO_STREAM,
    WRONG_LAST_SEQUENCE,
    Away,
    JetStream,
    Refused,
)

log = logging.getLogger("weir.storage")

MESSAGE_BYTES = 1024 * 1024  # of a part; the servers' own limit may be lower
HEADERS_BYTES = 1024
MESSAGE_COST = 256  # what NATS stores of a message besides its payload, and more
READ_BYTES = 8 * 1024 * 1024
EPOCH_SECS = 10.0  # then others may be opened, and this one is tried again
LAG_SECS = 3.0  # a new leader may not know everything at once
RETRY_SECS = 0.1
DUPLICATES_SECS = 120
ATTEMPTS = 20  # to read a message that the servers say they have


class Fenced(StorageLost):
    """Another owner has taken over."""


class JournalLost(StorageFailed):
    """The journal does not have what it must have: restored from a backup, or removed."""


class DamagedJournal(DamagedData):
    """A message differs from what was written; `position` is its sequence."""

    def __init__(self, stream: str, seq: int, reason: str) -> None:
        super().__init__(stream, seq, reason)
        self.args = (f"{stream}: message {seq} is damaged: {reason}",)


class Tail(NamedTuple):
    """The end of the journal as found."""

    seq: int
    link: Link


class Journal:
    def __init__(
        self,
        jetstream: JetStream,
        cluster: str,
        shard: int,
        *,
        epoch: int,
        least_number: int = 0,
    ) -> None:
        """`least_number` is that of a batch which is known to have been stored."""
        self._jetstream = jetstream
        self._least_number = least_number
        self.shard = shard
        self.epoch = epoch
        self.stream = stream_name(cluster, shard)
        self._subject = subject_of(cluster, shard)
        self._one_in_flight = asyncio.Lock()
        self._seq = 0
        self._link = START
        self._sent_at: float | None = None
        self.is_short = False  # the servers have lost its end
        self.first_seq = 0

    @property
    def checkpoint_subject(self) -> str:
        """Checkpoints have a subject of their own, so that the last one is found at once."""
        return f"{self._subject}.checkpoint"

    @property
    def next_number(self) -> int:
        return self._link.number + 1

    @property
    def seq(self) -> int:
        """Of the last message that is known to be stored."""
        return self._seq

    @property
    def silent_secs(self) -> float:
        """How long the batch in flight has waited for its outcome."""
        return 0.0 if self._sent_at is None else time.monotonic() - self._sent_at

    # -- taking over ---------------------------------------------------------------------------

    async def found(self, *, replicas: int, max_bytes: int) -> None:
        """Before the cluster has its first assignment, with epoch 0. From then on a journal that
        does not exist, or is empty, has been lost: it had at least this record, of no owner."""
        await self._jetstream.ensure_stream(
            self.stream,
            subjects=[self._subject, self.checkpoint_subject],
            num_replicas=replicas,
            max_bytes=max_bytes,
            discard="new",
            storage="file",
            allow_direct=True,
            deny_delete=True,
            duplicate_window=DUPLICATES_SECS * 1_000_000_000,
        )
        state = await self._jetstream.state(self.stream)
        if state is not None and state.last_seq == 0:
            with suppress(Fenced):  # another node was faster
                await self.publish(Kind.EPOCH, encode_record(_epoch_record("")))

    async def make_room(self, max_bytes: int) -> int:
        """The setting may have been raised since it was founded; returns the room that there is."""
        try:
            return await self._jetstream.make_room(self.stream, max_bytes)
        except Refused as refused:
            if refused.code == NO_STREAM:
                raise JournalLost(f"{self.stream} does not exist") from None
            raise

    async def begin_epoch(self, node: str) -> int:
        """Fence every earlier owner; returns the sequence of the epoch record. Raises Away if the
        servers do not take it, which may be for lack of space."""
        try:
            async with asyncio.timeout(EPOCH_SECS):
                return await self._begin_epoch(node)
        except TimeoutError:
            raise Away(f"{self.stream} took no epoch record in {EPOCH_SECS:.0f} s") from None

    async def _begin_epoch(self, node: str) -> int:
        until = time.monotonic() + LAG_SECS
        while True:
            tail = await self._find_tail()
            if tail.link.epoch >= self.epoch:
                raise Fenced(f"epoch {tail.link.epoch} is in the journal, ours is {self.epoch}")
            if tail.link.number == 0:
                raise JournalLost(f"{self.stream} is empty")
            if tail.link.number < self._least_number:  # nothing may be written behind the gap
                if time.monotonic() < until:
                    await asyncio.sleep(RETRY_SECS)
                    continue
                ends = f"ends at batch {tail.link.number}, and had batch {self._least_number}"
                raise JournalLost(f"{self.stream} {ends}")
            self._seq, self._link = tail.seq, tail.link
            try:
                return await self.publish(Kind.EPOCH, encode_record(_epoch_record(node)))
            except (Fenced, OutcomeUnknown):  # somebody wrote meanwhile; the epochs decide who wins
                continue

    async def _find_tail(self) -> Tail:
        """The last committed batch; parts after it belong to an unfinished one."""
        state = await self._jetstream.state(self.stream)
        if state is None:
            raise JournalLost(f"{self.stream} does not exist")
        self.first_seq = max(1, state.first_seq)
        seq = state.last_seq
        while seq >= self.first_seq:
            message = await self._read(seq)
            if message.is_last:
                return Tail(state.last_seq, Link(message.epoch, message.number, message.chain))
            seq -= message.part + 1
        if state.last_seq and not state.messages:
            raise JournalLost(f"{self.stream} was emptied")
        return Tail(state.last_seq, START)

    async def _read(self, seq: int) -> Message:
        data = await self._jetstream.get(self.stream, seq)
        if data is None:
            raise JournalLost(f"{self.stream}: message {seq} is missing")
        try:
            return decode(data)
        except ValueError as error:
            raise DamagedJournal(self.stream, seq, str(error)) from None

    # -- writing -------------------------------------------------------------------------------

    async def publish(self, kind: Kind, payload: bytes) -> int:
        """Returns the sequence when it is stored by a quorum. As long as nobody answers, it tries
        again: the outcome must be known before anything else is written. Raises Fenced."""
        async with self._one_in_flight:
            most = min(MESSAGE_BYTES, self._jetstream.max_message_bytes - HEADERS_BYTES)
            messages, link = encode(kind, self.shard, self.epoch, self._link, payload, most)
            subject = self.checkpoint_subject if kind is Kind.CHECKPOINT else self._subject
            self._sent_at = time.monotonic()
            try:
                for message in messages:
                    await self._put(subject, message)
            finally:
                self._sent_at = None
            self._link = link
            return self._seq

    async def _put(self, subject: str, data: bytes) -> None:
        expected = self._seq
        headers = {
            "Nats-Expected-Last-Sequence": str(expected),
            "Nats-Msg-Id": f"{self.epoch:x}-{expected:x}",
        }
        was_full = False
        while True:
            try:
                seq = await self._jetstream.publish(subject, data, headers)
            except Away as away:
                log.debug("%s: %s", self.stream, away)
                await asyncio.sleep(RETRY_SECS)
                continue
            except Refused as refused:
                if refused.code in NO_SPACE:  # until room was made; the shard's own limit is lower
                    log.log(
                        logging.DEBUG if was_full else logging.ERROR, "%s: %s", self.stream, refused
                    )
                    was_full = True
                    await asyncio.sleep(RETRY_SECS)
                    continue
                if not await self._landed(refused, expected + 1, data):
                    await asyncio.sleep(RETRY_SECS)
                    continue
                seq = expected + 1
            if seq != expected + 1:
                raise JournalLost(f"{self.stream}: stored at {seq} instead of {expected + 1}")
            self._seq = seq
            self.is_short = False
            return

    async def _landed(self, refused: Refused, seq: int, data: bytes) -> bool:
        """Whether it is stored after all; False if it should be sent again; raises Fenced."""
        if refused.code not in WRONG_LAST_SEQUENCE:
            raise StorageFailed(f"{self.stream}: {refused}")
        try:
            found = await self._jetstream.get(self.stream, seq)
            if found is None:
                state = await self._jetstream.state(self.stream)
                if state is None or state.first_seq > seq:
                    raise OutcomeUnknown(f"{self.stream}: a later owner has purged message {seq}")
                self._note_short(state.last_seq)
                return False
        except Away:
            return False
        if found != data:
            raise Fenced(f"{self.stream}: message {seq} is another owner's")
        return True

    def _note_short(self, last_seq: int) -> None:
        """Nothing can be published any more. What was lost is still in the memory of this node, so
        it stays the owner."""
        is_short = last_seq < self._seq and self.silent_secs > LAG_SECS
        if is_short and not self.is_short:
            log.critical("%s ends at message %d, and had %d", self.stream, last_seq, self._seq)
        self.is_short = is_short

    # -- reading -------------------------------------------------------------------------------

    async def last_checkpoint(self) -> tuple[int, bytes] | None:
        """Sequence and payload of the last committed checkpoint."""
        found = await self._jetstream.last(self.stream, self.checkpoint_subject)
        if found is None:
            return None
        try:
            message = decode(found.data)
        except ValueError as error:
            raise DamagedJournal(self.stream, found.seq, str(error)) from None
        if message.parts != 1:
            raise DamagedJournal(self.stream, found.seq, "a checkpoint in parts")
        return found.seq, message.payload

    async def replay(self, end_seq: int) -> AsyncIterator[tuple[int, Batch]]:
        """(sequence, batch) of every committed batch up to `end_seq`."""
        chain = Chain(self.shard, START if self.first_seq <= 1 else None)
        seq, attempts = self.first_seq, 0
        while seq <= end_seq:
            before = seq
            for found in await self._jetstream.read_from(self.stream, seq, READ_BYTES):
                if found.seq != seq or seq > end_seq:
                    break
                batch = self._feed(chain, found.seq, found.data)
                if batch is not None:
                    yield found.seq, batch
                seq += 1
            attempts = 0 if seq > before else attempts + 1
            if attempts > ATTEMPTS:
                raise JournalLost(f"{self.stream}: message {seq} is missing")
            if attempts:
                await asyncio.sleep(RETRY_SECS)  # the server that answered may be behind

    def _feed(self, chain: Chain, seq: int, data: bytes) -> Batch | None:
        try:
            return chain.feed(data)
        except BrokenChain as error:
            raise DamagedJournal(self.stream, seq, str(error)) from None

    async def purge(self, before_seq: int) -> None:
        await self._jetstream.purge(self.stream, before_seq)
        self.first_seq = before_seq


def stored_bytes(payload_bytes: int) -> int:
    """What a batch takes of the journal, rather more than less: room runs out here, not at NATS."""
    return payload_bytes + MESSAGE_COST * (payload_bytes // MESSAGE_BYTES + 1)


def _epoch_record(node: str) -> EpochRecord:
    return EpochRecord(node, time.time_ns() // 1_000_000)


def stream_name(cluster: str, shard: int) -> str:
    return f"WEIR-{cluster}-{shard:03d}"


def subject_of(cluster: str, shard: int) -> str:
    return f"weir.{cluster}.journal.{shard:03d}"
