"""Origins with a bug planted in what makes a cluster safe: `python -m tests.verify.mutants NAME
origin ...` runs `weir origin ...` with it. `weir verify --cluster` must find each."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any

from origin.cluster.node import ClusterNode
from origin.storage.cluster import journal as journals
from origin.storage.cluster.envelope import Kind, encode
from origin.storage.cluster.flush import Cut
from origin.storage.cluster.flushes import Flushes
from origin.storage.cluster.jetstream import Away
from origin.storage.cluster.journal import Journal
from origin.storage.commit import Batch, GroupCommit
from weir.cli import main

IN_FLIGHT = 4


def two_in_flight() -> None:
    """Batches are published before the one before them is acknowledged."""

    async def publish(self: Journal, kind: Kind, payload: bytes) -> int:
        most = min(journals.MESSAGE_BYTES, self._jetstream.max_message_bytes - 1024)
        messages, link = encode(kind, self.shard, self.epoch, self._link, payload, most)
        subject = self.checkpoint_subject if kind is Kind.CHECKPOINT else self._subject
        first, self._link = self._seq, link
        self._seq += len(messages)
        for at, message in enumerate(messages, first):
            await _put_at(self, subject, message, at)
        return first + len(messages)

    async def _put_at(self: Journal, subject: str, data: bytes, expected: int) -> None:
        lane = Journal.__new__(Journal)  # `_put` with a sequence of its own
        lane.__dict__.update(self.__dict__, _seq=expected)
        await Journal._put(lane, subject, data)

    def start_batch(self: GroupCommit) -> None:
        self._scheduled = False
        while self._pending and self.failure is None and _count(self) < IN_FLIGHT:
            batch = self._seal(self._pending, self.pending_bytes)
            if batch is None:
                return
            self._pending, self.pending_bytes = [], 0
            _count(self, +1)
            self._writer.begin(batch, self._landed)

    landed = GroupCommit._landed

    def _landed(self: GroupCommit, batch: Batch, error: Exception | None) -> None:
        _count(self, -1)
        landed(self, batch, error)

    def _count(self: GroupCommit, more: int = 0) -> int:
        self.__dict__["count"] = self.__dict__.get("count", 0) + more
        return int(self.__dict__["count"])

    _plant(Journal, publish=publish)
    is_idle = property(lambda self: not _count(self) and not self._pending)
    _plant(GroupCommit, start_batch=start_batch, _landed=_landed, idle=is_idle)


def no_epoch_record() -> None:
    """A new owner takes over without a word in the journal."""

    async def begin_epoch(self: Journal, node: str) -> int:
        tail = await self._find_tail()
        self._seq, self._link = tail.seq, tail.link
        return tail.seq

    _plant(Journal, begin_epoch=begin_epoch)


def early_purge() -> None:
    """The journal is purged before the checkpoint that replaces it is committed."""
    flush = Flushes._flush

    async def _flush(self: Flushes, cut: Cut) -> None:
        await self._journal.purge(cut.seq + 1)
        await flush(self, cut)

    _plant(Flushes, _flush=_flush)


def lease_only() -> None:
    """Whoever believes to have the lease may write: the journal takes anything."""
    put = Journal._put

    async def _put(self: Journal, subject: str, data: bytes) -> None:
        if not self.epoch:  # of those who found it, one wins
            return await put(self, subject, data)
        while True:
            try:
                self._seq = await self._jetstream.publish(subject, data, {})
                return
            except Away:
                await asyncio.sleep(journals.RETRY_SECS)

    _plant(Journal, _put=_put)


def stale_tail() -> None:
    """Tails are served without a lease."""
    _plant(ClusterNode, is_fresh=lambda self: True)


def _plant(kind: type[object], **bugs: Any) -> None:
    for name, bug in bugs.items():
        assert hasattr(kind, name), f"{kind.__name__} has no {name} any more"
        setattr(kind, name, bug)


MUTANTS: Mapping[str, Callable[[], None]] = {
    "two-in-flight": two_in_flight,
    "no-epoch-record": no_epoch_record,
    "early-purge": early_purge,
    "lease-only": lease_only,
    "stale-tail": stale_tail,
}

if __name__ == "__main__":
    MUTANTS[sys.argv[1]]()
    main(sys.argv[2:])
