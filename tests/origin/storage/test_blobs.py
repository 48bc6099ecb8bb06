"""Snapshots' files: whole or not at all, verified on reading, and gone when no state names them."""

import asyncio
import errno
import io
import random
import shutil
from pathlib import Path

import pytest

from origin.storage import inspect
from origin.storage.base import DamagedData, StorageFull
from origin.storage.segments import BLOCK_BYTES
from tests.crash.spoil import cut, flip
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.origin.storage.driver import (
    DISK_MODES,
    FILE_MODES,
    MODES,
    blob_names,
    blobs_of,
    copy_as_killed,
    named_blobs,
    opened,
    until,
)


@pytest.fixture(params=DISK_MODES)
def disk_mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 77])
async def test_any_range_of_a_blob_is_read_exactly(mode: str, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with opened(mode, tmp_path) as driver:
        kept = await driver.storage.write_blob(7, data)
        borders = {0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, size - 1, size}
        for start in (border for border in borders if 0 <= border <= size):
            for end in (border for border in borders if start < border <= size):
                assert await driver.storage.read_blob(7, kept, start, end) == data[start:end]


async def test_start_keeps_the_blobs_that_states_name_and_no_others(
    disk_mode: str, tmp_path: Path
) -> None:
    """Killed after a blob was written and before a record named it, or before an old one went."""
    live, foreign = tmp_path / "live", Path("snapshots", "notes.txt")
    async with opened(disk_mode, live) as driver:
        await driver.begin("a", b"12345678")
        await driver.publish("a", 4, b"of the first four")
        old = Path(named_blobs(driver.states.values()).pop())
        before = copy_as_killed(live, tmp_path / "before")
        await driver.storage.write_blob(0xAB, b"never published")
        killed = copy_as_killed(live, tmp_path / "unpublished")
        await driver.publish("a", 8, b"of all eight")
        later = copy_as_killed(live, tmp_path / "replaced")
        if not (again := later / "snapshots" / old.name[:2] / old).exists():
            shutil.copy(before / "snapshots" / old.name[:2] / old, again)
    (later / foreign).write_text("an operator's")
    for folder, snapshot in ((killed, b"of the first four"), (later, b"of all eight")):
        assert len(blob_names(folder)) > 1
        async with opened(disk_mode, folder) as driver:
            assert await driver.snapshot("a") == snapshot
            assert blob_names(folder) - {foreign.name} == named_blobs(driver.states.values())
    assert (later / foreign).exists()


async def test_replaced_blob_is_deleted(disk_mode: str, tmp_path: Path) -> None:
    async with opened(disk_mode, tmp_path) as driver:
        await driver.begin("a", b"12345678")
        for offset in range(1, 9):
            await driver.publish("a", offset, b"x" * offset)
        await driver.checkpoint()
        await until(lambda: blob_names(tmp_path) == named_blobs(driver.states.values()))


async def test_power_cut_without_syncs_finds_the_snapshot_it_goes_back_to(tmp_path: Path) -> None:
    """`file-fast` may lose the record that replaced it: both are kept until a checkpoint."""
    live, lost = tmp_path / "live", tmp_path / "lost"
    async with opened("file-fast", live) as driver:
        for name in ("replaced", "removed"):
            await driver.begin(name, b"12345678")
            await driver.publish(name, 4, b"four")
        await driver.checkpoint()
        earlier = copy_as_killed(live, tmp_path / "earlier")
        await driver.publish("replaced", 8, b"eight")
        removed = driver.states["removed"].snapshot
        assert removed is not None
        await driver.remove("removed")
        driver.storage.drop_blob(removed.blob)
        shutil.copytree(live, lost)
        shutil.rmtree(lost / "journal")  # what was never synced never reached the disk
        shutil.copytree(earlier / "journal", lost / "journal")
    async with opened("file-fast", lost) as driver:
        for name in ("replaced", "removed"):
            assert await driver.snapshot(name) == b"four"
            assert await driver.read(name) == b"5678"


# -- writes that fail ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", FILE_MODES)
@pytest.mark.parametrize(
    "fault",
    [
        Fault("open", "snapshots/"),
        Fault("write_at", "snapshots/", errno.ENOSPC, partial=0.5),
        Fault("write_at", "snapshots/", errno.ENOSPC, after=3, partial=0.5),
        Fault("sync", "snapshots/"),
        Fault("sync_dir", "snapshots/"),
    ],
    ids=lambda fault: f"{fault.operation} after {fault.after}",
)
async def test_blob_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, mode: str, fault: Fault
) -> None:
    files = FaultyFiles([fault])
    data = random.Random(1).randbytes(3 * BLOCK_BYTES)
    async with opened(mode, tmp_path, files=files) as driver:
        await driver.begin("a", b"12345678")
        with pytest.raises(StorageFull):
            await driver.publish("a", 4, data)
        assert files.struck and not blob_names(tmp_path)
        assert await driver.read("a") == b"12345678"
        files.faults = []
        await driver.append("a", b"9")
        await driver.publish("a", 4, data)
        assert await driver.snapshot("a") == data


@pytest.mark.parametrize("mode", FILE_MODES)
async def test_publisher_who_leaves_while_it_is_written_leaves_nothing(
    tmp_path: Path, mode: str
) -> None:
    files = FaultyFiles()
    async with opened(mode, tmp_path, files=files) as driver:
        with files.hold_syncs("snapshots/"):
            writing = asyncio.ensure_future(driver.storage.write_blob(7, b"bytes"))
            assert await asyncio.to_thread(files.arrived.wait, 60)
            assert blob_names(tmp_path)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
        await until(lambda: not blob_names(tmp_path))


# -- damage ----------------------------------------------------------------------------------------


async def test_every_flipped_byte_of_a_blob_is_found(disk_mode: str, tmp_path: Path) -> None:
    async with opened(disk_mode, tmp_path / "live") as driver:
        await driver.begin("a", b"12345678")
        await driver.publish("a", 8, b"some bytes of a snapshot")
        states = driver.states
        name = named_blobs(states.values()).pop()
        path = tmp_path / "live" / "snapshots" / name[:2] / name
        snapshot = states["a"].snapshot
        assert snapshot is not None
        for position in range(path.stat().st_size):
            flip(path, position)
            with pytest.raises(DamagedData, match=name):
                blobs_of(driver.storage)._segments._indexes.clear()
                await driver.snapshot("a")
            flip(path, position)
        assert await driver.snapshot("a") == b"some bytes of a snapshot"


@pytest.mark.parametrize("damage", ["flip", "cut", "loss"])
async def test_fsck_names_the_damaged_blob(disk_mode: str, tmp_path: Path, damage: str) -> None:
    live = tmp_path / "live"
    async with opened(disk_mode, live) as driver:
        for stream in ("sound", "spoiled"):
            await driver.begin(stream, b"12345678")
            await driver.publish(stream, 8, b"x" * (BLOCK_BYTES + 5))
        name = named_blobs([driver.states["spoiled"]]).pop()
    path = live / "snapshots" / name[:2] / name
    if damage == "flip":
        flip(path, path.stat().st_size - 1)
    elif damage == "cut":
        cut(path, path.stat().st_size - 1)
    else:
        path.unlink()
    out = io.StringIO()
    assert inspect.fsck(str(live), out) == 1
    [line, verdict] = out.getvalue().splitlines()
    assert line.startswith("damaged: stream spoiled: ") and str(path) in line
    assert verdict.startswith("1 damaged: 2 streams")
