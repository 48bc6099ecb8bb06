"""Backups of every mode at every moment of a storage's life, and what a restore refuses."""

import asyncio
import errno
import io
import os
import random
import shutil
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import lmdb
import pytest

from origin.storage import acid, inspect, reclaim
from origin.storage.backup import _JournalCopy, _take_batches, back_up, restore
from origin.storage.base import DamagedData, UnusableData
from origin.storage.copies import MANIFEST, Copier, Copy, read_manifest, write_manifest
from origin.storage.files import RESTORING
from origin.storage.format import (
    JournalHead,
    encode_batch,
    encode_journal_head,
)
from tests.crash.spoil import cut, flip
from tests.origin.storage.driver import (
    DISK_MODES,
    FILE_MODES,
    Driver,
    batches,
    blob_names,
    named_blobs,
    opened,
    until,
)


def backed_up(data_dir: Path, folder: Path, *, base: Path | None = None) -> Path:
    out = io.StringIO()
    earlier = None if base is None else str(base)
    assert back_up(str(data_dir), str(folder), out, base=earlier) == 0, out.getvalue()
    return folder


def restored(folder: Path, data_dir: Path) -> Path:
    assert restore(str(folder), str(data_dir), io.StringIO()) == 0
    assert inspect.fsck(str(data_dir), io.StringIO()) == 0
    return data_dir


def segment_of(driver: Driver, name: str) -> str:
    return f"segments/01/{driver.states[name].id:016x}.seg"


async def write_some(driver: Driver) -> None:
    """Streams in segments, in the journal and in both; a snapshot, a removal."""
    for name in ("old", "both", "gone"):
        await driver.begin(name, f"{name} one,".encode() * 500)
    await driver.begin("snapped", b"covered")
    await driver.publish("snapped", 7, b"s" * 1000)
    await driver.checkpoint()
    await driver.append("both", b"two", producer=("p", 3, 4), seq="s1")
    await driver.begin("new", b"young", content_type="application/json")
    await driver.append("snapped", b"after")
    await driver.append("new", b"last", close=True)
    await driver.remove("gone")


@pytest.mark.parametrize("mode", DISK_MODES)
async def test_a_restored_backup_is_what_was_there(mode: str, tmp_path: Path) -> None:
    async with opened(mode, tmp_path / "data") as driver:
        await write_some(driver)
        wanted, states = await driver.contents(), driver.states
    backup = backed_up(tmp_path / "data", tmp_path / "backup")
    async with opened(mode, restored(backup, tmp_path / "again")) as again:
        assert await again.contents() == wanted
        assert again.states == states
        assert await again.snapshot("snapped") == b"s" * 1000


@pytest.mark.parametrize("mode", FILE_MODES)
async def test_a_backup_of_a_running_server_has_every_append_that_landed(
    mode: str, tmp_path: Path
) -> None:
    rng = random.Random(mode)
    async with opened(mode, tmp_path / "data", journal_bytes=32 * 1024) as driver:
        await driver.begin("a")
        await driver.begin("b")
        for moment in range(6):
            for _ in range(rng.randrange(20)):
                await driver.append(rng.choice("ab"), rng.randbytes(rng.randrange(500)))
            if rng.random() < 0.4:
                await driver.checkpoint()
            wanted = await driver.contents()
            backup = backed_up(tmp_path / "data", tmp_path / f"backup-{moment}")
            async with opened(mode, restored(backup, tmp_path / f"again-{moment}")) as again:
                assert await again.contents() == wanted


@pytest.mark.parametrize("mode", FILE_MODES)
async def test_what_is_deleted_while_it_is_copied_is_in_the_backup(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup stops before its first segment, until the server has removed and replaced all."""
    arrived, go_on = threading.Event(), threading.Event()
    copy = Copier.copy

    def held(*arguments: Any) -> Copy:
        arrived.set()
        assert go_on.wait(60)
        return copy(*arguments)

    monkeypatch.setattr(Copier, "copy", held)
    async with opened(mode, tmp_path / "data", checkpoint_secs=0.05) as driver:
        await write_some(driver)
        await driver.append("snapped", b"x" * 5000)
        await driver.flushed("both", "snapped")
        wanted = await driver.contents()
        backup = asyncio.create_task(
            asyncio.to_thread(backed_up, tmp_path / "data", tmp_path / "backup")
        )
        await until(arrived.is_set)
        await driver.remove("old")
        await driver.publish("both", driver.states["both"].tail, b"all of both")
        await driver.publish("snapped", driver.states["snapped"].tail, b"newer")
        for name in ("more", "and more"):
            await driver.begin(name, b"m" * 1000)
            await driver.flushed(name)
        go_on.set()
        await backup
    monkeypatch.undo()
    async with opened(mode, restored(tmp_path / "backup", tmp_path / "again")) as again:
        assert await again.contents() == wanted
        assert await again.snapshot("snapped") == b"s" * 1000


async def test_nothing_is_deleted_under_a_backup_and_all_of_it_afterwards(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with opened("file-durable", data, checkpoint_secs=0.05, journal_bytes=1 << 20) as driver:
        await driver.begin("removed", b"r" * 1000)
        await driver.begin("trimmed", b"t" * 300_000)
        await driver.publish("trimmed", 0, b"first snapshot")
        await driver.flushed("removed", "trimmed")
        with reclaim.pinned(str(data)):
            before = contents_of(data, "segments", "snapshots")
            journals = set((data / "journal").glob("*.journal"))
            await driver.remove("removed")
            await driver.publish("trimmed", 300_000, b"second snapshot")
            for number in range(3):
                await driver.begin(f"later {number}", b"x" * 1000)
                await driver.flushed(f"later {number}")
            now = contents_of(data, "segments", "snapshots")
            assert {path: now[path] for path in before} == before
            assert journals <= set((data / "journal").glob("*.journal"))
        await until(lambda: blob_names(data) == named_blobs(driver.states.values()))
        await until(lambda: not journals & set((data / "journal").glob("*.journal")))
        await until(lambda: len(list((data / "segments").rglob("*.seg"))) == 4)
        trimmed = next(path for path in before if b"t" * 1000 in before[path])
        await until(lambda: not trimmed.read_bytes().strip(b"\0"))


@pytest.mark.parametrize("error", [lmdb.Error("busy"), OSError("disk")], ids=["lmdb", "os"])
async def test_acid_goes_on_tidying_after_an_error(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = []

    def fail(shard: acid.AcidShard) -> None:
        looks.append(shard.path)
        raise error

    monkeypatch.setattr(acid, "TIDY_SECS", 0.01)
    monkeypatch.setattr(acid.AcidShard, "forget_dead_readers", fail)
    async with opened("acid", tmp_path / "data"):
        await until(lambda: len(looks) > 1 and looks[-1] == looks[0])
    assert f"cleanup failed: {error}" in caplog.text


async def test_acid_gives_back_by_itself_what_a_backup_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acid, "TIDY_SECS", 0.05)
    data = tmp_path / "data"
    async with opened("acid", data) as driver:
        await driver.begin("snapped", b"covered")
        await driver.publish("snapped", 7, b"first")
        with reclaim.pinned(str(data)):
            await driver.publish("snapped", 7, b"second")
            await until(lambda: len(blob_names(data)) == 2)
        await until(lambda: blob_names(data) == named_blobs(driver.states.values()))


async def test_a_start_under_a_backup_deletes_nothing_that_it_may_need(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with opened("file-durable", data) as driver:
        await driver.begin("removed", b"r" * 1000)
        await driver.begin("kept", b"k" * 1000)
        await driver.publish("kept", 0, b"first")
        await driver.checkpoint()
    with reclaim.pinned(str(data)):
        before = contents_of(data, "segments", "snapshots")
        async with opened("file-durable", data) as driver:
            await driver.remove("removed")
            await driver.publish("kept", 1000, b"second")
            await driver.checkpoint()
        async with opened("file-durable", data, checkpoint_secs=0.05) as again:
            assert {path: path.read_bytes() for path in before} == before
            await again.begin("new", b"n")
            await again.flushed("new")
            assert {path: path.read_bytes() for path in before} == before
            wanted = await again.contents()
    async with opened("file-durable", data) as last:
        assert await last.contents() == wanted
        assert blob_names(data) == named_blobs(last.states.values())
        assert len(list((data / "segments").rglob("*.seg"))) == 2


def contents_of(data: Path, *folders: str) -> dict[Path, bytes]:
    return {p: p.read_bytes() for name in folders for p in (data / name).rglob("*.seg")}


async def test_only_one_backup_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim, "PATIENCE_SECS", 0.05)
    async with opened("file-durable", tmp_path / "data") as driver:
        await driver.begin("a", b"a")
        with reclaim.pinned(str(tmp_path / "data")):
            with pytest.raises(UnusableData, match="another backup"):
                backed_up(tmp_path / "data", tmp_path / "backup")
    with pytest.raises(UnusableData, match="did not finish"):
        restored(tmp_path / "backup", tmp_path / "again")


# -- a base ------------------------------------------------------------------------------------


async def test_files_that_did_not_change_are_shared_with_the_base(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with opened("file-durable", data) as driver:
        await driver.begin("same", b"s" * 1000)
        await driver.begin("grown", b"g" * 1000)
        await driver.checkpoint()
        first = backed_up(data, tmp_path / "first")
        await driver.append("grown", b"more")
        await driver.checkpoint()
        second = backed_up(data, tmp_path / "second", base=first)
        wanted = await driver.contents()
        same, grown = segment_of(driver, "same"), segment_of(driver, "grown")
    assert (first / "data" / same).samefile(second / "data" / same)
    assert not (first / "data" / grown).samefile(second / "data" / grown)
    shutil.rmtree(first)
    async with opened("file-durable", restored(second, tmp_path / "again")) as again:
        assert await again.contents() == wanted


@pytest.mark.parametrize(
    "spoil",
    [lambda path: flip(path, 100), lambda path: cut(path, 50), Path.unlink],
    ids=["flipped", "cut", "lost"],
)
async def test_a_file_that_was_spoiled_in_the_base_is_copied_anew(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    async with opened("file-durable", data) as driver:
        await driver.begin("same", b"s" * 1000)
        await driver.checkpoint()
        wanted = await driver.contents()
        same = segment_of(driver, "same")
    first = backed_up(data, tmp_path / "first")
    spoil(first / "data" / same)
    second = backed_up(data, tmp_path / "second", base=first)
    async with opened("file-durable", restored(second, tmp_path / "again")) as again:
        assert await again.contents() == wanted


async def test_a_base_of_another_history_gives_nothing(tmp_path: Path) -> None:
    """After a restore the same stream may go on differently, with the same lengths."""
    data, other = tmp_path / "data", tmp_path / "other"
    async with opened("file-durable", data) as driver:
        await driver.begin("a", b"start")
    shutil.copytree(data, other)
    for folder, text in ((data, b"one"), (other, b"two")):
        async with opened("file-durable", folder) as driver:
            await driver.append("a", text)
            await driver.checkpoint()
    first = backed_up(other, tmp_path / "first")
    second = backed_up(data, tmp_path / "second", base=first)
    async with opened("file-durable", restored(second, tmp_path / "again")) as again:
        assert await again.contents() == {"a": b"startone"}


# -- damage and refusals -----------------------------------------------------------------------


async def make_backup(tmp_path: Path, mode: str = "file-durable") -> Path:
    async with opened(mode, tmp_path / "data") as driver:
        await write_some(driver)
    return backed_up(tmp_path / "data", tmp_path / "backup")


async def test_damaged_data_makes_no_backup_unless_it_is_wanted(tmp_path: Path) -> None:
    async with opened("file-durable", tmp_path / "data") as driver:
        await write_some(driver)
        path = tmp_path / "data" / segment_of(driver, "old")
    flip(path, 100)
    out = io.StringIO()
    assert back_up(str(tmp_path / "data"), str(tmp_path / "none"), out) == 1
    assert "damaged: stream old" in out.getvalue() and "no backup" in out.getvalue()
    with pytest.raises(UnusableData, match="did not finish"):
        restore(str(tmp_path / "none"), str(tmp_path / "again"), out)
    assert back_up(str(tmp_path / "data"), str(tmp_path / "kept"), out, keep_damaged=True) == 1
    assert restore(str(tmp_path / "kept"), str(tmp_path / "again"), out) == 0
    async with opened("file-durable", tmp_path / "again") as again:
        assert await again.read("new") == b"younglast"
        with pytest.raises(DamagedData):
            await again.read("old")


async def test_a_damaged_journal_is_never_taken_for_its_end(tmp_path: Path) -> None:
    async with opened("file-durable", tmp_path / "data") as driver:
        for number in range(4):
            await driver.begin(f"s{number}", b"x" * 100)
    journals = (tmp_path / "data" / "journal").glob("*.journal")
    spoiled, second = next((path, found[1]) for path in journals if (found := batches(path)))
    flip(spoiled, second[1] - 1)
    (tmp_path / "data" / "journal" / "watermark").unlink()  # as old as a power cut may leave it
    with pytest.raises(DamagedData, match="torn"):
        backed_up(tmp_path / "data", tmp_path / "backup")


def spoil_manifest(backup: Path) -> None:
    path = backup / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"start":0', b'"start":1', 1))


def cut_manifest(backup: Path) -> None:
    lines = (backup / MANIFEST).read_bytes().splitlines(keepends=True)
    (backup / MANIFEST).write_bytes(b"".join(lines[:-1]))


def lose_file(backup: Path) -> None:
    next((backup / "data").rglob("*.seg")).unlink()


def cut_file(backup: Path) -> None:
    path = next((backup / "data").rglob("*.seg"))
    cut(path, path.stat().st_size - 1)


def flip_byte(backup: Path) -> None:
    flip(backup / "data" / "catalog", 20)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda backup: (backup / MANIFEST).unlink(), "did not finish"),
        (lambda backup: cut(backup / MANIFEST, 0), "empty"),
        (cut_manifest, "truncated"),
        (spoil_manifest, "checksum"),
        (lose_file, "missing"),
        (cut_file, "bytes, expected"),
        (flip_byte, "checksum mismatch"),
    ],
    ids=["no manifest", "empty manifest", "cut", "changed", "lost file", "cut file", "flipped"],
)
async def test_a_backup_that_is_not_whole_is_refused_and_leaves_nothing(
    spoil: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    backup = await make_backup(tmp_path)
    spoil(backup)
    with pytest.raises(UnusableData, match=reason):
        restore(str(backup), str(tmp_path / "again"), io.StringIO())
    again = tmp_path / "again"
    assert not again.exists() or set(os.listdir(again)) <= {"lock"}


@pytest.mark.parametrize(
    "spoil",
    [lambda path: flip(path, 100), lambda path: cut(path, 50), Path.unlink],
    ids=["flipped", "cut", "lost"],
)
async def test_whoever_keeps_the_damaged_gets_all_other_streams_back(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    async with opened("file-durable", tmp_path / "data") as driver:
        await write_some(driver)
        wanted = await driver.contents()
        path = segment_of(driver, "old")
    backup = backed_up(tmp_path / "data", tmp_path / "backup")
    spoil(backup / "data" / path)
    out = io.StringIO()
    assert restore(str(backup), str(tmp_path / "again"), out, keep_damaged=True) == 1
    assert path in out.getvalue() and "damaged: stream old" in out.getvalue()
    async with opened("file-durable", tmp_path / "again") as again:
        with pytest.raises(DamagedData):
            await again.read("old")
        del wanted["old"]
        assert {name: await again.read(name) for name in wanted} == wanted
        assert await again.snapshot("snapped") == b"s" * 1000


@pytest.mark.parametrize("mode", DISK_MODES)
async def test_a_damaged_snapshot_costs_that_snapshot_only(mode: str, tmp_path: Path) -> None:
    backup = await make_backup(tmp_path, mode)
    flip(next((backup / "data" / "snapshots").rglob("*.seg")), 100)
    out = io.StringIO()
    assert restore(str(backup), str(tmp_path / "again"), out, keep_damaged=True) == 1
    assert "damaged: stream snapped" in out.getvalue() and "1 damaged" in out.getvalue()
    async with opened(mode, tmp_path / "again") as again:
        assert await again.read("new") == b"younglast"
        with pytest.raises(DamagedData):
            await again.snapshot("snapped")


@pytest.mark.parametrize(
    ("mode", "shared"),
    [("file-durable", "catalog"), ("file-durable", "*.journal"), ("acid", "data.mdb")],
)
async def test_what_all_streams_share_must_be_whole_in_any_case(
    mode: str, shared: str, tmp_path: Path
) -> None:
    """A start would take the damaged end of a journal for the end of what was written."""
    backup = await make_backup(tmp_path, mode)
    noted = read_manifest(str(backup)).copies.values()
    copy = max((c for c in noted if fnmatch(os.path.basename(c.path), shared)), key=lambda c: c.end)
    flip(backup / "data" / copy.path, copy.end - 1)
    with pytest.raises(DamagedData, match="checksum mismatch"):
        restore(str(backup), str(tmp_path / "again"), io.StringIO(), keep_damaged=True)
    assert set(os.listdir(tmp_path / "again")) <= {"lock"}


async def test_a_file_that_the_disk_cannot_read_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = await make_backup(tmp_path)
    bad = next((backup / "data" / "segments").rglob("*.seg")).stat().st_ino
    pread = os.pread

    def bad_sector(fd: int, count: int, at: int) -> bytes:
        if os.fstat(fd).st_ino == bad:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, count, at)

    monkeypatch.setattr(os, "pread", bad_sector)
    with pytest.raises(DamagedData, match="Input/output error"):
        restore(str(backup), str(tmp_path / "refused"), io.StringIO())
    out = io.StringIO()
    assert restore(str(backup), str(tmp_path / "again"), out, keep_damaged=True) == 1
    assert "1 damaged: " in out.getvalue()


async def test_a_manifest_cannot_lead_out_of_the_backup(tmp_path: Path) -> None:
    backup = await make_backup(tmp_path)
    manifest = read_manifest(str(backup))
    for path in ("../outside", "/tmp/outside", "segments/../../outside"):
        copy = next(iter(manifest.copies.values()))
        manifest.copies = {path: Copy(path, copy.size, copy.start, copy.end, copy.crc)}
        write_manifest(str(backup), manifest)
        with pytest.raises(UnusableData, match="points outside"):
            restore(str(backup), str(tmp_path / "again"), io.StringIO())


async def test_nothing_is_written_into_a_folder_that_is_in_use(tmp_path: Path) -> None:
    backup = await make_backup(tmp_path)
    used = tmp_path / "used"
    used.mkdir()
    (used / "letter").write_text("dear")
    data = tmp_path / "data"
    for work, source, target in (
        (restore, backup, used),
        (restore, backup, data),
        (back_up, data, used),
        (back_up, data, backup),
    ):
        with pytest.raises(UnusableData, match="not empty"):
            work(str(source), str(target), io.StringIO())
    assert os.listdir(used) == ["letter"]


@pytest.mark.parametrize("mode", DISK_MODES)
async def test_a_restore_that_was_killed_is_no_data_directory(mode: str, tmp_path: Path) -> None:
    backup = await make_backup(tmp_path, mode)
    again = restored(backup, tmp_path / "again")
    (again / RESTORING).touch()
    with pytest.raises(UnusableData, match="did not finish"):
        async with opened(mode, again):
            pass
    with pytest.raises(UnusableData, match="did not finish"):
        inspect.fsck(str(again), io.StringIO())
    with pytest.raises(UnusableData, match="did not finish"):
        backed_up(again, tmp_path / "of it")


def test_a_folder_without_data_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(UnusableData, match="not a data directory"):
        backed_up(tmp_path, tmp_path / "backup")


# -- a journal that is written while it is read --------------------------------------------------

SALT = 7


class Watched(_JournalCopy):
    """A journal file that shows something else at each look."""

    def __init__(self, number: int, *looks: bytes) -> None:
        self.number, self.path = number, f"{number}.journal"
        self.head = JournalHead(True, SALT, number, 4096)
        self.taken = 64
        self._looks = [encode_journal_head(self.head) + look for look in looks]
        self.look()

    def look(self) -> None:
        self.data = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]


def batch(number: int) -> bytes:
    return b"".join(encode_batch([b"x" * 10], number, SALT))


TORN = batch(2)[:-3] + b"\0\0\0"


def test_a_batch_that_was_under_way_is_taken_when_a_later_one_is_seen() -> None:
    file = Watched(1, batch(1) + TORN + batch(3), batch(1) + batch(2) + batch(3))
    _take_batches([file], 1)
    assert file.data[64 : file.taken] == batch(1) + batch(2) + batch(3)


def test_a_batch_that_was_under_way_is_found_by_one_in_the_next_file() -> None:
    first = Watched(1, batch(1) + TORN, batch(1) + batch(2))
    second = Watched(2, batch(3), batch(3) + batch(4))
    _take_batches([first, second], 1)
    assert (first.taken, second.taken) == (64 + 2 * len(batch(1)), 64 + 2 * len(batch(1)))


def test_the_last_batch_may_be_under_way() -> None:
    file = Watched(1, batch(1) + TORN)
    _take_batches([file, Watched(2, b"")], 1)
    assert file.taken == 64 + len(batch(1))


def test_a_batch_that_stays_torn_before_a_later_one_is_damage() -> None:
    with pytest.raises(DamagedData, match="batch 2 is torn"):
        _take_batches([Watched(1, batch(1) + TORN + batch(3))], 1)
