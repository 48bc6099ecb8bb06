"""Plain requests, answered directly on the connection: appends, and reads from memory.

Parsing, shard and replies are the same as in `handlers`. The only difference: the response is
written to the transport without a task, a request object or a response object.
"""

from collections.abc import Sequence
from typing import cast

from origin.admission import Admission
from origin.chunks import JOIN_BYTES, Chunk
from origin.freshness import checked
from origin.metrics import Metrics
from origin.outcomes import Outcomes, Send
from origin.shard import Shard
from origin.shards import Elsewhere, Shards
from protocol import replies
from protocol.errors import ProtocolError
from protocol.names import BUCKET_PREFIX, STREAM_PREFIX
from protocol.paths import Kind, parse_path
from protocol.replies import Reply
from protocol.requests import Append, Read, parse_append, parse_read
from wire.encoding import encode_head, encode_lines
from wire.exchange import Exchange
from wire.heads import Fields, Head, Target
from wire.http import DateLine, Stamp


class PlainRequests:
    def __init__(
        self,
        shards: Shards,
        metrics: Metrics,
        stamp: Stamp,
        admission: Admission,
        outcomes: Outcomes | None,
        *,
        max_path_bytes: int,
    ) -> None:
        self._shard_of = shards.of
        self._outcomes = outcomes
        self._metrics = metrics
        self._stamp = encode_lines(stamp.headers(None))
        self._admission = admission
        self._max_path_bytes = max_path_bytes
        self._date = DateLine()

    def hit(self, head: Head, peer: str) -> bytes | None:
        """A repeated catch-up read from memory, where every microsecond counts."""
        target, fields = head.target, head.fields
        if target.method != "GET" or target.parsed is None or "if-none-match" in fields.headers:
            return None
        if not (fields.admitted or self._admits(fields)):
            return None
        name, read = cast(tuple[str, Read], target.parsed)
        if read.position is None or read.live is not None or read.max_bytes is not None:
            return None
        try:
            shard = self._shard_of(name)
        except Elsewhere:
            return None
        stream = shard.lifetimes.find(name)
        if isinstance(stream, Reply) or stream.state.ttl_s is not None:
            return None
        if read.stream_id is not None and read.stream_id != stream.state.id:
            return None
        chunk = shard.chunks.cached(stream, read.position)
        if chunk is None or len(chunk.reply.body) > JOIN_BYTES or not shard.fresh():
            return None
        self._metrics.count("GET", 200)
        return self._whole(chunk)

    def wants(self, head: Head, here: int) -> bool:
        if not head.path.startswith((STREAM_PREFIX, BUCKET_PREFIX)):
            return False
        if not (head.fields.admitted or self._admits(head.fields)):
            return False
        return head.method == "POST" or (head.method == "GET" and "live=" not in head.query)

    def _admits(self, fields: Fields) -> bool:
        fields.admitted = self._admission.admits(fields.headers)
        return fields.admitted

    def answer(self, head: Head, body: bytes, exchange: Exchange) -> bool:
        target, fields = head.target, head.fields
        try:
            if target.parsed is None:
                target.parsed = self._parse(target)
                if target.parsed is None:
                    return False
            if target.method == "POST" and fields.parsed is None:
                fields.parsed = parse_append(fields.headers)
        except ProtocolError as error:
            self._send_reply(target.method, replies.problem_of(error), exchange)
            return True
        name, read = cast(tuple[str, Read | None], target.parsed)
        try:
            shard = self._shard_of(name)
        except Elsewhere:
            return False
        if read is not None:
            return self._get(shard, name, read, head, exchange)
        append = cast(Append, fields.parsed)
        if self._outcomes is None:
            send = self._sender(shard, exchange)
        else:
            send = self._outcomes.awaited(self._sender(shard, exchange))
        shard.appends.append(name, append, body, send)
        return True

    def _sender(self, shard: Shard, exchange: Exchange) -> Send:
        def send(reply: Reply) -> None:
            if reply.status >= 400:
                reply = checked(shard, "POST", reply)
            self._send_reply("POST", reply, exchange)

        return send

    def _parse(self, target: Target) -> tuple[str, Read | None] | None:
        """None if it is not a stream."""
        place = parse_path(target.path, self._max_path_bytes)
        if place is None or place.kind is not Kind.STREAM:
            return None
        return place.name, None if target.method == "POST" else parse_read(target.query)

    def _get(self, shard: Shard, name: str, read: Read, head: Head, exchange: Exchange) -> bool:
        if read.position is None or read.live is not None or read.max_bytes is not None:
            return False
        if not shard.fresh():
            return False
        stream = shard.lifetimes.find(name)
        if isinstance(stream, Reply):
            self._send_reply("GET", stream, exchange)
            return True
        if read.stream_id is not None and read.stream_id != stream.state.id:
            return False  # an ancestor's offset, or a foreign one
        if stream.state.ttl_s is not None:
            shard.lifetimes.renew(stream)
        chunk = shard.chunks.cached(stream, read.position)
        if chunk is None:
            return False
        self._send_reply("GET", chunk.answer(head.headers.get("if-none-match")), exchange)
        return True

    def _whole(self, chunk: Chunk) -> bytes:
        """The complete response, rebuilt when the second changes."""
        date = self._date()
        if chunk.whole_date is not date:
            reply = chunk.reply
            head = encode_head(reply.status, reply.headers, self._stamp, len(reply.body))
            chunk.whole = head + date + reply.body
            chunk.whole_date = date
        return chunk.whole

    def _send_reply(self, method: str, reply: Reply, exchange: Exchange) -> None:
        self._metrics.count(method, reply.status)
        head = encode_head(reply.status, reply.headers, self._stamp, len(reply.body))
        exchange.send(self._parts(head, reply.body))

    def _parts(self, head: bytes, body: bytes) -> Sequence[bytes]:
        if len(body) <= JOIN_BYTES:
            return (head + self._date() + body,)
        return (head + self._date(), body)
