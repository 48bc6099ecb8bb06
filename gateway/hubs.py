"""Live reads: takes each reader to the tail of its stream or to its data, and carries out the
actions that tails return.

A reader at the tail's position waits there. Other readers have a task until they get there
(`replays`).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar, assert_never

from gateway.answers import Answers
from gateway.cache import Cache
from gateway.calls import Call
from gateway.config import GatewayConfig
from gateway.deliveries import Delivery
from gateway.entries import Entry
from gateway.hub import Hub, LiveAction, LiveTail, Origin
from gateway.limits import Shares, Short
from gateway.longpolls import Cursors, LongPoll
from gateway.outcomes import HIT
from gateway.passes import Passes
from gateway.purges import Purges
from gateway.reads import Asker
from gateway.replays import LiveTasks, Replays, Searches
from gateway.rules import tails as do
from gateway.rules.routes import own_offset
from gateway.rules.tails import State, Tails
from gateway.rules.window import Windows
from gateway.ssereaders import SseReader
from gateway.store import Holdings
from gateway.upstream import Upstream
from gateway.watch import Watch
from protocol.cursors import next_cursor
from protocol.errors import ProtocolError
from protocol.offsets import NOW
from protocol.replies import RETRY_AFTER, Reply

log = logging.getLogger("weir.gateway")

_NO_PLACE = {
    Short.FOR_ALL: (503, "too-many-readers", "Too many live readers."),
    Short.FOR_SUBJECT: (429, "too-many-readers-of-subject", "You have too many live readers."),
}
KEPT_AT_ONCE = 64  # entries of a window shown to a late reader before others get their turn

LiveTails = Tails[LongPoll, SseReader]
Whom = TypeVar("Whom", LongPoll, SseReader)


class Hubs:
    def __init__(
        self,
        config: GatewayConfig,
        tails: LiveTails,
        upstream: Upstream,
        holdings: Holdings,
        purges: Purges,
        cache: Cache,
        passes: Passes,
        answers: Answers,
        watch: Watch,
    ) -> None:
        serving = config.gateway
        purges.register(self)
        most = serving.max_live_readers
        self.slots = Shares(most, config.per_subject(serving.max_live_readers_per_subject, most))
        self.tails = tails
        self.watch = watch
        self.unsent = answers.unsent
        self.deliveries = 0
        self.draining = False
        self._serving = serving
        self._origin = Origin(
            upstream, holdings.streams, purges, config.cdn.public, config.cache.max_object_bytes
        )
        self._cache = cache
        self._passes = passes
        self._answers = answers
        self._cursors = Cursors(config.cache.cursor_key)
        self._tasks = LiveTasks(answers)
        self._searches = Searches(cache, self._kept)
        self._replays = Replays(cache, answers, self._cursors)
        self._hubs: dict[LiveTail, Hub] = {}
        self._counter = 0

    @property
    def reader_count(self) -> int:
        return sum(len(tail.readers) + len(tail.polls) for tail in self.tails)

    # -- arrivals ------------------------------------------------------------------------------

    def long_poll(self, call: Call) -> None:
        self._admit(call)
        if call.read.offset == NOW:
            self._tasks.start(call, self._poll_from_now(call), f"resolve {call.stream}")
        else:
            self._place(self._poll(call, call.read.offset))

    def sse(self, call: Call) -> None:
        self._admit(call)
        self._follow(SseReader(call, self._answers, self._serving, self._reader_left))

    def _admit(self, call: Call) -> None:
        short = self.slots.take(call.principal.subject)
        if short is not None:
            raise ProtocolError(*_NO_PLACE[short], RETRY_AFTER)
        call.when_finished(lambda: self._release(call))
        self.watch.add(call)

    def _release(self, call: Call) -> None:
        self.slots.release(call.principal.subject)
        self.watch.remove(call)

    def _poll(self, call: Call, offset: str) -> LongPoll:
        left, pass_by = self._poll_left, self._pass_by
        return LongPoll(call, offset, self._answers, self._cursors, left, pass_by)

    def _pass_by(self, call: Call, offset: str) -> None:
        """Data that cannot be stored, for a single reader."""
        self._answers.spawn(call, self._passes.stream(call, offset))

    async def _poll_from_now(self, call: Call) -> None:
        got = await self._cache.tail(call.stream, call.route.path, call.asker)
        call.note(got)
        entry = got.outcome
        if isinstance(entry, Reply):
            self._answers.send_reply(call, entry, error="upstream-refused")
            return
        poll = self._poll(call, entry.next_offset)
        if entry.closed:
            poll.nothing_new(entry.next_offset, closed=True)
        else:
            self._place(poll)

    # -- long-polls ----------------------------------------------------------------------------

    def _place(self, poll: LongPoll) -> None:
        """Let it wait at its tail, or find its data."""
        call, offset = poll.call, poll.offset
        stored = self._cache.fresh(call.stream, offset)
        if stored is not None and not stored.is_empty:
            call.settle(HIT)
            poll.give(stored)
        elif self.draining:
            poll.nothing_new()
        elif not self._park(poll, at_end=False):
            self._search(poll)

    def _search(self, poll: LongPoll) -> None:
        work = self._searches.run(poll, self._poll_arrives)
        self._tasks.start(poll.call, work, f"look {poll.call.stream}")

    def _poll_arrives(self, poll: LongPoll, end: str, insists: bool) -> bool:
        if self.draining:
            poll.nothing_new()
            return True
        poll.offset = own_offset(poll.offset, end)
        displaced = self._make_way(poll.call, poll.offset, insists=insists)
        is_parked = self._park(poll, at_end=True)
        self._perform(displaced)
        return is_parked

    def _park(self, poll: LongPoll, *, at_end: bool) -> bool:
        """Whether it is waiting now, or was answered from the window."""
        call, now = poll.call, asyncio.get_running_loop().time()
        tail = self.tails.open(call.hub_key, call.stream)
        if (entry := tail.window.at(poll.offset)) is not None:
            return self._give(poll, entry, is_last=entry.next_offset == tail.position)
        if not tail.wait(poll, poll.offset, now, at_end=at_end):
            return False
        poll.park(self._serving.long_poll_timeout_secs)
        self._seat(tail, call)
        if self._origin.streams.needs_touch(call.stream, time.time()):
            self._tasks.start(None, self._touch(call), f"touch {call.stream}")
        return True

    def _kept(self, poll: LongPoll) -> Entry | None:
        tail = self.tails.get(poll.call.hub_key)
        return None if tail is None else tail.window.at(poll.offset)

    def _give(self, poll: LongPoll, entry: Entry, *, is_last: bool) -> bool:
        """Whether the window's entry was sent. The last known entry must say whether it reaches
        the tail (DS 5.6): more may have been written before the request."""
        is_latest = self._cache.hub_vouches_for(entry)
        if is_last and poll.wants(entry) and not is_latest:
            return False
        poll.replay(entry, up_to_date=is_latest)
        return True

    async def _touch(self, call: Call) -> None:
        asker = Asker("touch", call.token, call.principal.subject)
        await self._cache.tail(call.stream, call.route.path, asker)

    def _poll_left(self, poll: LongPoll) -> None:
        tail = self.tails.get(poll.call.hub_key)
        if tail is not None and tail.leave(poll):
            self._settle(tail)

    # -- SSE readers ---------------------------------------------------------------------------

    def _follow(self, reader: SseReader) -> None:
        """Show it all existing data, then let it wait at its tail."""
        work = self._replays.run(reader, self._reader_arrives)
        self._tasks.start(reader, work, f"replay {reader.call.stream}")

    def _reader_arrives(self, reader: SseReader, is_at_end: bool, insists: bool) -> bool:
        if self.draining:
            reader.end("drained")
            return True
        if not is_at_end:
            return False
        if not self._show_kept(reader) or not reader.is_open:
            return not reader.is_open
        reader.call.settle(reader.call.outcome.at_hub())
        return self._attach(reader, False) or (insists and self._attach(reader, True))

    def _show_kept(self, reader: SseReader) -> bool:
        """Show data that came during the catch-up; whether that is all. A reader far behind gets
        the rest from another catch-up read, because other readers wait meanwhile."""
        tail = self.tails.get(reader.call.hub_key)
        for _ in range(KEPT_AT_ONCE):
            entry = None if tail is None else tail.window.at(reader.offset)
            if tail is None or entry is None or not reader.is_open:
                return True
            reader.show(Delivery(entry, self._answers))
            tail.window.recount(entry)
        return False

    def _attach(self, reader: SseReader, insists: bool) -> bool:
        call = reader.call
        displaced = self._make_way(call, reader.offset, insists=insists)
        tail = self.tails.open(call.hub_key, call.stream)
        is_attached = tail.attach(reader, reader.offset)
        if is_attached:
            self._seat(tail, call)
        self._perform(displaced)
        return is_attached

    def _reader_left(self, reader: SseReader) -> None:
        self._tasks.stop_replay(reader)
        tail = self.tails.get(reader.call.hub_key)
        if tail is not None and tail.detach(reader):
            self._settle(tail)

    # -- what tails want done ------------------------------------------------------------------

    def _seat(self, tail: LiveTail, call: Call) -> None:
        hub = self._hubs.get(tail)
        if hub is None:
            self._counter += 1
            hub = Hub(tail, call.route.path, self._counter, self._origin, self._carry_out)
            self._hubs[tail] = hub
        hub.seat(call)

    def _make_way(self, call: Call, offset: str, *, insists: bool) -> list[LiveAction]:
        """The actions are for after the reader has taken the vacated place."""
        tail = self.tails.get(call.hub_key)
        if tail is None:
            return []
        actions = tail.make_way(offset, insists=insists)
        self._settle(tail)
        return actions

    def _settle(self, tail: LiveTail) -> None:
        hub = self._hubs.get(tail)
        if hub is not None:
            hub.settle()
            if tail.state is State.ENDED:
                del self._hubs[tail]

    def _carry_out(self, tail: LiveTail, actions: list[LiveAction]) -> None:
        """Stop or start polling first, so that readers that start over find a new tail."""
        self._settle(tail)
        self._perform(actions)

    def _perform(self, actions: list[LiveAction]) -> None:
        for action in actions:
            match action:
                case do.Deliver(entry, polls, readers):
                    self._deliver(entry, polls, readers)
                case do.Tell(polls, end, closed):
                    _each(polls, lambda poll: poll.nothing_new(end, closed))
                case do.Refuse(polls, refusal):
                    _each(polls, lambda poll: poll.refuse_at_hub(refusal.reply, refusal.code))
                case do.PassBy(polls):
                    _each(polls, LongPoll.pass_by)
                case do.End(readers, reason):
                    _each(readers, lambda reader: reader.end(reason))
                case do.CatchUp(polls, readers):
                    _each(polls, self._search)
                    _each(readers, self._follow)
                case do.BeginAnew(polls, readers):
                    _each(polls, self._place)
                    _each(readers, self._follow)
                case _:
                    assert_never(action)

    def _deliver(self, entry: Entry, polls: list[LongPoll], readers: list[SseReader]) -> None:
        """All at once; shared parts are made once."""
        interval = next_cursor(time.time(), None, b"")
        delivery = Delivery(entry, self._answers, interval=interval)
        for poll in polls:
            try:
                poll.deliver(delivery)
            except Exception:
                _cut(poll)
        delivery.settle_soon()
        for reader in readers:
            try:
                reader.show(delivery)
            except Exception:
                _cut(reader)
        self.deliveries += len(polls) + len(readers)

    # -- life ----------------------------------------------------------------------------------

    def forget(self, stream: str) -> None:
        """The stream was deleted or re-created, now or a while ago: notices can be late, and a new
        stream may exist by then. So we send no 404 and ask the origin again."""
        for reader in self._tasks.replaying:
            if reader.call.stream == stream and reader.has_begun:
                reader.end("deleted")
        for tail in self.tails.of(stream):
            self._carry_out(tail, tail.purged())

    def trim(self, stream: str, earliest: str) -> None:
        """A snapshot was published. Readers at the tail are not affected; readers that replay
        replaced data find out with their next chunk."""
        for tail in self.tails.of(stream):
            tail.window.trim(earliest)

    def clear(self) -> None:
        for tail in self.tails:
            tail.window.clear()

    def drain(self) -> None:
        """End all readers cleanly, now."""
        self.draining = True
        for tail in self.tails:
            self._carry_out(tail, tail.stop())

    async def settle(self, seconds: float) -> None:
        """Let readers on their way to a tail get their response, and readers of something large the
        rest of it; cut the others."""
        await asyncio.gather(self._tasks.wait(seconds), self.unsent.taken(seconds))
        await self._tasks.cancel()


def _each(readers: list[Whom], act: Callable[[Whom], None]) -> None:
    """An error with one reader must not affect the others."""
    for reader in readers:
        try:
            act(reader)
        except Exception:
            _cut(reader)


def _cut(reader: LongPoll | SseReader) -> None:
    """It is unknown how much of the response was written."""
    log.exception("failed to serve a live reader")
    reader.call.exchange.abort()


def make_tails(config: GatewayConfig) -> LiveTails:
    windows = Windows(config.gateway.max_windows_bytes, config.cache.hub_window_bytes)
    return Tails(windows, by_token=config.upstream.forward_token)
