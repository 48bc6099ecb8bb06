"""Blocks of objects on the local disk, bounded: evicted by last use, found again after a restart.

A cache may lose anything at any time: nothing is synced, and with a full disk it goes without.
What it returns is not verified; whoever finds damage calls `forget`. The folder belongs to one
cache of one process.

One thread changes the folder, so that evictions come before the write that needs their room, and
the bound holds at every moment. All else happens on the event loop.
"""

import asyncio
import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

log = logging.getLogger("weir.storage")

PAGE_BYTES = 4096  # room on disk is taken in these
READ_THREADS = 4
UNWRITTEN_BYTES = 64 * 1024 * 1024  # loaded and not on disk yet; beyond this it goes without
SUFFIX = ".block"
UNFINISHED = ".new"

Load = Callable[[], Awaitable[bytes]]


class Kept(NamedTuple):
    name: str
    size_bytes: int


class DiskCache:
    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, int] = OrderedDict()  # size by name, oldest use first
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._results: dict[str, asyncio.Future[bytes]] = {}
        self._readers = ThreadPoolExecutor(READ_THREADS, "cache-read")
        self._writer = ThreadPoolExecutor(1, "cache-write")
        self._unwritten_bytes = 0
        self._works = True
        self.used_bytes = 0
        self.hits = self.misses = self.evictions = self.failures = 0
        self._take_over()

    async def get(self, key: str, size_bytes: int, load: Load) -> bytes:
        """From disk, from a load that is under way, or from `load`, whose errors all waiters get.

        A load goes on when its caller leaves.
        """
        name = _name(key)
        result = self._results.get(name)
        if result is None:
            result = self._start(name, size_bytes, load)
        else:
            self.hits += 1
        return await asyncio.shield(result)

    def forget(self, key: str) -> None:
        """What is on disk is damaged."""
        self._drop(_name(key))

    async def close(self) -> None:
        """Nothing may be asked of it any more."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        for threads in (self._readers, self._writer):
            await asyncio.to_thread(threads.shutdown)

    def _start(self, name: str, size_bytes: int, load: Load) -> asyncio.Future[bytes]:
        """Until what was loaded is on disk, others get it from here."""
        result = self._results[name] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_notice)
        flight = asyncio.create_task(
            self._fetch(name, size_bytes, load, result), name=f"cache {name}"
        )
        flight.add_done_callback(lambda _: self._end(name, result))
        self._flights[name] = flight
        return result

    def _end(self, name: str, result: asyncio.Future[bytes]) -> None:
        del self._flights[name], self._results[name]
        result.cancel()  # if the cache was closed before there was one

    async def _fetch(
        self, name: str, size_bytes: int, load: Load, result: asyncio.Future[bytes]
    ) -> None:
        data = await self._read(name, size_bytes)
        if data is not None:
            self.hits += 1
            result.set_result(data)
            return
        self.misses += 1
        try:
            data = await load()
        except Exception as error:
            result.set_exception(error)
            return
        result.set_result(data)
        await self._store(name, data)

    # -- reading -------------------------------------------------------------------------------

    async def _read(self, name: str, size_bytes: int) -> bytes | None:
        if name not in self._kept:
            return None
        self._kept.move_to_end(name)
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(self._readers, _read_file, self._path(name))
        if data is None or len(data) != size_bytes:
            self._drop(name)
            return None
        return data

    # -- writing -------------------------------------------------------------------------------

    async def _store(self, name: str, data: bytes) -> None:
        room = _room(len(data))
        victims = self._victims(room)
        if victims is None or self._unwritten_bytes + len(data) > UNWRITTEN_BYTES:
            return
        for victim in victims:
            self.evictions += 1
            self.used_bytes -= _room(self._kept.pop(victim))
        self.used_bytes += room
        self._unwritten_bytes += len(data)
        paths = [self._path(victim) for victim in victims]
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, _write_file, self._path(name), data, paths)
        except OSError as error:
            self.used_bytes -= room
            self._complain(error)
        else:
            self._works = True
            self._kept[name] = len(data)
        finally:
            self._unwritten_bytes -= len(data)

    def _victims(self, room: int) -> list[str] | None:
        """Whom to evict for this room; None if there is no way to make it."""
        if room > self._max_bytes:
            return None
        victims: list[str] = []
        excess = self.used_bytes + room - self._max_bytes
        for name, size_bytes in self._kept.items():
            if excess <= 0:
                break
            if name not in self._flights:  # a file takes room while somebody reads it
                victims.append(name)
                excess -= _room(size_bytes)
        return victims if excess <= 0 else None

    def _drop(self, name: str) -> None:
        size_bytes = self._kept.pop(name, None)
        if size_bytes is not None:
            self.used_bytes -= _room(size_bytes)
            self._writer.submit(_remove, [self._path(name)])

    def _complain(self, error: OSError) -> None:
        self.failures += 1
        if self._works:
            log.warning("the cache goes without its folder %s: %s", self._folder, error)
        self._works = False

    # -- the folder ----------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + SUFFIX)

    def _take_over(self) -> None:
        """What an earlier process left is ours, the newest first, as far as there is room."""
        try:
            os.makedirs(self._folder, exist_ok=True)
            found = _find_files(self._folder)
        except OSError as error:
            self._complain(error)
            return
        for name, size_bytes in reversed(found):
            if self.used_bytes + _room(size_bytes) > self._max_bytes:
                _remove([self._path(name)])
                continue
            self._kept[name] = size_bytes
            self._kept.move_to_end(name, last=False)
            self.used_bytes += _room(size_bytes)


def _notice(result: asyncio.Future[bytes]) -> None:
    """An error that everybody who waited for it has left is no surprise."""
    if not result.cancelled():
        result.exception()


def _name(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def _room(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def _find_files(folder: str) -> list[Kept]:
    """Those written last come last; files that were never finished are removed."""
    found: list[tuple[int, Kept]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX + UNFINISHED):
                _remove([entry.path])
            elif entry.name.endswith(SUFFIX):
                stat = entry.stat()
                kept = Kept(entry.name.removesuffix(SUFFIX), stat.st_size)
                found.append((stat.st_mtime_ns, kept))
    return [kept for _, kept in sorted(found)]


# In worker threads.


def _read_file(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def _write_file(path: str, data: bytes, victims: Iterable[str]) -> None:
    _remove(victims)
    try:
        with open(path + UNFINISHED, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        os.replace(path + UNFINISHED, path)
    except OSError:
        _remove([path + UNFINISHED])
        raise


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
