"""Catch-up reads: from the first level, the second, or the origin, by shared flights.

All reads of stored bytes come here: plain GETs, SSE readers catching up, and long-polls that are
behind the tail. Snapshots and bootstraps are read the same way, under the names of `rules.routes`
instead of an offset. `rules.freshness` decides what may be stored, and for how long.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from gateway.asking import TooLarge, UpstreamError, UpstreamRequest, UpstreamResponse
from gateway.cdn import is_public
from gateway.config import GatewayConfig
from gateway.entries import Entry, make_entry
from gateway.flights import Flight
from gateway.purges import OTHERS, Purges
from gateway.reads import Asker, Fetched, Got
from gateway.rediscache import RedisCache, pack_entry, unpack_entry
from gateway.rules.downstream import passed_reply
from gateway.rules.forwarding import upstream_headers
from gateway.rules.freshness import Expiry, Policy, Times, judge
from gateway.rules.routes import BOOTSTRAP, is_chunk, is_replaced, part_target
from gateway.store import Holdings
from gateway.streams import News
from gateway.tasks import Tasks
from gateway.upstream import Upstream
from protocol.heads import ReplyHead
from protocol.offsets import NOW, START
from protocol.paths import stream_url
from protocol.replies import Reply

WHOLE = "/"  # not the name of a part: a flight that asks about the stream itself
FollowedTo = Callable[[str], str | None]  # the tail of a stream that a hub waits at


class Cache:
    def __init__(
        self,
        config: GatewayConfig,
        upstream: Upstream,
        holdings: Holdings,
        purges: Purges,
        second: RedisCache | None,
        followed_to: FollowedTo,
        clock: Callable[[], float] = time.time,
    ) -> None:
        cache = self._config = config.cache
        self._times = Times(
            cache.fresh_secs, cache.stale_secs, cache.stale_error_secs, cache.obey_no_store
        )
        self._public = config.cdn.public
        self._upstream = upstream
        self._store = holdings.store
        self._flights = holdings.flights
        self._streams = holdings.streams
        self._purges = purges
        self._second = second
        self._followed_to = followed_to
        self._clock = clock
        self._tasks = Tasks()

    def fresh(self, stream: str, part: str) -> Entry | None:
        """The stored entry, if it can be served without asking anyone."""
        entry = self._store.get(stream, part)
        return entry if entry is not None and entry.is_fresh(self._clock()) else None

    async def get(self, stream: str, path: str, part: str, asker: Asker) -> Got:
        """Raises UpstreamError; TooLarge if the body must bypass the cache."""
        if asker.token is not None:
            return Got(await self._pass(stream, path, part, asker), leads=True)
        if part == BOOTSTRAP and self._streams.get(stream).large_bootstrap:
            raise TooLarge
        entry = self._store.get(stream, part)
        now = self._clock()
        if entry is not None and entry.is_fresh(now):
            return Got(Fetched(entry, "hit", 0))
        if entry is not None and entry.is_usable_stale(now):
            self._refresh(stream, path, part, asker)
            return Got(Fetched(entry, "stale", 0))
        if entry is not None and self.hub_vouches_for(entry):
            return Got(Fetched(entry, "hub", 0))
        started = time.monotonic()
        answer, flight, leads = await self._fly(stream, path, part, asker)
        waited = 0.0 if leads else time.monotonic() - started
        return Got(answer, flight.number, leads, waited)

    async def _pass(self, stream: str, path: str, part: str, asker: Asker) -> Fetched:
        """For one client only, and not stored: the origin decides by its token what it may have."""
        lone = self._flights.lone((stream, part), asker.subject)
        return replace(await self._ask(lone, path, None, None, asker), verdict="pass")

    async def _fly(
        self, stream: str, path: str, part: str, asker: Asker
    ) -> tuple[Fetched, Flight[Fetched], bool]:
        async def fetch(flight: Flight[Fetched]) -> Fetched:
            return await self._fetch(flight, path, asker)

        until = self._upstream.deadline()
        try:
            return await self._flights.join((stream, part), fetch, asker.subject, until)
        except TimeoutError:
            raise self._upstream.late() from None

    def hub_vouches_for(self, entry: Entry) -> bool:
        """If so configured, a tail is current while a hub is waiting there."""
        if self._config.tail_reads != "hub" or not entry.up_to_date:
            return False
        if self._streams.get(entry.stream).expiry is Expiry.POSSIBLE:
            return False
        return self._followed_to(entry.stream) == entry.next_offset

    async def tail(self, stream: str, path: str, asker: Asker) -> Got:
        """The current end of the stream: the response to `offset=now`, which is never stored."""
        return await self.get(stream, path, NOW, asker)

    def touch(self, entry: Entry) -> None:
        """The entry was used through a kept reference."""
        self._store.get(entry.stream, entry.part)

    def recount(self, entry: Entry) -> None:
        """A form was added to the entry."""
        self._store.recount(entry)

    async def close(self) -> None:
        await self._tasks.cancel()

    # -- asking the origin ---------------------------------------------------------------------

    def _refresh(self, stream: str, path: str, part: str, asker: Asker) -> None:
        """Revalidate an entry in the background while it is served."""

        async def refresh() -> None:
            with suppress(UpstreamError):  # counted where it happened; the entry is still good
                await self._fly(stream, path, part, asker)

        if not self._flights.is_open((stream, part)):
            self._tasks.start(refresh(), f"refresh {stream} {part}")

    async def _fetch(self, flight: Flight[Fetched], path: str, asker: Asker) -> Fetched:
        stream, part = flight.key
        kept = believed = self._store.get(stream, part)
        generation: str | None = None
        if self._second is not None and kept is None and self._may_be_shared(stream, part):
            generation, value = await self._second.get(stream, part)
            kept = unpack_entry(stream, part, value, public=is_public(self._public, stream))
            believed = kept if self._believes(kept) else None
            if believed is not None and believed.is_fresh(self._clock()):
                if not flight.detached:
                    self._store.put(believed)
                    return Fetched(believed, "hit", 0)
        try:
            answer = await self._ask(flight, path, kept, generation, asker)
        except UpstreamError:
            if believed is not None and believed.may_stand_in(self._clock()):
                return Fetched(believed, "stale", 0)
            raise
        if answer.status >= 500 and believed is not None and believed.may_stand_in(self._clock()):
            return Fetched(believed, "stale", answer.status, upstream_s=answer.upstream_s)
        return answer

    def _may_be_shared(self, stream: str, part: str) -> bool:
        return part not in (NOW, BOOTSTRAP) and not self._purges.is_distrusted(stream)

    async def _ask(
        self,
        flight: Flight[Fetched],
        path: str,
        kept: Entry | None,
        generation: str | None,
        asker: Asker,
    ) -> Fetched:
        stream, part = flight.key
        headers = upstream_headers({}, request_id=asker.request_id, token=asker.token)
        if kept is not None and kept.origin_etag:
            headers["if-none-match"] = kept.origin_etag
        of_stream = is_chunk(part)
        target = part_target(path, part)
        request = UpstreamRequest("GET", target, headers, of_stream=of_stream, name=stream)
        started = time.monotonic()
        self._streams.get(stream).touched_at = self._clock()
        try:
            response = await self._upstream.fetch(
                request,
                max_bytes=self._config.max_object_bytes,
                payers=flight.payers,
                on_departure=flight.depart,
                on_begun=flight.begin,
            )
        except TooLarge:
            # The next read need not try, unless a snapshot (which detaches) has made it smaller.
            if part == BOOTSTRAP and not flight.detached:
                self._streams.get(stream).large_bootstrap = True
            raise
        took = time.monotonic() - started
        if response.status == 304 and kept is not None:
            answer = self._renew(flight, kept, response, took)
        elif response.status == 200 and response.head.next_offset:
            answer = self._take(flight, response, took)
        else:
            return self._refuse(flight, response, took)
        entry = answer.outcome
        if self._second is not None and isinstance(entry, Entry) and entry.immutable:
            if answer.stored and generation is not None:
                lifetime = entry.error_until - self._clock()
                self._second.put_soon(stream, generation, part, pack_entry(entry), lifetime)
        return answer

    def _refuse(self, flight: Flight[Fetched], response: UpstreamResponse, took: float) -> Fetched:
        self._learn(flight, response.head.incarnation)
        if response.status in (404, 410) and not flight.detached:  # otherwise outdated
            self._miss(*flight.key, response)
        stream = flight.key[0]
        reply = passed_reply(
            response.status, response.headers, response.body, public=is_public(self._public, stream)
        )
        return Fetched(reply, "miss", response.status, upstream_s=took)

    def _miss(self, stream: str, part: str, response: UpstreamResponse) -> None:
        """Drop what is missing: the stream, the offset, or a part that it need not have."""
        earliest = response.head.earliest_offset
        is_there = response.status == 410 and response.head.incarnation != ""
        if response.status == 410 and earliest:
            self._store.drop(stream, part)
            self._purges.learn_earliest(stream, earliest)
        elif not is_chunk(part) or is_there:  # a stream exists, but not the offset's
            self._store.drop(stream, part)
        elif response.status == 404 or part in (START, NOW):
            self._purges.learn_gone(stream)
        else:  # perhaps only the offset is gone (DS 5.6): hubs find out for themselves
            self._purges.doubt(stream)

    def _take(self, flight: Flight[Fetched], response: UpstreamResponse, took: float) -> Fetched:
        stream, part = flight.key
        self._learn(flight, response.head.incarnation)
        policy = self._judge(stream, part, response)
        head, body, public = response.head, response.body, is_public(self._public, stream)
        entry = make_entry(stream, part, head, body, policy, self._clock(), public)
        keep = policy.store and part != NOW and not flight.detached
        stored = keep and self._store.put(entry)
        if stored and not policy.immutable:
            self._wonder(stream, entry, response.head)
        return Fetched(entry, "miss", 200, stored, took)

    def _wonder(self, stream: str, entry: Entry, head: ReplyHead) -> None:
        """Without Cache-Control it is unknown whether a stream can expire; HEAD tells."""
        if head.cache_control or (entry.up_to_date and not entry.closed):
            return
        if self._streams.get(stream).expiry is Expiry.UNKNOWN:
            self._meet_soon(stream)

    def _meet_soon(self, stream: str) -> None:
        """Ask the origin about the stream, once for all who need to know."""
        if not self._flights.is_open((stream, WHOLE)):
            self._tasks.start(self._meet(stream), f"head of {stream}")

    async def _meet(self, stream: str) -> None:
        with suppress(UpstreamError):  # counted where it happened; the next read asks again
            await self._flights.join((stream, WHOLE), self._look)

    async def _look(self, flight: Flight[Fetched]) -> Fetched:
        stream = flight.key[0]
        request = UpstreamRequest("HEAD", stream_url(stream), upstream_headers({}), name=stream)
        response = await self._upstream.fetch(request, on_departure=flight.depart)
        if response.status == 200:
            self._learn(flight, response.head.incarnation)
        if response.status == 200 and not flight.detached:
            self._streams.learn_expiry(stream, response.head)
            self._streams.introduce(stream)
            earliest = response.head.earliest_offset
            if earliest and self._streams.learn_earliest(stream, earliest):
                self._purges.trim(stream, earliest)
        return Fetched(Reply(response.status, ()), "pass", response.status)

    def _renew(
        self, flight: Flight[Fetched], kept: Entry, response: UpstreamResponse, took: float
    ) -> Fetched:
        """304: the stored part is still valid; merge in the origin's headers."""
        self._learn(flight, response.head.incarnation or kept.incarnation)
        up_to_date, closed = _merged(response.head, kept)
        kept.end_at(up_to_date=up_to_date, closed=closed)
        kept.renew(self._judge(kept.stream, kept.part, response, kept), self._clock())
        if not flight.detached:
            self._store.put(kept)
        return Fetched(kept, "revalidated", 304, not flight.detached, took)

    def _learn(self, flight: Flight[Fetched], incarnation: str) -> None:
        """Record the incarnation, or detach the flight if its result may be outdated."""
        assert flight.departure is not None
        if flight.detached:  # it left before a purge, so its result may be outdated
            return
        news = self._purges.learn(flight.key[0], incarnation, flight.departure)
        if news in OTHERS:
            flight.detached = news is News.CONTESTED  # otherwise it has the new one

    def _judge(
        self, stream: str, part: str, response: UpstreamResponse, kept: Entry | None = None
    ) -> Policy:
        up_to_date, closed = response.head.up_to_date, response.head.closed
        if kept is not None:
            up_to_date, closed = kept.up_to_date, kept.closed
        if part == BOOTSTRAP:  # changes with the next snapshot, even on a closed stream
            up_to_date, closed = True, False
        expiry = self._streams.get(stream).expiry
        return judge(
            response.headers, up_to_date=up_to_date, closed=closed, expiry=expiry, times=self._times
        )

    # -- the second level ----------------------------------------------------------------------

    def _believes(self, value: Entry | None) -> bool:
        """Whether the value may be served without asking the origin. Its seal proves that a gateway
        stored it, not that it was not purged since: anyone who can write to Redis can put it back.
        So since the last possibly missed notice, the origin must have confirmed the incarnation and
        the beginning of the stream. Without incarnations, the origin is asked about each value."""
        if value is None:
            return False
        known = self._streams.get(value.stream)
        if not self._streams.is_introduced(known):
            self._meet_soon(value.stream)
            return False
        same = value.incarnation != "" and value.incarnation == known.incarnation
        return same and not (known.earliest and is_replaced(value.part, known.earliest))


def _merged(head: ReplyHead, kept: Entry) -> tuple[bool, bool]:
    """Whether a chunk is up to date and closed after a 304. A chunk that ended at a boundary is no
    longer at the tail once others follow. An origin that sends no Stream-* headers with a 304 does
    not cut chunks, so there the same tag means the same tail."""
    closed = kept.closed or head.closed
    return head.up_to_date if head.next_offset else kept.up_to_date, closed
