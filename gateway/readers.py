"""Live readers: a long-poll that waits for one answer, an SSE reader that stays.

Neither has a task while it waits: it is an object that the hub hands entries to, and that writes to
its connection there and then. Each watches its own clock.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

from gateway.answers import JOIN_BYTES, LARGE_BYTES, Answers
from gateway.calls import Call
from gateway.config import ServingConfig
from gateway.entries import Entry, EventLines
from gateway.outcomes import FROM_HUB, FROM_WINDOW, Outcome
from gateway.outgoing import Outgoing, Part, Slices, Unsent
from gateway.records import CLIENT_LEFT
from gateway.rules.challenges import Reason, invalid_token
from protocol import replies
from protocol.names import STREAM_CURSOR, STREAM_NEXT_OFFSET
from protocol.replies import Headers, Reply
from protocol.sse import (
    DATA_END,
    DATA_START,
    HeldText,
    comment,
    control_event,
    data_event,
)
from wire.encoding import LAST_CHUNK, frame_chunk

ROTATION_JITTER = 0.1
SHARED_BYTES = 4 * 1024  # an event for one reader is not copied for him if it is larger
NO_CURSOR = -1
LONGEST_SECS = 3600.0  # that the end of a large event may take, whoever takes it
# Why a token is of no use any more, by the reason in its refusal: the last words to an event stream
# say so, because to come back with it would be of no use. Readers that do not know the event pass
# over it.
TOKEN_ENDS = {"expired": "token-expired", "revoked": "token-revoked"}


class Delivery:
    """One entry on its way to a crowd: what they have in common is made once.

    Everyone is written to before the first log line is: the last reader waits for the first one's
    answer, but not for his paperwork.
    """

    __slots__ = (
        "_answered",
        "_answers",
        "at",
        "entry",
        "frames",
        "heads",
        "interval",
        "join_bytes",
        "now",
        "whole",
    )

    def __init__(self, entry: Entry, answers: Answers, *, interval: int = 0) -> None:
        self.entry = entry
        self.interval = interval  # of the cursors; 0 = none shall be later than it is
        self.join_bytes = JOIN_BYTES if interval else SHARED_BYTES  # a frame of a crowd is shared
        self.now = time.time()
        self.at = asyncio.get_running_loop().time()
        self.whole = not entry.ends_within_character
        self.heads: dict[int, bytes] = {}
        self.frames: dict[int, bytes] = {}
        self._answers = answers
        self._answered: list[Waiting] = []

    def head(self, cursor: int) -> bytes:
        """Of a long-poll's answer, up to the request id."""
        head = self.heads.get(cursor)
        if head is None:
            head = self.heads[cursor] = self._answers.heads.of_crowd(self.entry, cursor)
        return head

    def answered(self, waiting: "Waiting") -> None:
        waiting.call.done = True
        self._answered.append(waiting)

    def settle_soon(self) -> None:
        """When the last answer is out."""
        if self._answered:
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        finished, size = time.monotonic(), len(self.entry.body)
        for waiting in self._answered:
            waiting.from_hub(FROM_HUB)
            self._answers.records.write(waiting.call, 200, size, finished)


class Cursors(Protocol):
    def __call__(self, stream: str, incarnation: str, offset: str, asked: str | None) -> int:
        """The cursor to send to a reader who asked with this one."""


class Waiting:
    """A long-poll; `offset` is a real offset, `now` has been resolved."""

    __slots__ = ("_answers", "_cursors", "_left", "_past_us", "_since", "_timer", "call", "offset")

    def __init__(
        self,
        call: Call,
        offset: str,
        answers: Answers,
        cursors: Cursors,
        left: Callable[["Waiting"], None],
        past_us: Callable[[Call, str], None],
    ) -> None:
        self.call = call
        self.offset = offset
        self._answers = answers
        self._cursors = cursors
        self._left = left
        self._past_us = past_us
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        call.on_revoked = self.revoke

    def park(self, seconds: float) -> None:
        """From here on a hub answers; after `seconds` the reader gets a 204."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(seconds, self._time_is_up)
        self.call.exchange.when_gone(self.leave)

    def leave(self) -> None:
        """The client has gone."""
        self.release()
        self._left(self)
        self._answers.abandon(self.call)

    def has_waited(self, seconds: float) -> bool:
        return asyncio.get_running_loop().time() - self._since >= seconds

    def release(self) -> None:
        """It waits no longer; whoever calls sees to its answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._since:
            self.call.wait_s += asyncio.get_running_loop().time() - self._since
            self._since = 0.0

    def _time_is_up(self) -> None:
        self._left(self)
        self.nothing_new(self.offset, closed=False)

    def from_hub(self, outcome: Outcome) -> None:
        self.release()
        self.call.outcome = outcome

    def pass_by(self) -> None:
        """There is data here, but it is too large to be kept, or more than the reader wants: he
        gets it from the origin, who can cut it."""
        self.release()
        if not self.call.done and self._is_valid(time.time()):
            self.call.on_revoked = None
            self._past_us(self.call, self.offset)

    def wants(self, entry: Entry) -> bool:
        most = self.call.read.max_bytes
        return most is None or len(entry.body) <= most

    def _is_too_much(self, entry: Entry) -> bool:
        if self.wants(entry):
            return False
        self.pass_by()
        return True

    def deliver(self, delivery: Delivery) -> None:
        """Data that came while we waited."""
        call, entry = self.call, delivery.entry
        if call.done or self._is_too_much(entry):
            return
        is_usual = len(entry.body) <= LARGE_BYTES and self._answers.heads.is_usual(call)
        if delivery.now >= call.principal.expires_at or not is_usual:
            self._deliver_alone(delivery)
            return
        asked = call.read.cursor
        cursor = delivery.interval if asked is None else self.cursor(entry.incarnation)
        head = delivery.head(cursor) + call.request_id.encode() + b"\r\n\r\n"
        if len(entry.body) <= JOIN_BYTES:
            call.exchange.write(head + entry.body)
            call.exchange.finish()
        else:
            call.exchange.write(head)
            call.exchange.finish(entry.body)
        delivery.answered(self)

    def _deliver_alone(self, delivery: Delivery) -> None:
        entry = delivery.entry
        self.from_hub(FROM_HUB)
        if not self._is_valid(delivery.now):
            return
        self._answers.send_live(
            self.call,
            entry,
            self.cursor(entry.incarnation),
            up_to_date=entry.up_to_date,
            may_keep=not entry.no_store,
        )

    def replay(self, entry: Entry, *, up_to_date: bool) -> None:
        """Data that the hub had before we came; whether it is all there is, it did not know."""
        if self._is_too_much(entry):
            return
        self.from_hub(FROM_WINDOW)
        self._send(entry, up_to_date=up_to_date)

    def give(self, entry: Entry) -> None:
        """Data that a catch-up read found for us."""
        if self._is_too_much(entry):
            return
        self.release()
        self._send(entry, up_to_date=entry.up_to_date)

    def _send(self, entry: Entry, *, up_to_date: bool) -> None:
        if not self._is_valid(time.time()):
            return
        cursor = self.cursor(entry.incarnation)
        self._answers.send_live(self.call, entry, cursor, up_to_date=up_to_date, may_keep=False)

    def nothing_new(self, tail: str, *, closed: bool, incarnation: str = "") -> None:
        self.from_hub(FROM_HUB)
        headers: Headers = ((STREAM_NEXT_OFFSET, tail), replies.UP_TO_DATE)
        headers += (replies.NO_STORE,)
        if closed:
            headers += (replies.CLOSED,)
        else:
            headers += ((STREAM_CURSOR, str(self.cursor(incarnation))),)
        self._answers.send_reply(self.call, Reply(204, headers))

    def refuse(self, reply: Reply, error: str = "") -> None:
        self.release()
        self._answers.send_reply(self.call, reply, error=error)

    def cursor(self, incarnation: str) -> int:
        asked = self.call.read.cursor
        return self._cursors(self.call.stream, incarnation, self.offset, asked)

    def _is_valid(self, now: float) -> bool:
        """A token may run out while its reader waits."""
        if now < self.call.principal.expires_at:
            return True
        self._refuse_token("expired")
        return False

    def revoke(self) -> None:
        self.release()
        self._left(self)
        self._refuse_token("revoked")

    def _refuse_token(self, reason: Reason) -> None:
        error = invalid_token(reason)
        self.call.settle(self.call.outcome.refused())
        self._answers.send_reply(self.call, replies.problem_of(error), error=error.code)


class SseReader:
    """An event stream; `offset` is where it stands."""

    __slots__ = (
        "_answers",
        "_cursor",
        "_deadline",
        "_ended_by_token",
        "_ending",
        "_expires",
        "_gone",
        "_greeted",
        "_incarnation",
        "_last_write",
        "_max_backlog",
        "_outgoing",
        "_serving",
        "_text",
        "_timer",
        "_unsent",
        "bytes_sent",
        "call",
        "is_open",
        "offset",
    )

    def __init__(
        self,
        call: Call,
        offset: str,
        answers: Answers,
        serving: ServingConfig,
        expires_in: float,
        unsent: Unsent,
        gone: Callable[["SseReader"], None],
    ) -> None:
        self.call = call
        self.offset = offset
        self.bytes_sent = 0
        self.is_open = True
        self._answers = answers
        self._serving = serving
        self._max_backlog = serving.max_reader_backlog_bytes
        self._gone = gone
        self._cursor = NO_CURSOR
        self._greeted = False
        self._unsent = unsent
        self._outgoing: Outgoing | None = None  # while a large event is on its way
        self._ending = ""  # why it ends as soon as that is out
        self._text = HeldText()
        self._incarnation = ""  # of what was shown
        loop = asyncio.get_running_loop()
        spread = 1 + random.uniform(-ROTATION_JITTER, ROTATION_JITTER)
        rotation = serving.sse_rotation_secs * spread
        self._ended_by_token = expires_in < rotation
        self._last_write = loop.time()
        self._expires = self._last_write + min(expires_in, LONGEST_SECS)
        self._deadline = self._last_write + min(rotation, expires_in)
        self._timer = loop.call_at(self._next_tick(), self._tick)
        call.exchange.when_gone(self.leave)
        call.on_revoked = self.revoke

    # -- life ----------------------------------------------------------------------------------

    def begin(self, content_type: str, cursor: int) -> None:
        self._cursor = cursor
        self._greeted = True
        head = replies.event_stream(content_type)
        self.call.exchange.write(self._answers.heads.of_pieces(self.call, head))

    @property
    def has_begun(self) -> bool:
        return self._greeted

    def end(self, reason: str, last: bytes = b"") -> None:
        """A clean end: the client reconnects from the last offset it was told. If it is taking a
        large event, that is after it: who needs long for one would never get it."""
        if not self.is_open:
            return
        self._close()
        self.bytes_sent += len(last)
        if last:
            last = self._frame(last)
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
        """The hard way, for a client that takes nothing any more."""
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
        """Before it began: an ordinary answer."""
        if self.is_open:
            self._close()
            self._answers.send_reply(self.call, reply, error=error)

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
            self.write(self._frame(comment()), now)
        at = max(self._next_tick(), now + 0.05)
        self._timer = asyncio.get_running_loop().call_at(at, self._tick)

    def end_if_due(self) -> bool:
        """Whether time was up. Of a token even before the first event: then it is a refusal."""
        if asyncio.get_running_loop().time() < self._deadline and not self._has_expired():
            return False
        if not self._ended_by_token:
            if self._greeted:
                self.end("rotated")
            return self._greeted
        self._end_with_token("expired")
        return True

    def _has_expired(self) -> bool:
        """By the clock that tokens are judged by: the loop's runs up to a turn behind."""
        return self._ended_by_token and time.time() >= self.call.principal.expires_at

    def _end_with_token(self, reason: Reason) -> None:
        ended = TOKEN_ENDS[reason]
        if self._greeted and self._outgoing is not None:  # he has no right to the rest of it
            self.drop(ended)
        elif self._greeted:
            self.end(ended, b'event: end\ndata:{"reason":"%b"}\n\n' % ended.encode())
        else:
            error = invalid_token(reason)
            self.call.settle(self.call.outcome.refused())
            self.refuse(replies.problem_of(error), error.code)

    # -- events --------------------------------------------------------------------------------

    def show(self, delivery: Delivery) -> None:
        """Send an entry that begins where we stand."""
        entry = delivery.entry
        if entry.incarnation != self._incarnation and not self._belongs(entry):
            return
        self.offset = entry.next_offset
        cursor = self._cursor
        if cursor < delivery.interval:
            cursor = self._cursor = delivery.interval
        if len(entry.body) > delivery.join_bytes:
            self._show_large(entry, cursor, delivery.at)
            return
        if self._text.held or not delivery.whole:
            self.write(self._frame(self._own_events(entry, cursor)), delivery.at)
            return
        key = cursor if self.call.knows_chunks else ~cursor
        frame = delivery.frames.get(key)
        if frame is None:
            frame = delivery.frames[key] = self._frame(_pair(entry, cursor))
        self.write(frame, delivery.at)

    def _belongs(self, entry: Entry) -> bool:
        """A stream that was made anew is another one, and this reader's has ended."""
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
        """By what it was given before: a large event makes nobody slow."""
        if self._backlog() <= self._max_backlog:
            return False
        self.drop("slow")
        return True

    def _backlog(self) -> int:
        """What the client has to take before more can come. What waits for its turn alone, while
        the connection has room, is none of his."""
        exchange, outgoing = self.call.exchange, self._outgoing
        waiting = outgoing.size if outgoing is not None and exchange.is_full else 0
        return exchange.backlog() + waiting

    def _not_given(self) -> int:
        """Of `bytes_sent`, what is not with the connection yet."""
        return 0 if self._outgoing is None else self._outgoing.size - self._outgoing.unmade

    # -- large events --------------------------------------------------------------------------

    def _show_large(self, entry: Entry, cursor: int, at: float) -> None:
        """In slices as the client takes them, from bytes that all readers share."""
        if not self.is_open or self._is_slow():
            return
        if self._outgoing is None:
            subject = self.call.principal.subject
            self._outgoing = Outgoing(self.call.exchange, self._unsent, subject, self._has_taken)
        lines = entry.event_lines()
        if not self._outgoing.hold(lines):
            self._has_taken()
            self.end("slow")
            return
        self._outgoing.add(self._parts_of(entry, lines, cursor))
        self._last_write = at
        self._has_taken()

    def _parts_of(self, entry: Entry, lines: EventLines, cursor: int) -> list[Part]:
        """The events of an entry: in one frame if its lines are there, else in one for each piece
        that is made of them."""
        held, whole = b"", len(entry.body)
        if entry.is_text:
            held, whole = self._text.take_large(entry.body, is_last=_is_last(entry))
        start = DATA_START + held if held else entry.event_start()
        end = DATA_END + self._control(entry, cursor)
        if entry.is_plain_text:
            return self._framed_together(start, memoryview(entry.body)[:whole], end)
        self._count(len(start) + len(end))
        framed = self.call.knows_chunks
        slices = Slices(lines, whole, framed=framed, made=self._count)
        return [self._frame(start), slices, self._frame(end)]

    def _framed_together(self, *parts: bytes | memoryview) -> list[Part]:
        size = sum(map(len, parts))
        self._count(size)
        return [b"%x\r\n" % size, *parts, b"\r\n"] if self.call.knows_chunks else [*parts]

    def _count(self, size: int) -> None:
        self.bytes_sent += size

    def _has_taken(self) -> None:
        """The client took some of what waits for it."""
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
        """Until the client can take more; raises ConnectionError when it has left."""
        if self._outgoing is not None:
            await self._outgoing.drain()
            self._has_taken()
        else:
            await self.call.exchange.drain()

    def _frame(self, data: bytes) -> bytes:
        return frame_chunk(data) if self.call.knows_chunks else data

    def _own_events(self, entry: Entry, cursor: int) -> bytes:
        """Those of a text that begins or ends within a character."""
        body = self._text.take(entry.body, is_last=_is_last(entry))
        data = data_event(body)
        return (data if body else b"") + self._control(entry, cursor)

    def _control(self, entry: Entry, cursor: int) -> bytes:
        shown = None if entry.closed else cursor
        return control_event(
            self._text.told(entry.next_offset), shown, entry.up_to_date, entry.closed
        )


def _is_last(entry: Entry) -> bool:
    """Whether all of a text is to be shown: of another origin, whose offsets cannot say that some
    of it was held, or at the end of a stream."""
    return entry.closed or not entry.incarnation


def _pair(entry: Entry, cursor: int) -> bytes:
    """A data event and its control event, or the control event alone."""
    data = b"" if entry.is_empty else entry.event()
    shown = None if entry.closed else cursor
    return data + control_event(entry.next_offset, shown, entry.up_to_date, entry.closed)
