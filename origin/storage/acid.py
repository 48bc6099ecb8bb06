"""`acid`: LMDB in shards. A unit is one transaction of one shard, durable when it commits.

Routing is a fixed hash of the stream's name, and the manifest stores the shard count, so that data
is never looked up in the wrong shard. Rows have a checksum, because LMDB does not verify reads.

  streams  id                -> crc, state
  data     id, start position -> crc, bytes of one append

Rows below a stream's floor are deleted in slices: appends wait for the transaction of each.
"""

import asyncio
import logging
import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import lmdb
import msgspec
from crc32c import crc32c

from origin.storage.base import (
    BelowFloor,
    DamagedData,
    Done,
    StorageFailed,
    UnknownStream,
    UnusableData,
)
from origin.storage.blobs import BLOB_THREADS, Blobs, write_blob
from origin.storage.commit import Batch, GroupCommit, ThreadWriter, Unit
from origin.storage.files import Files, lock_directory
from origin.storage.format import decode_state, encode_state
from origin.storage.reclaim import Reclaimer
from protocol.stream import Appended, Record, Removed, StreamState, Trimmed

T = TypeVar("T")

log = logging.getLogger("weir.storage")

_CRC = struct.Struct("<I")
_ID = struct.Struct(">Q")
_KEY = struct.Struct(">QQ")
SLICE_ROWS = 1000
TIDY_SECS = 30.0


def _sealed(data: bytes) -> bytes:
    return _CRC.pack(crc32c(data)) + data


class AcidShard:
    """One LMDB environment and its two tables."""

    def __init__(self, path: str, map_bytes: int | None) -> None:
        """Without a size the shard is opened read-only."""
        self.path = path
        if map_bytes is None:
            self.env = lmdb.open(path, max_dbs=2, readonly=True)
        else:
            self.env = lmdb.open(path, map_size=map_bytes, max_dbs=2, max_readers=64)
        self.streams = self.env.open_db(b"streams")
        self.data = self.env.open_db(b"data")

    def write(self, units: list[Unit], states: dict[int, bytes]) -> None:
        with self.env.begin(write=True) as txn:
            for unit in units:
                for record in unit.records:
                    self._put(txn, record)
            for stream_id, state in states.items():
                txn.put(_ID.pack(stream_id), _sealed(state), db=self.streams)
            for unit in units:
                for record in unit.records:
                    if type(record) is Removed:
                        txn.delete(_ID.pack(record.id), db=self.streams)

    def _put(self, txn: lmdb.Transaction, record: Record) -> None:
        if type(record) is Appended and record.data:
            key = _KEY.pack(record.id, record.start)
            txn.put(key, _sealed(record.data), db=self.data, append=False)
        elif type(record) is Removed:
            prefix = _ID.pack(record.id)
            with txn.cursor(db=self.data) as cursor:
                found = cursor.set_range(prefix)
                while found and bytes(cursor.key()).startswith(prefix):
                    found = cursor.delete()

    def states(self) -> list[StreamState]:
        with self.env.begin() as txn, txn.cursor(db=self.streams) as cursor:
            return [decode_state(self._opened(bytes(k), v)) for k, v in cursor]

    def remove_below(self, stream_id: int, floor: int) -> bool:
        """Delete some rows that end at or below the floor; returns whether there may be more."""
        with self.env.begin(write=True) as txn, txn.cursor(db=self.data) as cursor:
            cursor.set_range(_ID.pack(stream_id))
            for _ in range(SLICE_ROWS):
                if not (key := cursor.key()):  # past the last row
                    return False
                owner, position = _KEY.unpack(key)
                size = len(cursor.value()) - _CRC.size
                if owner != stream_id or position + size > floor:
                    return False
                cursor.delete()
        return True

    def read(self, stream_id: int, start: int, end: int) -> bytes:
        return b"".join(self.parts(stream_id, start, end))

    def parts(self, stream_id: int, start: int, end: int) -> list[bytes]:
        """The bytes of a range, one piece for each append."""
        parts: list[bytes] = []
        with self.env.begin(buffers=True) as txn, txn.cursor(db=self.data) as cursor:
            self._seek(cursor, stream_id, start)
            for key, value in cursor:
                owner, position = _KEY.unpack(key)
                if owner != stream_id or position >= end:
                    break
                data = self._opened(bytes(key), value)
                parts.append(data[max(0, start - position) : end - position])
            found = sum(map(len, parts))
            if found == end - start:
                return parts
            if txn.get(_ID.pack(stream_id), db=self.streams) is None:
                raise UnknownStream(stream_id)  # removed, but not published yet
        path = os.path.join(self.path, "data.mdb")
        raise DamagedData(path, 0, f"{found} bytes at {start}, expected {end - start}")

    def appends(self, stream_id: int) -> Iterator[tuple[int, bytes]]:
        """(position, bytes) of each append in order."""
        with self.env.begin() as txn, txn.cursor(db=self.data) as cursor:
            found = cursor.set_range(_ID.pack(stream_id))
            while found and (key := bytes(cursor.key())).startswith(_ID.pack(stream_id)):
                yield _KEY.unpack(key)[1], self._opened(key, cursor.value())
                found = cursor.next()

    def boundary(self, stream_id: int, at_or_after: int) -> int:
        with self.env.begin() as txn, txn.cursor(db=self.data) as cursor:
            if cursor.set_range(_KEY.pack(stream_id, at_or_after)):
                owner, position = _KEY.unpack(cursor.key())
                if owner == stream_id:
                    return int(position)
                moved = cursor.prev()
            else:
                moved = cursor.last()
            if moved:
                owner, position = _KEY.unpack(cursor.key())
                if owner == stream_id:
                    end = int(position) + len(cursor.value()) - _CRC.size
                    return max(end, at_or_after)
        return at_or_after

    def forget_dead_readers(self) -> None:
        """Dead readers prevent pages from being reused."""
        self.env.reader_check()

    def _seek(self, cursor: lmdb.Cursor, stream_id: int, start: int) -> None:
        """To the row that contains `start`, which may begin before it."""
        if cursor.set_range(_KEY.pack(stream_id, start)):
            if _KEY.unpack(cursor.key()) == (stream_id, start):
                return
            cursor.prev()
        else:
            cursor.last()

    def _opened(self, key: bytes, value: bytes | memoryview) -> bytes:
        body = bytes(value[_CRC.size :])
        if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != crc32c(body):
            raise DamagedData(os.path.join(self.path, "data.mdb"), 0, f"row {key.hex()} checksum")
        return body


class AcidStorage:
    def __init__(self, data_dir: str, *, shards: int, map_bytes: int) -> None:
        self._data_dir = data_dir
        self._folder = os.path.join(data_dir, "acid")
        self._count = shards
        self._map_bytes = map_bytes
        self._shards: list[AcidShard] = []
        self._names: dict[int, AcidShard] = {}
        self._floors: dict[int, int] = {}
        self._trimming: set[asyncio.Task[None]] = set()
        self._closing = False
        self.blobs = Blobs(os.path.join(data_dir, "snapshots"), Files())
        self._reclaimer = Reclaimer(data_dir)
        self._workers = ThreadPoolExecutor(min(shards, 8), thread_name_prefix="weir-acid")
        self._blob_workers = ThreadPoolExecutor(BLOB_THREADS, thread_name_prefix="weir-blob")
        self._lock_fd = -1

    async def recover(self) -> list[StreamState]:
        self._loop = asyncio.get_running_loop()
        os.makedirs(self._folder, exist_ok=True)
        self._lock_fd = lock_directory(self._data_dir)
        states = await self._loop.run_in_executor(self._workers, self._open)
        self._commit = GroupCommit(
            seal=self._seal,
            writer=ThreadWriter(self._write, "weir-acid"),
            publish=self._publish,
        )
        for state in states:
            if state.floor:
                self._trim(state.id, state.floor)
        self._tidier = self._loop.create_task(self._tidy(), name="acid tidying")
        return states

    async def _tidy(self) -> None:
        """Clean up what a backup held back, or left behind when it was killed."""
        while True:
            await asyncio.sleep(TIDY_SECS)
            try:
                await self._loop.run_in_executor(self._blob_workers, self._reclaimer.settle)
                for shard in self._shards:
                    shard.forget_dead_readers()
            except (lmdb.Error, OSError) as error:  # tried again next time
                log.error("cleanup failed: %s", error)

    def _open(self) -> list[StreamState]:
        self._check_manifest()
        found: list[StreamState] = []
        for number in range(self._count):
            path = os.path.join(self._folder, f"shard-{number:03d}")
            shard = _open_shard(path, self._map_bytes)
            states = shard.states()
            self._shards.append(shard)
            self._names.update((state.id, shard) for state in states)
            found += states
        named = {state.snapshot.blob for state in found if state.snapshot}
        leftovers = self.blobs.leftovers(named)
        self._reclaimer.do(*(partial(self.blobs.remove, blob) for blob in leftovers))
        return found

    def _check_manifest(self) -> None:
        path = os.path.join(self._folder, "manifest.json")
        wanted = {"format": 1, "shards": self._count, "routing": "crc32c"}
        if not os.path.exists(path):
            with open(path + ".new", "wb") as file:
                file.write(msgspec.json.encode(wanted))
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".new", path)
            Files().sync_dir(self._folder)
            return
        with open(path, "rb") as file:
            data = file.read()
        try:
            found = msgspec.json.decode(data, type=dict[str, object])
        except ValueError as error:
            raise DamagedData(path, 0, f"not a manifest: {error}") from None
        if found != wanted:
            raise UnusableData(
                f"{path}: has {found.get('shards')} shards, but {self._count} are configured"
            )

    @property
    def failure(self) -> str | None:
        return None if self._commit.failure is None else str(self._commit.failure)

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        if self._commit.failure is not None:
            raise StorageFailed(str(self._commit.failure))
        return True

    def when_room(self, retry: Callable[[], None]) -> None:
        raise AssertionError("acid always admits")

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        if state.id not in self._names:
            shard = crc32c(state.name.encode()) & (self._count - 1)
            self._names[state.id] = self._shards[shard]
        self._commit.add(Unit(state, records, [], 0, done))

    def barrier(self, done: Done) -> None:
        self._commit.barrier(done)

    def _seal(self, pending: list[Unit], size_bytes: int) -> Batch:
        """States are encoded here, on the loop, where they match this batch exactly."""
        work: dict[AcidShard, tuple[list[Unit], dict[int, bytes]]] = {}
        for unit in pending:
            units, states = work.setdefault(self._names[unit.state.id], ([], {}))
            units.append(unit)
            if unit.state.id not in states:
                states[unit.state.id] = encode_state(unit.state)
        return Batch(pending, size_bytes, work)

    def _write(self, batch: Batch) -> None:
        assert isinstance(batch.where, dict)
        jobs = [
            self._workers.submit(shard.write, units, states)
            for shard, (units, states) in batch.where.items()
        ]
        for error in [job.exception() for job in jobs]:
            if error is not None:
                raise error

    def _publish(self, batch: Batch) -> None:
        for unit in batch.units:
            for record in unit.records:
                if type(record) is Trimmed:
                    self._trim(record.id, record.floor)
                elif type(record) is Removed:
                    del self._names[record.id]
                    self._floors.pop(record.id, None)

    def _trim(self, stream_id: int, floor: int) -> None:
        self._floors[stream_id] = floor
        task = self._loop.create_task(self._remove_below(stream_id, floor))
        self._trimming.add(task)
        task.add_done_callback(self._trimming.discard)

    async def _remove_below(self, stream_id: int, floor: int) -> None:
        """Rows left by an error or a stop are deleted after the next start."""
        try:
            while not self._closing and (shard := self._names.get(stream_id)) is not None:
                if not await self._loop.run_in_executor(
                    self._workers, shard.remove_below, stream_id, floor
                ):
                    return
        except lmdb.Error as error:
            log.warning("could not delete rows below a snapshot: %s", error)

    def read_now(self, stream_id: int, start: int, end: int) -> bytes | None:
        return b"" if start >= end else None

    async def read(self, stream_id: int, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        return await self._look(stream_id, start, lambda shard: shard.read(stream_id, start, end))

    async def parts(self, stream_id: int, start: int, end: int) -> list[bytes]:
        if start >= end:
            return []
        return await self._look(stream_id, start, lambda shard: shard.parts(stream_id, start, end))

    def boundary_now(self, stream_id: int, at_or_after: int) -> int | None:
        return None

    async def boundary(self, stream_id: int, at_or_after: int) -> int:
        found = await self._look(
            stream_id, at_or_after, lambda shard: shard.boundary(stream_id, at_or_after)
        )
        if at_or_after < self._floors.get(stream_id, 0):  # its row may already be deleted
            raise BelowFloor(stream_id)
        return found

    async def write_blob(self, blob: int, data: bytes) -> int:
        return await write_blob(self.blobs, self._blob_workers, blob, data)

    async def read_blob(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        return await self._loop.run_in_executor(
            self._workers, self.blobs.read, blob, size_bytes, start, end
        )

    def drop_blob(self, blob: int) -> None:
        remove = partial(self.blobs.remove, blob)
        self._loop.run_in_executor(self._blob_workers, self._reclaimer.do, remove)

    async def _look(self, stream_id: int, start: int, look: Callable[[AcidShard], T]) -> T:
        shard = self._shard(stream_id)
        if start < self._floors.get(stream_id, 0):
            raise BelowFloor(stream_id)
        try:
            return await self._loop.run_in_executor(self._workers, look, shard)
        except DamagedData:
            if start < self._floors.get(stream_id, 0):  # deleted meanwhile
                raise BelowFloor(stream_id) from None
            raise

    def _shard(self, stream_id: int) -> AcidShard:
        try:
            return self._names[stream_id]
        except KeyError:
            raise UnknownStream(stream_id) from None

    async def close(self) -> None:
        await self._commit.drain()
        self._closing = True
        self._tidier.cancel()
        await asyncio.gather(*self._trimming)
        self._workers.shutdown()
        self._blob_workers.shutdown()
        for shard in self._shards:
            shard.env.close()
        os.close(self._lock_fd)


def open_shards(data_dir: str) -> list[AcidShard]:
    folder = os.path.join(data_dir, "acid")
    names = sorted(name for name in os.listdir(folder) if name.startswith("shard-"))
    return [_open_shard(os.path.join(folder, name), None) for name in names]


def _open_shard(path: str, map_bytes: int | None) -> AcidShard:
    try:
        return AcidShard(path, map_bytes)
    except lmdb.Error as error:
        raise DamagedData(os.path.join(path, "data.mdb"), 0, str(error)) from None
