"""Follows one tail: polls the origin while readers wait, and reports each response as an event.

It uses long-polls because SSE does not preserve line ends.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.answers import INTERNAL_ERROR
from gateway.asking import TooLarge, UpstreamError, UpstreamRequest, UpstreamResponse
from gateway.calls import Call
from gateway.cdn import is_public
from gateway.entries import Entry, make_entry
from gateway.longpolls import LongPoll
from gateway.purges import OTHERS, Purges
from gateway.rules.downstream import passed_reply
from gateway.rules.forwarding import upstream_headers
from gateway.rules.freshness import Policy
from gateway.rules.routes import long_poll_target
from gateway.rules.tails import Action, Refusal, State, Tail
from gateway.slots import Payers
from gateway.ssereaders import SseReader
from gateway.streams import Streams
from gateway.upstream import Upstream
from protocol import replies
from protocol.replies import Reply

log = logging.getLogger("weir.gateway")

LINGER_SECS = 2.0  # long-polls that return within this time still find the window
FIRST_PAUSE_SECS = 0.1
LAST_PAUSE_SECS = 2.0
GIVE_UP_SECS = 30.0  # after which SSE readers of a failing origin are disconnected
IDLE_ANSWER_SECS = 1.0  # pause if the origin responds at once without data
NOT_STORED = Policy(store=False, immutable=False)  # it need not end at a chunk boundary

LiveTail = Tail[LongPoll, SseReader]
LiveAction = Action[LongPoll, SseReader]


@dataclass(frozen=True, slots=True)
class Origin:
    """What hubs need to poll the origin, and to pass on its facts about a stream."""

    upstream: Upstream
    streams: Streams
    purges: Purges
    public: Sequence[str]  # patterns of streams
    max_batch_bytes: int


class Hub:
    """`carry_out` is called with the actions of each event."""

    def __init__(
        self,
        tail: LiveTail,
        path: str,
        number: int,
        origin: Origin,
        carry_out: Callable[[LiveTail, list[LiveAction]], None],
    ) -> None:
        self._tail = tail
        self._path = path
        self._name = f"hub-{number}"
        self._origin = origin
        self._carry_out = carry_out
        self._payers = Payers()
        self._departure = 0  # stamp of the last request
        self._asked_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None

    def seat(self, call: Call) -> None:
        """A reader has arrived."""
        call.flight_id = self._name
        self._payers.add(call.principal.subject)
        if self._task is None or self._linger is not None:
            self.settle()

    def settle(self) -> None:
        """Start polling, start or stop lingering, or stop, as the tail requires."""
        tail = self._tail
        has_ended = tail.state is State.ENDED
        if self._linger is not None and (has_ended or tail.is_wanted):
            self._linger.cancel()
            self._linger = None
        if has_ended:
            if self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()
        elif not tail.is_wanted:
            if self._linger is None:
                loop = asyncio.get_running_loop()
                self._linger = loop.call_later(LINGER_SECS, self._rested)
        elif self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"hub {tail.stream}")

    def _rested(self) -> None:
        self._linger = None
        self._tail.rested()
        self._do([])

    def _do(self, actions: list[LiveAction]) -> None:
        self._carry_out(self._tail, actions)

    # -- asking --------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            await self._follow()
        except Exception:
            log.exception("a stream's hub failed")
            self._do(self._tail.gone(Refusal(INTERNAL_ERROR, "internal-error"), "upstream-error"))

    async def _follow(self) -> None:
        failing_since, pause = 0.0, FIRST_PAUSE_SECS
        while (offset := self._tail.next_ask()) is not None:
            rest = await self._ask_once(offset)
            if rest is None:
                now = time.monotonic()
                failing_since = failing_since or now
                if now - failing_since > GIVE_UP_SECS:
                    self._do(self._tail.given_up())
                rest, pause = pause * random.uniform(0.8, 1.2), min(2 * pause, LAST_PAUSE_SECS)
            else:
                failing_since, pause = 0.0, FIRST_PAUSE_SECS
            if rest and self._tail.is_wanted:
                await asyncio.sleep(rest)
        self._task = None

    async def _ask_once(self, offset: str) -> float | None:
        """The pause before the next request; None on failure. The response is released on return:
        it may be large, and the next one may take days."""
        tail = self._tail
        try:
            response = await self._ask(offset)
        except TooLarge:
            self._do(tail.too_large())
            return 0.0
        except UpstreamError as error:
            self._do(tail.failed(Refusal(replies.problem_of(error), error.code)))
            return None
        if response.status >= 500 or response.status == 429:
            self._do(tail.failed(Refusal(_as_reply(response), "upstream-error")))
            return None
        if self._is_another(response.head.incarnation):
            return 0.0  # the tail has ended, and its readers start over
        if response.status == 200 and response.head.next_offset:
            return self._take(self._entry(offset, response))
        if response.status == 204:
            return self._take_nothing(response)
        self._refused(response)
        return 0.0

    async def _ask(self, offset: str) -> UpstreamResponse:
        origin, eldest = self._origin, self._eldest()
        # Only if tokens are forwarded; then all readers here have the same one.
        token = None if eldest is None else eldest.token
        headers = upstream_headers({}, request_id=self._name, token=token)
        target = long_poll_target(self._path, offset)
        stream = self._tail.stream
        request = UpstreamRequest("GET", target, headers, of_stream=True, name=stream)
        origin.streams.get(stream).touched_at = time.time()
        self._departure = next(origin.streams.stamps)
        self._asked_at = time.monotonic()
        if eldest is not None:
            self._payers = Payers(eldest.principal.subject, self._subjects)
        try:
            return await origin.upstream.fetch(
                request,
                live=True,
                max_bytes=origin.max_batch_bytes,
                payers=self._payers,
                on_departure=self._depart,
            )
        finally:
            self._tail.answered()

    def _depart(self) -> None:
        """One reader's log line counts the request, so that all lines add up to what was sent."""
        self._tail.departed()
        if (eldest := self._eldest()) is not None:
            eldest.upstream_requests += 1

    def _eldest(self) -> Call | None:
        """The reader on whose behalf the hub polls."""
        anyone = next(iter(self._tail.readers), None) or next(iter(self._tail.polls), None)
        return None if anyone is None else anyone.call

    def _subjects(self) -> list[str]:
        """The subjects of all readers: any of them may pay for the request."""
        calls = [reader.call for reader in self._tail.readers]
        calls += [poll.call for poll in self._tail.polls]
        return [call.principal.subject for call in calls]

    # -- answers -------------------------------------------------------------------------------

    def _is_another(self, incarnation: str) -> bool:
        """Whether the stream was re-created without our knowledge: our data and readers then
        belong to the old one, as far as we can tell."""
        purges = self._origin.purges
        return purges.learn(self._tail.stream, incarnation, self._departure) in OTHERS

    def _entry(self, offset: str, response: UpstreamResponse) -> Entry:
        stream, head, body = self._tail.stream, response.head, response.body
        public = is_public(self._origin.public, stream)
        return make_entry(stream, offset, head, body, NOT_STORED, time.time(), public)

    def _take(self, entry: Entry) -> float:
        tail = self._tail
        self._do(tail.took(entry, self._origin.streams.get(tail.stream).earliest))
        tail.window.recount(entry)  # it has grown by its event
        is_idle = entry.next_offset == entry.part or entry.is_empty
        return IDLE_ANSWER_SECS if is_idle and len(tail.readers) else 0.0

    def _take_nothing(self, response: UpstreamResponse) -> float:
        tail, offset = self._tail, response.head.next_offset
        if response.head.closed:
            end = Entry(tail.stream, offset, "", offset, True, True, "", "", b"", True, 0, 0, 0, 0)
            self._do(tail.closed(end))
            return 0.0
        self._do(tail.nothing_new(offset, asyncio.get_running_loop().time()))
        is_hasty = time.monotonic() - self._asked_at < FIRST_PAUSE_SECS  # the origin did not wait
        return FIRST_PAUSE_SECS if is_hasty else 0.0

    def _refused(self, response: UpstreamResponse) -> None:
        tail, status, head = self._tail, response.status, response.head
        refusal = Refusal(_as_reply(response), "upstream-refused")
        if status == 410 and head.earliest_offset:
            self._do(tail.refused(refusal, "trimmed"))
            self._origin.purges.learn_earliest(tail.stream, head.earliest_offset)
        elif status == 410 and head.incarnation:  # another stream exists here
            self._do(tail.refused(refusal, "deleted"))
        elif status in (404, 410):
            self._do(tail.gone(Refusal(refusal.reply, "not-found"), "deleted"))
            if tail.key == tail.stream:  # otherwise it may be hidden from just one token
                self._origin.purges.learn_gone(tail.stream)
        else:
            self._do(tail.refused(refusal, "upstream-error"))


def _as_reply(response: UpstreamResponse) -> Reply:
    return passed_reply(response.status, response.headers, response.body, public=False)
