"""A storage as the service uses it, in short verbs: judge nothing, stage records, await `done`."""

import asyncio
import itertools
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from origin.config import ClusterConfig, ColdConfig
from origin.storage.acid import AcidStorage
from origin.storage.base import Storage
from origin.storage.blobs import Blobs
from origin.storage.cluster.clusterstore import ClusterStorage, room_for
from origin.storage.cluster.depot import Depot
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.jetstream import JetStream
from origin.storage.cluster.journal import Journal
from origin.storage.cluster.objects import open_objects
from origin.storage.files import Files
from origin.storage.filestore import FileStorage
from origin.storage.format import (
    BATCH_HEADER,
    JOURNAL_HEADER_BYTES,
    decode_batch,
    decode_journal_head,
)
from origin.storage.memory import MemoryStorage
from protocol.stream import (
    Appended,
    Created,
    Fork,
    Record,
    Removed,
    Snapshot,
    Snapshotted,
    StreamState,
    Trimmed,
    apply,
    begin,
)
from tests.helpers.nats import cluster_name, shared_nats

FILE_MODES = ["file-fast", "file-durable"]
DISK_MODES = [*FILE_MODES, "acid"]
MODES = ["memory", *DISK_MODES, "cluster"]
REOPENED_MODES = [*DISK_MODES, "cluster"]
FLUSHING_MODES = [*FILE_MODES, "cluster"]
NEVER_SECS = 3600.0

_ids = itertools.count(0x0123_4567_89AB_0001)


def make_storage(
    mode: str,
    data_dir: Path,
    *,
    journal_bytes: int = 64 * 1024,
    journal_files: int = 4,
    checkpoint_secs: float = NEVER_SECS,
    files: Files | None = None,
) -> Storage:
    if mode == "memory":
        return MemoryStorage()
    if mode == "cluster":
        return ShardOnDisk(data_dir, journal_bytes, checkpoint_secs)
    data_dir.mkdir(parents=True, exist_ok=True)
    if mode == "acid":
        return AcidStorage(str(data_dir), shards=2, map_bytes=1 << 26)
    return FileStorage(
        str(data_dir),
        synced=mode == "file-durable",
        journal_bytes=journal_bytes,
        journal_files=journal_files,
        checkpoint_s=checkpoint_secs,
        files=files,
    )


class ShardOnDisk(ClusterStorage):
    """A shard whose objects are in a folder and whose journal is in the shared NATS server. Each
    opening is a new epoch, as if another node had taken over."""

    _epochs: Counter[Path] = Counter()

    def __init__(self, data_dir: Path, journal_bytes: int, flush_secs: float) -> None:
        self._epochs[data_dir] += 1
        self._data_dir = data_dir
        self._cluster = ClusterConfig(
            name=cluster_name(data_dir),
            replicas=1,
            journal_bytes=journal_bytes,
            flush_bytes=journal_bytes // 2,
            flush_secs=flush_secs,
        )

    async def recover(self) -> list[StreamState]:
        name, epoch = self._cluster.name, self._epochs[self._data_dir]
        self._jetstream = await JetStream.connect(shared_nats().urls)
        cold = ColdConfig(backend="fs", fs_path=str(self._data_dir))
        objects = open_objects(cold, {})
        cache = DiskCache(str(self._data_dir / "cache"), cold.cache_bytes)
        if epoch == 1:
            founded = Journal(self._jetstream, name, 0, epoch=0)
            await founded.found(replicas=1, max_bytes=room_for(self._cluster))
        super().__init__(
            Journal(self._jetstream, name, 0, epoch=epoch),
            Depot(objects, cache, name, 0, epoch),
            self._cluster,
            "n1",
            lambda error: None,
        )
        try:
            return await super().recover()
        except BaseException:
            await self._jetstream.close()
            raise

    async def close(self) -> None:
        await super().close()
        await self._jetstream.close()


class Driver:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.states: dict[str, StreamState] = {}

    async def recover(self) -> "Driver":
        self.states = {state.name: state for state in await self.storage.recover()}
        return self

    def stage(self, state: StreamState, *records: Record) -> "asyncio.Future[None]":
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if error is None:
                landed.set_result(None)
            else:
                landed.set_exception(error)

        size = sum(len(r.data) for r in records if isinstance(r, Appended))
        assert self.storage.admits(size, urgent=True), "the journal has no room for this test"
        self.storage.stage(state, records, done)
        return landed

    def barrier(self) -> "asyncio.Future[None]":
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.storage.barrier(
            lambda error: landed.set_exception(error) if error else landed.set_result(None)
        )
        return landed

    def begin(
        self,
        name: str,
        data: bytes = b"",
        *,
        content_type: str = "text/plain",
        fork: Fork | None = None,
    ) -> "asyncio.Future[None]":
        """Stage a creation, with first bytes in the same unit."""
        record = Created(next(_ids), name, content_type, 1000, None, None, fork, False)
        state = self.states[name] = begin(record)
        if not data:
            return self.stage(state, record)
        first = Appended(state.id, state.tail, data, 1000)
        apply(state, first)
        return self.stage(state, record, first)

    def append(
        self,
        name: str,
        data: bytes,
        *,
        producer: tuple[str, int, int] | None = None,
        seq: str | None = None,
        close: bool = False,
    ) -> "asyncio.Future[None]":
        state = self.states[name]
        record = Appended(state.id, state.tail, data, 2000, producer, seq, close)
        apply(state, record)
        return self.stage(state, record)

    async def append_when_admitted(self, name: str, data: bytes) -> None:
        while not self.storage.admits(len(data) + 200):
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.storage.when_room(lambda room=room: room.set_result(None))  # type: ignore[misc]
            await room
        await self.append(name, data)

    def remove(self, name: str) -> "asyncio.Future[None]":
        state = self.states.pop(name)
        record = Removed(state.id)
        apply(state, record)
        return self.stage(state, record)

    def trim(self, name: str, floor: int) -> "asyncio.Future[None]":
        state = self.states[name]
        record = Trimmed(state.id, floor)
        apply(state, record)
        return self.stage(state, record)

    async def publish(self, name: str, offset: int, data: bytes) -> None:
        """The blob first, then one unit that names it and lets go of what it covers."""
        blob = next(_ids)
        size = await self.storage.write_blob(blob, data)
        state, replaced = self.states[name], self.states[name].snapshot
        named = Snapshotted(state.id, Snapshot(offset, "text/plain", len(data), blob, size))
        records = named, Trimmed(state.id, offset)
        for record in records:
            apply(state, record)
        await self.stage(state, *records)
        if replaced is not None:
            self.storage.drop_blob(replaced.blob)

    async def snapshot(self, name: str) -> bytes:
        """All bytes of the latest one."""
        found = self.states[name].snapshot
        assert found is not None
        return await self.storage.read_blob(found.blob, found.blob_bytes, 0, found.size_bytes)

    async def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        state = self.states[name]
        return await self.storage.read(
            state.id,
            first_kept(state) if start is None else start,
            state.tail if end is None else end,
        )

    async def contents(self) -> dict[str, bytes]:
        return {name: await self.read(name) for name in self.states}

    async def flushed(self, *names: str) -> None:
        """Wait until checkpoints have moved these streams out of memory."""
        for name in names:
            state = self.states[name]
            await until(
                lambda s=state: self.storage.read_now(s.id, first_kept(s), s.tail) is None  # type: ignore[misc]
            )

    async def checkpoint(self) -> None:
        """Move everything out of the journal, now, and wait until nothing is left to give back."""
        store = self.storage
        if isinstance(store, FileStorage):
            await begin_checkpoint(store)
            await until(lambda: not store.checkpoints.is_running)
        elif isinstance(store, ClusterStorage):
            await store.flushes.flushed()


async def begin_checkpoint(store: FileStorage) -> None:
    checkpoints, files = store.checkpoints, store.journal_files
    await until(lambda: not checkpoints.is_running and files.spare is not None)
    checkpoints.want()
    assert checkpoints.is_running


def blobs_of(storage: Storage) -> Blobs:
    if isinstance(storage, FileStorage):
        return storage.folder.blobs
    assert isinstance(storage, AcidStorage)
    return storage.blobs


def first_kept(state: StreamState) -> int:
    return max(state.base, state.floor)


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait for something that happens in another thread or process."""
    deadline = time.monotonic() + timeout_s
    for _ in itertools.repeat(None):
        if condition():
            return
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def opened(
    mode: str,
    data_dir: Path,
    *,
    journal_bytes: int = 64 * 1024,
    journal_files: int = 4,
    checkpoint_secs: float = NEVER_SECS,
    files: Files | None = None,
) -> AsyncIterator[Driver]:
    storage = make_storage(
        mode,
        data_dir,
        journal_bytes=journal_bytes,
        journal_files=journal_files,
        checkpoint_secs=checkpoint_secs,
        files=files,
    )
    driver = await Driver(storage).recover()
    try:
        yield driver
    finally:
        await storage.close()


def copy_as_killed(data_dir: Path, target: Path) -> Path:
    """What SIGKILL would leave: the files as they are now, under a running storage.

    SIGKILL is one moment and copying is not. So the watermark comes first (an older one is as
    good), and the copy counts only if no checkpoint moved files meanwhile.
    """
    watermark = data_dir / "journal" / "watermark"
    for _ in range(100):
        shutil.rmtree(target, ignore_errors=True)
        before = _moment(data_dir)
        mark = watermark.read_bytes() if watermark.exists() else b""
        try:
            shutil.copytree(data_dir, target)
        except shutil.Error:  # a file went away under the copy
            continue
        if mark:
            (target / "journal" / "watermark").write_bytes(mark)
        if _moment(data_dir) == before:
            return target
    raise AssertionError("the storage never stood still")


def _moment(data_dir: Path) -> tuple[list[Path], int]:
    """What a checkpoint changes: which files there are, and the length of the catalog."""
    catalog = data_dir / "catalog"
    return sorted(data_dir.rglob("*")), catalog.stat().st_size if catalog.exists() else 0


def blob_names(data_dir: Path) -> set[str]:
    """The snapshots' files that are there."""
    return {path.name for path in (data_dir / "snapshots").rglob("*") if path.is_file()}


def named_blobs(states: Iterable[StreamState]) -> set[str]:
    """The files that states name."""
    return {f"{state.snapshot.blob:016x}.seg" for state in states if state.snapshot is not None}


def segment_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.seg"))


def database_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("data.mdb"))


def batches(path: Path) -> list[tuple[int, int]]:
    """(start, end) of every batch of a journal file."""
    data = path.read_bytes()
    salt = decode_journal_head(data).salt
    found, position = [], JOURNAL_HEADER_BYTES
    while (batch := decode_batch(data, position, salt)) is not None:
        end = position + BATCH_HEADER.size + len(batch[1])
        found.append((position, end))
        position = end
    return found


def has_batches(data_dir: Path) -> bool:
    """False when a finished checkpoint has retired every journal file that was written to."""
    for path in (data_dir / "journal").glob("*.journal"):
        with suppress(FileNotFoundError):  # retired while we look
            if batches(path):
                return True
    return False
