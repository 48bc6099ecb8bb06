"""Buckets over several shards. A bucket is in its home shard; its streams are in all shards.

Invariants:

1. A stream is created in a bucket only with a permit of the stream's shard (`creations.Permits`)
   that was asked for before the bucket's owner said that the bucket exists.
2. While a bucket is being deleted, its owner tells nobody that it exists.
3. A bucket is removed only after every shard has said that it has no stream of it, not even a
   staged one, and has revoked its permits: those before that must ask again (1), and wait (2).
4. A count, and a page of a listing, has every shard in it, or is not given.

If an owner is away, the bucket stays: the deletion is refused and can be repeated.
"""

from origin.bucketroutes import BucketRoutes, count_reply, page_reply
from origin.calls import Call, Operations
from origin.cluster.answering import Closings
from origin.cluster.listings import merged
from origin.cluster.peers import Peers
from origin.cluster.questions import Count, HasBucket, IsEmpty, Listed, Number, Page, Shown
from origin.cluster.view import ClusterShards
from origin.config import OriginConfig
from protocol import replies
from protocol.paths import Kind
from protocol.replies import Reply
from protocol.requests import parse_listing


class ClusterBuckets:
    def __init__(
        self, config: OriginConfig, shards: ClusterShards, peers: Peers, closings: Closings
    ) -> None:
        self._shards = shards
        self._peers = peers
        self._closings = closings
        self.operations: Operations = {
            Kind.BUCKET: {
                **BucketRoutes(config).operations[Kind.BUCKET],
                "GET": self._get,
                "HEAD": self._get,
                "DELETE": self._delete,
            },
            Kind.LISTING: {"GET": self._list, "HEAD": self._list},
        }

    async def exists(self, bucket: str) -> bool:
        """For a creation in it. The answer holds as long as a permit that was there before."""
        home = self._shards.number_of(bucket)
        return (await self._peers.ask(home, HasBucket(bucket), Shown)).value

    async def _get(self, call: Call) -> Reply:
        bucket = call.place.name
        if _is_missing(call):
            return replies.no_bucket()
        counts = await self._peers.ask_all(lambda shards: Count(bucket, shards), Number)
        return count_reply(bucket, sum(count.value for count in counts))

    async def _list(self, call: Call) -> Reply:
        wanted, bucket = parse_listing(call.query), call.place.name
        if _is_missing(call):
            return replies.no_bucket()
        pages = await self._peers.ask_all(
            lambda shards: Page(bucket, shards, wanted.prefix, wanted.after, wanted.limit), Listed
        )
        page = merged(pages, wanted.limit)
        rows = [row for row in page.rows if row is not None]
        cursor = page.names[-1] if page.names else None
        return page_reply(bucket, wanted, rows, cursor, page.has_more)

    async def _delete(self, call: Call) -> Reply:
        bucket = call.place.name
        async with self._closings.closing(bucket):
            if _is_missing(call):
                return replies.no_bucket()
            empty = await self._peers.ask_all(lambda shards: IsEmpty(bucket, shards), Shown)
            if not all(each.value for each in empty):
                return replies.bucket_not_empty()
            reply = await call.shard.lifetimes.delete(bucket)
            return replies.no_bucket() if reply.status == 404 else reply


def _is_missing(call: Call) -> bool:
    return isinstance(call.shard.lifetimes.find(call.place.name), Reply)
