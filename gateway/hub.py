"""One upstream tail per stream, whatever the number of its live readers.

A hub is at a position, and while anyone needs it, one long-poll of the origin is out at that
position. Data moves the position and goes to everyone who stands where it begins. An answer
without data (204) or an error goes to every long-poll that waits, and is forgotten. SSE readers
stay through both. Without readers the hub rests, and soon it is dropped.

A reader who stands elsewhere is not turned away: behind the position, a catch-up read has his data;
ahead of it (he has just written, or read past us), he waits until the hub has come there. A hub
that stands beyond the tail (somebody made an offset up) is moved back to a reader's proven tail.

The hub asks by long-poll, not by SSE: only so it gets the bytes as they are.
"""

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from gateway.asking import TooLarge, UpstreamError, UpstreamRequest, UpstreamResponse
from gateway.calls import Call
from gateway.entries import Entry, make_entry
from gateway.outcomes import FROM_HUB
from gateway.readers import SseReader, Waiting
from gateway.rules.downstream import passed_reply
from gateway.rules.forwarding import upstream_headers
from gateway.rules.freshness import Policy
from gateway.rules.routes import is_ahead, is_replaced, long_poll_target
from gateway.slots import Payers
from protocol import replies
from protocol.cursors import next_cursor
from protocol.errors import ProtocolError
from protocol.offsets import are_ordered
from protocol.replies import Reply

if TYPE_CHECKING:
    from gateway.hubs import Hubs

log = logging.getLogger("weir.gateway")

LINGER_SECS = 2.0  # long-polls come back within this time, and find the window still there
TRANSIT_SECS = 0.1  # for which an answer of the origin may have been on its way to us
FIRST_PAUSE_SECS = 0.1
LAST_PAUSE_SECS = 2.0
GIVE_UP_SECS = 30.0  # of an origin that fails; then SSE readers are let go
INTERNAL_ERROR = replies.problem(500, "internal-error", "The gateway made a mistake.")
NOT_STORED = Policy(store=False, immutable=False)
IDLE_ANSWER_SECS = 1.0  # before an origin that answers at once without data is asked again


class Hub:
    """One stream's tail. All state changes are synchronous; the only task is the upstream poll."""

    def __init__(self, hubs: "Hubs", stream: str, path: str, number: int, key: str) -> None:
        self.key = key
        self.stream = stream
        self.path = path
        self.number = number
        self.position = ""
        self.ended = False
        self.waiting: dict[Waiting, int] = {}  # and how often we had asked when they came
        self.readers: dict[SseReader, None] = {}
        self._hubs = hubs
        self.window = hubs.windows.make()
        self._asks = 0
        self._payers = Payers()
        self._departure = 0  # a stamp of when we asked last
        self.is_listening = False  # the origin has our question, and would answer it with news
        self._asked_at = 0.0
        self._poll: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None

    # -- readers -------------------------------------------------------------------------------

    @property
    def is_resting(self) -> bool:
        return self._poll is None

    @property
    def is_wanted(self) -> bool:
        return bool(self.readers or self.waiting)

    def park(self, waiting: Waiting, seconds: float) -> None:
        self.waiting[waiting] = self._asks
        waiting.call.flight_id = f"hub-{self.number}"
        self._payers.add(waiting.call.principal.subject)
        waiting.park(seconds)
        self.run(waiting.offset)

    def attach(self, reader: SseReader) -> None:
        self.readers[reader] = None
        reader.call.flight_id = f"hub-{self.number}"
        self._payers.add(reader.call.principal.subject)
        self.run(reader.offset)

    def run(self, offset: str) -> None:
        """See that a poll is out; a resting hub takes the position of whoever woke it."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._poll is None and not self.ended:
            if self.position != offset:
                self.position = offset
                self.window.clear()
            self._poll = asyncio.create_task(self._work(), name=f"hub {self.stream}")

    def retarget(self, offset: str) -> None:
        """The position was beyond the tail; those who put it there are told so."""
        error = ProtocolError(400, "invalid-offset", "The offset is beyond the stream's tail.")
        self._refuse_waiting(replies.problem_of(error), error.code, beyond=offset)
        for reader in [r for r in self.readers if is_ahead(r.offset, offset)]:
            reader.end("upstream-error")
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None
        self.run(offset)

    def rest_if_idle(self) -> None:
        if not self.is_wanted and self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(LINGER_SECS, self._drop)

    def _drop(self) -> None:
        self._linger = None
        if not self.is_wanted:
            self.end()

    def end(self) -> None:
        """No poll any more; who wants this stream again gets a new hub."""
        self.ended = True
        if self._linger is not None:
            self._linger.cancel()
        if self._poll is not None and self._poll is not asyncio.current_task():
            self._poll.cancel()
        self._poll = None
        self.window.clear()
        self._hubs.forget_hub(self)

    def end_all(self, reply: Reply, error: str, reason: str) -> None:
        """The end for everyone who is here as well."""
        self._refuse_waiting(reply, error)
        self._end_readers(reason)
        self.end()

    def end_purged(self) -> list[Waiting]:
        """The end for the event streams here, whose clients come back; who waits is given away."""
        waiting = list(self.waiting)
        self.waiting.clear()
        self._end_readers("deleted")
        self.end()
        return waiting

    def is_astray(self, offset: str) -> bool:
        """Whether we ask at an offset that cannot be compared with one that names the stream: one
        of before, of an ancestor, or of another stream."""
        return not self.is_resting and not are_ordered(self.position, offset)

    def dissolve(self) -> tuple[list[Waiting], list[SseReader]]:
        """The end, and those who were here: each has another place to go to."""
        waiting, readers = list(self.waiting), list(self.readers)
        self.waiting.clear()
        self.readers.clear()
        self.end()
        return waiting, readers

    # -- the upstream tail ---------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            await self._follow()
        except Exception:
            log.exception("the hub of a stream failed")
            self.end_all(INTERNAL_ERROR, "internal-error", "upstream-error")

    async def _follow(self) -> None:
        failing_since, pause = 0.0, FIRST_PAUSE_SECS
        while self.is_wanted and not self.ended:
            try:
                failed = await self._ask_once()
            except TooLarge:
                self._let_go()
                return
            if not failed:
                failing_since, pause = 0.0, FIRST_PAUSE_SECS
                continue
            now = time.monotonic()
            failing_since = failing_since or now
            if now - failing_since > GIVE_UP_SECS:
                self._end_readers("upstream-error")
            if self.is_wanted:
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, LAST_PAUSE_SECS)
        if not self.ended:
            self._poll = None
            self.rest_if_idle()

    async def _ask_once(self) -> bool:
        """Whether it failed. The answer ends here: the next may be long in coming, and this one is
        as large as an append may be."""
        try:
            response = await self._ask()
        except TooLarge:
            raise
        except UpstreamError as error:
            self._refuse_waiting(replies.problem_of(error), error.code)
            return True
        if response.status >= 500 or response.status == 429:
            self._refuse_waiting(_as_reply(response), "upstream-error")
            return True
        await self._take(response)
        return False

    async def _ask(self) -> UpstreamResponse:
        hubs = self._hubs
        headers = upstream_headers({}, request_id=f"hub-{self.number}", token=self._token())
        target = long_poll_target(self.path, self.position)
        request = UpstreamRequest("GET", target, headers, of_stream=True)
        hubs.streams.get(self.stream).touched_at = time.time()
        self._asks += 1
        self._departure = next(hubs.streams.stamps)
        self._asked_at = time.monotonic()
        if (eldest := self._eldest()) is not None:
            self._payers = Payers(eldest.principal.subject, self._subjects)
        try:
            return await hubs.upstream.fetch(
                request,
                live=True,
                max_bytes=hubs.max_batch_bytes,
                payers=self._payers,
                on_departure=self._depart,
            )
        finally:
            self.is_listening = False

    def _depart(self) -> None:
        """One reader's log line has the request, so that all lines add up to what we asked."""
        self.is_listening = True
        if (eldest := self._eldest()) is not None:
            eldest.upstream_requests += 1

    def _eldest(self) -> Call | None:
        """The reader in whose name we ask."""
        anyone = next(iter(self.readers), None) or next(iter(self.waiting), None)
        return None if anyone is None else anyone.call

    def _subjects(self) -> list[str]:
        """All who are here: on anyone's account the origin may be asked."""
        calls = [reader.call for reader in self.readers] + [each.call for each in self.waiting]
        return [call.principal.subject for call in calls]

    def _token(self) -> str | None:
        """Only where the configuration forwards tokens; then all who are here have the same."""
        eldest = self._eldest()
        return None if eldest is None else eldest.token

    async def _take(self, response: UpstreamResponse) -> None:
        head = response.head
        if self._hubs.is_another(self.stream, head.incarnation, self._departure):
            return  # which ended us, and all who wait begin anew
        if response.status == 200 and head.next_offset:
            await self._move(self._entry(response))
        elif response.status == 204:
            self._nothing_new(head.next_offset, head.closed)
            if self.is_wanted and time.monotonic() - self._asked_at < FIRST_PAUSE_SECS:
                await asyncio.sleep(FIRST_PAUSE_SECS)  # an origin that does not wait
        elif response.status == 410 and head.earliest_offset:
            self._refuse_waiting(_as_reply(response), "upstream-refused", at=self.position)
            self._leave_place("trimmed")
            self._hubs.begins_at(self.stream, head.earliest_offset)
        elif response.status == 410 and head.incarnation:  # there is a stream, but another
            self._refuse_waiting(_as_reply(response), "upstream-refused", at=self.position)
            self._leave_place("deleted")
        elif response.status in (404, 410):
            self.end_all(_as_reply(response), "not-found", "deleted")
            if self.key == self.stream:  # else it may be hidden from one token alone
                self._hubs.gone(self.stream)
        else:
            self._refuse_waiting(_as_reply(response), "upstream-refused", at=self.position)
            self._leave_place()

    def _let_go(self) -> None:
        """What comes next is too large to be kept: each who waits for it gets it by himself."""
        for waiting in [w for w in self.waiting if w.offset == self.position]:
            del self.waiting[waiting]
            waiting.pass_by()
        self._leave_place()

    def _leave_place(self, reason: str = "upstream-error") -> None:
        """Nothing is to be had where we stand; who stands elsewhere begins anew."""
        for reader in [r for r in self.readers if r.offset == self.position]:
            reader.end(reason)
        self.end()
        self._call_stragglers(everyone=True)

    def _entry(self, response: UpstreamResponse) -> Entry:
        """Not to be stored: what a long-poll brings need not end where a chunk does."""
        return make_entry(
            self.stream,
            self.position,
            response.head,
            response.body,
            policy=NOT_STORED,
            now=time.time(),
            public=self._hubs.is_public(self.stream),
        )

    async def _move(self, entry: Entry) -> None:
        """Data: to everyone who stands where it begins, in one go."""
        before = self.position
        self.position = entry.next_offset
        delivery = self._hubs.delivery(entry, next_cursor(time.time(), None, b""))
        arrived = [w for w in self.waiting if w.offset == before]
        for waiting in arrived:
            del self.waiting[waiting]
            waiting.deliver(delivery)
        delivery.settle_soon()
        riding = [r for r in self.readers if r.offset == before]
        for reader in riding:
            reader.show(delivery)
        self._keep(entry)  # with the event that was made of it
        self._hubs.deliveries += len(arrived) + len(riding)
        if entry.closed:
            self._finish(entry.next_offset)
            return
        self._call_stragglers()
        if entry.next_offset == before or entry.is_empty:  # an origin that does not wait
            await asyncio.sleep(IDLE_ANSWER_SECS if self.readers else 0)

    def _finish(self, tail: str) -> None:
        """The stream is closed and everything is sent."""
        for waiting in [w for w in self.waiting if w.offset == tail]:
            del self.waiting[waiting]
            waiting.nothing_new(tail, closed=True)
        for reader in [r for r in self.readers if r.offset == tail]:
            reader.end("closed")
        self._call_stragglers(everyone=True)
        self.end()

    def _nothing_new(self, tail: str, closed: bool) -> None:
        here = [w for w in self.waiting if w.offset == self.position]
        for waiting in [w for w in here if closed or self._may_tell(w)]:
            del self.waiting[waiting]
            waiting.nothing_new(tail, closed=closed)
        if not closed:
            return
        ended = Entry(self.stream, tail, "", tail, True, True, "", "", b"", True, 0, 0, 0, 0)
        delivery = self._hubs.delivery(ended)
        for reader in [r for r in self.readers if r.offset == self.position]:
            reader.show(delivery)
        self._finish(tail)

    def _may_tell(self, waiting: Waiting) -> bool:
        """Whether "nothing new" is from after his question. It is if he came before we asked, or
        so long ago that the answer was not under way; who has just come waits for the next one."""
        return self.waiting[waiting] < self._asks or waiting.has_waited(TRANSIT_SECS)

    def _call_stragglers(self, everyone: bool = False) -> None:
        """Those the data went past without beginning at their place look for it themselves."""
        for waiting in [w for w in self.waiting if everyone or self._has_passed(w.offset)]:
            del self.waiting[waiting]
            self._hubs.place(waiting)
        for reader in [r for r in self.readers if everyone or self._has_passed(r.offset)]:
            del self.readers[reader]
            self._hubs.follow(reader)

    def _has_passed(self, offset: str) -> bool:
        return offset != self.position and not is_ahead(offset, self.position)

    def _refuse_waiting(
        self, reply: Reply, error: str, *, at: str | None = None, beyond: str | None = None
    ) -> None:
        for waiting in list(self.waiting):
            if at is not None and waiting.offset != at:
                continue
            if beyond is not None and not is_ahead(waiting.offset, beyond):
                continue
            del self.waiting[waiting]
            waiting.call.settle(FROM_HUB.failed() if reply.status >= 500 else FROM_HUB)
            waiting.refuse(reply, error)

    def _end_readers(self, reason: str) -> None:
        for reader in list(self.readers):
            reader.end(reason)

    def _keep(self, entry: Entry) -> None:
        """In the window, for those who come late."""
        if entry.is_empty or self.ended:
            return
        earliest = self._hubs.streams.get(self.stream).earliest
        if earliest and is_replaced(entry.offset, earliest):
            return  # it was on its way while a snapshot was published
        self.window.add(entry)


def _as_reply(response: UpstreamResponse) -> Reply:
    return passed_reply(response.status, response.headers, response.body, public=False)
