"""Object storage: S3, GCS, Azure or a folder, through `obstore`. Its errors end here.

Every call ends in time, also when the server does not. A `put` that failed may still arrive later,
so nobody may write other bytes under its key; keys are never used twice.
"""

import asyncio
import os
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

from origin.config import MIB, ColdConfig
from origin.storage.base import DamagedData
from origin.storage.files import Files
from wire.settings import SettingsError, resolve_secret

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

BYTES_PER_SEC = 2_000_000  # the slowest transfer that still counts as one
MULTIPART_BYTES = 16 * MIB
PART_BYTES = 8 * MIB
PARTS_AT_A_TIME = 4
JOIN_BYTES = 256 * 1024
DELETE_BATCH = 250
LIST_PAGE = 1000
PROBES = "probes"
OPERATIONS = ("put", "get", "delete", "list")

_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
_BEYOND_END = re.compile(r"status code: 416|range was invalid|Wanted range starting")
_STATUS = re.compile(r"status code: (\d{3}[\w ]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"')

Extend = Callable[[int], None]  # more time, because this many bytes come


class ObjectsUnavailable(Exception):
    """The storage does not answer, or refuses; it may work later."""


class ObjectMissing(Exception):
    """There is no object with this key."""


class Found(NamedTuple):
    key: str
    size_bytes: int
    modified_s: float


def open_objects(cold: ColdConfig, environ: Mapping[str, str]) -> "Objects":
    """Nothing is sent before the first call."""
    try:
        store = _open_store(cold, environ)
    except OSError as error:
        raise SettingsError("cold.fs_path", error.strerror or str(error)) from error
    except (BaseError, ValueError) as error:
        raise SettingsError(f"cold.backend {cold.backend}", explain(error)) from error
    return Objects(store, cold.timeout_secs, _folder(cold) if cold.backend == "fs" else None)


def _open_store(cold: ColdConfig, environ: Mapping[str, str]) -> "ObjectStore":
    prefix = cold.prefix or None
    client, retries = _client_options(cold), _retry_config(cold)
    if cold.backend == "s3":
        return _open_s3(cold, environ, prefix, client, retries)
    if cold.backend == "gcs":
        return GCSStore(cold.gcs_bucket, prefix=prefix, client_options=client, retry_config=retries)
    if cold.backend == "azure":
        key = resolve_secret("cold.azure_access_key", cold.azure_access_key, environ)
        given = {"account_name": cold.azure_account, "account_key": key}
        return AzureStore(
            cold.azure_container,
            prefix=prefix,
            config={name: value for name, value in given.items() if value},  # type: ignore[arg-type]
            client_options=client,
            retry_config=retries,
        )
    if cold.backend == "fs":
        os.makedirs(_folder(cold), exist_ok=True)
        Files().sync_dir(os.path.dirname(_folder(cold)))
        return LocalStore(_folder(cold))
    raise SettingsError("cold.backend", "must be set")


def _open_s3(
    cold: ColdConfig,
    environ: Mapping[str, str],
    prefix: str | None,
    client: "ClientConfig",
    retries: "RetryConfig",
) -> S3Store:
    if not re.fullmatch(r"(https?://[^/?#\s]+/?)?", cold.s3_endpoint):
        raise SettingsError("cold.s3_endpoint", "is not a URL like http://10.0.0.1:9000")
    names = ("s3_access_key_id", "s3_secret_access_key", "s3_session_token")
    given = {
        "region": cold.s3_region,
        "endpoint": cold.s3_endpoint,
        "access_key_id": resolve_secret(f"cold.{names[0]}", cold.s3_access_key_id, environ),
        "secret_access_key": resolve_secret(f"cold.{names[1]}", cold.s3_secret_access_key, environ),
        "session_token": resolve_secret(f"cold.{names[2]}", cold.s3_session_token, environ),
    }
    return S3Store(
        cold.s3_bucket,
        prefix=prefix,
        config={name: value for name, value in given.items() if value},  # type: ignore[arg-type]
        client_options=client,
        retry_config=retries,
    )


def _client_options(cold: ColdConfig) -> "ClientConfig":
    """A request as such may take long, because large ones may; `Objects` cancels in time."""
    return {
        "allow_http": cold.s3_endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=cold.timeout_secs / 2),
        "pool_idle_timeout": timedelta(seconds=15),
        "timeout": timedelta(hours=1),
    }


def _retry_config(cold: ColdConfig) -> "RetryConfig":
    first, longest = timedelta(milliseconds=50), timedelta(milliseconds=500)
    return {
        "max_retries": 2,
        "retry_timeout": timedelta(seconds=cold.timeout_secs),
        "backoff": {"init_backoff": first, "max_backoff": longest, "base": 2},
    }


def _folder(cold: ColdConfig) -> str:
    return os.path.abspath(os.path.join(cold.fs_path, cold.prefix))


class Objects:
    def __init__(self, store: "ObjectStore", timeout_secs: float, folder: str | None) -> None:
        self._store = store
        self._timeout_secs = timeout_secs
        self._folder = folder
        self.operations: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    async def put(self, key: str, data: bytes | Sequence[bytes]) -> None:
        """Durable when it returns, as far as the storage keeps its word."""
        size_bytes = len(data) if isinstance(data, bytes) else sum(map(len, data))
        async with self._call("put", key, size_bytes):
            await obstore.put_async(
                self._store,
                key,
                data if isinstance(data, bytes) else _join_small(tuple(data)),
                use_multipart=size_bytes > MULTIPART_BYTES,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_A_TIME,
            )
            if self._folder is not None:
                await asyncio.to_thread(_sync_file, self._folder, key)

    async def get(self, key: str) -> bytes:
        async with self._call("get", key) as extend:
            result = await obstore.get_async(self._store, key)
            extend(result.meta["size"])
            return (await result.bytes_async()).to_bytes()

    async def get_range(self, key: str, start: int, size_bytes: int) -> bytes:
        """Exactly this range; raises DamagedData if the object ends before it."""
        if not size_bytes:
            return b""
        async with self._call("get", key, size_bytes, start):
            found = await obstore.get_range_async(self._store, key, start=start, length=size_bytes)
        if len(found) != size_bytes:
            raise DamagedData(key, start, f"{len(found)} bytes, expected {size_bytes}")
        return found.to_bytes()

    async def delete(self, keys: Sequence[str]) -> None:
        """Those that do not exist are fine."""
        for at in range(0, len(keys), DELETE_BATCH):
            batch = list(keys[at : at + DELETE_BATCH])
            try:
                await self._delete(batch)
            except ObjectMissing:  # which not all storages mind
                for key in batch:
                    with suppress(ObjectMissing):
                        await self._delete([key])

    async def _delete(self, keys: list[str]) -> None:
        what = keys[0] if len(keys) == 1 else f"{len(keys)} objects"
        async with self._call("delete", what):
            await obstore.delete_async(self._store, keys)

    async def list(self, prefix: str) -> list[Found]:
        """All objects in the folder `prefix`, in no particular order."""
        found: list[Found] = []
        async with self._call("list", prefix) as extend:
            async for page in obstore.list(self._store, prefix, chunk_size=LIST_PAGE):
                found += [
                    Found(each["path"], each["size"], each["last_modified"].timestamp())
                    for each in page
                ]
                extend(0)
        return found

    async def has_any(self, prefix: str) -> bool:
        """Whether the folder `prefix` has an object."""
        async with self._call("list", prefix):
            async for page in obstore.list(self._store, prefix, chunk_size=1):
                return len(page) > 0
        return False

    async def check(self) -> None:
        """Try everything once, so that wrong settings show at startup."""
        key, data = f"{PROBES}/{secrets.token_hex(8)}", secrets.token_bytes(16)
        await self.put(key, data)
        try:
            found = await self.get(key)
            listed = [each.key for each in await self.list(PROBES)]
        except ObjectMissing:
            raise ObjectsUnavailable(f"get {key}: it was stored and is not there") from None
        await self.delete([key])
        if found != data or key not in listed:
            raise ObjectsUnavailable(f"get {key}: not what was stored")

    @asynccontextmanager
    async def _call(
        self, operation: str, key: str, size_bytes: int = 0, start: int | None = None
    ) -> AsyncIterator[Extend]:
        """Counts, bounds and translates. `start` is that of a range."""
        self.operations[operation] += 1
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._limit_secs(size_bytes)) as limit:
                yield lambda more: limit.reschedule(clock() + self._limit_secs(more))
        except TimeoutError:
            raise self._unavailable(
                operation, key, f"no answer in {clock() - began:.1f} s"
            ) from None
        except Exception as error:
            if isinstance(error, FileNotFoundError) and operation != "put":
                if self._has_bucket(error):
                    raise ObjectMissing(key) from None
            elif start is not None and _BEYOND_END.search(str(error)):
                raise DamagedData(key, start, "the object ends before it") from None
            raise self._unavailable(operation, key, explain(error)) from None

    def _limit_secs(self, size_bytes: int) -> float:
        return self._timeout_secs + size_bytes / BYTES_PER_SEC

    def _has_bucket(self, error: FileNotFoundError) -> bool:
        """Or rather everything is missing: a wrong name, or a folder that was moved."""
        if self._folder is not None:
            return os.path.isdir(self._folder)
        return not _NO_BUCKET.search(str(error))

    def _unavailable(self, operation: str, key: str, reason: str) -> ObjectsUnavailable:
        self.errors[operation] += 1
        return ObjectsUnavailable(f"{operation} {key}: {reason}")


def _join_small(buffers: Sequence[bytes]) -> Iterator[bytes]:
    """Called by the store's thread for each piece, which costs more than joining small ones."""
    run: list[bytes] = []
    size = 0
    for buffer in buffers:
        run.append(buffer)
        size += len(buffer)
        if size >= JOIN_BYTES:
            yield run[0] if len(run) == 1 else b"".join(run)
            run, size = [], 0
    if run:
        yield b"".join(run)


def _sync_file(root: str, key: str) -> None:
    """The file, and the folders that may be new."""
    files = Files()
    path = os.path.join(root, key)
    fd = files.open(path)
    try:
        files.sync(fd)
    finally:
        files.close(fd)
    while path != root:
        path = os.path.dirname(path)
        files.sync_dir(path)


def explain(error: Exception) -> str:
    """One line, without the store's internals, and without anything that might be secret."""
    text, _, internals = str(error).partition("\n\nDebug source:")
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        return status[1].strip() + (f" ({code[1]})" if code else "")
    if cause := _CAUSE.search(internals):
        return cause[1]
    line = text.partition("\n")[0]
    return re.sub(r"\?\S*", "", line)[:200] or type(error).__name__
