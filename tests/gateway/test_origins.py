"""The client to a cluster of origins: scripted nodes that tell a map, and answer or do not."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway import mapwatch, origins
from gateway.asking import UpstreamError, UpstreamRequest
from gateway.breaker import State
from gateway.config import UpstreamConfig
from gateway.origins import ANSWER_SECS, Origins, shorten
from gateway.slots import Payers
from gateway.upstream import Upstream
from protocol.clustermap import MAP_PATH, shard_of
from protocol.names import STREAM_PREFIX
from tests.helpers.gateway import KEY, LocalGateway, bearer, make_gateway_config
from tests.helpers.keys import make_token
from tests.helpers.rawhttp import Client, wait_until
from tests.helpers.scripted_cluster import ScriptedCluster
from tests.helpers.scripted_origin import Answer, Gate, ScriptedOrigin, SimpleStream, dropped, until
from tests.helpers.upstreams import PRODUCER, TEXT, Clock, connected, refusal

PLAIN = {"content-type": "text/plain"}
NO_OWNER = Answer(503, {"Retry-After": "1"}, b'{"code":"no-owner"}')


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """Each node answers requests for any stream with its own name."""
    with ScriptedCluster() as cluster:
        for name, node in cluster.nodes.items():
            node.on("*", STREAM_PREFIX + "*", Answer(200, TEXT, name.encode()))
        yield cluster


class RealClock(Clock):
    def __call__(self) -> float:
        return time.monotonic()


@asynccontextmanager
async def upstream_of(
    cluster: ScriptedCluster, urls: list[str] | None = None, **settings: Any
) -> AsyncIterator[Upstream]:
    """A client that knows the map."""
    async with connected(urls or cluster.all_urls, clock=RealClock(), **settings) as upstream:
        await until(lambda: upstream.is_known)
        yield upstream


def nodes_of(upstream: Upstream) -> Origins:
    assert upstream.cluster is not None
    return upstream.cluster


async def learned(upstream: Upstream, cluster: ScriptedCluster) -> None:
    await until(lambda: nodes_of(upstream).watch.version == cluster.version)


def read(name: str) -> UpstreamRequest:
    return UpstreamRequest("GET", STREAM_PREFIX + name, {}, name=name)


def append(name: str, **headers: str) -> UpstreamRequest:
    return UpstreamRequest("POST", STREAM_PREFIX + name, PLAIN | headers, b"data", name=name)


# -- the way to the owner ----------------------------------------------------------------------


async def test_requests_go_straight_to_the_owner(cluster: ScriptedCluster) -> None:
    async with upstream_of(cluster) as upstream:
        for node in [*cluster.nodes] * 3:
            name = cluster.name_at(node)
            assert (await upstream.fetch(read(name))).body == node.encode()
            assert (await upstream.fetch(append(name))).body == node.encode()
            assert (await upstream.fetch(read(name), live=True)).body == node.encode()
            async with upstream.open(read(name)) as opened:
                assert [piece async for piece in opened.pieces] == [node.encode()]
            assert cluster.asked(name) == [node] * 4
        kinds = ("read", "write", "live")  # none of them for the map
        assert [upstream.requests[kind] for kind in kinds] == [18, 9, 9]
        assert (upstream.is_up, upstream.state, upstream.retries) == (True, State.CLOSED, 0)


async def test_a_change_of_the_map_is_followed(cluster: ScriptedCluster) -> None:
    name = cluster.name_at("n1")
    async with upstream_of(cluster) as upstream:
        assert (await upstream.fetch(read(name))).body == b"n1"
        cluster.move(name, "n3")
        await learned(upstream, cluster)
        assert (await upstream.fetch(read(name))).body == b"n3"


async def test_a_detour_is_noticed_at_once(cluster: ScriptedCluster) -> None:
    """By the version that the node which forwards tells; an old one means nothing."""
    name = cluster.name_at("n1")
    async with upstream_of(cluster) as upstream:
        cluster.move(name, "n2")
        for version in ("1", "x", "-3", str(cluster.version)):
            answer = Answer(200, TEXT | {"Weir-Map": version}, b"by way of n1")
            cluster.nodes["n1"].on("GET", STREAM_PREFIX + name, answer)
            told = await upstream.fetch(read(name))
            assert (told.status, "weir-map" in told.headers) == (200, False)
        await learned(upstream, cluster)


async def test_without_a_map_any_node_will_do(cluster: ScriptedCluster) -> None:
    for node in cluster.nodes.values():
        node.on("GET", MAP_PATH, Answer(404))
    async with connected(cluster.all_urls) as upstream:
        assert (await upstream.fetch(read("a"))).status == 200
        assert not upstream.is_known and not upstream.is_up


async def test_nodes_that_only_the_map_names_are_used(cluster: ScriptedCluster) -> None:
    async with upstream_of(cluster, cluster.all_urls[:1]) as upstream:
        for node in cluster.nodes:
            assert (await upstream.fetch(read(cluster.name_at(node)))).body == node.encode()
        assert {cluster.nodes[node].count(path=MAP_PATH) for node in ("n2", "n3")} == {0}
        cluster.lose("n3")
        await learned(upstream, cluster)
        assert nodes_of(upstream).up_count == 2
        await until(lambda: cluster.nodes["n3"].connections == 0)


@pytest.mark.parametrize("bad", ["{}/path", "{}?query", "ftp://127.0.0.1:1", "http://u:p@a"])
async def test_an_address_that_is_none_is_not_used(cluster: ScriptedCluster, bad: str) -> None:
    name = cluster.name_at("n2")
    cluster.urls["n2"] = bad.format(cluster.nodes["n2"].url)
    cluster.publish()
    async with upstream_of(cluster, cluster.all_urls[:1]) as upstream:
        for _ in range(5):
            assert (await upstream.fetch(read(name))).body in (b"n1", b"n3")
    assert cluster.nodes["n2"].count() == 0


async def test_the_map_of_another_cluster_is_not_believed(cluster: ScriptedCluster) -> None:
    name = cluster.name_at("n1")
    with ScriptedCluster() as other:
        other.version = 1000
        for node in other.nodes.values():
            node.on("*", STREAM_PREFIX + "*", Answer(200, TEXT, b"stranger"))
        other.owners = other.owners[:3]
        async with upstream_of(cluster, cluster.all_urls[:1]) as upstream:
            other.publish()
            cluster.nodes["n1"].on("GET", MAP_PATH, other._tell)
            asked = cluster.count_maps()
            await until(lambda: cluster.count_maps() > asked + 1)
            assert (await upstream.fetch(read(name))).body == b"n1"
            assert nodes_of(upstream).watch.version == cluster.version


# -- nodes that are lost -----------------------------------------------------------------------


@pytest.mark.parametrize("live", [False, True])
async def test_a_dead_owner_costs_a_detour(cluster: ScriptedCluster, live: bool) -> None:
    name = cluster.name_at("n1")
    async with upstream_of(cluster, breaker_secs=0.5) as upstream:
        cluster.nodes["n1"].down()
        for _ in range(20):
            request = read(name) if live else append(name)
            assert (await upstream.fetch(request, live=live)).body in (b"n2", b"n3")
        assert upstream.failures == {}
        assert (nodes_of(upstream).lost_count, upstream.is_up) == (1, True)
        assert upstream.retries <= UpstreamConfig().breaker_failures  # then it is known
        cluster.nodes["n1"].up()
        await until(lambda: nodes_of(upstream).lost_count == 0)  # found out by us, not by clients
        assert (await upstream.fetch(read(name))).body == b"n1"


async def test_the_streams_of_other_nodes_do_not_notice(cluster: ScriptedCluster) -> None:
    async with upstream_of(cluster, breaker_failures=1) as upstream:
        cluster.nodes["n1"].down()
        await upstream.fetch(read(cluster.name_at("n1")))
        for node in ("n2", "n3"):
            assert (await upstream.fetch(append(cluster.name_at(node)))).body == node.encode()
        assert upstream.retries == 1


async def test_a_lost_connection_hurries_the_map(cluster: ScriptedCluster) -> None:
    name = cluster.name_at("n1")
    async with upstream_of(cluster, cluster.all_urls[1:]) as upstream:
        cluster.nodes["n1"].down()
        cluster.lose("n1")
        cluster.move(name, "n2")
        await upstream.fetch(read(name))
        await learned(upstream, cluster)
        assert (await upstream.fetch(append(name))).body == b"n2"


@pytest.mark.parametrize("repeatable", [False, True])
async def test_what_was_cut_off_is_repeated_elsewhere_if_it_may_be(
    cluster: ScriptedCluster, repeatable: bool
) -> None:
    name = cluster.name_at("n1")
    cluster.nodes["n1"].on("*", STREAM_PREFIX + name, dropped())
    async with upstream_of(cluster) as upstream:
        for request in [read(name), append(name, **PRODUCER)] if repeatable else [append(name)]:
            if repeatable:
                assert (await upstream.fetch(request)).body in (b"n2", b"n3")
            else:
                error = await refusal(upstream, request)
                assert (error.status, error.code, error.sent) == (503, "origin-unreachable", True)
                assert error.headers == (("Retry-After", "1"),)
    asked = cluster.asked(name)
    assert (asked[0], len(asked)) == ("n1", 4 if repeatable else 1)


async def test_a_cluster_that_is_away_is_not_asked_for_ever(cluster: ScriptedCluster) -> None:
    async with upstream_of(cluster, breaker_failures=1, breaker_secs=30.0) as upstream:
        for node in cluster.nodes.values():
            node.down()
        error = await refusal(upstream, append("a"))
        assert (error.status, error.code, error.sent) == (503, "origin-unreachable", False)
        assert not upstream.is_up and upstream.is_known  # so the gateway stays ready
        error = await refusal(upstream, append("a"))
        assert (error.status, error.code) == (503, "origin-unavailable")
        assert upstream.state is State.OPEN


async def test_one_node_alone_is_asked_again(cluster: ScriptedCluster) -> None:
    name = cluster.name_at("n1")
    cluster.nodes["n1"].on("*", STREAM_PREFIX + name, [dropped(), Answer(200, TEXT, b"n1")])
    for node in ("n2", "n3"):
        cluster.lose(node)
    async with upstream_of(cluster, cluster.all_urls[:1]) as upstream:
        assert (await upstream.fetch(read(name))).body == b"n1"
    assert cluster.asked(name) == ["n1", "n1"]


# -- nodes that have stopped -------------------------------------------------------------------


def test_no_time_towards_a_node_is_longer_than_five_seconds() -> None:
    config = shorten(UpstreamConfig())
    assert config.first_byte_timeout_secs == config.idle_timeout_secs == ANSWER_SECS < 5
    brief = UpstreamConfig(first_byte_timeout_secs=0.5, idle_timeout_secs=0.5)
    assert shorten(brief).first_byte_timeout_secs == shorten(brief).idle_timeout_secs == 0.5


async def test_a_stopped_owner_is_answered_for_within_five_seconds(
    cluster: ScriptedCluster,
) -> None:
    """It takes connections and never answers; more requests come than there are connections."""
    name, other = cluster.name_at("n1"), cluster.name_at("n2")
    cluster.nodes["n1"].hold()
    async with upstream_of(cluster, cluster.all_urls[1:], connections=8) as upstream:
        started = time.monotonic()
        requests = [append(name), read(name), append(name, **PRODUCER)] * 6
        waiting = [asyncio.create_task(upstream.fetch(request)) for request in requests]
        await cluster.nodes["n1"].reached(4)
        assert (await upstream.fetch(append(other))).body == b"n2"  # half of them are left
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert time.monotonic() - started < 5 + 2  # for a busy machine
        assert {(e.status, e.headers) for e in errors if isinstance(e, UpstreamError)} == {
            (503, (("Retry-After", "1"),))
        }
        assert {getattr(e, "code", None) for e in errors} == {"origin-timeout", "origin-busy"}
        assert sum(getattr(e, "sent", False) for e in errors) == 4 == cluster.nodes["n1"].count()


async def test_nor_does_a_large_append_wait_longer(cluster: ScriptedCluster) -> None:
    name = cluster.name_at("n1")
    cluster.nodes["n1"].hold()
    async with upstream_of(cluster, cluster.all_urls[1:], first_byte_timeout_secs=0.2) as upstream:
        large = UpstreamRequest("POST", STREAM_PREFIX + name, PLAIN, bytes(2**24), name=name)
        error = await asyncio.wait_for(refusal(upstream, large), 6.0)
        assert (error.status, error.code) == (503, "origin-timeout")


async def test_a_body_that_stops_is_answered_for_as_well(cluster: ScriptedCluster) -> None:
    name, cut = cluster.name_at("n1"), cluster.name_at("n1")
    cluster.nodes["n1"].on("GET", STREAM_PREFIX + name, Answer(200, {"Content-Length": "9"}, b"x"))
    cluster.nodes["n1"].on("GET", STREAM_PREFIX + cut, Answer(200, TEXT, b"xy", cut_after=1))
    async with upstream_of(cluster, idle_timeout_secs=0.2) as upstream:
        for stream in (name, cut):
            error = await refusal(upstream, read(stream))
            assert (error.status, error.headers) == (503, (("Retry-After", "1"),))


async def test_a_node_whose_storage_is_slow_is_not_given_up(cluster: ScriptedCluster) -> None:
    name, other = cluster.name_at("n1"), cluster.name_at("n1")
    cluster.nodes["n1"].on("*", STREAM_PREFIX + name, Answer(200, TEXT, b"late", hold=60.0))
    settings: dict[str, Any] = {"first_byte_timeout_secs": 0.1, "breaker_failures": 2}
    async with upstream_of(cluster, **settings) as upstream:
        codes = [(await refusal(upstream, append(name))).code for _ in range(4)]
        assert codes == ["origin-timeout"] * 4
        assert (await upstream.fetch(read(other))).body == b"n1"


async def test_a_node_that_does_not_even_tell_the_map_is_given_up(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long-poll that waits there goes elsewhere, and requests follow it."""
    monkeypatch.setattr(mapwatch, "ASK_SECS", 1.3)
    name = cluster.name_at("n1")
    async with upstream_of(cluster, breaker_failures=1, breaker_secs=0.5) as upstream:
        cluster.nodes["n1"].hold()
        poll = asyncio.create_task(upstream.fetch(read(name), live=True))
        assert (await poll).body in (b"n2", b"n3")
        assert (await upstream.fetch(append(name))).body in (b"n2", b"n3")
        cluster.nodes["n1"].release()
        await until(lambda: nodes_of(upstream).lost_count == 0)
        assert (await upstream.fetch(read(name))).body == b"n1"


async def test_a_long_poll_at_a_stopped_owner_goes_to_the_next(cluster: ScriptedCluster) -> None:
    name, other = cluster.name_at("n1"), cluster.name_at("n2")
    for node in ("n1", "n2"):
        cluster.nodes[node].hold()
    async with upstream_of(cluster, cluster.all_urls[2:]) as upstream:
        departed: list[int] = []
        poll = upstream.fetch(read(name), live=True, on_departure=lambda: departed.append(1))
        stays = asyncio.create_task(upstream.fetch(read(other), live=True))
        goes = asyncio.create_task(poll)
        await asyncio.gather(*(cluster.nodes[node].reached(1) for node in ("n1", "n2")))
        cluster.move(name, None)  # nobody has news yet
        await learned(upstream, cluster)
        assert not goes.done()
        cluster.move(name, "n3")
        assert (await goes).body == b"n3"
        assert (departed, stays.done(), upstream.is_up) == ([1], False, True)
        cluster.nodes["n2"].release()
        assert (await stays).body == b"n2"


async def test_a_long_poll_follows_its_stream_from_move_to_move(cluster: ScriptedCluster) -> None:
    """A node that is killed and started again loses a shard, and gets it back."""
    name = cluster.name_at("n1")
    for node in ("n1", "n2"):
        cluster.nodes[node].hold()
    async with upstream_of(cluster, cluster.all_urls[2:]) as upstream:
        poll = asyncio.create_task(upstream.fetch(read(name), live=True))
        for visits in (1, 2, 3):
            for node in ("n1", "n2"):
                cluster.move(name, node)
                await cluster.nodes[node].reached(visits)
        cluster.move(name, "n3")
        assert (await poll).body == b"n3"
        assert cluster.asked(name) == ["n1", "n2"] * 3 + ["n3"]


async def test_a_stream_that_moves_for_ever_is_followed_for_some_time(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "MAX_MOVES", 1)
    name = cluster.name_at("n1")
    for node in ("n1", "n2"):
        cluster.nodes[node].hold()
    async with upstream_of(cluster, cluster.all_urls[2:]) as upstream:
        poll = asyncio.create_task(refusal(upstream, read(name), live=True))
        await cluster.nodes["n1"].reached(1)
        cluster.move(name, "n2")
        await cluster.nodes["n2"].reached(1)
        cluster.move(name, "n1")
        error = await poll
        assert (error.status, error.code) == (503, "origin-unreachable")
        assert cluster.asked(name) == ["n1", "n2"]


# -- connections -------------------------------------------------------------------------------


@pytest.mark.parametrize("live", [False, True])
async def test_no_more_connections_are_made_than_to_one_origin(
    cluster: ScriptedCluster, live: bool
) -> None:
    """Neither at a time, nor by keeping idle ones: those of one node make room for another's."""
    bound: dict[str, Any] = {"live_connections" if live else "connections": 6}
    names = {node: cluster.name_at(node) for node in cluster.nodes}
    most: list[int] = []

    def look(*_: object) -> Answer:
        most.append(sum(node.connections for node in cluster.nodes.values()))
        return Answer(200, TEXT, b"x", hold=0.005)

    for node, name in names.items():
        cluster.nodes[node].on("GET", STREAM_PREFIX + name, look)
    async with upstream_of(cluster, **bound) as upstream:
        for name in names.values():
            await asyncio.gather(*(upstream.fetch(read(name), live=live) for _ in range(20)))
        mixed = [read(name) for name in names.values()] * 10
        await asyncio.gather(*(upstream.fetch(request, live=live) for request in mixed))
    assert len(most) == 90
    # Those for the map are besides; an end takes a moment to arrive.
    assert max(most) <= 6 + len(cluster.nodes) + 3


async def test_one_subject_leaves_connections_to_an_owner_to_the_others(
    cluster: ScriptedCluster,
) -> None:
    slow, other, gate = cluster.name_at("n1"), cluster.name_at("n1"), Gate()
    cluster.nodes["n1"].on("GET", STREAM_PREFIX + slow, Answer(200, TEXT, pieces=[b"x", gate]))
    settings: dict[str, Any] = {"auth": "jwt", "connections": 8, "first_byte_timeout_secs": 0.2}
    async with upstream_of(cluster, **settings) as upstream, AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(upstream.open(read(slow), payers=Payers("greedy")))
        error = await refusal(upstream, read(other), payers=Payers("greedy"))
        assert (error.status, error.code) == (429, "origin-busy-for-subject")
        assert (await upstream.fetch(read(other), payers=Payers("modest"))).body == b"n1"
        elsewhere = read(cluster.name_at("n2"))
        assert (await upstream.fetch(elsewhere, payers=Payers("greedy"))).body == b"n2"


# -- through a gateway -------------------------------------------------------------------------


@pytest.fixture
def gateway(cluster: ScriptedCluster) -> Iterator[LocalGateway]:
    config = make_gateway_config("http://nobody", gateway={"origin_urls": tuple(cluster.all_urls)})
    with LocalGateway(config) as gateway:
        wait_until(lambda: gateway.gateway.ready)
        yield gateway


@pytest.fixture
def client(gateway: LocalGateway) -> Iterator[Client]:
    with gateway.client() as client:
        yield client


def streams_of(cluster: ScriptedCluster, name: str) -> dict[str, SimpleStream]:
    """The same stream at each node, as a journal would have it."""
    path = STREAM_PREFIX + name
    made = {
        node: SimpleStream(origin, path, long_poll_s=60.0) for node, origin in cluster.nodes.items()
    }
    for stream in made.values():
        stream.append(b"hello")
    return made


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("GET", "/v1/stream/some%20na%6De?offset=-1", "some name"),
        ("HEAD", "/v1/stream/a/b", "a/b"),
        ("POST", "/v1/stream/%C3%A9", "é"),
        ("GET", "/v1/stream/a/snapshot", "a"),
        ("GET", "/v1/stream/b/bootstrap", "b"),
        ("PUT", "/ds/bucket", "/ds/bucket"),
        ("GET", "/ds/bucket/streams?prefix=x", "/ds/bucket"),
        ("GET", "/ds/bucket/stream?offset=now", "/ds/bucket/stream"),
    ],
)
def test_what_decides_the_node(
    cluster: ScriptedCluster, gateway: LocalGateway, method: str, target: str, name: str
) -> None:
    with gateway.connect() as connection:
        connection.request(method, target, TEXT | bearer(make_token(KEY)))
    asked = [
        node
        for node, origin in cluster.nodes.items()
        if any(request.path != MAP_PATH for request in origin.requests)
    ]
    assert asked == [cluster.owners[shard_of(name, len(cluster.owners))]]


def test_no_owner_is_told_and_not_stored(
    cluster: ScriptedCluster, gateway: LocalGateway, client: Client
) -> None:
    name = cluster.name_at("n1")
    streams_of(cluster, name)
    origin = cluster.nodes["n1"]
    found = origin._scripts["*", STREAM_PREFIX + name]
    origin.on("*", STREAM_PREFIX + name, NO_OWNER)
    for _ in range(3):
        for refused in (client.read(name), client("POST", name, TEXT, b"x"), client("HEAD", name)):
            assert (refused.status, refused["Retry-After"]) == (503, "1")
    assert (origin.count(path=STREAM_PREFIX + name), gateway.metric("upstream_up")) == (9, 1)
    assert gateway.metric("cache_entries") == gateway.metric("upstream_nodes", state="lost") == 0
    origin.on("*", STREAM_PREFIX + name, found)
    assert client.read(name).body == b"hello"


def test_read_your_writes_over_a_move(cluster: ScriptedCluster, client: Client) -> None:
    name = cluster.name_at("n1")
    streams = streams_of(cluster, name)
    assert client.read(name).body == b"hello"
    streams["n2"].append(b", you")
    cluster.nodes["n3"].on("*", STREAM_PREFIX + name, NO_OWNER)
    cluster.nodes["n1"].down()
    cluster.move(name, "n2")
    wait_until(lambda: client("POST", name, TEXT, b"!").status == 204)
    while (found := client.read(name)).status == 503:
        assert found.body == NO_OWNER.body
    assert found.body == b"hello, you!"


@pytest.mark.parametrize("how", ["stopped", "cut", "refused"])
def test_a_hub_follows_its_stream_to_the_next_owner(
    cluster: ScriptedCluster, gateway: LocalGateway, how: str
) -> None:
    name = cluster.name_at("n1")
    streams = streams_of(cluster, name)
    old, new = cluster.nodes["n1"], streams["n2"]
    with gateway.events(name) as reader:
        reader.next_write()
        wait_until(lambda: streams["n1"].waiting == 1)
        if how == "refused":  # by whoever is asked before there is another owner
            for node in ("n2", "n3"):
                cluster.nodes[node].on("*", STREAM_PREFIX + name, NO_OWNER)
        if how != "stopped":
            old.down()
        if how == "refused":
            wait_until(lambda: sum(cluster.asked(name).count(n) for n in ("n2", "n3")) > 2)
            cluster.nodes["n2"].on("*", STREAM_PREFIX + name, new._answer)
        cluster.move(name, "n2")
        wait_until(lambda: new.waiting == 1)
        new.append(b", new owner")
        events = reader.next_write()
        assert events[0].data == ", new owner"
    assert gateway.metric("upstream_up") == 1


def test_a_gateway_is_ready_when_it_knows_the_map(cluster: ScriptedCluster) -> None:
    tell = cluster.nodes["n1"]._scripts["GET", MAP_PATH]
    cluster.nodes["n1"].on("GET", MAP_PATH, Answer(503))
    config = make_gateway_config("http://x", gateway={"origin_urls": (cluster.nodes["n1"].url,)})
    with LocalGateway(config) as gateway, gateway.connect() as service:
        assert service.request("GET", "/readyz").status == 503
        cluster.nodes["n1"].on("GET", MAP_PATH, tell)
        wait_until(lambda: service.request("GET", "/readyz").status == 200)
        names = ("upstream_map_version", "upstream_up")
        assert [gateway.metric(name) for name in names] == [1, 1]
        assert [gateway.metric("upstream_nodes", state=s) for s in ("up", "lost")] == [3, 0]
        assert 0 <= gateway.metric("upstream_map_age_seconds") < 60


def test_a_single_origin_is_not_asked_for_a_map() -> None:
    with ScriptedOrigin() as origin, LocalGateway(make_gateway_config(origin.url)) as gateway:
        assert gateway.gateway.ready
        assert "upstream_nodes" not in gateway.gateway.metrics.render().decode()
        assert origin.count() == 0
