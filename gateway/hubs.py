"""The way of each live reader to the hub of its stream, and the life of all hubs of a process.

A reader who stands where its hub is waits there. Anyone else is looked after by a task until he
does: a catch-up read finds his data, or shows that there is none yet.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from gateway.answers import Answers
from gateway.asking import TooLarge, UpstreamError
from gateway.cache import Cache
from gateway.calls import Call
from gateway.cdn import is_public
from gateway.config import GatewayConfig
from gateway.entries import Entry
from gateway.hub import INTERNAL_ERROR, Hub
from gateway.limits import Shares, Short
from gateway.outcomes import HIT
from gateway.passes import Passes
from gateway.purges import OTHERS, Purges
from gateway.readers import Delivery, SseReader, Waiting
from gateway.reads import Asker
from gateway.rules.routes import is_ahead, own_offset
from gateway.streams import Streams
from gateway.tasks import Tasks
from gateway.upstream import Upstream
from gateway.watch import Watch
from gateway.window import Windows
from protocol import replies
from protocol.cursors import next_cursor
from protocol.errors import ProtocolError
from protocol.names import STREAM_EARLIEST_OFFSET
from protocol.offsets import NOW
from protocol.replies import RETRY_AFTER, Reply

log = logging.getLogger("weir.gateway")

_NO_PLACE = {
    Short.FOR_ALL: (503, "too-many-readers", "Too many live readers."),
    Short.FOR_SUBJECT: (429, "too-many-readers-of-subject", "You have too many live readers."),
}
KEPT_AT_ONCE = 64  # entries of a window that a late reader is shown before others have their turn
LOOKS = 3  # catch-up reads for a reader who finds no place at the hub


class Hubs:
    """All hubs of a process, and the way of each live reader to its hub."""

    def __init__(
        self,
        config: GatewayConfig,
        upstream: Upstream,
        cache: Cache,
        streams: Streams,
        passes: Passes,
        purges: Purges,
        answers: Answers,
        watch: Watch,
    ) -> None:
        serving = config.gateway
        self.watch = watch
        self.upstream = upstream
        self.streams = streams
        self._public = config.cdn.public
        self.max_batch_bytes = config.cache.max_object_bytes
        self.windows = Windows(serving.max_windows_bytes, config.cache.hub_window_bytes)
        self.gone = purges.learn_gone
        self.begins_at = purges.learn_earliest
        self._passes = passes
        self._purges = purges
        purges.register(self)
        self.deliveries = 0
        self._serving = serving
        self._cache = cache
        self._answers = answers
        self._cursor_key = config.cache.cursor_key.encode()
        most = serving.max_live_readers
        self._slots = Shares(most, config.per_subject(serving.max_live_readers_per_subject, most))
        self.unsent = answers.unsent
        self._hubs: dict[str, Hub] = {}  # by Call.hub_key
        self._by_token = config.upstream.forward_token
        self._tasks = Tasks()
        self._replays: dict[SseReader, asyncio.Task[None]] = {}
        self._counter = 0
        self.draining = False

    def __len__(self) -> int:
        return len(self._hubs)

    @property
    def reader_count(self) -> int:
        return sum(len(hub.readers) + len(hub.waiting) for hub in self._hubs.values())

    # -- arrivals ------------------------------------------------------------------------------

    def long_poll(self, call: Call) -> None:
        self._admit(call)
        if call.read.offset == NOW:
            self._spawn(self._poll_from_now(call), call, f"resolve {call.stream}")
            return
        self.place(self._waiting(call, call.read.offset))

    def sse(self, call: Call) -> None:
        self._admit(call)
        left = call.principal.expires_at - time.time()
        reader = SseReader(
            call,
            call.read.offset,
            self._answers,
            self._serving,
            left,
            self.unsent,
            self._reader_left,
        )
        self.follow(reader)

    def place(self, waiting: Waiting) -> None:
        """Park a long-poll at its hub, or find its data."""
        call, offset = waiting.call, waiting.offset
        stored = self._cache.fresh(call.stream, offset)
        if stored is not None and not stored.is_empty:
            call.settle(HIT)
            waiting.give(stored)
            return
        if self.draining:
            waiting.nothing_new(offset, closed=False)
            return
        if not self._park(waiting):
            self._spawn(self._look(waiting), call, f"look {call.stream}")

    def _park(self, waiting: Waiting) -> bool:
        hub = self._hub(waiting.call)
        if entry := hub.window.at(waiting.offset):
            return self._give_from_window(hub, waiting, entry)
        if hub.is_resting or hub.position == waiting.offset:
            hub.park(waiting, self._serving.long_poll_timeout_secs)
            self._touch(waiting.call)
            return True
        return False

    def _give_from_window(self, hub: Hub, waiting: Waiting, entry: Entry) -> bool:
        """Whether what the hub has is an answer. If it is the last we know of, it must say whether
        it is the latest there is (DS 5.6): more may have been written before the question."""
        is_latest = self._cache.hub_vouches_for(entry)
        if entry.next_offset == hub.position and waiting.wants(entry) and not is_latest:
            hub.rest_if_idle()
            return False
        waiting.replay(entry, up_to_date=is_latest)
        hub.rest_if_idle()
        return True

    async def _look(self, waiting: Waiting) -> None:
        """Ask the origin what there is at an offset where the hub is not."""
        call = waiting.call
        for _ in range(LOOKS):
            offset = waiting.offset
            try:
                got = await self._cache.get(call.stream, call.route.path, offset, call.asker)
            except TooLarge:
                waiting.pass_by()
                return
            except UpstreamError:
                if not self._stand_in(waiting):
                    raise
                return
            if call.done:  # its time was up meanwhile, and its connection may carry another
                return
            call.note(got)
            entry = got.outcome
            if isinstance(entry, Reply):
                waiting.refuse(entry, "upstream-refused")
            elif not entry.is_empty:
                waiting.give(entry)
            elif entry.closed:
                waiting.nothing_new(entry.next_offset, closed=True)
            elif self.draining:
                waiting.nothing_new(offset, closed=False)
            elif not self._park_at_tail(waiting, entry.next_offset):
                continue
            return
        hub = self._hub(call)
        hub.retarget(waiting.offset)
        hub.park(waiting, self._serving.long_poll_timeout_secs)

    def _stand_in(self, waiting: Waiting) -> bool:
        """Whether the window has something to give while the origin cannot be asked."""
        hub = self._hubs.get(waiting.call.hub_key)
        kept = None if hub is None else hub.window.at(waiting.offset)
        if kept is not None:
            waiting.replay(kept, up_to_date=False)
        return kept is not None

    def _park_at_tail(self, waiting: Waiting, tail: str) -> bool:
        """By the origin's word there is nothing behind his offset yet."""
        waiting.offset = own_offset(waiting.offset, tail)
        displaced = self._make_way(waiting.call, waiting.offset)
        parked = self._park(waiting)
        hub = self._hub(waiting.call)
        if not parked and is_ahead(waiting.offset, hub.position):
            hub.park(waiting, self._serving.long_poll_timeout_secs)
            parked = True
        self._place_again(*displaced)
        return parked

    def _make_way(self, call: Call, offset: str) -> tuple[list[Waiting], list[SseReader]]:
        """A hub at an offset that does not name the stream gives way to one at an offset that does:
        the two cannot be compared. Returns who has to be placed again."""
        hub = self._hub(call)
        return hub.dissolve() if hub.is_astray(offset) else ([], [])

    def _place_again(self, waiting: list[Waiting], readers: list[SseReader]) -> None:
        for each in waiting:
            self.place(each)
        for reader in readers:
            self.follow(reader)

    async def _poll_from_now(self, call: Call) -> None:
        got = await self._cache.tail(call.stream, call.route.path, call.asker)
        call.note(got)
        entry = got.outcome
        if isinstance(entry, Reply):
            self._answers.send_reply(call, entry, error="upstream-refused")
            return
        waiting = self._waiting(call, entry.next_offset)
        if entry.closed:
            waiting.nothing_new(entry.next_offset, closed=True)
        else:
            self.place(waiting)

    def follow(self, reader: SseReader) -> None:
        self._spawn(self._replay(reader), reader.call, f"replay {reader.call.stream}", reader)

    async def _replay(self, reader: SseReader) -> None:
        """Send what there is up to the tail, then ride the hub."""
        call = reader.call
        stuck = 0
        while reader.is_open:
            before = reader.offset
            await self.unsent.room(call.principal.subject)
            got = await self._cache.get(call.stream, call.route.path, reader.offset, call.asker)
            if not reader.is_open or reader.end_if_due():
                return
            call.note(got)
            entry = got.outcome
            if isinstance(entry, Reply):
                self._refuse_reader(reader, entry)
                return
            if not reader.has_begun:
                reader.begin(entry.content_type, self._cursor_of(call, entry))
                reader.show(self.delivery(entry))
            elif not entry.is_empty or entry.closed or not entry.up_to_date:
                reader.show(self.delivery(entry))
            else:
                stuck += 1
            self._cache.recount(entry)
            if entry.closed:
                reader.end("closed")
                return
            if reader.offset == before and not entry.up_to_date:  # this leads nowhere, for ever
                reader.end("upstream-error")
                return
            await reader.drain()
            if reader.end_if_due():
                return
            if self.draining:
                reader.end("drained")
                return
            if entry.up_to_date and self._attach(reader, retarget=stuck >= LOOKS):
                return

    def _refuse_reader(self, reader: SseReader, reply: Reply) -> None:
        if not reader.has_begun:
            reader.refuse(reply, "upstream-refused")
        elif _is_of_offset(reply):
            reader.end("trimmed")
        else:
            reader.end("deleted" if reply.status in (404, 410) else "upstream-error")

    def _attach(self, reader: SseReader, *, retarget: bool) -> bool:
        displaced = self._make_way(reader.call, reader.offset)
        attached = self._attach_to(self._hub(reader.call), reader, retarget=retarget)
        self._place_again(*displaced)
        return attached

    def _attach_to(self, hub: Hub, reader: SseReader, *, retarget: bool) -> bool:
        is_done = self._show_kept(hub, reader)
        if not reader.is_open:
            hub.rest_if_idle()
            return True
        if not is_done:
            return False
        reader.call.settle(reader.call.outcome.at_hub())
        at_or_ahead = reader.offset == hub.position or is_ahead(reader.offset, hub.position)
        if hub.is_resting or at_or_ahead:
            hub.attach(reader)
            return True
        if retarget:
            hub.retarget(reader.offset)
            hub.attach(reader)
            return True
        return False

    def _show_kept(self, hub: Hub, reader: SseReader) -> bool:
        """What came while he caught up; whether that is all. Who is far behind has the rest from a
        catch-up read, in one piece: everybody waits while he is shown one entry after another."""
        for _ in range(KEPT_AT_ONCE):
            entry = hub.window.at(reader.offset)
            if entry is None or not reader.is_open:
                return True
            reader.show(self.delivery(entry))
            hub.window.recount(entry)
        return False

    # -- life ----------------------------------------------------------------------------------

    def forget(self, stream: str) -> None:
        """The stream was deleted or made anew, now or some time ago: a notice can be late, and the
        stream that is there then is another. So who waits is not told 404 by us: we ask again."""
        for reader in [r for r in self._replays if r.call.stream == stream and r.has_begun]:
            reader.end("deleted")
        for hub in self._hubs_of(stream):
            self._place_again(hub.end_purged(), [])

    def trim(self, stream: str, earliest: str) -> None:
        """A snapshot was published. Readers at the tail have nothing to do with it; who replays
        what it replaced finds out with his next chunk."""
        for hub in self._hubs_of(stream):
            hub.window.trim(earliest)

    def drain(self) -> None:
        """Every reader gets a clean end, now."""
        self.draining = True
        for hub in list(self._hubs.values()):
            for waiting in list(hub.waiting):
                del hub.waiting[waiting]
                waiting.nothing_new(waiting.offset, closed=False)
            for reader in list(hub.readers):
                reader.end("drained")
            hub.end()

    async def settle(self, seconds: float) -> None:
        """Let those who are on their way to a hub have their answer, and all who take something
        large the rest of it; cut the others."""
        await asyncio.gather(self._tasks.wait(seconds), self.unsent.taken(seconds))
        for reader in list(self._replays):
            reader.drop("drained")
        await self._tasks.cancel()

    def clear(self) -> None:
        for hub in self._hubs.values():
            hub.window.clear()

    def is_another(self, stream: str, incarnation: str, departure: int) -> bool:
        """Whether the stream was made anew behind our back: what we have and whom we serve belongs
        to the old one, as far as anyone can tell."""
        return self._purges.learn(stream, incarnation, departure) in OTHERS

    def followed_to(self, stream: str) -> str | None:
        """The tail, as far as a hub that is waiting for more can know."""
        hub = self._hubs.get(stream)
        return hub.position if hub is not None and hub.is_listening else None

    def is_public(self, stream: str) -> bool:
        return is_public(self._public, stream)

    def delivery(self, entry: Entry, interval: int = 0) -> Delivery:
        return Delivery(entry, self._answers, interval=interval)

    def forget_hub(self, hub: Hub) -> None:
        if self._hubs.get(hub.key) is hub:
            del self._hubs[hub.key]

    def _hub(self, call: Call) -> Hub:
        key = call.hub_key
        hub = self._hubs.get(key)
        if hub is None:
            self._counter += 1
            hub = self._hubs[key] = Hub(self, call.stream, call.route.path, self._counter, key)
        return hub

    def _hubs_of(self, stream: str) -> list[Hub]:
        if self._by_token:
            return [hub for hub in self._hubs.values() if hub.stream == stream]
        hub = self._hubs.get(stream)
        return [] if hub is None else [hub]

    def _waiting(self, call: Call, offset: str) -> Waiting:
        return Waiting(call, offset, self._answers, self._cursor, self._waiting_left, self._pass_by)

    def _pass_by(self, call: Call, offset: str) -> None:
        self._answers.spawn(call, self._passes.stream(call, offset))

    def _waiting_left(self, waiting: Waiting) -> None:
        hub = self._hubs.get(waiting.call.hub_key)
        if hub is not None and waiting in hub.waiting:
            del hub.waiting[waiting]
            hub.rest_if_idle()

    def _reader_left(self, reader: SseReader) -> None:
        replay = self._replays.get(reader)
        if replay is not None and replay is not asyncio.current_task():
            replay.cancel()
        hub = self._hubs.get(reader.call.hub_key)
        if hub is not None and reader in hub.readers:
            del hub.readers[reader]
            hub.rest_if_idle()

    def _admit(self, call: Call) -> None:
        subject = call.principal.subject
        short = self._slots.take(subject)
        if short is not None:
            raise ProtocolError(*_NO_PLACE[short], RETRY_AFTER)
        call.on_finish = lambda: self._leave(call)
        self.watch.add(call)

    def _leave(self, call: Call) -> None:
        self._slots.release(call.principal.subject)
        self.watch.remove(call)

    def _touch(self, call: Call) -> None:
        if self.streams.needs_touch(call.stream, time.time()):
            self._spawn(self._renew(call), None, f"touch {call.stream}")

    async def _renew(self, call: Call) -> None:
        await self._cache.tail(
            call.stream, call.route.path, Asker("touch", call.token, call.principal.subject)
        )

    def _cursor(self, stream: str, incarnation: str, offset: str, asked: str | None) -> int:
        key = b"\0".join((self._cursor_key, stream.encode(), incarnation.encode(), offset.encode()))
        return next_cursor(time.time(), asked, key)

    def _cursor_of(self, call: Call, entry: Entry) -> int:
        return self._cursor(call.stream, entry.incarnation, entry.offset, call.read.cursor)

    def _spawn(
        self,
        work: Coroutine[Any, Any, None],
        call: Call | None,
        name: str,
        reader: SseReader | None = None,
    ) -> None:
        """Every task is owned here; what goes wrong in it becomes an answer."""
        task = self._tasks.start(self._guarded(work, call, reader), name)
        task.add_done_callback(lambda _: work.close())  # in case it never began
        if reader is not None:
            self._replays[reader] = task
            task.add_done_callback(lambda _: self._replay_ended(reader, task))
        elif call is not None:
            call.exchange.when_gone(lambda: self._abandoned(call, task))

    def _replay_ended(self, reader: SseReader, task: "asyncio.Task[None]") -> None:
        if self._replays.get(reader) is task:  # it may have begun another one
            del self._replays[reader]

    def _abandoned(self, call: Call, task: "asyncio.Task[None]") -> None:
        task.cancel()
        self._answers.abandon(call)

    async def _guarded(
        self, work: Coroutine[Any, Any, None], call: Call | None, reader: SseReader | None
    ) -> None:
        try:
            await work
        except ProtocolError as error:
            self._failed(call, reader, replies.problem_of(error), error.code)
        except ConnectionError:
            pass  # the client left; its connection has told the reader
        except Exception:
            log.exception("a live read failed")
            self._failed(call, reader, INTERNAL_ERROR, "internal-error")

    def _failed(
        self, call: Call | None, reader: SseReader | None, reply: Reply, error: str
    ) -> None:
        if call is None:
            return
        call.settle(call.outcome.failed())
        if reader is None:
            self._answers.send_reply(call, reply, error=error)
        elif reader.has_begun:
            reader.end("upstream-error")
        else:
            reader.refuse(reply, error)


def _is_of_offset(reply: Reply) -> bool:
    """Whether the origin says that only the offset is gone: a snapshot stands for it."""
    earliest = STREAM_EARLIEST_OFFSET.lower()
    return reply.status == 410 and any(name.lower() == earliest for name, _ in reply.headers)
