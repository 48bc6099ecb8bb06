"""Creations that wait for room while the world goes on."""

import asyncio
from collections.abc import Callable

from origin.storage.memory import MemoryStorage
from protocol.replies import Reply
from tests.crash.rig import Rig


class SlowStorage(MemoryStorage):
    """Has room only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.has_room = True
        self._waiting: list[Callable[[], None]] = []

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        return self.has_room

    def when_room(self, retry: Callable[[], None]) -> None:
        self._waiting.append(retry)

    def make_room(self) -> None:
        self.has_room = True
        waiting, self._waiting = self._waiting, []
        for retry in waiting:
            retry()

    @property
    def blobs(self) -> list[bytes]:
        return list(self._blobs.values())


async def start() -> tuple[SlowStorage, Rig]:
    storage = SlowStorage()
    rig = Rig(storage)
    await rig.shard.start()
    return storage, rig


async def both_when_room(storage: SlowStorage, *work: "asyncio.Future[Reply]") -> list[Reply]:
    for _ in range(20):  # until all of it waits
        await asyncio.sleep(0)
    assert not any(each.done() for each in work)
    storage.make_room()
    return await asyncio.gather(*work)


async def test_of_two_that_waited_one_creates_and_the_other_finds_it() -> None:
    storage, rig = await start()
    storage.has_room = False
    creations = [asyncio.ensure_future(rig.create("s", body)) for body in (b"a", b"b")]
    replies = await both_when_room(storage, *creations)
    assert [reply.status for reply in replies] == [201, 200]
    assert (await rig.read("s", 0)).body == b"a"


async def test_a_fork_that_waited_too_long_leaves_no_copy_of_the_snapshot() -> None:
    storage, rig = await start()
    await rig.create("source", b"bytes")
    assert (await rig.publish("source", 5, b"snapshot")).status == 204
    storage.has_room = False
    forks = [asyncio.ensure_future(rig.create("fork", source="source")) for _ in range(2)]
    replies = await both_when_room(storage, *forks)
    assert [reply.status for reply in replies] == [201, 200]
    assert storage.blobs == [b"snapshot"] * 2  # the source's and the fork's
    assert rig.stream("source").forks == 1


async def test_a_creation_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    storage, rig = await start()
    await rig.create("source", b"bytes")
    await rig.publish("source", 5, b"snapshot")
    storage.has_room = False
    fork = asyncio.ensure_future(rig.create("fork", source="source"))
    for _ in range(20):
        await asyncio.sleep(0)
    fork.cancel()
    await asyncio.wait({fork})
    assert storage.blobs == [b"snapshot"]
    assert rig.stream("source").forks == 0 and "fork" not in rig.shard.registry.by_name
    storage.make_room()
    assert (await rig.create("fork", source="source")).status == 201
