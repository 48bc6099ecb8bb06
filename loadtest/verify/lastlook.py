"""The last look, when all is well again: what the origin has, what each door shows of it, and
whether each still tells the news.

The news is one more message in each stream that is open. It is sent when everybody waits, so that
it cannot come by an answer to the question itself.
"""

import asyncio
from collections.abc import Callable, Sequence

from loadtest.verify.doors import TIMEOUT, Answer, Door
from loadtest.verify.history import FINAL, LIVE
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.keyring import KEEPER
from loadtest.verify.messages import Told
from loadtest.verify.producers import Producer
from loadtest.verify.readers import PAUSE_SECS, Reader
from protocol.offsets import START

PATIENCE_SECS = 20.0  # for each part of it
SETTLE_SECS = 0.3  # from the last answer to a request that waits
POLL_SECS = 0.05
NEWS = "news"
ENDLESS = 1 << 30
BEFORE_TAIL = 10  # messages that a listener is told at once


class LastReader(Reader):
    """Whatever fails is tried again, for ever."""

    def _answers_wanted(self) -> int:
        return ENDLESS

    def _is_over(self) -> bool:
        return False

    async def read_all(self, until: float) -> None:
        """From the start to the tail, once, or until time is up."""
        self._begin_at(START)
        while self.world.doors.now() < until:
            answer = await self._ask({"offset": self._progress.offset})
            await self._take(answer)
            read = self._progress.last
            if read is not None and read.up_to_date:
                return
            if answer.outcome != "ok":
                await asyncio.sleep(PAUSE_SECS[0])
            elif self._progress.left <= 0:
                return  # there are two incarnations, which the history shows
            if self._progress.left <= 0:
                self._begin_at(START)

    async def listen(self) -> None:
        """Live, from a little before the tail, until the stream is closed or this is cancelled."""
        recent = list(self.keeper.recent)[-BEFORE_TAIL:]
        self._begin_at(recent[0] if recent else self.keeper.tail)
        while True:
            await self._step()
            if self._progress.last is not None and self._progress.last.closed:
                return
            if self._progress.left <= 0:
                self._begin_at(self.keeper.tail)

    def is_at(self, offset: str) -> bool:
        """Whether it waits there, or beyond."""
        return self._progress.offset >= offset

    def has_heard(self, offset: str) -> bool:
        return self._heard >= offset

    def give_up(self) -> None:
        """Write down that nothing came: silence leaves no line of its own."""
        now = self.world.doors.now()
        self._record(Answer(*self._choose(), now, now, trouble=TIMEOUT), Told())


async def look_last(world: World, keepers: Sequence[Keeper]) -> None:
    doors = list({door.name: door for door in [*world.front, *world.origins]}.values())
    await asyncio.gather(*(_tell_news(world, keeper, doors) for keeper in keepers))
    for keeper in keepers:
        await keeper.do("audit")
    until = world.doors.now() + PATIENCE_SECS
    readers = [
        LastReader(world, keeper, f"last at {door.name}", KEEPER, FINAL, door)
        for keeper in keepers
        for door in doors
    ]
    await asyncio.gather(*(reader.read_all(until) for reader in readers))


async def _tell_news(world: World, keeper: Keeper, doors: Sequence[Door]) -> None:
    """Listen at each door in both ways; say something, unless the stream is closed."""
    await keeper.do("audit")
    readers = [
        LastReader(world, keeper, f"last {mode} at {door.name}", KEEPER, mode, door, is_last=True)
        for door in doors
        for mode in LIVE
    ]
    tasks = [asyncio.create_task(reader.listen(), name=reader.name) for reader in readers]
    try:
        await _wait_until(world, lambda: all(reader.is_at(keeper.tail) for reader in readers))
        if not keeper.is_closed:
            await asyncio.sleep(SETTLE_SECS)
            producer = Producer(world, keeper, NEWS, 0.0)
            await producer.say_one(world.doors.now() + PATIENCE_SECS)
            await keeper.do("audit")
        await _wait_until(world, lambda: all(reader.has_heard(keeper.tail) for reader in readers))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()  # a listener that broke is our own mistake
    for reader in readers:
        if not reader.has_heard(keeper.tail):
            reader.give_up()


async def _wait_until(world: World, is_so: Callable[[], bool]) -> None:
    """Or until time is up: the history shows who was late."""
    until = world.doors.now() + PATIENCE_SECS
    while not is_so() and world.doors.now() < until:  # noqa: ASYNC110 -- two dozen readers, once
        await asyncio.sleep(POLL_SECS)
