"""Buckets over HTTP: created, counted, listed, deleted."""

from collections.abc import Sequence

from origin.buckets import local_name
from origin.calls import Call, Operations
from origin.config import OriginConfig
from origin.streams import Stream
from protocol import replies
from protocol.paths import Kind
from protocol.replies import NO_STORE, Reply, problem
from protocol.requests import Create, Listing, parse_listing

_BUCKET = Create(content_type=None, ttl_s=None, expires_at_ms=None, closed=False, fork=None)


class BucketRoutes:
    def __init__(self, config: OriginConfig) -> None:
        self._http = config.http
        self.operations: Operations = {
            Kind.BUCKET: {
                "GET": self._get,
                "HEAD": self._get,
                "PUT": self._put,
                "DELETE": self._delete,
            },
            Kind.LISTING: {"GET": self._list, "HEAD": self._list},
        }

    async def _put(self, call: Call) -> Reply:
        location = call.location(self._http)
        reply = await call.shard.creations.create(call.place.name, _BUCKET, b"", location)
        if reply.status == 201:
            return Reply(201, (("Location", location), NO_STORE))
        return problem(409, "bucket-exists", "The bucket already exists.")

    async def _get(self, call: Call) -> Reply:
        name = call.place.name
        if isinstance(call.shard.lifetimes.find(name), Reply):
            return replies.no_bucket()
        return count_reply(name, call.shard.registry.buckets.count(name))

    async def _delete(self, call: Call) -> Reply:
        reply = await call.shard.lifetimes.delete(call.place.name)
        return replies.no_bucket() if reply.status == 404 else reply

    async def _list(self, call: Call) -> Reply:
        wanted = parse_listing(call.query)
        bucket, find = call.place.name, call.shard.lifetimes.find
        if isinstance(find(bucket), Reply):
            return replies.no_bucket()
        names, has_more = call.shard.registry.buckets.page(bucket, wanted)
        found = [(name, find(f"{bucket}/{name}")) for name in names]
        rows = [listed(name, stream) for name, stream in found if isinstance(stream, Stream)]
        return page_reply(bucket, wanted, rows, names[-1] if names else None, has_more)


def count_reply(bucket: str, count: int) -> Reply:
    return replies.json_reply(200, {"bucket_id": local_name(bucket), "streams": count})


def page_reply(
    bucket: str, wanted: Listing, rows: Sequence[object], cursor: str | None, has_more: bool
) -> Reply:
    return replies.json_reply(
        200,
        {
            "bucket_id": local_name(bucket),
            "prefix": wanted.prefix,
            "stream_count": len(rows),
            "streams": rows,
            "next_cursor": cursor,
            "has_more": has_more,
        },
    )


def listed(name: str, stream: Stream) -> dict[str, object]:
    """A stream in the listing of its bucket."""
    state = stream.state
    return {
        "stream_id": name,
        "status": "Closed" if stream.closed else "Open",
        "content_type": state.content_type,
        "tail_offset": stream.tail,
        "created_at_ms": state.created_at_ms,
        "last_write_at_ms": state.written_at_ms,
    }
