"""Answers to the questions of other nodes, and to this node's own, from the shards open here."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import repeat

from origin.bucketroutes import listed
from origin.cluster.listings import first_of
from origin.cluster.questions import (
    Count,
    Found,
    HasBucket,
    IsEmpty,
    Listed,
    MayHaveMoved,
    Missing,
    Names,
    Number,
    Page,
    Permit,
    Permitted,
    Question,
    Revoke,
    Shown,
    WhereIs,
)
from origin.cluster.view import ClusterShards
from origin.freshness import no_owner
from origin.shard import Shard
from origin.shards import Elsewhere
from origin.streams import Stream
from protocol.requests import Listing


class Closings:
    """Buckets that are being deleted: nobody is told that they exist until that is decided."""

    def __init__(self) -> None:
        self._decided: dict[str, asyncio.Event] = {}

    async def wait(self, bucket: str) -> None:
        while (decided := self._decided.get(bucket)) is not None:
            await decided.wait()

    @asynccontextmanager
    async def closing(self, bucket: str) -> AsyncIterator[None]:
        await self.wait(bucket)
        decided = self._decided[bucket] = asyncio.Event()
        try:
            yield
        finally:
            del self._decided[bucket]
            decided.set()


class Answering:
    def __init__(self, shards: ClusterShards, closings: Closings) -> None:
        self._shards = shards
        self._closings = closings

    async def answer(self, question: Question) -> Found:
        """Raises `no_owner` if this node does not own a shard that it is asked about, or is not the
        node that is asked."""
        match question:
            case WhereIs(name):
                home = self._fresh(self._shards.number_of(name))
                return Number(home.aliases.shards.get(name, home.number))
            case Permit(shard, name):
                return self._permit(self._fresh(shard), name)
            case Revoke(shard, name):
                return self._revoke(self._fresh(shard), name)
            case Missing(shard, names):
                there = self._fresh(shard).registry.by_name
                return Names([name for name in names if name not in there])
            case MayHaveMoved(node_id, version):
                if node_id != self._shards.node_id:
                    raise no_owner()
                return Shown(self._shards.have_moved(version))
            case HasBucket(bucket):
                await self._closings.wait(bucket)
                return Shown(self._has_bucket(bucket))
            case IsEmpty(bucket, shards):
                return Shown(self._is_empty(bucket, shards))
            case Count(bucket, shards):
                counts = (self._fresh(n).registry.buckets.count(bucket) for n in shards)
                return Number(sum(counts))
            case Page(bucket, shards, prefix, after, limit):
                return _page(map(self._fresh, shards), bucket, Listing(prefix, after, limit))

    def _fresh(self, number: int) -> Shard:
        try:
            shard = self._shards.at(number)
        except Elsewhere:
            raise no_owner() from None
        if not shard.fresh():
            raise no_owner()
        return shard

    def _permit(self, shard: Shard, name: str) -> Permitted:
        return Permitted(shard.permits.current, name in shard.registry.by_name)

    def _revoke(self, shard: Shard, name: str) -> Permitted:
        exists = name in shard.registry.by_name
        if not exists:
            shard.permits.revoke_all()
        return Permitted(shard.permits.current, exists)

    def _has_bucket(self, bucket: str) -> bool:
        """An uncommitted bucket must not have streams, because a crash could undo its creation."""
        home = self._fresh(self._shards.number_of(bucket))
        found = home.lifetimes.find_writable(bucket)
        return found is not None and found.visible

    def _is_empty(self, bucket: str, numbers: list[int]) -> bool:
        shards = [self._fresh(number) for number in numbers]
        is_empty = all(shard.registry.buckets.is_empty(bucket) for shard in shards)
        if is_empty:  # else the bucket stays, and nobody's creation is disturbed
            for shard in shards:
                shard.permits.revoke_all()
        return is_empty


def _page(shards: Iterable[Shard], bucket: str, wanted: Listing) -> Listed:
    """Rows are made only for names on the page: all that the shards have would take long."""
    pages = [(shard, *shard.registry.buckets.page(bucket, wanted)) for shard in shards]
    named = (zip(names, repeat(shard), strict=False) for shard, names, _ in pages)
    found, are_more = first_of(named, wanted.limit)
    rows = [_row(shard, bucket, name) for name, shard in found]
    has_more = are_more or any(more for _, _, more in pages)
    return Listed([name for name, _ in found], rows, has_more)


def _row(shard: Shard, bucket: str, name: str) -> dict[str, object] | None:
    stream = shard.lifetimes.find(f"{bucket}/{name}")
    return listed(name, stream) if isinstance(stream, Stream) else None
