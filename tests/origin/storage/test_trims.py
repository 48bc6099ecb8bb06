"""Trims in every order with appends, checkpoints, restarts and kills: above the floor every byte
and every boundary is as it was, below it nothing is served, and `fsck` finds nothing wrong."""

import asyncio
import errno
import io
import os
import random
import threading
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, product
from pathlib import Path

import pytest

from origin.storage import acid, filestore, inspect
from origin.storage.base import BelowFloor, DamagedData
from origin.storage.filestore import FileStorage
from origin.storage.segments import BLOCK_BYTES
from tests.crash.spoil import flip
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.origin.storage.driver import (
    MODES,
    Driver,
    begin_checkpoint,
    copy_as_killed,
    opened,
    until,
)

JOURNAL_BYTES = 1 << 20

# What happens to a stream between two moments; each has a letter, and words are done in order.
DEEDS = ["", "a", "i", "t", "ai", "ia", "ta"]


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore, "RETRY_SECS", 0.05)


@dataclass
class Plain:
    """A stream as a list of appends."""

    name: str
    parts: list[bytes] = field(default_factory=list)
    floor: int = 0

    @property
    def ends(self) -> list[int]:
        return list(accumulate(map(len, self.parts), initial=0))

    @property
    def tail(self) -> int:
        return sum(map(len, self.parts))

    @property
    def kept(self) -> bytes:
        return b"".join(self.parts)[self.floor :]

    def pieces(self, start: int, end: int) -> list[bytes]:
        whole = b"".join(self.parts)
        borders = [start, *(e for e in self.ends if start < e < end), end]
        return [whole[a:b] for a, b in zip(borders, borders[1:], strict=False) if a < b]

    def boundary(self, position: int) -> int:
        return next(end for end in self.ends if end >= position)

    def do(self, deed: str, driver: Driver) -> None:
        if deed == "a":
            for size in (3, 1, 5):
                self.parts.append(bytes([65 + len(self.parts) % 26]) * size)
                driver.append(self.name, self.parts[-1])
            return
        if deed == "i":  # inside the last append, as a JSON stream can be cut
            self.floor = max(self.floor, self.tail - 2)
        else:
            self.floor = self.tail
        driver.trim(self.name, self.floor)

    async def check(self, driver: Driver) -> None:
        storage, id_ = driver.storage, driver.states[self.name].id
        assert driver.states[self.name].tail == self.tail
        assert await storage.read(id_, self.floor, self.tail) == self.kept
        for start in {self.floor, min(self.floor + 1, self.tail)}:
            assert await storage.boundary(id_, start) == self.boundary(start)
            assert await storage.parts(id_, start, self.tail) == self.pieces(start, self.tail)
        if self.floor:
            with pytest.raises(BelowFloor):
                await storage.read(id_, self.floor - 1, self.tail)


@pytest.mark.parametrize("mode", ["file-durable", "acid"])
async def test_trims_in_every_order(mode: str, tmp_path: Path) -> None:
    """One stream for each order of deeds, all in one storage."""
    stories = list(product(DEEDS, repeat=3))
    plain = [Plain(f"s{number}") for number in range(len(stories))]

    async def act(number: int, driver: Driver) -> None:
        for stream, story in zip(plain, stories, strict=True):
            for deed in story[number]:
                stream.do(deed, driver)
        await driver.barrier()

    live = tmp_path / "live"
    reopened = partial(opened, mode, journal_bytes=JOURNAL_BYTES)
    async with reopened(live) as driver:
        for stream in plain:
            driver.begin(stream.name)
            stream.do("a", driver)
        await driver.barrier()
        await driver.checkpoint()
        await act(0, driver)
        await check_all(plain, driver, live)
        await driver.checkpoint()
        await act(1, driver)
    async with reopened(live) as driver:
        await check_all(plain, driver, live)
        await act(2, driver)
        await driver.checkpoint()
        await check_all(plain, driver, live)
    async with reopened(live) as driver:
        await check_all(plain, driver, live)


async def check_all(plain: list[Plain], driver: Driver, live: Path) -> None:
    for stream in plain:
        await stream.check(driver)
    # LMDB lets nobody open its files twice in one process.
    folder = copy_as_killed(live, live.with_name("copy")) if (live / "acid").exists() else live
    out = io.StringIO()
    assert inspect.fsck(str(folder), out) == 0, out.getvalue()


# -- checkpoints that meet trims -------------------------------------------------------------------


async def test_stream_removed_under_a_checkpoint_does_not_stop_it(tmp_path: Path) -> None:
    """Its segment is gone before the checkpoint has looked where the floor lies in it."""
    files = FaultyFiles()
    async with opened("file-durable", tmp_path, files=files) as driver:
        for name in ("kept", "removed"):
            await driver.begin(name, b"12345")
        await driver.checkpoint()
        files.faults = [Fault("sync", ".seg$")]
        await driver.trim("removed", 3)
        await driver.append("kept", b"678")
        await begin_checkpoint(store_of(driver))
        await until(lambda: files.struck > 0)
        segment = store_of(driver).folder.segments.path(driver.states["removed"].id)
        await driver.remove("removed")
        await until(lambda: not Path(segment).exists())
        files.faults = []
        await checkpoint_done(driver)
        assert driver.storage.read_now(driver.states["kept"].id, 0, 8) is None, "not moved"
    async with opened("file-durable", tmp_path) as driver:
        assert await driver.contents() == {"kept": b"12345678"}


async def test_damaged_segment_does_not_stop_the_checkpoints_of_others(tmp_path: Path) -> None:
    async with opened("file-durable", tmp_path) as driver:
        for name in ("sound", "spoiled"):
            await driver.begin(name, b"12345")
        await driver.checkpoint()
        flip(Path(store_of(driver).folder.segments.path(driver.states["spoiled"].id)), 9)
        await driver.trim("spoiled", 3)
        await driver.append("sound", b"678")
        await driver.checkpoint()
        assert driver.storage.read_now(driver.states["sound"].id, 0, 8) is None, "not moved"
        with pytest.raises(DamagedData):
            await driver.read("spoiled")
        assert await driver.read("sound") == b"12345678"


async def test_trims_and_appends_land_under_a_checkpoint(tmp_path: Path) -> None:
    """It was cut before them: what it writes is older than what readers see."""
    for number, floor in enumerate((2, 5, 7, 10, 12, 14)):
        files, live = FaultyFiles(), tmp_path / str(number)
        async with opened("file-durable", live, files=files) as driver:
            await driver.begin("a", b"01234")
            await driver.checkpoint()
            await driver.append("a", b"56789")
            with files.hold_syncs("segments"):
                await begin_checkpoint(store_of(driver))
                assert await asyncio.to_thread(files.arrived.wait, 60)
                await driver.append("a", b"abcd")
                await driver.trim("a", floor)
                assert await driver.read("a") == b"0123456789abcd"[floor:]
                copies = [copy_as_killed(live, tmp_path / f"{number} held")]
            await checkpoint_done(driver)
            assert await driver.read("a") == b"0123456789abcd"[floor:]
            await driver.append("a", b"ef")
            copies.append(copy_as_killed(live, tmp_path / f"{number} done"))
            await driver.checkpoint()
            assert await driver.read("a") == b"0123456789abcdef"[floor:]
        for folder, end in zip([*copies, live], (14, 16, 16), strict=True):
            assert inspect.fsck(str(folder), io.StringIO()) == 0
            async with opened("file-durable", folder) as driver:
                assert await driver.read("a") == b"0123456789abcdef"[floor:end]


async def test_reads_under_way_while_holes_are_punched(tmp_path: Path) -> None:
    """A read in a thread has the right bytes or is below the floor; never damage, never zeros."""
    rng, part = random.Random(5), BLOCK_BYTES // 4
    whole = b"".join(bytes([65 + number % 26]) * part for number in range(48))
    async with opened("file-durable", tmp_path, journal_bytes=1 << 23) as driver:
        await driver.begin("a")
        for start in range(0, len(whole), part):
            driver.append("a", whole[start : start + part])
        await driver.barrier()
        await driver.checkpoint()
        seen: list[bool] = []

        async def read_some() -> None:
            while (floor := driver.states["a"].floor) < len(whole) - part:
                start = rng.randrange(floor, len(whole))
                end = min(start + rng.randrange(1, 3 * part), len(whole))
                try:
                    assert await driver.read("a", start, end) == whole[start:end]
                    seen.append(True)
                except BelowFloor:
                    seen.append(False)

        readers = asyncio.gather(*(read_some() for _ in range(6)))
        for floor in range(part // 2, len(whole), 2 * part):
            await driver.trim("a", floor)
            await driver.checkpoint()
        await driver.trim("a", len(whole))
        await readers
        assert seen.count(True) > 10, "nothing was read meanwhile"


@pytest.mark.parametrize("fresh", [False, True], ids=["known index", "fresh index"])
@pytest.mark.parametrize("operation", ["read", "parts", "boundary"])
async def test_read_that_comes_to_a_hole_is_below_the_floor(
    tmp_path: Path, operation: str, fresh: bool
) -> None:
    """It began when the bytes were still there."""
    async with opened("file-durable", tmp_path) as driver:
        store = store_of(driver)
        await driver.begin("a", b"0123")
        await driver.checkpoint()
        await driver.append("a", b"4567")
        await driver.checkpoint()
        await driver.read("a")
        id_, punched, segments = driver.states["a"].id, threading.Event(), store.folder.segments
        look = getattr(segments, operation)

        def look_late(*where: object) -> object:
            assert punched.wait(60)
            if fresh:
                segments._indexes.clear()
            return look(*where)

        setattr(segments, operation, look_late)
        wanted = (1,) if operation == "boundary" else (1, 8)
        asked = asyncio.ensure_future(getattr(store, operation)(id_, *wanted))
        await asyncio.sleep(0)
        await driver.trim("a", 6)
        await driver.checkpoint()
        punched.set()
        with pytest.raises(BelowFloor):
            await asked
        assert await driver.read("a") == b"67"


# -- holes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EIO], ids=["EOPNOTSUPP", "EIO"])
async def test_disk_that_punches_no_holes_is_served_all_the_same(tmp_path: Path, code: int) -> None:
    """What cannot be given back stays; the next start that can gives it back."""
    data = b"".join(bytes([65 + number]) * BLOCK_BYTES for number in range(4))
    live, floor = tmp_path / "live", 3 * BLOCK_BYTES + 10
    for faults in ([Fault("punch", "", code)], [Fault("punch", "", code)], []):
        files = FaultyFiles(faults)
        async with opened("file-durable", live, journal_bytes=1 << 21, files=files) as driver:
            if "a" not in driver.states:
                await driver.begin("a")
                for start in range(0, len(data), BLOCK_BYTES):
                    await driver.append("a", data[start : start + BLOCK_BYTES])
                await driver.checkpoint()
                await driver.trim("a", floor)
                await driver.checkpoint()
            assert await driver.read("a") == data[floor:]
            segment = store_of(driver).folder.segments.path(driver.states["a"].id)
            kept = os.stat(segment).st_blocks * 512
            assert kept >= len(data) if faults else kept < 2 * BLOCK_BYTES
            assert bool(files.struck) == bool(faults)
    async with opened("file-durable", live, journal_bytes=1 << 21) as driver:
        await driver.trim("a", len(data))
        await driver.checkpoint()
        assert os.stat(segment).st_blocks * 512 < BLOCK_BYTES, "nothing of it counts any more"


# -- the storages alike ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_parts_are_what_is_read_cut_where_appends_end(mode: str, tmp_path: Path) -> None:
    """Of any range, half of it out of the journal already."""
    plain = Plain("a")
    async with opened(mode, tmp_path) as driver:
        driver.begin("a")
        plain.do("a", driver)
        await driver.barrier()
        await driver.checkpoint()
        plain.do("a", driver)
        await driver.barrier()
        storage, id_ = driver.storage, driver.states["a"].id
        for start in range(plain.tail + 1):
            for end in range(start, plain.tail + 1):
                pieces = await storage.parts(id_, start, end)
                assert pieces == plain.pieces(start, end), (start, end)
                assert b"".join(pieces) == await storage.read(id_, start, end)


@pytest.mark.parametrize("mode", MODES)
async def test_nothing_is_answered_of_what_is_below_the_floor(mode: str, tmp_path: Path) -> None:
    plain = Plain("a")
    async with opened(mode, tmp_path) as driver:
        driver.begin("a")
        for deed in "aat":
            plain.do(deed, driver)
        await driver.barrier()
        plain.do("a", driver)
        await driver.barrier()
        await plain.check(driver)
        storage, id_ = driver.storage, driver.states["a"].id
        for start in (0, 1, plain.floor - 1):
            with pytest.raises(BelowFloor):
                await storage.read(id_, start, plain.tail)
            with pytest.raises(BelowFloor):
                storage.read_now(id_, start, plain.tail) or await storage.read(id_, start, 18)
            with pytest.raises(BelowFloor):
                await storage.parts(id_, start, plain.tail)
            with pytest.raises(BelowFloor):
                await storage.boundary(id_, start)


async def test_acid_deletes_long_histories_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends and reads go on between the slices; a stop leaves the rest to the next start."""
    monkeypatch.setattr(acid, "SLICE_ROWS", 7)
    async with opened("acid", tmp_path) as driver:
        for name in ("a", "b"):
            driver.begin(name)
            for number in range(100):
                driver.append(name, f"{number:03d}".encode())
        await driver.barrier()
        await driver.trim("a", 299)
        await driver.append("a", b"more")
        assert await driver.read("a") == b"9more"
    async with opened("acid", tmp_path) as driver:
        assert isinstance(driver.storage, acid.AcidStorage)
        shard, id_ = driver.storage._shard(driver.states["a"].id), driver.states["a"].id
        await until(lambda: [at for at, _ in shard.appends(id_)] == [297, 300])
        assert await driver.read("a") == b"9more"
        assert len(await driver.read("b")) == 300


async def test_acid_takes_no_row_behind_a_deleted_one_for_a_boundary(tmp_path: Path) -> None:
    """The position was above the floor when it was asked for."""
    async with opened("acid", tmp_path) as driver:
        assert isinstance(driver.storage, acid.AcidStorage)
        await driver.begin("a", b"012")
        await driver.append("a", b"345")
        await driver.append("a", b"678")
        id_ = driver.states["a"].id
        shard, trimmed = driver.storage._shard(id_), threading.Event()
        look = shard.boundary

        def look_late(stream_id: int, at_or_after: int) -> int:
            assert trimmed.wait(60)
            return look(stream_id, at_or_after)

        shard.boundary = look_late  # type: ignore[method-assign]
        asked = asyncio.ensure_future(driver.storage.boundary(id_, 3))
        await asyncio.sleep(0)
        await driver.trim("a", 6)
        await until(lambda: [at for at, _ in shard.appends(id_)] == [6])
        trimmed.set()
        with pytest.raises(BelowFloor):
            await asked


async def checkpoint_done(driver: Driver) -> None:
    store = store_of(driver)
    await until(lambda: not store.checkpoints.is_running)


def store_of(driver: Driver) -> FileStorage:
    assert isinstance(driver.storage, FileStorage)
    return driver.storage
