"""Buckets over HTTP: created, counted, listed, deleted."""

from origin.buckets import local_name
from origin.calls import Call, Operations
from origin.config import OriginConfig
from origin.shard import Shard
from origin.streams import Stream
from protocol import replies
from protocol.paths import Kind
from protocol.replies import NO_STORE, Reply, problem
from protocol.requests import Create, parse_listing

_BUCKET = Create(content_type=None, ttl_s=None, expires_at_ms=None, closed=False, fork=None)


class BucketRoutes:
    def __init__(self, config: OriginConfig, shard: Shard) -> None:
        self._http = config.http
        self._shard = shard
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
        reply = await self._shard.creations.create(call.place.name, _BUCKET, b"", location)
        if reply.status == 201:
            return Reply(201, (("Location", location), NO_STORE))
        return problem(409, "bucket-exists", "The bucket already exists.")

    async def _get(self, call: Call) -> Reply:
        name = call.place.name
        if isinstance(self._shard.lifetimes.find(name), Reply):
            return _no_bucket()
        count = self._shard.registry.buckets.count(name)
        return replies.json_reply(200, {"bucket_id": local_name(name), "streams": count})

    async def _delete(self, call: Call) -> Reply:
        reply = await self._shard.lifetimes.delete(call.place.name)
        return _no_bucket() if reply.status == 404 else reply

    async def _list(self, call: Call) -> Reply:
        wanted = parse_listing(call.query)
        bucket, find = call.place.name, self._shard.lifetimes.find
        if isinstance(find(bucket), Reply):
            return _no_bucket()
        names, has_more = self._shard.registry.buckets.page(bucket, wanted)
        found = [(name, find(f"{bucket}/{name}")) for name in names]
        rows = [_row(name, stream) for name, stream in found if isinstance(stream, Stream)]
        return replies.json_reply(
            200,
            {
                "bucket_id": local_name(bucket),
                "prefix": wanted.prefix,
                "stream_count": len(rows),
                "streams": rows,
                "next_cursor": names[-1] if names else None,
                "has_more": has_more,
            },
        )


def _row(name: str, stream: Stream) -> dict[str, object]:
    state = stream.state
    return {
        "stream_id": name,
        "status": "Closed" if stream.closed else "Open",
        "content_type": state.content_type,
        "tail_offset": stream.tail,
        "created_at_ms": state.created_at_ms,
        "last_write_at_ms": state.written_at_ms,
    }


def _no_bucket() -> Reply:
    return problem(404, "bucket-not-found", "The bucket does not exist.")
