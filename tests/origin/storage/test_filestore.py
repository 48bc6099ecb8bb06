"""Checkpoints that meet trouble, and the order of steps in which a start trusts its files."""

import asyncio
import copy
import errno
import os
from pathlib import Path

import pytest

from origin.storage import filestore
from origin.storage.base import StorageFailed
from origin.storage.files import Files
from origin.storage.filestore import FileStorage
from protocol.stream import Removed, apply
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.origin.storage.driver import Driver, copy_as_killed, has_batches, opened, until


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore, "RETRY_SECS", 0.05)


class RecordingFiles(FaultyFiles):
    """Notes each step and the name of its file; `written` has the bytes as well."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []
        self.written: list[tuple[str, bytes]] = []

    def write_at(self, fd: int, data: bytes, position: int) -> None:
        self.written.append((Path(self._paths[fd]).name, data))
        super().write_at(fd, data, position)

    def _find(self, operation: str, path: str) -> Fault | None:
        self.steps.append((operation, Path(path).name))
        return super()._find(operation, path)


def store_of(driver: Driver) -> FileStorage:
    assert isinstance(driver.storage, FileStorage)
    return driver.storage


async def append_many(driver: Driver, count: int) -> None:
    for _ in range(count):
        await driver.append_when_admitted("a", b"x" * 1000)


def segments(folder: Path) -> list[Path]:
    return list(folder.rglob("*.seg"))


def files_in_use(folder: Path) -> list[str]:
    """Those below it that this process has open, deleted ones too."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.islink(link)]
    return [target for target in targets if target.startswith(str(folder))]


@pytest.mark.parametrize("mode", ["file-fast", "file-durable"])
async def test_a_store_that_is_closed_lets_go_of_its_files(tmp_path: Path, mode: str) -> None:
    for name in ("a", "b"):  # the second begins with the journal of the first
        async with opened(mode, tmp_path, journal_bytes=16 * 1024) as driver:
            await driver.begin(name)
            await append_many(driver, 40)
            assert files_in_use(tmp_path)
        assert files_in_use(tmp_path) == []


# -- checkpoints ---------------------------------------------------------------------------------


async def test_refused_appends_never_reach_a_checkpoint(tmp_path: Path) -> None:
    """One is wanted when the journal fails: the states it would note hold what was refused."""
    files = FaultyFiles()
    async with opened("file-durable", tmp_path, checkpoint_secs=0.02, files=files) as driver:
        store = store_of(driver)
        with files.hold_syncs("segments"):
            await driver.begin("a", b"kept,")
            assert await asyncio.to_thread(files.arrived.wait, 60)
            await driver.append("a", b"kept too,", producer=("p", 0, 0))
            checkpoints, journal_files = store.checkpoints, store.journal_files
            await until(lambda: checkpoints.is_wanted and journal_files.spare is not None)
            expected = copy.deepcopy(driver.states)
            files.faults = [Fault("write_at", ".journal$")]
            with pytest.raises(StorageFailed):
                await driver.append("a", b"refused,", producer=("p", 0, 1))
        await until(lambda: not store.checkpoints.is_running)
        await asyncio.sleep(0.2)  # nothing may follow it, and nothing tells us so
    async with opened("file-durable", tmp_path) as driver:
        assert driver.states == expected
        assert await driver.contents() == {"a": b"kept,kept too,"}


class StumblingFiles(Files):
    def __init__(self, error: Exception) -> None:
        self.errors = [error]

    def sync_all(self, fds: list[int]) -> None:
        if self.errors:
            raise self.errors.pop()
        super().sync_all(fds)


@pytest.mark.parametrize("error", [MemoryError(), ValueError("a bug")], ids=repr)
async def test_checkpoint_that_dies_of_anything_is_tried_again(
    tmp_path: Path, error: Exception
) -> None:
    files = StumblingFiles(error)
    async with opened("file-durable", tmp_path, checkpoint_secs=0.02, files=files) as driver:
        await driver.begin("a", b"first")
        await until(lambda: not files.errors)
        await driver.begin("b", b"second")
        await driver.flushed("b")
    async with opened("file-durable", tmp_path) as driver:
        assert await driver.contents() == {"a": b"first", "b": b"second"}


@pytest.mark.parametrize("where", [".journal$", ".seg$"])
@pytest.mark.parametrize("mode", ["file-fast", "file-durable"])
async def test_files_that_cannot_be_deleted_wedge_nothing(
    tmp_path: Path, mode: str, where: str
) -> None:
    """All journal files are full and appends wait while the files should go."""
    files = FaultyFiles()
    async with opened(mode, tmp_path, journal_bytes=8192, journal_files=2, files=files) as driver:
        for name in "ab":
            await driver.begin(name, b"bytes")
        await driver.remove("b")
        with files.hold_syncs("segments"):
            appends = asyncio.ensure_future(append_many(driver, 40))
            await until(lambda: not driver.storage.admits(1200))
            files.faults = [Fault("unlink", where)]
        await asyncio.wait_for(appends, 60)
        assert files.struck > 0
    async with opened(mode, tmp_path) as driver:
        assert await driver.contents() == {"a": b"bytes" + b"x" * 40_000}
    assert len(segments(tmp_path)) == 1


async def test_appends_that_wait_for_room_hear_of_a_failure(tmp_path: Path) -> None:
    """They wait for the batch before them to leave; when it fails, nothing else wakes them."""
    files = FaultyFiles()
    async with opened("file-durable", tmp_path, journal_bytes=8192, files=files) as driver:
        await driver.begin("a")
        await until(lambda: store_of(driver).journal_files.spare is not None)
        with files.hold_syncs(".journal$"):
            doomed = [driver.append("a", b"x" * 1000)]
            assert await asyncio.to_thread(files.arrived.wait, 60)
            while driver.storage.admits(1200):
                doomed.append(driver.append("a", b"x" * 1000))
            waiting = asyncio.ensure_future(driver.append_when_admitted("a", b"y" * 1000))
            await asyncio.sleep(0)
            files.faults = [Fault("sync", ".journal$")]
        results = await asyncio.gather(*doomed, return_exceptions=True)
        assert {type(result) for result in results} == {StorageFailed}
        with pytest.raises(StorageFailed):
            await asyncio.wait_for(waiting, 60)


async def test_units_staged_without_room_are_written_when_room_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened("file-durable", tmp_path) as driver:
        await driver.begin("gone", b"bytes")
    files = FaultyFiles([Fault("create", ".journal", errno.ENOSPC)])
    async with opened("file-durable", tmp_path, files=files) as driver:
        state = driver.states.pop("gone")
        apply(state, Removed(state.id))
        landed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        driver.storage.stage(state, (Removed(state.id),), landed.set_result)
        await until(lambda: files.struck > 2)
        assert not landed.done()
        files.faults = []
        assert await asyncio.wait_for(landed, 60) is None
    assert not [record for record in caplog.records if record.exc_info]
    async with opened("file-durable", tmp_path) as driver:
        assert driver.states == {}


# -- starts --------------------------------------------------------------------------------------


async def test_start_syncs_the_catalog_before_it_deletes_anything(tmp_path: Path) -> None:
    """The checkpoint it found may never have reached the disk, and the journal would be gone."""
    live, files = tmp_path / "live", FaultyFiles()
    async with opened("file-fast", live, checkpoint_secs=0.02, files=files) as driver:
        for name in "ab":
            await driver.begin(name, b"bytes")
        await driver.flushed("a", "b")
        await until(lambda: not has_batches(live))
        with files.hold_syncs("catalog$"):
            await driver.remove("b")
            assert await asyncio.to_thread(files.arrived.wait, 60)
            killed = copy_as_killed(live, tmp_path / "killed")
    recorder = RecordingFiles()
    async with opened("file-fast", killed, files=recorder) as driver:
        assert await driver.contents() == {"a": b"bytes"}
    deleted = [name for operation, name in recorder.steps if operation == "unlink"]
    assert {Path(name).suffix for name in deleted} >= {".journal", ".seg"}
    before = recorder.steps[: recorder.steps.index(("unlink", deleted[0]))]
    assert [step for step in before if step[1] in ("catalog", "killed")] == [
        ("open", "catalog"),
        ("write_at", "catalog"),
        ("sync", "catalog"),
        ("sync_dir", "killed"),
    ]
    [again] = [data for name, data in recorder.written[:1] if name == "catalog"]
    assert (killed / "catalog").read_bytes().find(again) > 0


async def test_start_writes_and_syncs_the_last_batch_again(tmp_path: Path) -> None:
    """After a failed sync the system may take pages for written that never were."""
    live = tmp_path / "live"
    async with opened("file-durable", live) as driver:
        await driver.begin("a", b"first,")
        await driver.append("a", b"the last batch,")
        killed = copy_as_killed(live, tmp_path / "killed")
    recorder = RecordingFiles()
    async with opened("file-durable", killed, files=recorder) as driver:
        steps = recorder.steps[:]
        [journal] = [name for name, data in recorder.written if b"the last batch," in data]
        assert await driver.contents() == {"a": b"first,the last batch,"}
    assert steps[steps.index(("write_at", journal)) + 1] == ("sync", journal)
