"""The last look, when all is well again: what the origin has, what each door shows of it, and
whether each still tells the news.

The news is one more message in each stream that is open. It is sent when everybody waits, so that
it cannot come by an answer to the question itself.
"""

import asyncio
from collections.abc import Callable, Sequence

from loadtest.verify.doors import Door
from loadtest.verify.history import FINAL, LIVE
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.keyring import KEEPER
from loadtest.verify.producers import Producer
from loadtest.verify.readers import Reader

PATIENCE_SECS = 20.0  # for each part of it
SETTLE_SECS = 0.3  # from the last answer to a request that waits
POLL_SECS = 0.05
NEWS = "news"


async def look_last(world: World, keepers: Sequence[Keeper]) -> None:
    doors = list({door.name: door for door in [*world.front, world.origin]}.values())
    await asyncio.gather(*(_tell_news(world, keeper, doors) for keeper in keepers))
    for keeper in keepers:
        await keeper.audit()
    until = world.doors.now() + PATIENCE_SECS
    await asyncio.gather(
        *(
            Reader(world, keeper, f"last at {door.name}", KEEPER, FINAL, door=door).read_all(until)
            for keeper in keepers
            for door in doors
        )
    )


async def _tell_news(world: World, keeper: Keeper, doors: Sequence[Door]) -> None:
    """Listen at each door in both ways; say something, unless the stream is closed."""
    await keeper.audit()
    readers = [
        Reader(world, keeper, f"last {mode} at {door.name}", KEEPER, mode, door=door)
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
            await keeper.audit()
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
