"""Objects in a folder: the same calls as for S3, and how errors look (`test_objects_s3.py`)."""

import asyncio
import errno
import random
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from origin.config import MIB, ColdConfig
from origin.storage.base import DamagedData
from origin.storage.cluster.objects import (
    MULTIPART_BYTES,
    ObjectMissing,
    Objects,
    ObjectsUnavailable,
    open_objects,
)
from origin.storage.files import Files
from wire.settings import SettingsError


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return open_objects(ColdConfig(backend="fs", fs_path=str(tmp_path / "o"), prefix="a/b"), {})


async def test_what_was_put_is_got(objects: Objects, tmp_path: Path) -> None:
    await objects.put("x/1", b"hello")
    await objects.put("x/2", [b"in ", b"", b"parts"])
    await objects.put("y/3", b"")
    assert await objects.get("x/1") == b"hello"
    assert await objects.get("x/2") == b"in parts"
    assert await objects.get("y/3") == b""
    assert await objects.get_range("x/2", 3, 4) == b"part"
    assert await objects.get_range("x/2", 3, 0) == b""
    assert (tmp_path / "o" / "a" / "b" / "x" / "1").read_bytes() == b"hello"


async def test_many_small_pieces_and_several_parts(objects: Objects) -> None:
    rng = random.Random(1)
    pieces = [rng.randbytes(rng.choice((0, 10, 300_000))) for _ in range(250)]
    assert sum(map(len, pieces)) > MULTIPART_BYTES
    await objects.put("pieces", pieces)
    assert await objects.get("pieces") == b"".join(pieces)
    await objects.put("whole", b"".join(pieces))
    assert await objects.get_range("whole", 5 * MIB, MIB) == b"".join(pieces)[5 * MIB : 6 * MIB]


async def test_what_is_missing(objects: Objects) -> None:
    await objects.put("x/1", b"hello")
    for missing in ("x/2", "x", "y/1"):
        with pytest.raises(ObjectMissing, match=missing):
            await objects.get(missing)
        with pytest.raises(ObjectMissing, match=missing):
            await objects.get_range(missing, 0, 1)
    assert not objects.errors


@pytest.mark.parametrize(("start", "size"), [(0, 6), (4, 2), (5, 1), (50, 10)])
async def test_a_range_beyond_the_end_is_damage(objects: Objects, start: int, size: int) -> None:
    await objects.put("x/1", b"hello")
    with pytest.raises(DamagedData, match=f"x/1: damaged at byte {start}: "):
        await objects.get_range("x/1", start, size)


async def test_listing_by_folder(objects: Objects) -> None:
    for key in ("x/1", "x/deep/2", "xy/3"):
        await objects.put(key, key.encode())
    found = {each.key: each for each in await objects.list("x")}
    assert set(found) == {"x/1", "x/deep/2"}
    assert found["x/deep/2"].size_bytes == 8
    assert found["x/deep/2"].modified_s == pytest.approx(time.time(), abs=60)
    assert len(await objects.list("")) == 3
    assert await objects.list("nothing") == []


async def test_deletion_of_some_that_are_missing(objects: Objects) -> None:
    for key in ("x/1", "x/2", "x/3"):
        await objects.put(key, b".")
    await objects.delete(["x/0", "x/1", "x/2", "x/4"])
    assert [each.key for each in await objects.list("x")] == ["x/3"]
    await objects.delete([])
    await objects.delete(["x/1"])


async def test_check_leaves_nothing_behind(objects: Objects) -> None:
    await objects.check()
    assert await objects.list("") == []
    assert objects.operations["put"] == 1


async def test_a_folder_that_is_gone_is_not_a_missing_object(
    objects: Objects, tmp_path: Path
) -> None:
    """A folder that was moved must not look like lost data."""
    await objects.put("x/1", b"hello")
    (tmp_path / "o").rename(tmp_path / "elsewhere")
    with pytest.raises(ObjectsUnavailable, match="get x/1: No such file or directory"):
        await objects.get("x/1")
    assert objects.errors == {"get": 1}


async def test_a_folder_that_does_not_sync_has_not_stored(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(files: Files, fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Files, "sync", fail)
    with pytest.raises(ObjectsUnavailable, match="put x/1: .*Input/output error"):
        await objects.put("x/1", b"hello")


@pytest.mark.parametrize(
    ("cold", "environ", "complaint"),
    [
        (ColdConfig(), {}, "cold.backend: must be set"),
        (
            ColdConfig(backend="s3", s3_bucket="b", s3_secret_access_key="$NOT_SET"),
            {},
            "cold.s3_secret_access_key: the environment variable NOT_SET is not set",
        ),
        (
            ColdConfig(backend="s3", s3_bucket="b", s3_endpoint="10.0.0.1:9000"),
            {},
            "cold.s3_endpoint: is not a URL like http://10.0.0.1:9000",
        ),
        (
            ColdConfig(
                backend="azure", azure_container="c", azure_account="a", azure_access_key="$K"
            ),
            {"K": "not base64!"},
            "cold.backend azure: .*Invalid Access Key",
        ),
        (
            ColdConfig(backend="fs", fs_path="/dev/null/folder"),
            {},
            "cold.fs_path: Not a directory",
        ),
    ],
    ids=lambda value: value.backend if isinstance(value, ColdConfig) else "",
)
def test_settings_that_stop_the_start(
    cold: ColdConfig, environ: Mapping[str, str], complaint: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{complaint}") as caught:
        open_objects(cold, environ)
    assert "base64!" not in str(caught.value)


def test_other_stores_open_without_a_word_to_anybody() -> None:
    open_objects(ColdConfig(backend="gcs", gcs_bucket="b"), {})
    secret = {"K": "c2VjcmV0"}
    azure = ColdConfig(
        backend="azure", azure_container="c", azure_account="a", azure_access_key="$K"
    )
    open_objects(azure, secret)


async def test_a_caller_that_leaves(objects: Objects) -> None:
    """At whatever moment: nothing is logged, and the next call works."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    for turns in range(40):
        putting = asyncio.create_task(objects.put(f"left/{turns}", bytes(100_000)))
        for _ in range(turns):
            await asyncio.sleep(0)
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
    await objects.put("x/1", b"hello")
    assert await objects.get("x/1") == b"hello"
    assert complaints == []
