"""Publications that meet readers, forks, deletions and full disks at the worst moment."""

import asyncio
import errno
from pathlib import Path

import pytest
from crc32c import crc32c

from origin.storage.acid import AcidStorage
from origin.storage.base import StorageFailed, StorageFull
from origin.storage.blobs import Blobs
from tests.crash.rig import rigged
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.origin.storage.driver import blob_names, named_blobs, until

MODES = ["memory", "file-durable", "acid"]


async def test_reader_after_a_publication_gets_no_older_answer(tmp_path: Path) -> None:
    """Somebody else's read of the same bytes was under way when they were covered."""
    async with rigged("memory", tmp_path) as rig:
        await rig.create("a", b"x" * 3000)
        read, gate = rig.storage.read, asyncio.Event()

        async def read_late(stream_id: int, start: int, end: int) -> bytes:
            data = await read(stream_id, start, end)
            await gate.wait()
            return data

        rig.storage.read = read_late  # type: ignore[method-assign]
        before = asyncio.ensure_future(rig.read("a", 0))
        await asyncio.sleep(0)
        assert (await rig.publish("a", 3000, b"all of it")).status == 204
        after = asyncio.ensure_future(rig.read("a", 0))
        await asyncio.sleep(0)
        gate.set()
        assert (await before).status in (200, 410)
        assert (await after).status == 410


async def test_fork_that_finds_no_room_leaves_no_copy(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with rigged("file-durable", tmp_path, files=files, journal_bytes=8192) as rig:
        await rig.create("a", b"12345678")
        assert (await rig.publish("a", 8, b"all eight")).status == 204
        named = named_blobs([rig.stream("a").state])
        files.faults = [Fault("create", ".journal", errno.ENOSPC)]
        while (await rig.append("a", b"x")).status == 204:
            pass
        with pytest.raises(StorageFull):
            await rig.create("fork", b"x", source="a")
        await until(lambda: blob_names(tmp_path) == named)


async def test_stream_never_outlives_a_bucket_that_was_not_yet_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in different shards, and the process dies between the commits of the two."""
    async with rigged("acid", tmp_path) as rig:
        store = rig.storage
        assert isinstance(store, AcidStorage)
        await rig.create("/ds/away")  # so that the two below wait for the same batch
        names = ("/ds/buck", *(f"/ds/buck/s{number}" for number in range(9)))
        shards = {name: store._shards[crc32c(name.encode()) & 1] for name in names}
        other = next(name for name in names if shards[name] is not shards["/ds/buck"])
        monkeypatch.setattr(shards["/ds/buck"], "write", _die)
        asked = [asyncio.ensure_future(rig.create(name)) for name in ("/ds/buck", other)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(results[0], StorageFailed)
    async with rigged("acid", tmp_path) as rig:
        assert (await rig.read("/ds/buck", 0)).status == 404
        assert (await rig.read(other, 0)).status == 404


def _die(*_: object) -> None:
    raise OSError("killed here")


@pytest.mark.parametrize("slow", ["read_blob", "write_blob"])
@pytest.mark.parametrize("mode", MODES)
async def test_fork_made_while_its_source_is_snapshotted(
    tmp_path: Path, mode: str, slow: str
) -> None:
    """The copy of the older snapshot takes its time: the fork still gets all that belongs to it."""
    async with rigged(mode, tmp_path) as rig:
        await rig.create("a", b"0123")
        await rig.append("a", b"4567")
        await rig.append("a", b"89ab")
        await rig.publish("a", 4, b"up to 4")
        work, come, gate = getattr(rig.storage, slow), asyncio.Event(), asyncio.Event()

        async def work_late(*arguments: object) -> object:
            come.set()
            await gate.wait()
            return await work(*arguments)

        setattr(rig.storage, slow, work_late)
        forking = asyncio.ensure_future(rig.create("fork", source="a", offset=8))
        await come.wait()
        setattr(rig.storage, slow, work)
        assert (await rig.publish("a", 12, b"up to 12")).status == 204
        gate.set()
        assert (await forking).status == 201
        assert await rig.bootstrap("fork") == (b"up to 4", b"4567")
        assert await rig.bootstrap("a") == (b"up to 12", b"")
        assert rig.stream("a").state.floor == 4
        assert (await rig.shard.lifetimes.delete("fork")).status == 204
        await until(lambda: rig.stream("a").state.floor == 12)
        if mode != "memory":
            named = named_blobs([rig.stream("a").state])
            await until(lambda: blob_names(tmp_path) == named)


@pytest.mark.parametrize("offset", [4, 8, 12, None])
async def test_fork_asked_for_while_a_publication_is_on_its_way_to_disk(
    tmp_path: Path, offset: int | None
) -> None:
    """It meets the new snapshot, because nothing below that will be kept for it."""
    files = FaultyFiles()
    live = tmp_path / "live"
    async with rigged("file-durable", live, files=files) as rig:
        await rig.create("a", b"0123")
        await rig.append("a", b"4567")
        await rig.append("a", b"89ab")
        await rig.publish("a", 4, b"up to 4")
        with files.hold_syncs(".journal$"):
            publishing = asyncio.ensure_future(rig.publish("a", 8, b"up to 8"))
            assert await asyncio.to_thread(files.arrived.wait, 60)
            forking = asyncio.ensure_future(rig.create("fork", source="a", offset=offset))
            await asyncio.sleep(0)
        assert (await publishing).status == 204
        assert (await forking).status == (410 if offset == 4 else 201)
    async with rigged("file-durable", live) as rig:
        assert await rig.bootstrap("a") == (b"up to 8", b"89ab")
        if offset != 4:
            rest = b"0123456789ab"[8:offset]
            assert await rig.bootstrap("fork") == (b"up to 8", rest)


@pytest.mark.parametrize("mode", ["file-durable", "acid"])
async def test_publisher_who_leaves_changes_nothing_or_publishes(tmp_path: Path, mode: str) -> None:
    """Cut off after any number of steps."""
    async with rigged(mode, tmp_path) as rig:
        await rig.create("a", b"0123")
        for steps in range(40):
            before = rig.stream("a").snapshot
            publishing = asyncio.ensure_future(rig.publish("a", 4, str(steps).encode()))
            for _ in range(steps):
                await asyncio.sleep(0 if steps % 2 else 0.0005)
            publishing.cancel()
            await asyncio.wait({publishing})
            await rig.shard.staging.decided()
            latest = rig.stream("a").snapshot
            assert latest == before or (await rig.bootstrap("a"))[0] == str(steps).encode()
            assert latest == rig.stream("a").state.snapshot
            assert publishing.cancelled() or latest != before
        named = named_blobs([rig.stream("a").state])
        await until(lambda: blob_names(tmp_path) == named)


@pytest.mark.parametrize("mode", ["file-fast", "file-durable", "acid"])
async def test_slow_disk_under_snapshots_holds_up_nobody_else(tmp_path: Path, mode: str) -> None:
    """Many are being written: appends, reads and new journal files do not wait for them."""
    files = FaultyFiles()
    async with rigged(mode, tmp_path, files=files, journal_bytes=8192) as rig:
        if isinstance(rig.storage, AcidStorage):
            rig.storage.blobs = Blobs(str(tmp_path / "snapshots"), files)
        await rig.create("a", b"0123")
        with files.hold_syncs("snapshots/"):
            publications = [
                asyncio.ensure_future(rig.publish("a", 4, b"up to 4")) for _ in range(20)
            ]
            assert await asyncio.to_thread(files.arrived.wait, 60)
            async with asyncio.timeout(60):
                for number in range(20):
                    assert (await rig.append("a", bytes([65 + number]) * 1000)).status == 204
                    assert (await rig.read("a", 4)).status == 200
            assert not any(publication.done() for publication in publications)
        assert {reply.status for reply in await asyncio.gather(*publications)} == {204}
