"""Several shards live in one process and share nothing."""

from origin.storage.memory import MemoryStorage
from tests.crash.rig import Rig


async def start() -> Rig:
    rig = Rig(MemoryStorage())
    await rig.shard.start()
    return rig


async def test_shards_share_neither_streams_nor_counters() -> None:
    first, second = await start(), await start()
    assert (await first.create("s", b"first")).status == 201
    assert (await second.read("s", 0)).status == 404
    assert (await second.create("s")).status == 201
    assert (await second.append("s", b"second")).status == 204
    assert [(await rig.read("s", 0)).body for rig in (first, second)] == [b"first", b"second"]
    counted = [(s.appends.committed, s.registry.stored_bytes) for s in (first.shard, second.shard)]
    assert counted == [(0, 5), (1, 6)]


async def test_a_stream_that_ends_in_one_shard_stays_in_another() -> None:
    first, second = await start(), await start()
    for rig in (first, second):
        await rig.create("s", b"bytes")
    assert (await first.shard.lifetimes.delete("s")).status == 204
    assert (await first.read("s", 0)).status == 404
    assert (await second.read("s", 0)).body == b"bytes"
