"""Group commit: what waits together leaves together, in order, and fails together."""

import asyncio
import threading
from functools import partial

import pytest

from origin.storage.base import StorageFailed
from origin.storage.commit import Batch, GroupCommit, ThreadWriter, Unit
from protocol.stream import Renewed, StreamState


class Store:
    """A storage of nothing: it notes its batches and lets the test hold or fail the writes."""

    def __init__(self, linger_secs: float = 0.0) -> None:
        self.written: list[list[int]] = []
        self.published: list[list[int]] = []
        self.failures: list[Exception] = []
        self.free = threading.Event()
        self.free.set()
        self.commit = GroupCommit(
            seal=self._seal,
            writer=ThreadWriter(self._write, "test-commit"),
            publish=self._publish,
            linger_secs=linger_secs,
        )

    def _seal(self, pending: list[Unit], size_bytes: int) -> Batch:
        assert size_bytes == 5 * len(pending)
        return Batch(pending, size_bytes, None)

    def _write(self, batch: Batch) -> None:
        assert self.free.wait(60)
        if self.failures:
            raise self.failures.pop()
        self.written.append(numbers(batch))

    def _publish(self, batch: Batch) -> None:
        self.published.append(numbers(batch))

    def add(self, number: int) -> "asyncio.Future[None]":
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        state = StreamState(number, "s", "text/plain", 0)

        def done(error: Exception | None) -> None:
            if error is None:
                landed.set_result(None)
            else:
                landed.set_exception(error)

        self.commit.add(Unit(state, (Renewed(number, 0),), [b"12345"], 5, done))
        return landed


def note(order: list[int], number: int, _: object) -> None:
    order.append(number)


def numbers(batch: Batch) -> list[int]:
    return [unit.state.id for unit in batch.units]


async def test_units_that_wait_leave_in_one_batch() -> None:
    store = Store()
    store.free.clear()
    first = store.add(0)
    await asyncio.sleep(0)
    rest = [store.add(number) for number in range(1, 50)]
    store.free.set()
    await asyncio.gather(first, *rest)
    assert store.written == [[0], list(range(1, 50))]
    assert store.published == store.written
    assert (store.commit.idle, store.commit.pending_bytes) == (True, 0)
    await store.commit.drain()


async def _land_the_first_of_two(store: Store) -> "asyncio.Future[None]":
    """Unit 0 is stored, and unit 1 came meanwhile."""
    store.free.clear()
    first = store.add(0)
    await asyncio.sleep(0)
    second = store.add(1)
    store.free.set()
    await first
    return second


async def test_a_batch_lingers_for_those_who_were_in_the_last_one() -> None:
    store = Store(linger_secs=60.0)
    second = await _land_the_first_of_two(store)
    assert store.written == [[0]]
    await asyncio.gather(second, store.add(2))  # as many as before: nobody else is waited for
    assert store.written == [[0], [1, 2]]
    await store.commit.drain()


async def test_a_batch_does_not_linger_for_ever() -> None:
    store = Store(linger_secs=0.001)
    await (await _land_the_first_of_two(store))
    assert store.written == [[0], [1]]
    await store.add(2)  # nothing is in flight: at once
    assert store.written == [[0], [1], [2]]
    await store.commit.drain()


async def test_those_who_wait_are_told_that_nothing_more_is_written() -> None:
    store = Store(linger_secs=60.0)
    second = await _land_the_first_of_two(store)
    told: list[Exception | None] = []
    store.commit.barrier(told.append)
    store.commit.abort(StorageFailed("moved"))
    with pytest.raises(StorageFailed, match="moved"):
        await second
    assert [str(error) for error in told] == ["moved"]
    with pytest.raises(StorageFailed, match="moved"):
        store.add(2)
    assert store.written == [[0]]
    await store.commit.drain()


async def test_nothing_is_settled_after_something_staged_was_lost() -> None:
    """Although the batch in flight lands."""
    store = Store()
    store.free.clear()
    first = store.add(0)
    await asyncio.sleep(0)
    second = store.add(1)
    store.commit.abort(StorageFailed("moved"))
    with pytest.raises(StorageFailed):
        await second
    told: list[Exception | None] = []
    store.commit.barrier(told.append)
    assert [str(error) for error in told] == ["moved"]
    store.free.set()
    await first
    await store.commit.drain()


async def test_done_comes_after_publishing_and_in_order() -> None:
    store = Store()
    order: list[int] = []
    for number in range(10):
        store.add(number).add_done_callback(partial(note, order, number))
    last = store.add(10)
    await last
    assert store.published[0][0] == 0
    assert order == list(range(10))
    await store.commit.drain()


async def test_next_batch_waits_for_the_one_before() -> None:
    store = Store()
    store.free.clear()
    store.add(0)
    await asyncio.sleep(0)
    store.add(1)
    await asyncio.sleep(0.02)
    assert (store.commit.idle, store.commit.pending_bytes, store.written) == (False, 5, [])
    store.free.set()
    await store.commit.drain()
    assert store.written == [[0], [1]]


@pytest.mark.parametrize("flying", [False, True])
async def test_barrier_comes_after_all_before_it(flying: bool) -> None:
    store = Store()
    store.free.clear()
    first = store.add(0)
    await asyncio.sleep(0)
    second = first if flying else store.add(1)
    passed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    store.commit.barrier(lambda error: passed.set_result(error is None and second.done()))
    assert not passed.done()
    store.free.set()
    assert await passed
    await store.commit.drain()


async def test_failure_takes_along_what_waits_and_what_follows() -> None:
    store = Store()
    store.free.clear()
    units = [store.add(0)]
    await asyncio.sleep(0)
    units.append(store.add(1))
    store.failures.append(OSError("broken"))
    store.free.set()
    results = await asyncio.gather(*units, return_exceptions=True)
    assert [type(result) for result in results] == [StorageFailed] * 2
    assert store.published == []
    with pytest.raises(StorageFailed, match="broken"):
        store.add(2)
    told: list[Exception | None] = []
    store.commit.barrier(told.append)
    assert [type(error) for error in told] == [StorageFailed]
    await asyncio.wait_for(store.commit.drain(), 60)


async def test_broken_callback_does_not_stop_the_others() -> None:
    store = Store()

    def broken(error: Exception | None) -> None:
        raise RuntimeError("a reader's own fault")

    state = StreamState(1, "s", "text/plain", 0)
    store.commit.add(Unit(state, (Renewed(1, 0),), [b"12345"], 5, broken))
    await store.add(2)
    await store.add(3)
    await store.commit.drain()


async def test_failure_behind_a_batch_that_landed_spares_that_batch() -> None:
    store = Store()
    store.free.clear()
    first = store.add(0)
    await asyncio.sleep(0)
    second = store.add(1)
    written = store.written

    def fail_the_second(batch: Batch) -> None:
        assert store.free.wait(60)
        if written:
            raise OSError("broken")
        written.append(numbers(batch))

    writer = store.commit._writer
    assert isinstance(writer, ThreadWriter)
    writer._write = fail_the_second
    store.free.set()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert results[0] is None and isinstance(results[1], StorageFailed)
    assert store.published == [[0]]
    await store.commit.drain()


async def test_many_rounds_lose_nothing_and_keep_the_order() -> None:
    store = Store()
    landed = []
    for number in range(2000):
        landed.append(store.add(number))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*landed)
    assert [number for batch in store.written for number in batch] == list(range(2000))
    assert store.published == store.written
    await store.commit.drain()
