"""The single owner of every purge: what must no longer be served, and where.

A purge has three scopes. `forget`, `trim` and `clear` act in this process, at once: on the first
level, running flights, known facts about the stream, and registered holders (the hubs). `distrust`
purges the second level. `publish` and `tell` reach other gateways and the CDN.

They are called by writes, by notices from other gateways, and by `learn` and its siblings: every
response of the origin names the stream's incarnation and its beginning, and may be the first sign
that our data belongs to a stream that no longer exists.
"""

from typing import Protocol

from gateway.cdn import PurgeHook
from gateway.notices import Notice, Notices
from gateway.rediscache import RedisCache
from gateway.rules.routes import is_replaced
from gateway.store import Holdings
from gateway.streams import News
from gateway.tasks import Tasks

OTHERS = (News.REPLACED, News.CONTESTED)  # not the stored one, as far as we can tell


class Holder(Protocol):
    """A module that holds streams' bytes or readers."""

    def forget(self, stream: str) -> None:
        """The stream was deleted or re-created."""

    def trim(self, stream: str, earliest: str) -> None:
        """A snapshot replaced everything before `earliest`."""

    def clear(self) -> None:
        """Everything held could belong to a stream that no longer exists."""


class Purges:
    def __init__(
        self, holdings: Holdings, second: RedisCache | None, notices: Notices, hook: PurgeHook
    ) -> None:
        self._store = holdings.store
        self._flights = holdings.flights
        self._streams = holdings.streams
        self._second = second
        self._notices = notices
        self._hook = hook
        self._holders: list[Holder] = []
        self._distrusted: set[str] = set()  # may still have old parts in the second level
        self._tasks = Tasks()

    def register(self, holder: Holder) -> None:
        self._holders.append(holder)

    async def close(self) -> None:
        await self._tasks.cancel()

    # -- in this process, at once ----------------------------------------------------------------

    def forget(self, stream: str) -> None:
        """The stream was deleted or re-created: serve nothing stored of it."""
        self._drop_stored(stream)
        for holder in self._holders:
            holder.forget(stream)

    def trim(self, stream: str, earliest: str) -> None:
        """A snapshot was published at `earliest`: data before it is no longer served. The rest,
        and readers at the tail, are not affected. Without `earliest`, nothing stored is served."""
        self._flights.detach(stream, lambda part: is_replaced(part, earliest))
        self._store.drop_some(stream, lambda part: is_replaced(part, earliest))
        if earliest:
            self._streams.learn_earliest(stream, earliest)
        self._streams.get(stream).large_bootstrap = False
        for holder in self._holders:
            holder.trim(stream, earliest)

    def clear(self) -> None:
        """Notices may have been missed."""
        self._flights.detach_all()
        self._store.clear()
        self._streams.doubt_all()
        for holder in self._holders:
            holder.clear()

    def drop_tails(self, stream: str) -> None:
        """The stream was written to."""
        self._store.drop_tails(stream)

    def act(self, notice: Notice) -> None:
        """Act on a notice, from a write here or from another gateway."""
        if notice.reason == "snapshot":
            self.trim(notice.stream, notice.earliest)
        elif not self._is_known(notice):
            self.forget(notice.stream)

    def _is_known(self, notice: Notice) -> bool:
        """Whether we know it already: several gateways may find out and announce it."""
        known = self._streams.peek(notice.stream)
        if known is None or not notice.incarnation:
            return False
        return known.incarnation == notice.incarnation

    def _drop_stored(self, stream: str) -> None:
        self._flights.detach(stream)
        self._store.purge(stream)
        self._streams.forget(stream)

    # -- the second level ------------------------------------------------------------------------

    def distrust(self, stream: str) -> None:
        """Purge the stream there; until that is done, do not read it from there."""
        if self._second is not None and stream not in self._distrusted:
            self._distrusted.add(stream)
            self._tasks.start(self._purge_second(self._second, stream), f"purge {stream}")

    def is_distrusted(self, stream: str) -> bool:
        return stream in self._distrusted

    async def _purge_second(self, second: RedisCache, stream: str) -> None:
        try:
            await second.purge(stream)
        finally:
            self._distrusted.discard(stream)

    # -- everywhere ------------------------------------------------------------------------------

    async def publish(self, notice: Notice) -> None:
        """Before a writer gets its response: all gateways purge what the write made obsolete."""
        if self._second is not None:  # first, or old parts would come back from there
            await self._second.purge(notice.stream)
        self.act(notice)
        await self._notices.publish(notice)
        self._hook.purge(notice.stream)

    async def tell(self, stream: str) -> None:
        """Notify all others that may hold parts of a deleted or re-created stream."""
        incarnation = self._streams.get(stream).incarnation
        await self._notices.publish(Notice("purge", stream, "changed", incarnation=incarnation))
        self._hook.purge(stream)

    def _tell_soon(self, stream: str) -> None:
        self._tasks.start(self.tell(stream), f"tell of {stream}")

    # -- facts from the origin's responses -------------------------------------------------------

    def learn(self, stream: str, incarnation: str, departure: int) -> News:
        """The response to a request sent at the stamp `departure` names this incarnation. If it is
        a different one, stored parts are purged, and others are notified soon."""
        news = self._take_in(stream, incarnation, departure)
        if news in OTHERS:
            self._tell_soon(stream)
        return news

    async def learn_everywhere(self, stream: str, incarnation: str, departure: int) -> None:
        """The same, but others are notified before the client sees the response."""
        if self._take_in(stream, incarnation, departure) in OTHERS:
            await self.tell(stream)

    def learn_earliest(self, stream: str, earliest: str) -> None:
        """The origin says where the stream begins. If that is new, we missed a snapshot."""
        if self._streams.learn_earliest(stream, earliest):
            self.distrust(stream)
            self.trim(stream, earliest)

    def learn_gone(self, stream: str) -> None:
        """The origin says that the stream is gone, and it was not purged."""
        if self._is_held(stream):
            self._tell_soon(stream)
        self._replace(stream)

    def doubt(self, stream: str) -> bool:
        """The stream may be gone: serve nothing stored of it. Hubs find out for themselves. Returns
        whether others may hold parts of it."""
        held = self._is_held(stream)
        self.distrust(stream)
        self._drop_stored(stream)
        return held

    def _take_in(self, stream: str, incarnation: str, departure: int) -> News:
        news = self._streams.learn_incarnation(stream, incarnation, departure)
        if news is News.FIRST:  # facts may be forgotten earlier than stored parts
            self._store.drop_others(stream, incarnation)
        elif news in OTHERS:
            self._replace(stream)
        if news is News.REPLACED:
            self._streams.learn_incarnation(stream, incarnation, departure)
        return news

    def _replace(self, stream: str) -> None:
        self.distrust(stream)
        self.forget(stream)

    def _is_held(self, stream: str) -> bool:
        """Whether others may hold parts of it as well, because it existed recently."""
        known = self._streams.peek(stream)
        return self._store.holds(stream) or (known is not None and known.incarnation != "")
