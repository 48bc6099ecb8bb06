"""Objects in a real S3 server that works, hangs, is killed, is not there, or refuses us."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from loadtest.peers.process import free_port
from origin.config import MIB
from origin.storage.base import DamagedData
from origin.storage.cluster.coldblobs import ColdBlobs
from origin.storage.cluster.coldreads import ColdReads
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.objects import (
    MULTIPART_BYTES,
    ObjectMissing,
    Objects,
    ObjectsUnavailable,
    open_objects,
)
from origin.storage.cluster.packs import Extents, PackWriter
from tests.helpers.rawhttp import wait_until
from tests.helpers.weed import SECRET, Weed, running_weed

TIMEOUT_SECS = 2.0
PATIENT_SECS = 60.0  # where a busy machine should be no failure
IN_TIME_SECS = 2 * TIMEOUT_SECS + 1.0  # and a moment for a busy machine

Call = Callable[[Objects], Awaitable[object]]
CALLS: dict[str, Call] = {
    "put": lambda objects: objects.put("x/new", b"hello"),
    "put-large": lambda objects: objects.put("x/large", bytes(MIB)),
    "get": lambda objects: objects.get("x/there"),
    "range": lambda objects: objects.get_range("x/there", 1, 3),
    "list": lambda objects: objects.list("x"),
    "delete": lambda objects: objects.delete(["x/new", "x/large"]),
    "check": lambda objects: objects.check(),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(scope="module")
def weed() -> Iterator[Weed]:
    with running_weed() as weed:
        yield weed


@pytest.fixture
async def objects(weed: Weed) -> Objects:
    objects = open_objects(weed.cold(timeout_secs=PATIENT_SECS), {})
    await objects.put("x/there", b"hello")
    return objects


async def fail_in_time(objects: Objects, call: Call) -> str:
    began = time.monotonic()
    with pytest.raises(ObjectsUnavailable) as caught:
        await call(objects)
    assert time.monotonic() - began < IN_TIME_SECS
    assert sum(objects.errors.values()) == 1
    return str(caught.value)


def connections_to(port: int) -> int:
    """Of this process, by the kernel's table of sockets (only it connects to this port)."""
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    fields = (line.split() for line in lines)
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in fields)


async def test_what_was_put_is_got(weed: Weed) -> None:
    objects = open_objects(weed.cold(timeout_secs=PATIENT_SECS, prefix="some/where"), {})
    await objects.check()
    data = random.Random(1).randbytes(MULTIPART_BYTES + MIB)
    await objects.put("a/whole", data)
    await objects.put("a/pieces", [data[at : at + 100_000] for at in range(0, len(data), 100_000)])
    await objects.put("a/small", [b"in ", b"parts"])
    await objects.put("a/empty", b"")
    assert await objects.get("a/whole") == data
    assert await objects.get("a/pieces") == data
    assert await objects.get("a/small") == b"in parts"
    assert await objects.get("a/empty") == b""
    assert await objects.get_range("a/whole", 9 * MIB - 5, 70_000) == data[9 * MIB - 5 :][:70_000]
    assert {each.key: each.size_bytes for each in await objects.list("a")} == {
        **{"a/whole": len(data), "a/pieces": len(data)},
        **{"a/small": 8, "a/empty": 0},
    }
    await objects.delete(["a/whole", "a/none", "a/pieces", "a/empty"])
    assert [each.key for each in await objects.list("a")] == ["a/small"]
    assert not objects.errors


async def test_what_is_missing(objects: Objects) -> None:
    with pytest.raises(ObjectMissing, match="x/none"):
        await objects.get("x/none")
    with pytest.raises(ObjectMissing, match="x/none"):
        await objects.get_range("x/none", 0, 1)


@pytest.mark.parametrize(("start", "size"), [(0, 6), (4, 2), (5, 1), (50, 10)])
async def test_a_range_beyond_the_end_is_damage(objects: Objects, start: int, size: int) -> None:
    with pytest.raises(DamagedData, match=f"x/there: damaged at byte {start}: "):
        await objects.get_range("x/there", start, size)


async def test_a_bucket_that_is_not_there_is_no_missing_object(weed: Weed) -> None:
    elsewhere = open_objects(weed.cold(s3_bucket="nowhere"), {})
    with pytest.raises(ObjectsUnavailable, match=r"get x/there: 404 Not Found \(NoSuchBucket\)"):
        await elsewhere.get("x/there")


@each_call
async def test_a_wrong_secret(weed: Weed, call: Call) -> None:
    environ = {"S3_SECRET": "wrong-" + SECRET}
    objects = open_objects(weed.cold(s3_secret_access_key="$S3_SECRET"), environ)
    reason = await fail_in_time(objects, call)
    assert "403 Forbidden (SignatureDoesNotMatch)" in reason
    assert SECRET not in reason


@each_call
async def test_nobody_listens(weed: Weed, call: Call) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    objects = open_objects(weed.cold(s3_endpoint=nobody, timeout_secs=TIMEOUT_SECS), {})
    assert "Connection refused" in await fail_in_time(objects, call)


async def test_a_server_that_hangs(weed: Weed) -> None:
    """A large object has more time, and when we leave, its connection is closed."""
    before = connections_to(weed.port)
    stores = {name: open_objects(weed.cold(timeout_secs=TIMEOUT_SECS), {}) for name in CALLS}
    for objects in stores.values():
        await objects.put("x/there", b"hello")  # over a connection that will be used again
    assert connections_to(weed.port) >= len(CALLS)
    weed.pause()
    try:
        reasons = await asyncio.gather(
            *(fail_in_time(stores[name], call) for name, call in CALLS.items())
        )
        wait_until(lambda: connections_to(weed.port) <= before, what="its connections are closed")
    finally:
        weed.resume()
    waits = [float(reason.removesuffix(" s").rpartition(" no answer in ")[2]) for reason in reasons]
    waited = dict(zip(CALLS, waits, strict=True))
    assert waited.pop("put-large") >= TIMEOUT_SECS + 0.5
    assert min(waited.values()) >= TIMEOUT_SECS
    assert await open_objects(weed.cold(timeout_secs=PATIENT_SECS), {}).get("x/there") == b"hello"


async def test_callers_that_leave(objects: Objects) -> None:
    """At whatever moment: nothing is logged, and the next call works."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    for number in range(60):
        call = list(CALLS.values())[number % len(CALLS)]
        calling = asyncio.ensure_future(call(objects))
        await asyncio.sleep(number % 20 / 10_000)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    assert await objects.get("x/there") == b"hello"
    assert complaints == []


async def test_cold_reads(weed: Weed, tmp_path: Path) -> None:
    """What is on the local disk is read also while the server hangs."""
    objects = open_objects(weed.cold(timeout_secs=TIMEOUT_SECS, prefix="reads"), {})
    cache = DiskCache(str(tmp_path), 64 * MIB)
    reads, blobs = ColdReads(objects, cache, str), ColdBlobs(objects, cache)
    rng = random.Random(1)
    parts = [rng.randbytes(rng.randrange(200_000)) for _ in range(50)]
    writer, extents, whole = PackWriter(1), Extents(), b"".join(parts)
    writer.add(7, 0, parts)
    for _, block in writer.blocks:
        extents.add(block)
    patient = open_objects(weed.cold(timeout_secs=PATIENT_SECS, prefix="reads"), {})
    await patient.put(str(writer.pack), writer.buffers)
    found = await ColdReads(patient, cache, str).read(7, extents, 100, 2 * MIB)
    assert found == whole[100 : 2 * MIB]
    stored = await ColdBlobs(patient, cache).write("blob", whole)
    found = await ColdBlobs(patient, cache).read("blob", stored, MIB, MIB + 5)
    assert found == whole[MIB : MIB + 5]
    weed.pause()
    try:
        assert await reads.read(7, extents, MIB, MIB + 5) == whole[MIB : MIB + 5]
        assert await blobs.read("blob", stored, MIB, MIB + 9) == whole[MIB : MIB + 9]
        with pytest.raises(ObjectsUnavailable):
            await reads.read(7, extents, 0, len(whole))
    finally:
        weed.resume()
        await cache.close()


def test_under_uvloop(weed: Weed) -> None:
    async def go() -> None:
        objects = open_objects(weed.cold(timeout_secs=PATIENT_SECS), {})
        await objects.check()
        data = random.Random(1).randbytes(100_000)
        await asyncio.gather(*(objects.put(f"u/{number}", data) for number in range(20)))
        gets = [asyncio.create_task(objects.get(f"u/{number}")) for number in range(20)]
        await asyncio.sleep(0)
        for number in range(0, 20, 2):
            gets[number].cancel()
        found = await asyncio.gather(*gets, return_exceptions=True)
        assert found[1::2] == [data] * 10

    uvloop.run(go())


async def test_a_server_that_is_killed_and_comes_back(weed: Weed, objects: Objects) -> None:
    """While it starts it says much, but never that an object is missing."""
    weed.kill()
    await fail_in_time(objects, CALLS["get"])
    weed.launch()
    starting = asyncio.create_task(asyncio.to_thread(weed.await_ready))
    while not starting.done():
        try:
            assert await objects.get("x/there") == b"hello"
        except ObjectsUnavailable:
            await asyncio.sleep(0.02)
    await starting
    assert await objects.get("x/there") == b"hello"
