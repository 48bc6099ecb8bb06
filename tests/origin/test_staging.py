"""Room and commits, with a storage that does what the test says."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from origin import staging as staging_module
from origin.staging import RECORD_OVERHEAD_BYTES, Staging
from origin.storage.base import Done, Storage, StorageFailed, StorageFull
from origin.streams import Stream
from protocol.errors import ProtocolError
from protocol.stream import Created, Record, Renewed, StreamState, begin


class ScriptedStorage:
    """Has room when it is told so, and settles what is staged when it is told how."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.has_room = True
        self.full: Exception | None = None
        self._waiting: list[Callable[[], None]] = []
        self._staged: list[Done] = []

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        if self.full is not None:
            raise self.full
        return self.has_room

    def when_room(self, retry: Callable[[], None]) -> None:
        self._waiting.append(retry)

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        self._staged.append(done)

    def barrier(self, done: Done) -> None:
        self._staged.append(done)

    def make_room(self) -> None:
        self.has_room = True
        waiting, self._waiting = self._waiting, []
        for retry in waiting:
            retry()

    def settle(self, error: Exception | None = None) -> None:
        staged, self._staged = self._staged, []
        for done in staged:
            done(error)


def make() -> tuple[ScriptedStorage, Staging]:
    storage = ScriptedStorage()
    return storage, Staging(cast(Storage, storage))


def make_stream() -> Stream:
    created = Created(7, "s", "text/plain", 0, None, None, None, closed=False)
    return Stream(begin(created), committed=True)


async def test_who_waits_for_room_goes_on_when_there_is_some() -> None:
    storage, staging = make()
    storage.has_room = False
    waiting = asyncio.ensure_future(staging.admitted(10))
    await asyncio.sleep(0)
    storage.make_room()
    await asyncio.wait_for(waiting, 10)


async def test_too_many_who_wait_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "MAX_WAITING_BYTES", RECORD_OVERHEAD_BYTES + 10)
    storage, staging = make()
    storage.has_room = False
    waiting = [asyncio.ensure_future(staging.admitted(10)) for _ in range(2)]
    await asyncio.sleep(0)
    assert staging.is_crowded
    with pytest.raises(ProtocolError) as busy:
        await staging.admitted(0)
    assert (busy.value.status, busy.value.code) == (503, "busy")
    storage.make_room()
    await asyncio.gather(*waiting)
    assert not staging.is_crowded


@pytest.mark.parametrize("full", [StorageFull("no"), StorageFailed("no")], ids=repr)
def test_work_that_nobody_waits_for_takes_no_for_an_answer(full: Exception) -> None:
    storage, staging = make()
    storage.full = full
    assert not staging.admits_quietly(urgent=True)


async def test_a_commit_publishes_before_its_caller_goes_on() -> None:
    storage, staging = make()
    stream, order = make_stream(), list[str]()
    commit = asyncio.ensure_future(
        staging.commit(stream, (Renewed(7, 1),), lambda: order.append("landed"))
    )
    commit.add_done_callback(lambda _: order.append("told"))
    await asyncio.sleep(0)
    assert stream.inflight == 1
    storage.settle()
    await commit
    assert (order, stream.inflight) == (["landed", "told"], 0)


async def test_a_lost_commit_publishes_nothing() -> None:
    storage, staging = make()
    stream, landed = make_stream(), list[int]()
    commit = asyncio.ensure_future(
        staging.commit(stream, (Renewed(7, 1),), lambda: landed.append(1))
    )
    await asyncio.sleep(0)
    storage.settle(StorageFailed("lost"))
    with pytest.raises(StorageFailed):
        await commit
    assert (landed, stream.inflight) == ([], 0)


async def test_a_caller_who_left_is_not_told() -> None:
    storage, staging = make()
    stream, landed = make_stream(), list[int]()
    commit = asyncio.ensure_future(
        staging.commit(stream, (Renewed(7, 1),), lambda: landed.append(1))
    )
    await asyncio.sleep(0)
    commit.cancel()
    await asyncio.sleep(0)
    storage.settle()
    assert (landed, stream.inflight) == ([1], 0)


async def test_decided_takes_a_loss_for_an_end() -> None:
    storage, staging = make()
    waiting = asyncio.ensure_future(staging.decided())
    await asyncio.sleep(0)
    storage.settle(StorageFailed("lost"))
    await waiting


def test_nothing_is_judged_by_the_state_of_a_failed_storage() -> None:
    storage, staging = make()
    staging.check_storage()
    storage.failure = "broken"
    with pytest.raises(StorageFailed, match="broken"):
        staging.check_storage()


async def test_who_left_while_waiting_for_room_counts_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or others would be sent away for bodies that are gone."""
    monkeypatch.setattr(staging_module, "MAX_WAITING_BYTES", 100)
    storage, staging = make()
    storage.has_room = False
    waiting = asyncio.create_task(staging.admitted(1000))
    await asyncio.sleep(0)
    assert staging.is_crowded
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not staging.is_crowded
    storage.make_room()
    assert not staging.is_crowded
    await staging.admitted(1000)
