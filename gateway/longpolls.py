"""A long-poll that waits for one answer.

It has no task while it waits: it is an object that gets an entry and writes it to its connection at
once. It keeps its own deadline.
"""

import asyncio
import time
from collections.abc import Callable

from gateway.answers import JOIN_BYTES, Answers
from gateway.calls import Call
from gateway.deliveries import Delivery
from gateway.entries import Entry
from gateway.outcomes import FROM_HUB, FROM_WINDOW, Outcome
from gateway.rules.challenges import Reason, invalid_token
from protocol import replies
from protocol.cursors import next_cursor
from protocol.names import STREAM_CURSOR, STREAM_NEXT_OFFSET
from protocol.replies import Headers, Reply


class Cursors:
    """Equal requests get the same cursor, on every gateway with the same key."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def next(self, call: Call, incarnation: str, offset: str) -> int:
        place = (call.stream.encode(), incarnation.encode(), offset.encode())
        return next_cursor(time.time(), call.read.cursor, b"\0".join((self._key, *place)))


class LongPoll:
    """`offset` is a real offset: `now` has been resolved."""

    __slots__ = ("_answers", "_cursors", "_left", "_past_us", "_since", "_timer", "call", "offset")

    def __init__(
        self,
        call: Call,
        offset: str,
        answers: Answers,
        cursors: Cursors,
        left: Callable[["LongPoll"], None],
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
        call.when_revoked(self.revoke)

    def park(self, seconds: float) -> None:
        """Wait at a hub; after `seconds` the reader gets a 204."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(seconds, self.time_is_up)
        self.call.exchange.when_gone(self.leave)

    def leave(self) -> None:
        """The client has gone."""
        self.release()
        self._left(self)
        self._answers.abandon(self.call)

    def release(self) -> None:
        """Stop waiting; the caller takes care of the response."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._since:
            self.call.wait_s += asyncio.get_running_loop().time() - self._since
            self._since = 0.0

    def time_is_up(self) -> None:
        self._left(self)
        self.nothing_new()

    def from_hub(self, outcome: Outcome) -> None:
        self.release()
        self.call.outcome = outcome

    def pass_by(self) -> None:
        """The data is too large to store, or exceeds the reader's limit: the reader gets it from
        the origin, which can cut it."""
        self.release()
        if not self.call.done and self._is_valid():
            self.call.when_revoked(None)
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
        """Data that arrived while it waited."""
        call, entry = self.call, delivery.entry
        if call.done:
            return
        if not self.wants(entry):
            self.pass_by()
            return
        is_alone = call.last_of_connection or not delivery.shares_head
        if is_alone or delivery.now >= call.principal.expires_at:
            self._deliver_alone(delivery)
            return
        is_first = call.read.cursor is None
        cursor = delivery.interval if is_first else self.cursor(entry.incarnation)
        head = delivery.head(cursor) + call.request_id.encode() + b"\r\n\r\n"
        if len(entry.body) <= JOIN_BYTES:
            call.exchange.write_last(head + entry.body)
        else:
            call.exchange.write(head)
            call.exchange.finish(entry.body)
        call.done = True
        delivery.answered.append(self)

    def settle(self, size: int, finished: float) -> None:
        self.from_hub(FROM_HUB)
        self._answers.records.write(self.call, 200, size, finished)

    def _deliver_alone(self, delivery: Delivery) -> None:
        entry = delivery.entry
        self.from_hub(FROM_HUB)
        self._send(entry, up_to_date=entry.up_to_date, may_keep=not entry.no_store)

    def replay(self, entry: Entry, *, up_to_date: bool) -> None:
        """Data that the hub already had."""
        if self._is_too_much(entry):
            return
        self.from_hub(FROM_WINDOW)
        self._send(entry, up_to_date=up_to_date)

    def give(self, entry: Entry) -> None:
        """Data found by a catch-up read."""
        if self._is_too_much(entry):
            return
        self.release()
        self._send(entry, up_to_date=entry.up_to_date)

    def _send(self, entry: Entry, *, up_to_date: bool, may_keep: bool = False) -> None:
        if self._is_valid():
            cursor, call = self.cursor(entry.incarnation), self.call
            self._answers.send_live(call, entry, cursor, up_to_date=up_to_date, may_keep=may_keep)

    def nothing_new(self, tail: str | None = None, closed: bool = False) -> None:
        """A 204 at `tail`, or at its own offset."""
        self.from_hub(FROM_HUB)
        at = (STREAM_NEXT_OFFSET, self.offset if tail is None else tail)
        last = replies.CLOSED if closed else (STREAM_CURSOR, str(self.cursor("")))
        headers: Headers = (at, replies.UP_TO_DATE, replies.NO_STORE, last)
        self._answers.send_reply(self.call, Reply(204, headers))

    def refuse(self, reply: Reply, error: str = "") -> None:
        self.release()
        self._answers.send_reply(self.call, reply, error=error)

    def refuse_at_hub(self, reply: Reply, error: str) -> None:
        self.call.settle(FROM_HUB.failed() if reply.status >= 500 else FROM_HUB)
        self.refuse(reply, error)

    def cursor(self, incarnation: str) -> int:
        return self._cursors.next(self.call, incarnation, self.offset)

    def _is_valid(self) -> bool:
        """A token may expire while its reader waits."""
        if time.time() < self.call.principal.expires_at:
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
