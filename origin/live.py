"""Live reads: a long-poll waits once, an SSE reader stays. Both only see committed state.

A reader sleeps until a commit, the end of its stream, a drain or its own timer wakes it. It then
checks for data first and for closure second, so that an append that closes is not missed. If its
shard was lost, or another process may have it by now, it ends: the client resumes by itself.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from origin.calls import write_in_time
from origin.chunks import Chunk
from origin.config import LimitsConfig, ServerConfig
from origin.shard import Shard
from origin.streams import Stream
from protocol import replies
from protocol.cursors import next_cursor
from protocol.errors import ProtocolError
from protocol.media import text_like
from protocol.offsets import format_offset
from protocol.replies import RETRY_AFTER, Reply
from protocol.requests import Read
from protocol.sse import ROTATION_JITTER, HeldText, base64_event, comment, control_event, data_event


def too_many_readers() -> ProtocolError:
    return ProtocolError(503, "too-many-readers", "Too many live readers.", RETRY_AFTER)


class Live:
    def __init__(self, server: ServerConfig, limits: LimitsConfig) -> None:
        self._server = server
        self._limits = limits
        self._asleep: set[asyncio.Future[None]] = set()
        self.draining = False
        self.reader_count = 0

    def drain(self) -> None:
        """End all live readers cleanly, now."""
        self.draining = True
        for sleeper in list(self._asleep):
            _wake(sleeper)

    @contextmanager
    def admitted(self, shard: Shard, stream: Stream) -> Iterator[None]:
        if self.reader_count >= self._limits.max_live_readers:
            raise too_many_readers()
        if stream.live_readers >= self._limits.max_live_readers_per_stream:
            raise ProtocolError(
                429, "too-many-readers", "Too many live readers of this stream.", RETRY_AFTER
            )
        self.reader_count += 1
        stream.live_readers += 1
        try:
            yield
        finally:
            self.reader_count -= 1
            stream.live_readers -= 1
            shard.lifetimes.renew(stream)  # the idle window starts when the last reader leaves

    async def long_poll(self, shard: Shard, stream: Stream, read: Read, now_s: float) -> Reply:
        """The caller checks that the reply can be said when it is made."""
        start = stream.tail if read.position is None else read.position
        cursor = _cursor(stream, start, read, now_s)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._server.long_poll_timeout_secs
        while True:
            if stream.ended:
                return replies.not_found()
            if stream.tail != start:
                if read.max_bytes is None:
                    chunk = await shard.chunks.get(stream, start)
                else:
                    chunk = await shard.chunks.limited(stream, start, read.max_bytes)
                return replies.with_cursor(
                    stream.state, chunk.reply, None if chunk.closed else cursor
                )
            if stream.closed:
                return replies.nothing_new(stream.state, stream.tail, None, True)
            if self.draining or shard.is_lost or loop.time() >= until:
                return replies.nothing_new(stream.state, stream.tail, cursor, False)
            await self._change(stream, until)

    async def stream_events(
        self, shard: Shard, stream: Stream, read: Read, now_s: float, response: web.StreamResponse
    ) -> None:
        """Write events until the stream ends, the shard is lost, the connection's time is up, or we
        drain."""
        position = stream.tail if read.position is None else read.position
        reader = _EventReader(stream, position, _cursor(stream, position, read, now_s))
        loop = asyncio.get_running_loop()
        interval_s = self._server.sse_reconnect_interval_secs
        spread = 1 + random.uniform(-ROTATION_JITTER, ROTATION_JITTER)
        until = loop.time() + interval_s * spread if interval_s else float("inf")
        while not (stream.ended or shard.is_lost):
            while reader.is_behind() and not stream.ended:
                chunk = await shard.chunks.get(stream, reader.position)
                if not shard.fresh():  # another owner may have deleted it: a GET asks first
                    return
                await write_in_time(response, reader.events(chunk))
            if reader.owes_control():
                if not shard.fresh():
                    return
                await write_in_time(response, reader.control())
            if reader.told_closed or self.draining or loop.time() >= until:
                return
            if reader.is_behind() or reader.owes_control():  # the stream moved while we wrote
                continue
            beat_at = loop.time() + self._server.sse_heartbeat_secs
            changed = await self._change(stream, min(until, beat_at))
            if not changed and loop.time() < until:
                await write_in_time(response, comment())

    async def _change(self, stream: Stream, until: float) -> bool:
        """Sleep until the stream changes or we drain; False on timeout."""
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            _wake(sleeper)

        timer = loop.call_at(until, wake) if until != float("inf") else None
        stream.wait(wake)
        self._asleep.add(sleeper)
        try:
            await sleeper
        finally:
            self._asleep.discard(sleeper)
            stream.stop_waiting(wake)
            if timer is not None:
                timer.cancel()
        return loop.time() < until


class _EventReader:
    """What one SSE reader has been sent, and what is due."""

    def __init__(self, stream: Stream, position: int, cursor: int) -> None:
        self.stream = stream
        self.position = position
        self.told_closed = False
        self._cursor = cursor
        self._greeted = False
        self._text = HeldText()
        self._is_text = text_like(stream.state.content_type)
        self._bytes_as_text = self._is_text and not stream.is_json

    def is_behind(self) -> bool:
        return self.stream.tail != self.position or (self.stream.closed and self._text.held != b"")

    def owes_control(self) -> bool:
        return not self._greeted or (self.stream.closed and not self.told_closed)

    def events(self, chunk: Chunk) -> bytes:
        """A data event and its control event, as one piece."""
        body, self.position = chunk.reply.body, chunk.end
        if self._bytes_as_text:
            body = self._text.take(body, is_last=chunk.closed)
        if not body:
            return b""
        event = data_event(body) if self._is_text else base64_event(body)
        return event + self._control(chunk.end == self.stream.tail, chunk.closed)

    def control(self) -> bytes:
        return self._control(True, self.stream.closed)

    def _control(self, up_to_date: bool, closed: bool) -> bytes:
        self._greeted = True
        self.told_closed = closed
        cursor = None if closed else self._cursor
        offset = format_offset(self.stream.state.id, self.position)
        return control_event(self._text.told(offset), cursor, up_to_date, closed)


def _cursor(stream: Stream, start: int, read: Read, now_s: float) -> int:
    return next_cursor(now_s, read.cursor, f"{stream.state.incarnation}:{start}".encode())


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)
