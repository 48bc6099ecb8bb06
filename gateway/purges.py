"""Who must not serve what any more: the one owner of every purge.

A purge has three reaches. `forget`, `trim` and `clear` act in this process, at once: on the first
level, on the flights that are out, on what is known of the stream, and on everybody who has
registered (the hubs). `distrust` makes the second level forget. `publish` and `tell` reach other
gateways and the CDN.

They are called by writes, by notices of other gateways, and by `learn` and its neighbours: every
answer of the origin says which incarnation of a stream it is about and where that begins, and may
be the first to tell that what we hold is of a stream that is no more.
"""

from typing import Protocol

from gateway.cdn import PurgeHook
from gateway.notices import Notice, Notices
from gateway.rediscache import RedisCache
from gateway.rules.routes import is_replaced
from gateway.store import Holdings
from gateway.streams import News
from gateway.tasks import Tasks

OTHERS = (News.REPLACED, News.CONTESTED)  # than what is stored, as far as anyone can tell


class Holder(Protocol):
    """Someone who holds bytes of streams, or readers of them."""

    def forget(self, stream: str) -> None:
        """The stream was deleted or made anew."""

    def trim(self, stream: str, earliest: str) -> None:
        """A snapshot stands for what was before `earliest`."""

    def clear(self) -> None:
        """Whatever is held could be of a stream that is no more."""


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
        self._distrusted: set[str] = set()  # whose old parts may still be in the second level
        self._tasks = Tasks()

    def register(self, holder: Holder) -> None:
        self._holders.append(holder)

    async def close(self) -> None:
        await self._tasks.cancel()

    # -- in this process, at once ----------------------------------------------------------------

    def forget(self, stream: str) -> None:
        """The stream was deleted or made anew: nothing of it is served again."""
        self._drop_stored(stream)
        for holder in self._holders:
            holder.forget(stream)

    def trim(self, stream: str, earliest: str) -> None:
        """A snapshot was published at `earliest`: what it replaces is not served again. The rest,
        and readers at the tail, go on as if nothing had happened."""
        self._flights.detach(stream, lambda part: is_replaced(part, earliest))
        self._store.drop_some(stream, lambda part: is_replaced(part, earliest))
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
        """It was written to."""
        self._store.drop_tails(stream)

    def act(self, notice: Notice) -> None:
        """On what a write here or another gateway tells."""
        if notice.reason == "snapshot":
            self.trim(notice.stream, notice.earliest)
        elif not self._is_known(notice):
            self.forget(notice.stream)

    def _is_known(self, notice: Notice) -> bool:
        """Others find out as we do, and all of them tell."""
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
        """Purge it there; until that is done, nothing of it is read there."""
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
        """Before a writer is answered: nobody serves again what the write made obsolete."""
        if self._second is not None:  # first, or the old parts would come back from there
            await self._second.purge(notice.stream)
        self.act(notice)
        await self._notices.publish(notice)
        self._hook.purge(notice.stream)

    async def tell(self, stream: str) -> None:
        """Everyone else who may hold something of a stream that is gone or another one."""
        incarnation = self._streams.get(stream).incarnation
        await self._notices.publish(Notice("purge", stream, "changed", incarnation=incarnation))
        self._hook.purge(stream)

    def _tell_soon(self, stream: str) -> None:
        self._tasks.start(self.tell(stream), f"tell of {stream}")

    # -- what the origin's answers say -----------------------------------------------------------

    def learn(self, stream: str, incarnation: str, departure: int) -> News:
        """An answer to what left at the stamp `departure` is of this incarnation. If that is
        another one, nothing stored is served again, and others are told soon."""
        news = self._take_in(stream, incarnation, departure)
        if news in OTHERS:
            self._tell_soon(stream)
        return news

    async def learn_everywhere(self, stream: str, incarnation: str, departure: int) -> None:
        """The same, before a client sees the answer: others have been told by then."""
        if self._take_in(stream, incarnation, departure) in OTHERS:
            await self.tell(stream)

    def learn_earliest(self, stream: str, earliest: str) -> None:
        """The origin says where the stream begins. If that is news, we missed a snapshot."""
        if self._streams.learn_earliest(stream, earliest):
            self.distrust(stream)
            self.trim(stream, earliest)

    def learn_gone(self, stream: str) -> None:
        """The origin says that the stream is gone, and nobody has purged it."""
        if self._is_held(stream):
            self._tell_soon(stream)
        self._replace(stream)

    def doubt(self, stream: str) -> bool:
        """It may be gone: nothing stored is served. A hub finds out for itself. Whether others may
        hold something of it."""
        held = self._is_held(stream)
        self.distrust(stream)
        self._drop_stored(stream)
        return held

    def _take_in(self, stream: str, incarnation: str, departure: int) -> News:
        news = self._streams.learn_incarnation(stream, incarnation, departure)
        if news is News.FIRST:  # what we knew may have been forgotten before what we stored
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
        """Whether others may hold something of it as well: it was there not long ago."""
        known = self._streams.peek(stream)
        return self._store.holds(stream) or (known is not None and known.incarnation != "")
