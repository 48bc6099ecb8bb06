"""Catch-up reads: from the first level, the second, or the origin, by shared flights.

Whoever needs the bytes at an offset asks here: plain GETs, SSE readers that replay, long-polls that
turn out to be behind. Snapshots and bootstraps are asked for in the same way; instead of an offset
they have the names of `rules.routes`. What may be kept, and how long, is judged in
`rules.freshness`.
"""

import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gateway.config import CacheConfig
from gateway.entries import Entry, incarnation_told, is_true, make_entry
from gateway.flights import Flight, Flights
from gateway.rediscache import RedisCache
from gateway.rules.downstream import passed_headers
from gateway.rules.forwarding import upstream_headers
from gateway.rules.freshness import Expiry, Policy, Times, judge
from gateway.rules.routes import BOOTSTRAP, is_replaced, part_target
from gateway.slots import OURS
from gateway.store import Store
from gateway.streams import News, Streams
from gateway.tasks import Tasks
from gateway.upstream import TooLarge, Upstream, UpstreamError, UpstreamRequest, UpstreamResponse
from protocol.offsets import NOW, START
from protocol.paths import stream_url
from protocol.replies import Reply

Public = Callable[[str], bool]
WHOLE = "/"  # no part's name: a flight that asks about the stream itself
OTHERS = (News.REPLACED, News.CONTESTED)  # than what is stored, as far as anyone can tell


@dataclass(frozen=True, slots=True)
class Asker:
    """On whose behalf the origin is asked, should it come to that."""

    request_id: str
    token: str | None = None  # only where the configuration forwards it: then nothing is shared
    subject: str = OURS  # on whose account


@dataclass(frozen=True, slots=True)
class Answer:
    """What a flight brings: an entry, or the origin's refusal as it is."""

    outcome: Entry | Reply
    verdict: str  # hit, stale, revalidated, miss, pass
    status: int  # of the origin, 0 if it was not asked
    stored: bool = False
    upstream_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Got:
    """An answer, and how this asker came by it."""

    answer: Answer
    flight: int = 0
    leads: bool = False
    waited_s: float = 0.0

    @property
    def outcome(self) -> Entry | Reply:
        return self.answer.outcome

    @property
    def collapsed(self) -> bool:
        return self.flight != 0 and not self.leads


def _settles(answer: Answer) -> bool:
    return isinstance(answer.outcome, Entry) and answer.outcome.immutable


class Cache:
    def __init__(
        self,
        config: CacheConfig,
        upstream: Upstream,
        store: Store,
        shared: RedisCache | None,
        streams: Streams,
        is_public: Public,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._times = Times(
            config.fresh_secs, config.stale_secs, config.stale_error_secs, config.obey_no_store
        )
        self._upstream = upstream
        self._store = store
        self._shared = shared
        self._streams = streams
        self._is_public = is_public
        self._clock = clock
        self._flights: Flights[Answer] = Flights(_settles, streams.stamps)
        self._tasks = Tasks()
        self._distrusted: set[str] = set()  # whose old chunks may still be in the second level
        # Who else must be told that a stream is another one, or begins later.
        self.replaced: Callable[[str], None] = lambda stream: None
        self.trimmed: Callable[[str, str], None] = self.trim
        self.tell: Callable[[str], Coroutine[Any, Any, None]] = (
            _tell_nobody  # who holds the old one
        )
        self.followed_to: Callable[[str], str | None] = lambda stream: None  # by a hub, if at all

    @property
    def flights(self) -> Flights[Answer]:
        return self._flights

    def fresh(self, stream: str, offset: str) -> Entry | None:
        """What can be served at once, without asking anyone."""
        entry = self._store.get(stream, offset)
        if entry is not None and entry.immutable and self._clock() < entry.fresh_until:
            return entry
        return None

    async def get(self, stream: str, path: str, offset: str, asker: Asker) -> Got:
        """Raises UpstreamError; TooLarge for what must be streamed past the cache."""
        if asker.token is not None:
            return Got(await self._pass(stream, path, offset, asker), leads=True)
        if offset == BOOTSTRAP and self._streams.get(stream).large_bootstrap:
            raise TooLarge
        entry = self._store.get(stream, offset)
        now = self._clock()
        if entry is not None and entry.immutable and now < entry.stale_until:
            if now < entry.fresh_until:
                return Got(Answer(entry, "hit", 0))
            self._refresh(stream, path, offset, asker)
            return Got(Answer(entry, "stale", 0))
        if entry is not None and self.hub_vouches_for(entry):
            return Got(Answer(entry, "hub", 0))
        started = time.monotonic()
        answer, flight, leads = await self._fly(stream, path, offset, asker)
        waited = 0.0 if leads else time.monotonic() - started
        return Got(answer, flight.number, leads, waited)

    async def _pass(self, stream: str, path: str, offset: str, asker: Asker) -> Answer:
        """For one asker alone: the origin says by his token what he may have, and he only."""
        lone = self._flights.lone((stream, offset), asker.subject)
        return replace(await self._ask(lone, path, None, None, asker), verdict="pass")

    async def _fly(
        self, stream: str, path: str, offset: str, asker: Asker
    ) -> tuple[Answer, Flight[Answer], bool]:
        async def fetch(flight: Flight[Answer]) -> Answer:
            return await self._fetch(flight, path, asker)

        return await self._flights.join((stream, offset), fetch, asker.subject)

    def hub_vouches_for(self, entry: Entry) -> bool:
        """By configuration: a tail is still the tail while a hub waits there for more."""
        if self._config.tail_reads != "hub" or not entry.up_to_date:
            return False
        if self._streams.get(entry.stream).expiry is Expiry.POSSIBLE:
            return False
        return self.followed_to(entry.stream) == entry.next_offset

    async def tail(self, stream: str, path: str, asker: Asker) -> Got:
        """Where the stream ends now: the answer to `offset=now`, which nobody keeps."""
        return await self.get(stream, path, NOW, asker)

    def purge(self, stream: str) -> None:
        """The stream was deleted or made anew: nothing of it may be served again."""
        self._flights.detach(stream)
        self._store.purge(stream)
        self._streams.forget(stream)

    def trim(self, stream: str, earliest: str) -> None:
        """A snapshot was published at `earliest`: what it replaces is not served again. The rest,
        and whoever waits at the tail, go on as if nothing had happened."""
        self._flights.detach(stream, lambda part: is_replaced(part, earliest))
        self._store.drop_some(stream, lambda part: is_replaced(part, earliest))
        self._streams.learn_earliest(stream, earliest)
        self._streams.get(stream).large_bootstrap = False

    def learn_earliest(self, stream: str, earliest: str) -> None:
        """The origin says where the stream begins. If that is news, we missed a snapshot."""
        if self._streams.learn_earliest(stream, earliest):
            self.distrust(stream)
            self.trimmed(stream, earliest)

    def lost(self, stream: str) -> None:
        """The origin says that the stream is gone, and nobody has purged it."""
        if self.holds(stream):
            self.tell_soon(stream)
        self._drop(stream)

    def _drop(self, stream: str) -> None:
        self.distrust(stream)
        self.replaced(stream)

    def learn(self, stream: str, incarnation: str, departure: int) -> News:
        """An answer to what left at the stamp `departure` is of this incarnation. If that is
        another one, nothing stored is served again, here; who learns it sees to `tell`."""
        news = self._streams.learn_incarnation(stream, incarnation, departure)
        if news is News.FIRST:  # what we knew may have been forgotten before what we stored
            self._store.drop_others(stream, incarnation)
        elif news in OTHERS:
            self._drop(stream)
        if news is News.REPLACED:
            self._streams.learn_incarnation(stream, incarnation, departure)
        return news

    def tell_soon(self, stream: str) -> None:
        self._tasks.start(self.tell(stream), f"tell of {stream}")

    def holds(self, stream: str) -> bool:
        """Whether others may hold something of it as well: it was there not long ago."""
        known = self._streams.peek(stream)
        return self._store.holds(stream) or (known is not None and known.incarnation != "")

    def doubt(self, stream: str) -> None:
        """It may be gone: nothing stored is served. A hub finds out for itself."""
        self.distrust(stream)
        self.purge(stream)

    def distrust(self, stream: str) -> None:
        """Purge it in the second level; until that is done, nothing of it is read there."""
        if self._shared is not None and stream not in self._distrusted:
            self._distrusted.add(stream)
            self._tasks.start(self._purge_shared(self._shared, stream), f"purge {stream}")

    async def _purge_shared(self, shared: RedisCache, stream: str) -> None:
        try:
            await shared.purge(stream)
        finally:
            self._distrusted.discard(stream)

    def purge_all(self) -> None:
        self._flights.detach_all()
        self._store.clear()
        self._streams.doubt_all()

    def drop_tails(self, stream: str) -> None:
        self._store.drop_tails(stream)

    def touch(self, entry: Entry) -> None:
        """It was used by someone who kept a reference."""
        self._store.get(entry.stream, entry.offset)

    def recount(self, entry: Entry) -> None:
        """A form was added to it."""
        self._store.recount(entry)

    async def close(self) -> None:
        await self._tasks.cancel()

    # -- asking the origin ---------------------------------------------------------------------

    def _refresh(self, stream: str, path: str, offset: str, asker: Asker) -> None:
        """Look for news behind an entry that is served meanwhile."""

        async def refresh() -> None:
            try:
                await self._fly(stream, path, offset, asker)
            except UpstreamError:
                pass  # counted where it happened; the entry is still good

        if not self._flights.is_open((stream, offset)):
            self._tasks.start(refresh(), f"refresh {stream} {offset}")

    async def _fetch(self, flight: Flight[Answer], path: str, asker: Asker) -> Answer:
        stream, offset = flight.key
        kept = believed = self._store.get(stream, offset)
        generation: str | None = None
        if self._shared is not None and kept is None and self._may_be_shared(stream, offset):
            generation, value = await self._shared.get(stream, offset)
            kept = self._unpack(stream, offset, value)
            believed = kept if self._believes(kept) else None
            if believed is not None and self._clock() < believed.fresh_until:
                if not flight.detached:
                    self._store.put(believed)
                    return Answer(believed, "hit", 0)
        try:
            answer = await self._ask(flight, path, kept, generation, asker)
        except UpstreamError:
            if believed is not None and self._may_stand_in(believed):
                return Answer(believed, "stale", 0)
            raise
        if answer.status >= 500 and believed is not None and self._may_stand_in(believed):
            return Answer(believed, "stale", answer.status, upstream_s=answer.upstream_s)
        return answer

    def _may_be_shared(self, stream: str, offset: str) -> bool:
        return offset not in (NOW, BOOTSTRAP) and stream not in self._distrusted

    def _may_stand_in(self, kept: Entry) -> bool:
        """For an origin in trouble (RFC 5861 4)."""
        return kept.immutable and self._clock() < kept.error_until

    async def _ask(
        self,
        flight: Flight[Answer],
        path: str,
        kept: Entry | None,
        generation: str | None,
        asker: Asker,
    ) -> Answer:
        stream, offset = flight.key
        headers = upstream_headers({}, request_id=asker.request_id, token=asker.token)
        if kept is not None and kept.origin_etag:
            headers["if-none-match"] = kept.origin_etag
        of_stream = not offset.startswith("/")  # and no snapshot or bootstrap
        request = UpstreamRequest("GET", part_target(path, offset), headers, of_stream=of_stream)
        started = time.monotonic()
        self._streams.get(stream).touched_at = self._clock()
        try:
            response = await self._upstream.fetch(
                request,
                max_bytes=self._config.max_object_bytes,
                payers=flight.payers,
                on_departure=flight.depart,
            )
        except TooLarge:
            # The next one need not find out; but a snapshot may have made it smaller meanwhile.
            if offset == BOOTSTRAP and not flight.detached:
                self._streams.get(stream).large_bootstrap = True
            raise
        took = time.monotonic() - started
        if response.status == 304 and kept is not None:
            answer = self._renew(flight, kept, response, took)
        elif response.status == 200 and response.headers.get("stream-next-offset"):
            answer = self._take(flight, response, took)
        else:
            return self._refuse(flight, response, took)
        entry = answer.outcome
        if self._shared is not None and isinstance(entry, Entry) and entry.immutable:
            if answer.stored and generation is not None:
                lifetime = entry.error_until - self._clock()
                self._shared.put_soon(stream, generation, offset, _pack(entry), lifetime)
        return answer

    def _refuse(self, flight: Flight[Answer], response: UpstreamResponse, took: float) -> Answer:
        self._learn(flight, incarnation_told(response.headers))
        if response.status in (404, 410) and not flight.detached:  # else it is old news
            self._miss(*flight.key, response)
        stream = flight.key[0]
        told = tuple(response.headers.items())
        headers = passed_headers(response.status, told, public=self._is_public(stream))
        reply = Reply(response.status, headers, response.body)
        return Answer(reply, "miss", response.status, upstream_s=took)

    def _miss(self, stream: str, offset: str, response: UpstreamResponse) -> None:
        """What is not there: the stream, the offset, or a part that it need not have?"""
        earliest = response.headers.get("stream-earliest-offset")
        is_there = response.status == 410 and incarnation_told(response.headers) != ""
        if response.status == 410 and earliest is not None:
            self._store.drop(stream, offset)
            self.learn_earliest(stream, earliest)
        elif offset.startswith("/") or is_there:  # but another than the offset's
            self._store.drop(stream, offset)
        elif response.status == 404 or offset in (START, NOW):
            self.lost(stream)
        else:  # perhaps of the offset alone (DS 5.6): a hub finds out for itself
            self.doubt(stream)

    def _take(self, flight: Flight[Answer], response: UpstreamResponse, took: float) -> Answer:
        stream, offset = flight.key
        headers = response.headers
        self._learn(flight, incarnation_told(headers))
        policy = self._judge(stream, offset, headers)
        entry = make_entry(
            stream,
            offset,
            headers,
            response.body,
            policy=policy,
            now=self._clock(),
            public=self._is_public(stream),
        )
        keep = policy.store and offset != NOW and not flight.detached
        stored = keep and self._store.put(entry)
        if stored and not policy.immutable:
            self._wonder(stream, entry, headers)
        return Answer(entry, "miss", 200, stored, took)

    def _wonder(self, stream: str, entry: Entry, headers: Mapping[str, str]) -> None:
        """An origin without Cache-Control does not say whether a stream can expire; HEAD does."""
        if "cache-control" in headers or (entry.up_to_date and not entry.closed):
            return
        if self._streams.get(stream).expiry is Expiry.UNKNOWN:
            self._meet_soon(stream)

    def _meet_soon(self, stream: str) -> None:
        """Have the origin say what the stream is now: once, for all who wonder."""
        if not self._flights.is_open((stream, WHOLE)):
            self._tasks.start(self._meet(stream), f"head of {stream}")

    async def _meet(self, stream: str) -> None:
        try:
            await self._flights.join((stream, WHOLE), self._look)
        except UpstreamError:
            pass  # counted where it happened; who wonders, wonders again

    async def _look(self, flight: Flight[Answer]) -> Answer:
        stream = flight.key[0]
        request = UpstreamRequest("HEAD", stream_url(stream), upstream_headers({}))
        response = await self._upstream.fetch(request, on_departure=flight.depart)
        if response.status == 200:
            self._learn(flight, incarnation_told(response.headers))
        if response.status == 200 and not flight.detached:
            self._streams.learn_expiry(stream, response.headers)
            self._streams.introduce(stream)
            earliest = response.headers.get("stream-earliest-offset", "")
            if earliest and self._streams.learn_earliest(stream, earliest):
                self.trimmed(stream, earliest)
        return Answer(Reply(response.status, ()), "pass", response.status)

    def _renew(
        self, flight: Flight[Answer], kept: Entry, response: UpstreamResponse, took: float
    ) -> Answer:
        """304: what we have is still right; what the origin says beside that is merged in."""
        headers = response.headers
        self._learn(flight, incarnation_told(headers) or kept.incarnation)
        up_to_date, closed = _merged(headers, kept)
        if (up_to_date, closed) != (kept.up_to_date, kept.closed):
            kept.up_to_date, kept.closed = up_to_date, closed
            kept.forms.clear()
        policy = self._judge(kept.stream, kept.offset, headers, kept)
        now = self._clock()
        kept.immutable = policy.immutable
        kept.stored_at = now
        kept.fresh_until = now + policy.fresh_s
        kept.stale_until = kept.fresh_until + policy.stale_s
        kept.error_until = kept.fresh_until + policy.stale_error_s
        for form in kept.forms.values():
            form.head, form.second = b"", -1
        if not flight.detached:
            self._store.put(kept)
        return Answer(kept, "revalidated", 304, not flight.detached, took)

    def _learn(self, flight: Flight[Answer], incarnation: str) -> None:
        """Or detach the flight, if what it brings may be of an old stream."""
        assert flight.departure is not None
        if flight.detached:  # it left before a purge: what it saw may be gone
            return
        stream = flight.key[0]
        news = self.learn(stream, incarnation, flight.departure)
        if news in OTHERS:
            flight.detached = news is News.CONTESTED  # else it brings the new one
            self.tell_soon(stream)

    def _judge(
        self, stream: str, offset: str, headers: Mapping[str, str], kept: Entry | None = None
    ) -> Policy:
        up_to_date = is_true(headers, "stream-up-to-date")
        closed = is_true(headers, "stream-closed")
        if kept is not None:
            up_to_date, closed = kept.up_to_date, kept.closed
        if offset == BOOTSTRAP:  # another one after the next snapshot, even of a closed stream
            up_to_date, closed = True, False
        expiry = self._streams.get(stream).expiry
        return judge(
            headers, up_to_date=up_to_date, closed=closed, expiry=expiry, times=self._times
        )

    # -- the second level ----------------------------------------------------------------------

    def _believes(self, value: Entry | None) -> bool:
        """Whether it may be served on its own word. Its seal says that a gateway has stored it, not
        that it was not purged since: whoever can write to Redis can put it back. So the origin has
        told this gateway, since it last may have missed a notice, that the stream is the same and
        begins no later. An origin that names no incarnation is asked about each value."""
        if value is None:
            return False
        known = self._streams.get(value.stream)
        if not self._streams.is_introduced(known):
            self._meet_soon(value.stream)
            return False
        same = value.incarnation != "" and value.incarnation == known.incarnation
        return same and not (known.earliest and is_replaced(value.offset, known.earliest))

    def _unpack(self, stream: str, offset: str, value: bytes | None) -> Entry | None:
        if value is None:
            return None
        try:
            packed = _decode(value)
        except msgspec.DecodeError:
            return None
        return Entry(
            stream, offset, public=self._is_public(stream), **msgspec.structs.asdict(packed)
        )


async def _tell_nobody(stream: str) -> None:
    pass


def _merged(headers: Mapping[str, str], kept: Entry) -> tuple[bool, bool]:
    """Whether a chunk with a 304 is up to date and closed. One that ended at a chunk's boundary is
    the tail's no more when others have followed; an origin that sends no Stream-* headers with a
    304 does not cut chunks, so there the same tag means the same tail."""
    closed = kept.closed or is_true(headers, "stream-closed")
    if "stream-next-offset" not in headers:
        return kept.up_to_date, closed
    return is_true(headers, "stream-up-to-date"), closed


class _Packed(msgspec.Struct, array_like=True):
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    origin_etag: str
    incarnation: str
    body: bytes
    immutable: bool
    stored_at: float
    fresh_until: float
    stale_until: float
    error_until: float
    snapshot_offset: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def _pack(entry: Entry) -> bytes:
    return _encode(_Packed(*(getattr(entry, name) for name in _Packed.__struct_fields__)))
