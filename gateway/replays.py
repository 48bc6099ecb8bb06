"""Catch-up reads for live readers that are not at the tail: they find the reader's data, or show
that there is none yet.

`arrive` is asked to accept a reader that has seen everything. It is told whether the reader
`insists`, having been turned away too often.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.answers import INTERNAL_ERROR, Answers
from gateway.asking import TooLarge, UpstreamError
from gateway.cache import Cache
from gateway.calls import Call
from gateway.deliveries import Delivery
from gateway.entries import Entry
from gateway.longpolls import Cursors, LongPoll
from gateway.ssereaders import SseReader
from gateway.tasks import Tasks
from protocol import replies
from protocol.errors import ProtocolError
from protocol.names import STREAM_EARLIEST_OFFSET
from protocol.replies import Reply

log = logging.getLogger("weir.gateway")

Work = Coroutine[Any, Any, None]
PATIENCE = 3  # catch-up reads for a reader that finds no place at the tail


class Searches:
    """For long-polls. `stand_in` may have data while the origin is unavailable."""

    def __init__(self, cache: Cache, stand_in: Callable[[LongPoll], Entry | None]) -> None:
        self._cache = cache
        self._stand_in = stand_in

    async def run(self, poll: LongPoll, arrive: Callable[[LongPoll, str, bool], bool]) -> None:
        """`arrive` gets the end of the stream."""
        for _ in range(PATIENCE):
            end = await self._find_end(poll)
            if end is None or arrive(poll, end, False):
                return
        arrive(poll, poll.offset, True)

    async def _find_end(self, poll: LongPoll) -> str | None:
        """The end of the stream if there is no data; otherwise the poll got its response."""
        call = poll.call
        try:
            got = await self._cache.get(call.stream, call.route.path, poll.offset, call.asker)
        except TooLarge:
            poll.pass_by()
            return None
        except UpstreamError:
            kept = self._stand_in(poll)
            if kept is None:
                raise
            poll.replay(kept, up_to_date=False)
            return None
        if call.done:  # timed out meanwhile, and its connection may carry another request
            return None
        call.note(got)
        entry = got.outcome
        if isinstance(entry, Reply):
            poll.refuse(entry, "upstream-refused")
        elif not entry.is_empty:
            poll.give(entry)
        elif entry.closed:
            poll.nothing_new(entry.next_offset, closed=True)
        else:
            return entry.next_offset
        return None


class Replays:
    """For SSE readers: chunk after chunk, as fast as the client reads."""

    def __init__(self, cache: Cache, answers: Answers, cursors: Cursors) -> None:
        self._cache = cache
        self._answers = answers
        self._cursors = cursors

    async def run(self, reader: SseReader, arrive: Callable[[SseReader, bool, bool], bool]) -> None:
        """`arrive` is called after each chunk, and told whether it was the last."""
        call, in_vain = reader.call, 0
        while reader.is_open:
            before = reader.offset
            await self._answers.unsent.room(call.principal.subject)
            got = await self._cache.get(call.stream, call.route.path, before, call.asker)
            if not reader.is_open or reader.end_if_due():
                return
            call.note(got)
            entry = got.outcome
            if isinstance(entry, Reply):
                _refuse(reader, entry)
                return
            in_vain += not self._show(reader, entry)
            if entry.closed:
                reader.end("closed")
            elif reader.offset == before and not entry.up_to_date:  # would loop forever
                reader.end("upstream-error")
            else:
                await reader.drain()
                if reader.end_if_due() or arrive(reader, entry.up_to_date, in_vain >= PATIENCE):
                    return

    def _show(self, reader: SseReader, entry: Entry) -> bool:
        """Whether there was anything to show; the first event carries at least the offset."""
        call, is_first = reader.call, not reader.has_begun
        if is_first:
            cursor = self._cursors.next(call, entry.incarnation, entry.part)
            reader.begin(entry.content_type, cursor)
        is_news = is_first or not entry.is_empty or entry.closed or not entry.up_to_date
        if is_news:
            reader.show(Delivery(entry, self._answers))
        self._cache.recount(entry)
        return is_news


def _refuse(reader: SseReader, reply: Reply) -> None:
    if not reader.has_begun:
        reader.refuse(reply, "upstream-refused")
    elif _is_of_offset(reply):
        reader.end("trimmed")
    else:
        reader.end("deleted" if reply.status in (404, 410) else "upstream-error")


def _is_of_offset(reply: Reply) -> bool:
    """Whether only the offset is gone, because a snapshot replaced it."""
    earliest = STREAM_EARLIEST_OFFSET.lower()
    return reply.status == 410 and any(name.lower() == earliest for name, _ in reply.headers)


class LiveTasks:
    """Each task has an owner, and its errors become responses."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._tasks = Tasks()
        self._replays: dict[SseReader, asyncio.Task[None]] = {}

    @property
    def replaying(self) -> list[SseReader]:
        return list(self._replays)

    def start(self, whom: Call | SseReader | None, work: Work, name: str) -> None:
        """`whom` gets a response if the task fails; it may be None."""
        task = self._tasks.start(self._guarded(whom, work), name)
        task.add_done_callback(lambda _: work.close())  # in case it never started
        if isinstance(whom, SseReader):
            self._replays[whom] = task
            task.add_done_callback(lambda _: self._replay_ended(whom, task))
        elif whom is not None:
            whom.exchange.when_gone(lambda: self._abandoned(whom, task))

    def stop_replay(self, reader: SseReader) -> None:
        task = self._replays.get(reader)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def wait(self, seconds: float) -> None:
        await self._tasks.wait(seconds)

    async def cancel(self) -> None:
        for reader in self.replaying:
            reader.drop("drained")
        await self._tasks.cancel()

    def _replay_ended(self, reader: SseReader, task: "asyncio.Task[None]") -> None:
        if self._replays.get(reader) is task:  # it may have started another one
            del self._replays[reader]

    def _abandoned(self, call: Call, task: "asyncio.Task[None]") -> None:
        task.cancel()
        self._answers.abandon(call)

    async def _guarded(self, whom: Call | SseReader | None, work: Work) -> None:
        try:
            await work
        except ProtocolError as error:
            self._fail(whom, replies.problem_of(error), error.code)
        except ConnectionError:
            pass  # the client disconnected; its connection has told the reader
        except Exception:
            log.exception("live read failed")
            self._fail(whom, INTERNAL_ERROR, "internal-error")

    def _fail(self, whom: Call | SseReader | None, reply: Reply, error: str) -> None:
        if isinstance(whom, SseReader):
            whom.fail(reply, error)
        elif whom is not None:
            self._answers.fail(whom, reply, error)
