"""The second level of the cache; a real Redis is poisoned, killed, stopped."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway import rediscache
from gateway.rediscache import RedisCache, chunk_key, generation_key
from tests.helpers.redis import RedisServer, running_redis
from tests.helpers.scripted_origin import until

TIMEOUT_S = 1.5  # a busy machine must not meet it, and some tests wait for it
PAUSE_S = 0.02  # short, so that tests see it come back
AT = "0000000000000000_0000000000000000"
NEXT = "0000000000000000_0000000000000042"


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
def any_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with running_redis(tcp=request.param) as server:
        yield server


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


def make_store(
    server: RedisServer, key: str = "secret", timeout_s: float = TIMEOUT_S
) -> RedisCache:
    return RedisCache(server.url, timeout_s, key, first_pause_s=PAUSE_S)


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[RedisCache]:
    store = make_store(redis)
    yield store
    await store.close()


async def fill(store: RedisCache, stream: str = "s", offset: str = AT, value: bytes = b"x") -> None:
    generation, found = await store.get(stream, offset)
    assert generation is not None and found is None
    assert await store.put(stream, generation, offset, value, 60)


async def generation_of(store: RedisCache, stream: str) -> str | None:
    return (await store.get(stream, "no-part"))[0]


async def value_of(store: RedisCache, stream: str = "s", offset: str = AT) -> bytes | None:
    return (await store.get(stream, offset))[1]


# -- chunks and generations ----------------------------------------------------------------------


async def test_a_chunk_is_seen_by_every_gateway(any_redis: RedisServer) -> None:
    first, second = make_store(any_redis), make_store(any_redis)
    await fill(first, value=b"\x00bytes\r\n")
    assert await value_of(second) == b"\x00bytes\r\n"
    assert await value_of(second, offset=NEXT) is None
    assert (second.hits, second.misses, first.stored) == (1, 1, 1)
    await first.close()
    await second.close()


async def test_gateways_that_meet_a_new_stream_agree_on_its_generation(redis: RedisServer) -> None:
    stores = [make_store(redis) for _ in range(8)]
    found = await asyncio.gather(*(generation_of(store, "s") for store in stores))
    assert len(set(found)) == 1 and found[0] is not None
    assert (await stores[0].get("s", AT))[0] == found[0]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_purge_hides_all_chunks_of_one_stream_only(store: RedisCache) -> None:
    for stream, offset in (("s", AT), ("s", NEXT), ("t", AT)):
        await fill(store, stream, offset)
    assert await store.purge("s")
    assert [await value_of(store, "s", o) for o in (AT, NEXT)] == [None, None]
    assert await value_of(store, "t") == b"x"
    assert store.rejected == 0


async def test_a_flight_from_before_a_purge_stores_nothing_readable(store: RedisCache) -> None:
    old = await generation_of(store, "s")
    await store.purge("s")
    assert await store.put("s", old, AT, b"old", 60)
    generation, value = await store.get("s", AT)
    assert value is None and generation != old
    assert store.rejected == 0


async def test_a_late_flight_does_not_bring_an_old_generation_back(store: RedisCache) -> None:
    old = await generation_of(store, "s")
    await store.purge("s")
    await fill(store, value=b"new")
    await store.put("s", old, AT, b"old", 60)
    assert await value_of(store) is None


@pytest.mark.parametrize("stream", ["s:" + AT, "{s}", "s\n", "weir:gen:s", "ß/日本", "a" * 1024])
async def test_no_name_meets_another_key(store: RedisCache, stream: str) -> None:
    await fill(store, "s", value=b"one")
    await fill(store, stream, value=b"two")
    assert (await value_of(store, "s"), await value_of(store, stream)) == (b"one", b"two")


async def test_chunks_end_with_their_time(store: RedisCache, redis: RedisServer) -> None:
    generation = await generation_of(store, "s")
    await store.put("s", generation, AT, b"x", 1.5)
    assert 1000 < redis.command("PTTL", chunk_key("s", AT)) <= 1500
    assert redis.command("TTL", generation_key("s")) > 86_400
    assert not await store.put("s", generation, NEXT, b"x", 0)


async def test_an_oversized_chunk_is_not_stored(redis: RedisServer) -> None:
    store = RedisCache(redis.url, TIMEOUT_S, max_value_bytes=10)
    generation = await generation_of(store, "s")
    assert await store.put("s", generation, AT, b"x" * 10, 60)
    assert not await store.put("s", generation, NEXT, b"x" * 11, 60)
    assert await value_of(store) == b"x" * 10
    await store.close()


async def test_background_puts_are_bounded(
    store: RedisCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rediscache, "MAX_PUT_BYTES", 25)
    generation = await generation_of(store, "s")
    taken = [store.put_soon("s", generation, str(n), b"x" * 10, 60) for n in range(4)]
    assert (taken, store.puts_dropped) == ([True, True, False, False], 2)
    await until(lambda: store.put_soon("s", generation, "5", b"x" * 25, 60))
    await until(lambda: store.stored == 3)


# -- poison --------------------------------------------------------------------------------------


async def test_a_value_of_another_place_is_rejected(store: RedisCache, redis: RedisServer) -> None:
    await fill(store, "s", AT, b"one")
    await fill(store, "s", NEXT, b"two")
    redis.command("COPY", chunk_key("s", AT), chunk_key("s", NEXT), "REPLACE")
    assert await value_of(store, "s", NEXT) is None
    assert store.rejected == 1


async def test_a_value_of_another_stream_is_rejected(store: RedisCache, redis: RedisServer) -> None:
    await fill(store, "s", value=b"secret")
    await fill(store, "t", value=b"public")
    for make_key in (generation_key, lambda stream: chunk_key(stream, AT)):
        redis.command("COPY", make_key("s"), make_key("t"), "REPLACE")
    assert await value_of(store, "t") is None
    assert store.rejected == 1


@pytest.mark.parametrize("at", [24, 35, 36, -1], ids=["nonce", "nonce-end", "text", "tag"])
async def test_a_changed_byte_is_rejected(store: RedisCache, redis: RedisServer, at: int) -> None:
    await fill(store, value=b"some value")
    sealed = bytearray(redis.command("GET", chunk_key("s", AT)))
    sealed[at] ^= 1
    redis.command("SET", chunk_key("s", AT), bytes(sealed))
    assert await value_of(store) is None
    assert store.rejected == 1


@pytest.mark.parametrize("poison", [b"x", b"x" * 52, b"x" * 5_000_000], ids=len)
async def test_foreign_bytes_are_rejected(
    store: RedisCache, redis: RedisServer, poison: bytes
) -> None:
    await fill(store)
    redis.command("SET", chunk_key("s", AT), poison)
    assert await value_of(store) is None
    assert (store.rejected, store.link.available) == (1, True)


@pytest.mark.parametrize("size", [24, 30, 36, 51])
async def test_a_cut_value_is_rejected(store: RedisCache, redis: RedisServer, size: int) -> None:
    await fill(store, value=b"")
    assert await value_of(store) == b""
    redis.command("SET", chunk_key("s", AT), redis.command("GET", chunk_key("s", AT))[:size])
    assert await value_of(store) is None
    assert store.rejected == 1


async def test_redis_sees_no_content(store: RedisCache, redis: RedisServer) -> None:
    await fill(store, value=b"content" * 100)
    assert b"content" not in redis.command("GET", chunk_key("s", AT))


async def test_another_secret_opens_nothing(redis: RedisServer) -> None:
    ours, theirs = make_store(redis, "a"), make_store(redis, "")
    await fill(theirs)
    assert await value_of(ours) is None
    assert (ours.rejected, ours.hits) == (1, 0)
    await ours.close()
    await theirs.close()


async def test_keys_of_another_type_are_replaced(store: RedisCache, redis: RedisServer) -> None:
    for key in (generation_key("s"), chunk_key("s", AT)):
        redis.command("RPUSH", key, "x")
    assert await value_of(store) is None
    await store.put("s", await generation_of(store, "s"), AT, b"x", 60)
    assert await value_of(store) == b"x"
    assert store.rejected > 0 and store.link.available


async def test_a_poisoned_generation_is_replaced(store: RedisCache, redis: RedisServer) -> None:
    redis.command("SET", generation_key("s"), "no generation" * 100)
    first = await generation_of(store, "s")
    assert first is not None and first == await generation_of(store, "s")
    assert store.rejected == 1


# -- slow, gone and back -------------------------------------------------------------------------


async def test_without_redis_every_answer_is_none(redis: RedisServer) -> None:
    redis.kill()
    store = make_store(redis)
    assert await store.get("s", AT) == (None, None)
    assert await generation_of(store, "s") is None
    assert not await store.purge("s")
    assert not await store.put("s", "0" * 24, AT, b"x", 60)
    assert not store.link.available and store.link.failures >= 1
    await store.close()


async def test_a_stopped_redis_costs_one_time_limit(store: RedisCache, redis: RedisServer) -> None:
    await fill(store)
    redis.pause()
    began = time.monotonic()
    found = await asyncio.gather(*(store.get("s", AT) for _ in range(100)))
    assert set(found) == {(None, None)}
    assert time.monotonic() - began < 10 * TIMEOUT_S
    assert not store.link.available
    assert await store.get("s", AT) == (None, None)
    redis.resume()
    await until(lambda: store.link.available)
    assert await value_of(store) == b"x"


async def test_a_dead_redis_is_left_alone(redis: RedisServer) -> None:
    store = RedisCache(redis.url, TIMEOUT_S, first_pause_s=60)
    redis.kill()
    await store.get("s", AT)
    failures = store.link.failures
    redis.start()
    assert await store.get("s", AT) == (None, None)
    assert (store.link.failures, store.link.outages) == (failures, 1)
    await store.close()


async def test_a_quick_restart_is_no_failure(store: RedisCache, redis: RedisServer) -> None:
    await fill(store)
    redis.restart()
    await fill(store)
    assert await value_of(store) == b"x"
    assert store.link.failures == 0


async def test_it_comes_back_after_a_kill(store: RedisCache, redis: RedisServer) -> None:
    await fill(store)
    redis.kill()
    assert await store.get("s", AT) == (None, None)
    redis.start()
    await until(lambda: store.link.available)
    await fill(store)
    assert await value_of(store) == b"x"


async def test_replies_are_never_mixed_up_after_time_limits(redis: RedisServer) -> None:
    store = make_store(redis, timeout_s=0.5)
    for n in range(20):
        await fill(store, f"s{n}", value=b"%d" % n)
    for _ in range(3):
        redis.pause()
        await asyncio.gather(*(store.get(f"s{n}", AT) for n in range(20)))
        redis.resume()
        await until(lambda: store.link.available)
        for n in range(20):
            assert await value_of(store, f"s{n}") in (b"%d" % n, None)
    assert store.rejected == 0
    await store.close()


async def test_a_caller_who_leaves_breaks_nothing(store: RedisCache, redis: RedisServer) -> None:
    for n in range(10):
        await fill(store, f"s{n}", value=b"%d" % n)
    for _ in range(20):
        leaving = [asyncio.create_task(store.get(f"s{n}", AT)) for n in range(10)]
        await asyncio.sleep(0)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
    assert [await value_of(store, f"s{n}") for n in range(10)] == [b"%d" % n for n in range(10)]
    assert store.link.failures == 0


async def test_a_purge_during_an_outage_is_made_up_for(
    store: RedisCache, redis: RedisServer
) -> None:
    await fill(store, value=b"old")
    redis.pause()
    await store.get("s", AT)
    assert not await store.purge("s")  # not even sent
    redis.resume()
    await until(lambda: store.link.available)
    assert await value_of(store) is None
    assert redis.command("EXISTS", chunk_key("s", AT)) == 1  # there, but of no generation


async def test_a_purge_whose_writer_leaves_is_made_up_for(
    store: RedisCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*commands: object) -> None:
        await asyncio.Event().wait()

    await fill(store, value=b"old")
    with monkeypatch.context() as patch:
        patch.setattr(store.link, "call", hang)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.purge("s"), 0.01)
    assert await store.get("s", AT) == (None, None)
    await until(lambda: store.link.available)
    assert await value_of(store) is None


async def test_purging_everything_is_tried_until_it_works(
    store: RedisCache, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rediscache, "MAX_OWED", 0)
    await fill(store)
    redis.command("ACL", "SETUSER", "default", "-del", "-scan")
    assert not await store.purge("s")
    await until(lambda: rejected_calls(redis, "scan") > 0)
    redis.command("ACL", "SETUSER", "default", "+del", "+scan")
    await until(lambda: store.link.available)
    assert await value_of(store) is None


def rejected_calls(redis: RedisServer, command: str) -> int:
    statistics = redis.command("INFO", "commandstats")
    return int(statistics.get(f"cmdstat_{command}", {}).get("rejected_calls", 0))


async def test_more_purges_than_can_be_remembered_purge_everything(
    store: RedisCache, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rediscache, "MAX_OWED", 1)
    for stream in ("a", "b", "c"):
        await fill(store, stream)
    redis.pause()
    await store.purge("a")
    await store.purge("b")
    redis.resume()
    await until(lambda: store.link.available)
    assert [await value_of(store, stream) for stream in "abc"] == [None] * 3


async def test_a_redis_that_takes_no_purges_is_not_read(
    store: RedisCache, redis: RedisServer
) -> None:
    await fill(store, value=b"old")
    redis.command("REPLICAOF", "127.0.0.1", "1")  # read-only from now on
    assert not await store.purge("s")
    assert await store.get("s", AT) == (None, None)
    redis.command("REPLICAOF", "NO", "ONE")
    await until(lambda: store.link.available)
    assert await value_of(store) is None


async def test_a_full_redis_is_still_read_and_purged(store: RedisCache, redis: RedisServer) -> None:
    await fill(store)
    redis.command("CONFIG", "SET", "maxmemory", "1")
    assert not await store.put("s", await generation_of(store, "s"), NEXT, b"y", 60)
    assert await value_of(store) == b"x"
    assert await store.purge("s")
    assert await store.get("s", AT) == (None, None)
    assert store.link.available


async def test_a_close_leaves_no_connection_behind(redis: RedisServer) -> None:
    store = make_store(redis, timeout_s=5)
    await fill(store)
    redis.pause()
    asking = asyncio.create_task(store.get("s", AT))
    await asyncio.sleep(0)  # it has sent its commands
    await store.close()
    redis.resume()
    assert (await asking)[1] == b"x"
    await until(lambda: redis.command("INFO", "clients")["connected_clients"] == 1)


async def test_a_server_that_is_no_redis_is_left_alone() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n$99999999999\r\n:x\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = RedisCache(f"redis://127.0.0.1:{port}", TIMEOUT_S)
    assert await store.get("s", AT) == (None, None)
    assert not store.link.available
    await store.close()
    server.close()
