"""Killed before each single file operation of publications, trims and checkpoints.

At every step the files are copied as SIGKILL would leave them. Whatever the step: the latest
snapshot is the acknowledged one or the one under way, whole; what lies behind it is all there;
nothing else stays in the folder of the snapshots.
"""

import io
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from origin.storage import inspect
from origin.storage.base import BelowFloor
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.origin.storage.driver import (
    FILE_MODES,
    Driver,
    blob_names,
    copy_as_killed,
    named_blobs,
    opened,
    until,
)

LINE = b"0123456789abcdefghijklmnopqrstuvwxyz"


def blob_of(offset: int) -> bytes:
    return f"all of {offset}, ".encode() * 40


@dataclass(frozen=True, slots=True)
class Moment:
    """What lies on the disk, and what was known to clients when it was like that."""

    folder: Path
    step: str
    snapshots: tuple[int, int]  # acknowledged before, and perhaps a later one under way
    tails: tuple[int, int]


class CopyingFiles(FaultyFiles):
    """Real files that are copied before each operation that changes them."""

    def __init__(self, live: Path, target: Path) -> None:
        super().__init__()
        self._live, self._target = live, target
        self._one_at_a_time = threading.Lock()
        self.snapshots = self.tails = (0, 0)
        self.moments: list[Moment] | None = None

    def _find(self, operation: str, path: str) -> Fault | None:
        moments = self.moments
        if moments is not None and operation != "open":
            with self._one_at_a_time:
                step = f"{len(moments):02d} {operation} {Path(path).suffix or path[-8:]}"
                snapshot, tail = self.snapshots[0], self.tails[0]
                folder = copy_as_killed(self._live, self._target / str(len(moments)))
                # Other threads, and so the clients, may have come further meanwhile.
                snapshots, tails = (snapshot, self.snapshots[1]), (tail, self.tails[1])
                moments.append(Moment(folder, step, snapshots, tails))
        return super()._find(operation, path)


async def publish(driver: Driver, files: CopyingFiles, offset: int) -> None:
    files.snapshots = files.snapshots[1], offset
    await driver.publish("a", offset, blob_of(offset))
    files.snapshots = offset, offset


async def append(driver: Driver, files: CopyingFiles, size: int) -> None:
    tail = files.tails[1]
    files.tails = tail, tail + size
    await driver.append("a", LINE[tail : tail + size])
    files.tails = tail + size, tail + size


@pytest.mark.parametrize("mode", FILE_MODES)
async def test_killed_at_every_step(mode: str, tmp_path: Path) -> None:
    live = tmp_path / "live"
    files = CopyingFiles(live, tmp_path)
    async with opened(mode, live, journal_bytes=8192, files=files) as driver:
        await driver.begin("a")
        files.moments = []
        await append(driver, files, 6)
        await driver.checkpoint()
        await append(driver, files, 4)
        await publish(driver, files, 6)  # below it a segment, above it the journal
        await driver.checkpoint()
        await append(driver, files, 5)
        await publish(driver, files, 10)
        await publish(driver, files, 15)  # behind all that was ever flushed
        await append(driver, files, 7)
        await driver.checkpoint()
        await publish(driver, files, 22)  # of everything
        await driver.checkpoint()
        await until(lambda: len(blob_names(live)) == 1)
        moments, files.moments = files.moments, None
    steps = [moment.step for moment in moments]
    assert {"punch", "unlink", "sync", "write_at", "rename"} <= {s.split()[1] for s in steps}
    for moment in moments:
        await check(mode, moment)


async def check(mode: str, moment: Moment) -> None:
    out = io.StringIO()
    assert inspect.fsck(str(moment.folder), out) == 0, (moment.step, out.getvalue())
    async with opened(mode, moment.folder, journal_bytes=8192) as driver:
        state = driver.states["a"]
        assert moment.snapshots[0] <= state.earliest <= moment.snapshots[1], moment.step
        assert moment.tails[0] <= state.tail <= moment.tails[1], moment.step
        assert state.floor == state.earliest
        assert await driver.read("a") == LINE[state.floor : state.tail], moment.step
        assert blob_names(moment.folder) == named_blobs([state]), moment.step
        if state.snapshot is None:
            return
        assert await driver.snapshot("a") == blob_of(state.earliest), moment.step
        with pytest.raises(BelowFloor):
            await driver.read("a", state.floor - 1)
        await driver.checkpoint()  # and it goes on from there
        assert await driver.read("a") == LINE[state.floor : state.tail], moment.step
