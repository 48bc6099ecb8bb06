"""The disk cache: one load for all, a bound that holds, and a disk that fails or is full."""

import asyncio
import errno
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from origin.storage.cluster import diskcache
from origin.storage.cluster.diskcache import PAGE_BYTES, DiskCache

MAX_BYTES = 20 * PAGE_BYTES


@asynccontextmanager
async def opened(folder: Path, max_bytes: int = MAX_BYTES) -> AsyncIterator[DiskCache]:
    cache = DiskCache(str(folder), max_bytes)
    try:
        yield cache
    finally:
        await cache.close()


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[DiskCache]:
    async with opened(tmp_path) as cache:
        yield cache


def room_on_disk(folder: Path) -> int:
    sizes = (path.stat().st_size for path in folder.iterdir())
    return sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class Loads:
    """Counts what was loaded by key; each key has bytes of its own."""

    def __init__(self, size_bytes: int = 1000) -> None:
        self.size_bytes = size_bytes
        self.counts: Counter[str] = Counter()

    def data(self, key: str) -> bytes:
        return random.Random(key).randbytes(self.size_bytes)

    def of(self, key: str) -> Callable[[], Awaitable[bytes]]:
        async def load() -> bytes:
            self.counts[key] += 1
            await asyncio.sleep(0)
            return self.data(key)

        return load

    async def get(self, cache: DiskCache, key: str) -> None:
        assert await cache.get(key, self.size_bytes, self.of(key)) == self.data(key)


async def settle(cache: DiskCache) -> None:
    """Until everything that was loaded is on disk."""
    while cache._flights:
        await asyncio.wait(cache._flights.values())


async def test_the_second_time_it_comes_from_disk(cache: DiskCache) -> None:
    loads = Loads()
    for _ in range(3):
        await loads.get(cache, "a")
        await loads.get(cache, "b")
        await settle(cache)
    assert loads.counts == {"a": 1, "b": 1}
    assert (cache.hits, cache.misses, cache.used_bytes) == (4, 2, 2 * PAGE_BYTES)


async def test_one_load_for_all_who_wait(cache: DiskCache) -> None:
    loads = Loads()
    await asyncio.gather(*(loads.get(cache, "a") for _ in range(50)))
    assert loads.counts == {"a": 1}
    assert (cache.hits, cache.misses) == (49, 1)


async def test_one_who_leaves_does_not_take_the_load_along(cache: DiskCache) -> None:
    go, loads = asyncio.Event(), Loads()

    async def load() -> bytes:
        await go.wait()
        return await loads.of("a")()

    callers = [asyncio.create_task(cache.get("a", 1000, load)) for _ in range(3)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await callers[0]
    assert await callers[1] == await callers[2] == loads.data("a")
    assert loads.counts == {"a": 1}


async def test_all_leave_and_the_block_is_there_for_the_next(cache: DiskCache) -> None:
    loads = Loads()
    caller = asyncio.create_task(loads.get(cache, "a"))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    await settle(cache)
    await loads.get(cache, "a")
    assert loads.counts == {"a": 1}


async def test_an_error_reaches_all_who_wait_and_is_not_kept(cache: DiskCache) -> None:
    async def fail() -> bytes:
        raise LookupError("gone")

    callers = [asyncio.create_task(cache.get("a", 1000, fail)) for _ in range(3)]
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(result, LookupError) for result in results)
    await Loads().get(cache, "a")


async def test_an_error_that_nobody_waits_for(cache: DiskCache) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def fail() -> bytes:
        raise LookupError("gone")

    caller = asyncio.create_task(cache.get("a", 1000, fail))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    await settle(cache)
    assert complaints == []


async def test_the_least_recently_used_is_evicted(cache: DiskCache) -> None:
    loads = Loads()
    for number in range(20):
        await loads.get(cache, str(number))
        await settle(cache)
    await loads.get(cache, "0")
    await settle(cache)
    await loads.get(cache, "new")
    await settle(cache)
    loads.counts.clear()
    for key in ("new", "0", "2"):
        await loads.get(cache, key)
    assert not loads.counts
    assert cache.evictions == 1
    await loads.get(cache, "1")
    assert loads.counts == {"1": 1}


async def test_the_bound_holds_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    write_file = diskcache._write_file

    def watch(path: str, data: bytes, victims: Iterable[str]) -> None:
        write_file(path, data, victims)
        seen.append(room_on_disk(tmp_path))

    monkeypatch.setattr(diskcache, "_write_file", watch)
    rng = random.Random(5)
    sizes = [1, PAGE_BYTES, PAGE_BYTES + 1, 5 * PAGE_BYTES, MAX_BYTES, MAX_BYTES + 1]
    loads = {f"{size}/{number}": Loads(size) for size in sizes for number in range(20)}
    async with opened(tmp_path) as cache:
        for _ in range(60):
            keys = rng.choices(list(loads), k=8)
            await asyncio.gather(*(loads[key].get(cache, key) for key in keys))
            if rng.random() < 0.2:
                cache.forget(rng.choice(keys))
            await settle(cache)  # or a slow disk would let nothing be stored
    assert max(seen) <= MAX_BYTES
    assert room_on_disk(tmp_path) == cache.used_bytes
    assert cache.evictions > 50


async def test_what_an_earlier_process_left(tmp_path: Path) -> None:
    loads = Loads()
    async with opened(tmp_path) as cache:
        for number in range(10):
            await loads.get(cache, str(number))
            await settle(cache)
    (tmp_path / "half.block.new").write_bytes(bytes(100_000))
    (tmp_path / "notes.txt").write_text("not ours")
    names = [diskcache._name(str(number)) for number in range(10)]
    for age, name in enumerate(names):  # written in this order, however coarse the clock
        os.utime(tmp_path / f"{name}.block", (age, age))
    loads.counts.clear()
    async with opened(tmp_path, 6 * PAGE_BYTES) as cache:
        assert cache.used_bytes == 6 * PAGE_BYTES
        for number in range(9, 3, -1):
            await loads.get(cache, str(number))
        assert not loads.counts
    assert names_in(tmp_path) == {"notes.txt", *(f"{name}.block" for name in names[4:])}


async def test_a_file_of_another_size_or_gone_is_loaded_again(
    cache: DiskCache, tmp_path: Path
) -> None:
    loads = Loads()
    for key in ("short", "gone"):
        await loads.get(cache, key)
    await settle(cache)
    (tmp_path / f"{diskcache._name('short')}.block").write_bytes(b"...")
    (tmp_path / f"{diskcache._name('gone')}.block").unlink()
    for _ in range(2):
        for key in ("short", "gone"):
            await loads.get(cache, key)
        await settle(cache)
    assert loads.counts == {"short": 2, "gone": 2}
    assert cache.used_bytes == 2 * PAGE_BYTES


async def test_a_damaged_entry_is_forgotten(cache: DiskCache) -> None:
    loads = Loads()
    await loads.get(cache, "a")
    await settle(cache)
    cache.forget("a")
    cache.forget("unknown")
    assert cache.used_bytes == 0
    await loads.get(cache, "a")
    assert loads.counts == {"a": 2}


async def test_a_full_disk_is_complained_about_once(
    cache: DiskCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    loads = Loads()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "replace", full)
        for key in ("a", "b", "a"):
            await loads.get(cache, key)
            await settle(cache)
    assert loads.counts == {"a": 2, "b": 1}
    assert (cache.failures, cache.used_bytes, names_in(tmp_path)) == (3, 0, set())
    assert [record.message for record in caplog.records] == [
        f"the cache goes without its folder {tmp_path}: [Errno 28] No space left on device"
    ]
    await loads.get(cache, "a")
    await settle(cache)
    await loads.get(cache, "a")
    assert loads.counts["a"] == 3


async def test_without_a_folder_it_goes_without(caplog: pytest.LogCaptureFixture) -> None:
    loads = Loads()
    async with opened(Path("/dev/null/cache")) as cache:
        for _ in range(2):
            await loads.get(cache, "a")
            await settle(cache)
    assert loads.counts == {"a": 2}
    assert len(caplog.records) == 1


async def test_a_slow_disk_does_not_fill_the_memory(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diskcache, "UNWRITTEN_BYTES", 2500)
    loads = Loads()
    await asyncio.gather(*(loads.get(cache, str(number)) for number in range(10)))
    await settle(cache)
    assert 2 <= cache.used_bytes // PAGE_BYTES < 10


async def test_closing_ends_what_is_under_way(tmp_path: Path) -> None:
    async with opened(tmp_path) as cache:
        caller = asyncio.create_task(cache.get("a", 1, asyncio.Event().wait))  # type: ignore[arg-type]
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await caller
