"""A shard over a storage whose files can be held and broken, without HTTP."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from origin.config import OriginConfig, StorageConfig
from origin.shard import Shard
from origin.storage.base import Storage
from origin.storage.files import Files
from origin.streams import Stream
from protocol.errors import ProtocolError
from protocol.offsets import Offset
from protocol.replies import Reply, problem_of
from protocol.requests import Append, Create, ForkOf, Publish
from tests.origin.storage.driver import NEVER_SECS, make_storage

TEXT = "text/plain"

_ids = itertools.count(0x0FED_CBA9_8765_0001)


class Rig:
    """Streams of text; requests as the handlers make them, answered with their replies."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        config = OriginConfig(storage=StorageConfig(chunk_bytes=1024, cache_bytes=8192))
        self.shard = Shard(storage, config, clock_ms=lambda: 1000, new_id=lambda: next(_ids))

    async def create(
        self, name: str, body: bytes = b"", *, source: str | None = None, offset: int | None = None
    ) -> Reply:
        at = None if offset is None else Offset(offset)
        fork = None if source is None else ForkOf(source, at, 0)
        request = Create(None if fork else TEXT, None, None, closed=False, fork=fork)
        try:
            return await self.shard.creations.create(name, request, body, "http://weir.test")
        except ProtocolError as error:
            return problem_of(error)

    async def append(self, name: str, body: bytes) -> Reply:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        request = Append(TEXT, None, None, close=False)
        self.shard.appends.append(name, request, body, answer.set_result)
        return await answer

    async def publish(self, name: str, offset: int, body: bytes) -> Reply:
        try:
            return await self.shard.snapshots.publish(name, Publish(Offset(offset), TEXT), body)
        except ProtocolError as error:
            return problem_of(error)

    async def read(self, name: str, offset: int) -> Reply:
        stream = self.shard.lifetimes.find(name)
        if isinstance(stream, Reply):
            return stream
        try:
            return (await self.shard.chunks.get(stream, offset)).reply
        except ProtocolError as error:
            return problem_of(error)

    def stream(self, name: str) -> Stream:
        found = self.shard.lifetimes.find(name)
        assert isinstance(found, Stream), found
        return found

    async def bootstrap(self, name: str) -> tuple[bytes, bytes]:
        """(snapshot, all that follows it)"""
        snapshots = self.shard.snapshots
        plan = snapshots.bootstrap(self.stream(name))
        with self.shard.blobs.held(plan.snapshot):
            body = b"".join([piece async for piece in snapshots.parts(plan)])
        parts = body.split(f"--{plan.boundary}".encode())[1:-1]
        found = [part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in parts]
        return found[0], b"".join(found[1:])


@asynccontextmanager
async def rigged(
    mode: str,
    data_dir: Path,
    *,
    files: Files | None = None,
    checkpoint_secs: float = NEVER_SECS,
    journal_bytes: int = 64 * 1024,
) -> AsyncIterator[Rig]:
    rig = Rig(
        make_storage(
            mode,
            data_dir,
            files=files,
            checkpoint_secs=checkpoint_secs,
            journal_bytes=journal_bytes,
        )
    )
    await rig.shard.start()
    try:
        yield rig
    finally:
        await rig.shard.staging.decided()
        await rig.storage.close()
