"""An SSE reader: an event stream that lasts until its time, its token or its stream ends.

It has no task while it waits: it is an object that gets entries and writes them to its connection
at once. It keeps its own deadlines.
"""

import asyncio
import random
import time
from collections.abc import Callable

from gateway.answers import Answers
from gateway.calls import Call
from gateway.config import ServingConfig
from gateway.deliveries import Delivery, Frames
from gateway.entries import Entry
from gateway.outgoing import Outgoing
from gateway.records import CLIENT_LEFT
from gateway.rules.challenges import Reason, invalid_token
from protocol import replies
from protocol.replies import Reply
from protocol.sse import ROTATION_JITTER, comment
from wire.encoding import LAST_CHUNK

LONGEST_SECS = 3600.0  # limit for the rest of a large event
# Why a token is no longer valid, by the reason of its refusal. The last event of a stream says so,
# because reconnecting with it would fail. Readers that do not know the event ignore it.
TOKEN_ENDS = {"expired": "token-expired", "revoked": "token-revoked"}


class SseReader:
    """`offset` is its current position."""

    __slots__ = (
        "_answers",
        "_deadline",
        "_ended_by_token",
        "_ending",
        "_expires",
        "_frames",
        "_gone",
        "_greeted",
        "_incarnation",
        "_last_write",
        "_max_backlog",
        "_outgoing",
        "_serving",
        "_timer",
        "bytes_sent",
        "call",
        "is_open",
        "offset",
    )

    def __init__(
        self,
        call: Call,
        answers: Answers,
        serving: ServingConfig,
        gone: Callable[["SseReader"], None],
    ) -> None:
        self.call = call
        self.offset = call.read.offset
        self.bytes_sent = 0
        self.is_open = True
        self._answers = answers
        self._serving = serving
        self._max_backlog = serving.max_reader_backlog_bytes
        self._gone = gone
        self._frames = Frames(call.knows_chunks, self._count)
        self._greeted = False
        self._outgoing: Outgoing | None = None  # while a large event is being sent
        self._ending = ""  # why it ends once that is sent
        self._incarnation = ""  # of what was shown
        loop = asyncio.get_running_loop()
        expires_in = call.principal.expires_at - time.time()
        spread = 1 + random.uniform(-ROTATION_JITTER, ROTATION_JITTER)
        rotation = serving.sse_rotation_secs * spread
        self._ended_by_token = expires_in < rotation
        self._last_write = loop.time()
        self._expires = self._last_write + min(expires_in, LONGEST_SECS)
        self._deadline = self._last_write + min(rotation, expires_in)
        self._timer = loop.call_at(self._next_tick(), self._tick)
        call.exchange.when_gone(self.leave)
        call.when_revoked(self.revoke)

    # -- life ----------------------------------------------------------------------------------

    def begin(self, content_type: str, cursor: int) -> None:
        self._frames.cursor = cursor
        self._greeted = True
        self.call.exchange.write(
            self._answers.heads.of_pieces(self.call, replies.event_stream(content_type))
        )

    @property
    def has_begun(self) -> bool:
        return self._greeted

    def end(self, reason: str, last: bytes = b"") -> None:
        """A clean end: the client reconnects from its last offset. If a large event is being sent,
        the end comes after it: slow clients would never get it otherwise."""
        if not self.is_open:
            return
        self._close()
        self.bytes_sent += len(last)
        if last:
            last = self._frames.frame(last)
        if self.call.knows_chunks:
            last += LAST_CHUNK
        if self._outgoing is None:
            self._finish(reason, last)
        else:
            self._ending = reason
            self._timer = asyncio.get_running_loop().call_at(self._expires, self._expire)
            self._outgoing.add((last,))
            self._has_taken()

    def _expire(self) -> None:
        self.drop(TOKEN_ENDS["expired"])

    def revoke(self) -> None:
        if self._ending:
            self.drop(TOKEN_ENDS["revoked"])
        else:
            self._end_with_token("revoked")

    def _finish(self, reason: str, last: bytes = b"") -> None:
        self.call.exchange.finish(last)
        self._answers.records.finish(self.call, 200, self.bytes_sent, ended=reason)

    def drop(self, reason: str) -> None:
        """Abort the connection: the client is too slow, or may not have the rest."""
        if self.is_open or self._ending:
            self._close()
            unsent = self.call.exchange.backlog() + self._not_given()
            unsent = min(unsent, self.bytes_sent)
            self._let_go()
            self.call.exchange.abort()
            self._answers.records.finish(self.call, 200, self.bytes_sent - unsent, ended=reason)

    def leave(self) -> None:
        """The client has gone."""
        if self.is_open or self._ending:
            self._close()
            self.bytes_sent -= min(self._not_given(), self.bytes_sent)
            self._let_go()
            status = 200 if self._greeted else CLIENT_LEFT
            self._answers.records.finish(self.call, status, self.bytes_sent, ended="client-left")

    def refuse(self, reply: Reply, error: str = "") -> None:
        """Before the stream started: an ordinary response."""
        if self.is_open:
            self._close()
            self._answers.send_reply(self.call, reply, error=error)

    def fail(self, reply: Reply, error: str) -> None:
        self.call.settle(self.call.outcome.failed())
        if self._greeted:
            self.end("upstream-error")
        else:
            self.refuse(reply, error)

    def _close(self) -> None:
        self.is_open, self._ending = False, ""
        self._timer.cancel()
        self._gone(self)

    # -- time ----------------------------------------------------------------------------------

    def _next_tick(self) -> float:
        return min(self._deadline, self._last_write + self._serving.sse_heartbeat_secs)

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.end_if_due():
            return
        is_quiet = now - self._last_write >= self._serving.sse_heartbeat_secs
        if self._greeted and is_quiet and self._outgoing is None:
            self.write(self._frames.frame(comment()), now)
        at = max(self._next_tick(), now + 0.05)
        self._timer = asyncio.get_running_loop().call_at(at, self._tick)

    def end_if_due(self) -> bool:
        """Whether it has ended: rotation waits for the first event, an expired token does not."""
        if asyncio.get_running_loop().time() < self._deadline and not self._has_expired():
            return False
        if not self._ended_by_token:
            if self._greeted:
                self.end("rotated")
            return self._greeted
        self._end_with_token("expired")
        return True

    def _has_expired(self) -> bool:
        """By the clock used for tokens: the loop's clock may lag by one iteration."""
        return self._ended_by_token and time.time() >= self.call.principal.expires_at

    def _end_with_token(self, reason: Reason) -> None:
        ended = TOKEN_ENDS[reason]
        if self._greeted and self._outgoing is not None:  # it may not get the rest
            self.drop(ended)
        elif self._greeted:
            self.end(ended, b'event: end\ndata:{"reason":"%b"}\n\n' % ended.encode())
        else:
            error = invalid_token(reason)
            self.call.settle(self.call.outcome.refused())
            self.refuse(replies.problem_of(error), error.code)

    # -- events --------------------------------------------------------------------------------

    def show(self, delivery: Delivery) -> None:
        """Send an entry that begins at our offset."""
        entry = delivery.entry
        if entry.incarnation != self._incarnation and not self._belongs(entry):
            return
        self.offset = entry.next_offset
        frames = self._frames
        if frames.cursor < delivery.interval:
            frames.cursor = delivery.interval
        if len(entry.body) > delivery.join_bytes:
            self._show_large(entry, delivery.at)
        else:
            self.write(frames.whole(delivery), delivery.at)

    def _belongs(self, entry: Entry) -> bool:
        """A re-created stream is a different one, and this reader's has ended."""
        if entry.incarnation and self._incarnation:
            self.end("deleted")
            return False
        self._incarnation = self._incarnation or entry.incarnation
        return True

    def write(self, data: bytes, at: float) -> None:
        if not self.is_open or not data or self._is_slow():
            return
        if self._outgoing is None:
            self.call.exchange.write(data)
        else:
            self._outgoing.add((data,))
        framing = data.index(b"\r\n") + 4 if self.call.knows_chunks else 0
        self.bytes_sent += len(data) - framing
        self._last_write = at

    def _is_slow(self) -> bool:
        """Judged by earlier data: a single large event does not make a reader slow."""
        if self._backlog() <= self._max_backlog:
            return False
        self.drop("slow")
        return True

    def _backlog(self) -> int:
        """Bytes that the client must read before more can be sent, without data that only waits for
        its turn while the connection has room."""
        exchange, outgoing = self.call.exchange, self._outgoing
        waiting = outgoing.size if outgoing is not None and exchange.is_full else 0
        return exchange.backlog() + waiting

    def _not_given(self) -> int:
        """The part of `bytes_sent` that the connection does not have yet."""
        return 0 if self._outgoing is None else self._outgoing.size - self._outgoing.unmade

    # -- large events --------------------------------------------------------------------------

    def _show_large(self, entry: Entry, at: float) -> None:
        """In slices as the client reads them, from bytes shared by all readers."""
        if not self.is_open or self._is_slow():
            return
        if self._outgoing is None:
            subject = self.call.principal.subject
            self._outgoing = Outgoing(
                self.call.exchange, self._answers.unsent, subject, self._has_taken
            )
        lines = entry.event_lines()
        if not self._outgoing.hold(lines):
            self._has_taken()
            self.end("slow")
            return
        self._outgoing.add(self._frames.parts(entry, lines))
        self._last_write = at
        self._has_taken()

    def _count(self, size: int) -> None:
        self.bytes_sent += size

    def _has_taken(self) -> None:
        """The client has read some of its data."""
        self._last_write = asyncio.get_running_loop().time()
        if self._outgoing is None or self._outgoing.size:
            return
        self._let_go()
        if self._ending:
            self._timer.cancel()
            reason, self._ending = self._ending, ""
            self._finish(reason)

    def _let_go(self) -> None:
        if self._outgoing is not None:
            self._outgoing.clear()
            self._outgoing = None

    async def drain(self) -> None:
        """Wait until the client can take more; raises ConnectionError if it disconnected."""
        if self._outgoing is not None:
            await self._outgoing.drain()
            self._has_taken()
        else:
            await self.call.exchange.drain()
