"""One suite for every storage mode: what `base.Storage` promises, whatever lies behind it."""

import asyncio
import copy
import random
import threading
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest

from origin.storage.acid import AcidStorage
from origin.storage.base import DamagedData, UnknownStream, UnusableData
from origin.storage.commit import Batch, ThreadWriter
from protocol.stream import Appended, Fork
from tests.origin.storage.driver import (
    DISK_MODES,
    FILE_MODES,
    FLUSHING_MODES,
    MODES,
    REOPENED_MODES,
    copy_as_killed,
    database_bytes,
    opened,
    segment_bytes,
    until,
)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=DISK_MODES)
def disk_mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def note(order: list[str], name: str, _: object) -> None:
    order.append(name)


async def test_done_is_called_in_the_order_of_staging(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path) as driver:
        order: list[str] = []
        for name in ["a", "b", "c"]:
            driver.begin(name).add_done_callback(partial(note, order, name))
        for number in range(20):
            name = "abc"[number % 3]
            driver.append(name, b"x").add_done_callback(partial(note, order, f"+{number}"))
        await driver.barrier()
        await asyncio.sleep(0)
        assert order == ["a", "b", "c", *(f"+{number}" for number in range(20))]


async def test_barrier_waits_for_what_was_staged_before_it(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path) as driver:
        driver.begin("a")
        await asyncio.sleep(0)  # the first batch leaves, the append below waits for the next
        landed = driver.append("a", b"data")
        await driver.barrier()
        assert landed.done()


async def test_barrier_with_nothing_staged_is_called(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path) as driver:
        await asyncio.wait_for(driver.barrier(), 60)


async def test_staged_bytes_can_be_read_when_done(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path) as driver:
        await driver.begin("a", b"first,")
        await driver.append("a", b"second,")
        assert await driver.read("a") == b"first,second,"


async def test_any_range_is_read_exactly(mode: str, tmp_path: Path) -> None:
    parts = [bytes([65 + i]) * (i % 5 + 1) for i in range(12)]
    whole = b"".join(parts)
    async with opened(mode, tmp_path, checkpoint_secs=0.02) as driver:
        await driver.begin("a")
        for number, part in enumerate(parts):
            await driver.append("a", part)
            if number % 4 == 3 and mode in FLUSHING_MODES and number < 9:
                await driver.flushed("a")
        for start in range(len(whole) + 1):
            for end in range(start, len(whole) + 1):
                assert await driver.read("a", start, end) == whole[start:end]


async def test_boundary_is_the_next_end_of_an_append(mode: str, tmp_path: Path) -> None:
    parts = [bytes([65 + i]) * (i % 5 + 1) for i in range(12)]
    ends = [0, *accumulate(map(len, parts))]
    async with opened(mode, tmp_path, checkpoint_secs=0.02) as driver:
        await driver.begin("a")
        for number, part in enumerate(parts):
            await driver.append("a", part)
            if number % 4 == 3 and mode in FLUSHING_MODES and number < 9:
                await driver.flushed("a")
        for position in range(ends[-1] + 1):
            expected = next(end for end in ends if end >= position)
            assert await driver.storage.boundary(driver.states["a"].id, position) == expected


async def test_fork_keeps_its_own_bytes_only(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path, checkpoint_secs=0.02) as driver:
        await driver.begin("source", b"0123456789")
        source = driver.states["source"]
        await driver.begin("fork", fork=Fork(source.id, "source", 4, 4, 0))
        await driver.append("fork", b"abc")
        await driver.append("fork", b"de")
        fork = driver.states["fork"]
        assert (fork.base, fork.tail) == (4, 9)
        assert await driver.read("fork", 5, 9) == b"bcde"
        assert [await driver.storage.boundary(fork.id, p) for p in (4, 5, 7, 8)] == [4, 7, 7, 9]
        if mode in FLUSHING_MODES:
            await driver.flushed("fork")
            assert await driver.read("fork", 5, 9) == b"bcde"
            assert [await driver.storage.boundary(fork.id, p) for p in (4, 5, 7)] == [4, 7, 7]


async def test_large_appends_and_many_streams(mode: str, tmp_path: Path) -> None:
    rng = random.Random(7)
    expected: dict[str, bytes] = {}
    async with opened(mode, tmp_path, journal_bytes=128 * 1024, checkpoint_secs=0.02) as driver:
        for name in "abcdefgh":
            await driver.begin(name)
            expected[name] = b""
        for _ in range(60):
            name = rng.choice("abcdefgh")
            data = rng.randbytes(rng.choice([1, 100, 20_000, 50_000]))
            await driver.append_when_admitted(name, data)
            expected[name] += data
        assert await driver.contents() == expected


async def test_more_large_appends_than_one_system_call_takes(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path, journal_bytes=64 * 1024 * 1024) as driver:
        await driver.begin("a")
        await asyncio.gather(*(driver.append("a", b"x" * 17_000) for _ in range(1500)))
        assert await driver.contents() == {"a": b"x" * 17_000 * 1500}


async def test_removed_stream_is_unknown(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path) as driver:
        await driver.begin("a", b"data")
        stream_id = driver.states["a"].id
        await driver.remove("a")
        with pytest.raises(UnknownStream):
            await driver.storage.read(stream_id, 0, 4)


async def test_acid_read_behind_an_unheard_removal_is_unknown(tmp_path: Path) -> None:
    """The removal is committed and the loop does not know it yet: no bytes is not an answer."""
    async with opened("acid", tmp_path) as driver:
        assert isinstance(driver.storage, AcidStorage)
        await driver.begin("a", b"bytes")
        state, committed = driver.states["a"], threading.Event()
        writer = driver.storage._commit._writer
        assert isinstance(writer, ThreadWriter)
        write = writer._write

        def write_and_tell(batch: Batch) -> None:
            write(batch)
            committed.set()

        writer._write = write_and_tell
        driver.remove("a")
        driver.storage._commit.start_batch()
        assert committed.wait(60)
        with pytest.raises(UnknownStream):
            await driver.storage.read(state.id, 0, 5)


async def test_name_can_be_used_again(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path) as driver:
        await driver.begin("a", b"old")
        driver.remove("a")
        await driver.begin("a", b"new bytes")
        assert await driver.read("a") == b"new bytes"


@pytest.mark.parametrize("mode", REOPENED_MODES)
async def test_reopened_storage_holds_the_same(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path) as driver:
        await driver.begin("a", b"first,")
        await driver.append("a", b"second,", producer=("p", 3, 9), seq="s-1")
        await driver.begin("b", b"[1],", content_type="application/json")
        await driver.append("b", b"", close=True, producer=("q", 0, 0))
        await driver.begin("gone", b"bytes")
        await driver.remove("gone")
        states, contents = copy.deepcopy(driver.states), await driver.contents()
    async with opened(mode, tmp_path) as driver:
        assert driver.states == states
        assert await driver.contents() == contents
        assert driver.states["a"].producers == {"p": (3, 9, driver.states["a"].written_at_ms)}
        assert driver.states["b"].closed_by == ("q", 0, 0)


async def test_killed_storage_holds_all_that_was_done(disk_mode: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    async with opened(disk_mode, tmp_path / "live", checkpoint_secs=0.03) as driver:
        for name in "abcd":
            await driver.begin(name)
        for round_ in range(6):
            for _ in range(25):
                name = rng.choice(sorted(driver.states))
                await driver.append_when_admitted(name, rng.randbytes(rng.randrange(1, 2000)))
            if round_ == 3:
                await driver.remove("d")
            killed = copy_as_killed(tmp_path / "live", tmp_path / f"killed-{round_}")
            async with opened(disk_mode, killed) as again:
                assert again.states == driver.states
                assert await again.contents() == await driver.contents()


async def test_unit_is_there_whole_or_not_at_all(disk_mode: str, tmp_path: Path) -> None:
    """Creation and first bytes are one unit: whatever a copy catches, it has both or none."""
    async with opened(disk_mode, tmp_path / "live") as driver:
        for number in range(8):
            landed = driver.begin(f"s{number}", b"x" * 5000)
            await asyncio.sleep(0)
            killed = copy_as_killed(tmp_path / "live", tmp_path / f"killed-{number}")
            await landed
            try:
                async with opened(disk_mode, killed) as again:
                    assert {state.tail for state in again.states.values()} <= {5000}
                    assert len(again.states) >= number
            except DamagedData:
                pytest.fail("a copy taken while a batch was written was refused")


async def test_second_process_is_refused(disk_mode: str, tmp_path: Path) -> None:
    async with opened(disk_mode, tmp_path):
        with pytest.raises(UnusableData, match="another process"):
            async with opened(disk_mode, tmp_path):
                pytest.fail("two owners of one directory")


@pytest.mark.parametrize("mode", FILE_MODES)
async def test_removal_gives_disk_space_back(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path, journal_bytes=1 << 20, checkpoint_secs=0.05) as driver:
        await driver.begin("keep", b"k" * 1000)
        await driver.begin("drop", b"d" * 500_000)
        await driver.flushed("keep", "drop")
        full = segment_bytes(tmp_path)
        await driver.remove("drop")
        await until(lambda: segment_bytes(tmp_path) <= full - 500_000)
        assert await driver.read("keep") == b"k" * 1000


async def test_acid_reuses_the_space_of_removed_streams(tmp_path: Path) -> None:
    async with opened("acid", tmp_path) as driver:
        for number in range(40):
            await driver.begin(f"s{number}", b"d" * 1_000_000)
            await driver.remove(f"s{number}")
    assert database_bytes(tmp_path) < 20_000_000


async def test_record_applied_twice_is_refused_by_recovery(tmp_path: Path) -> None:
    """An append that does not continue its stream cannot come from us: refuse, do not guess."""
    async with opened("file-durable", tmp_path / "live") as driver:
        await driver.begin("a", b"12345")
        state = driver.states["a"]
        await driver.stage(state, Appended(state.id, 3, b"zz", 1))
        killed = copy_as_killed(tmp_path / "live", tmp_path / "killed")
        with pytest.raises(DamagedData, match="append at 3, but the stream ends at 5"):
            async with opened("file-durable", killed):
                pytest.fail("started")
