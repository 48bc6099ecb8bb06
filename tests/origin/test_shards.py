"""Several shards in one process: who is found, what they share, and what a lost one leaves."""

import itertools

import pytest

from origin.chunks import make_cache
from origin.config import LimitsConfig, OriginConfig
from origin.metrics import CountOver
from origin.registry import Totals
from origin.shard import Shard
from origin.shards import Elsewhere, OneShard
from origin.storage.memory import MemoryStorage
from protocol.errors import ProtocolError
from protocol.requests import Create

CONFIG = OriginConfig(limits=LimitsConfig(max_streams=3))
STREAM = Create("text/plain", None, None, closed=False, fork=None)


async def start(count: int) -> tuple[list[Shard], Totals]:
    totals, cache, ids = Totals(), make_cache(1 << 20), itertools.count(1)
    shards = [
        Shard(
            MemoryStorage(),
            CONFIG,
            clock_ms=lambda: 1000,
            new_id=lambda: next(ids),
            cache=cache,
            totals=totals,
            number=number,
        )
        for number in range(count)
    ]
    for shard in shards:
        await shard.start()
    return shards, totals


async def create(shard: Shard, name: str, body: bytes = b"") -> None:
    assert (await shard.creations.create(name, STREAM, body, "")).status == 201


async def test_a_lost_shard_is_not_found() -> None:
    (shard,), _ = await start(1)
    shards = OneShard(shard)
    assert shards.of("s") is shard
    shard.lose()
    shard.lose()
    with pytest.raises(Elsewhere) as elsewhere:
        shards.of("s")
    assert (elsewhere.value.shard, elsewhere.value.url) == (0, None)
    assert not shard.fresh()


async def test_limits_count_all_shards_and_what_others_report() -> None:
    (first, second), totals = await start(2)
    await create(first, "a", b"123")
    await create(second, "b", b"4567")
    assert (totals.streams, totals.stored_bytes) == (2, 7)
    totals.others_streams = 1
    with pytest.raises(ProtocolError, match="stream limit"):
        await create(first, "c")
    first.lose()
    assert (totals.streams, totals.stored_bytes) == (1, 4)
    await create(second, "c")
    await first.lifetimes.delete("a")  # a late end changes nothing
    assert (totals.streams, totals.stored_bytes) == (2, 4)


async def test_the_size_of_all_shards_is_limited() -> None:
    (first, second), totals = await start(2)
    totals.others_bytes = CONFIG.max_stored_bytes - 5
    await create(first, "a", b"123")
    with pytest.raises(ProtocolError, match="size limit"):
        await create(second, "b", b"456")
    await create(second, "b", b"45")


async def test_counters_of_a_shard_that_left_stay() -> None:
    (first, second), _ = await start(2)
    first.appends.committed, second.appends.committed = 3, 4
    here = [first, second]

    count = CountOver(lambda: here, lambda shard: shard.appends.committed)
    assert count() == 7
    here.remove(first)
    second.appends.committed += 1
    assert [count(), count()] == [8, 8]
