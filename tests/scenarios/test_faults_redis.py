"""Redis shared, killed, stopped and back: the gateway goes on without it, soon, and never serves
what was purged meanwhile once it is back."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import LocalGateway, TokenClient
from tests.helpers.offsets import nameless, unnamed
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import Response, wait_until
from tests.helpers.redis import RedisServer
from tests.helpers.scripted_origin import ScriptedOrigin, SimpleStream
from tests.scenarios.conftest import StartGateway
from tests.scenarios.watching import grow_older

PATH = "/v1/stream/a"
HIT = "weir; hit"
TEXT = {"Content-Type": "text/plain"}
SOON_S = 20.0  # with Redis away

Fault = Callable[[RedisServer], None]
AWAY: dict[str, tuple[Fault, Fault]] = {
    "killed": (RedisServer.kill, RedisServer.start),
    "stopped": (RedisServer.pause, RedisServer.resume),
}


@pytest.fixture
def real(start_origin: StartOrigin) -> LocalOrigin:
    return start_origin(storage={"chunk_bytes": 4})


@pytest.fixture
def pair(real: LocalOrigin, redis: RedisServer, start_gateway: StartGateway) -> list[LocalGateway]:
    cache = {"redis_url": redis.url, "redis_timeout_secs": 1.0}
    return [start_gateway(f"http://127.0.0.1:{real.port}", cache=cache) for _ in range(2)]


@pytest.fixture
def clients(pair: list[LocalGateway]) -> Iterator[list[TokenClient]]:
    with pair[0].client() as one, pair[1].client() as two:
        yield [one, two]


def soon(ask: Callable[..., Response], *arguments: Any) -> Response:
    begun = time.monotonic()
    answer = ask(*arguments)
    assert time.monotonic() - begun < SOON_S
    return answer


def is_connected(gateway: LocalGateway) -> bool:
    return gateway.metric("redis_up") == gateway.metric("notices_up") == 1


# -- at its best ---------------------------------------------------------------------------------


CONFIRMED = "weir; fwd=stale; fwd-status=304"


def fill(client: TokenClient, redis: RedisServer) -> list[str]:
    """A stream whose two chunks are in Redis; their offsets."""
    offsets = ["-1", client.create("a", body=b"one."), client.append("a", b"two.")]
    client.append("a", b"tail")
    assert [client.read("a", offset).body for offset in offsets[:2]] == [b"one.", b"two."]
    wait_until(lambda: len(redis.command("KEYS", "weir:chunk:*")) == 2)
    return offsets


def meet(gateway: LocalGateway, client: TokenClient) -> None:
    """The first chunk is taken from Redis on the origin's word, and then the stream is known."""
    answer = client.read("a")
    assert (answer.body, answer["Cache-Status"]) == (b"one.", CONFIRMED)
    streams = gateway.gateway.holdings.streams
    wait_until(lambda: gateway.call(lambda: streams.is_introduced(streams.get("a"))))


def test_a_chunk_that_one_gateway_fetched_is_a_hit_at_the_other(
    redis: RedisServer, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    one, two = clients
    offsets = fill(one, redis)
    meet(pair[1], two)
    before = pair[1].metric("upstream_requests")
    answer = two.read("a", offsets[1])
    assert (answer.body, answer["Cache-Status"]) == (b"two.", HIT)
    assert answer["ETag"] == one.read("a", offsets[1])["ETag"]
    assert pair[1].metric("upstream_requests") == before
    assert "miss" in two.read("a", offsets[2])["Cache-Status"]  # a tail is not shared


def test_shared_chunks_outlive_the_origin_for_those_who_know_the_stream(
    redis: RedisServer, real: LocalOrigin, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    one, two = clients
    offsets = fill(one, redis)
    meet(pair[1], two)
    real.stop()
    assert two.read("a", offsets[1]).body == b"two."
    grow_older(pair[1], 1000)
    assert two.read("a", offsets[1]).body == b"two."


def test_what_others_wrote_into_redis_is_not_served(
    scripted: ScriptedOrigin, redis: RedisServer, start_gateway: StartGateway
) -> None:
    stream = SimpleStream(scripted, PATH, chunk_bytes=4)
    for body in (b"one.", b"two."):
        stream.append(body)
    one, two = [start_gateway(cache={"redis_url": redis.url}) for _ in range(2)]
    with one.client() as first, two.client() as second:
        first.read("a")
        wait_until(lambda: redis.command("KEYS", "weir:chunk:*") != [])
        for key in redis.command("KEYS", "weir:chunk:*"):
            value = bytearray(redis.command("GET", key))
            value[-20] ^= 1
            redis.command("SET", key, bytes(value))
        assert second.read("a").body == b"one."
        assert two.metric("shared_rejected") == 1
        assert stream.counts["catch-up"] == 2


@pytest.mark.parametrize("key", ["", "s3cret"])
def test_a_gateway_whose_values_anyone_can_forge_says_so(
    key: str, redis: RedisServer, start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = start_gateway(cache={"redis_url": redis.url, "redis_key": key})
    assert ("no cache.redis_key" in caplog.text) == (key == "")
    assert gateway.metric("redis_sealed") == (key != "")


# -- away ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", AWAY)
def test_everything_goes_on_without_redis_and_with_it_again(
    how: str, redis: RedisServer, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    leave, come_back = AWAY[how]
    one, two = clients
    one.create("a", body=b"one.")
    one.append("a", b"two.")
    leave(redis)
    for number in range(5):
        name = f"b{number}"
        assert soon(one, "PUT", name, TEXT, b"one.").status == 201
        assert soon(one, "POST", name, TEXT, b"two.").status == 204
        for client in clients:
            assert soon(client.read, name).body == b"one."
    assert [gateway.metric("redis_up") for gateway in pair] == [0, 0]
    assert all(gateway.metric("redis_failures") > 0 for gateway in pair)
    come_back(redis)
    wait_until(lambda: all(map(is_connected, pair)))
    assert one.read("a").body == b"one."
    wait_until(lambda: redis.command("KEYS", "weir:chunk:*") != [])
    assert two.read("a")["Cache-Status"] == CONFIRMED


@pytest.mark.parametrize("how", AWAY)
def test_what_was_purged_while_redis_was_away_is_gone_once_it_is_back(
    how: str, redis: RedisServer, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    """Nobody could be told; so everybody who comes back drops what it has."""
    leave, come_back = AWAY[how]
    one, two = clients
    one.create("a", body=b"old.")
    one.append("a", b"tail")
    for client in clients:
        assert client.read("a").body == b"old."
    wait_until(lambda: redis.command("KEYS", "weir:chunk:*") != [])
    leave(redis)
    assert soon(one, "DELETE", "a").status == 204
    assert soon(one, "PUT", "a", TEXT, b"new.").status == 201
    one.append("a", b"tail")
    assert soon(one.read, "a").body == b"new."  # where it was purged, at once
    come_back(redis)
    wait_until(lambda: all(map(is_connected, pair)))
    wait_until(lambda: two.read("a").body == b"new.")
    for client in clients:
        assert client.read("a").body == b"new."


def test_who_was_cut_off_for_a_moment_drops_all_it_may_have_missed(
    redis: RedisServer, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    one, two = clients
    one.create("a", body=b"old.")
    one.append("a", b"tail")
    assert two.read("a").body == b"old."
    redis.command("CLIENT", "KILL", "TYPE", "pubsub")
    assert one("DELETE", "a").status == 204
    one.create("a", body=b"new.")
    one.append("a", b"tail")
    wait_until(lambda: pair[1].metric("notices_gaps") == 1)
    assert two.read("a").body == b"new."


def test_a_slow_redis_costs_a_read_its_time_limit_once(
    redis: RedisServer, real: LocalOrigin, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    with real.client() as direct:
        for number in range(20):
            direct.create(f"s{number}", body=b"one.")
            direct.append(f"s{number}", b"two.")
    redis.pause()
    begun = time.monotonic()
    for number in range(20):
        assert clients[0].read(f"s{number}").body == b"one."
    assert time.monotonic() - begun < 15.0  # not 20 times the limit
    redis.resume()


def test_a_gateway_starts_without_redis_and_takes_it_up_when_it_comes(
    redis: RedisServer, real: LocalOrigin, start_gateway: StartGateway
) -> None:
    redis.kill()
    gateway = start_gateway(f"http://127.0.0.1:{real.port}", cache={"redis_url": redis.url})
    with gateway.client() as client:
        client.create("a", body=b"one.")
        client.append("a", b"two.")
        assert client.read("a").body == b"one."
        redis.start()
        wait_until(lambda: is_connected(gateway))
        client.create("b", body=b"one.")
        client.append("b", b"two.")
        assert client.read("b").body == b"one."
        wait_until(lambda: redis.command("KEYS", "weir:chunk:*") != [])


def test_a_redis_that_lost_everything_brings_nothing_back(
    redis: RedisServer, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    one, two = clients
    one.create("a", body=b"old.")
    one.append("a", b"tail")
    one.read("a")
    wait_until(lambda: redis.command("KEYS", "weir:chunk:*") != [])
    redis.command("FLUSHALL")
    assert one("DELETE", "a").status == 204
    one.create("a", body=b"new.")
    one.append("a", b"tail")
    assert [client.read("a").body for client in clients] == [b"new."] * 2


def test_readers_do_not_notice_a_restart_of_redis(
    redis: RedisServer, pair: list[LocalGateway], clients: list[TokenClient]
) -> None:
    one, two = clients
    one.create("a", body=b"one.")
    with pair[1].events("a") as events:
        assert events.next_write()[0].data == "one."
        redis.restart()
        one.append("a", b"two.")
        assert events.next_write()[0].data == "two."
        assert [unnamed(client.read("a").next_offset) for client in clients] == [nameless(4)] * 2
