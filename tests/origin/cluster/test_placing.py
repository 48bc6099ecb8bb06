"""Forks whose names are at home in other shards: they are in their source's, by an alias."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from origin.cluster import placing
from origin.cluster.peers import Peers
from origin.cluster.questions import Permit
from origin.creations import Creations
from protocol.clustermap import shard_of
from tests.extension.conftest import Api, problem
from tests.helpers.cluster import SHARDS, AnyNodeClient, LocalCluster
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    EventStream,
    Response,
    control,
    header_names,
    wait_until,
)
from tests.origin.cluster.conftest import StartCluster

TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def names(cluster: LocalCluster) -> tuple[str, str]:
    """Of a source at node `a` and a fork at node `b`."""
    return cluster.name_of("a", "source"), cluster.name_of("b", "fork")


def fork(client: Client, name: str, source: str, body: bytes = b"", **more: str) -> Response:
    headers = {"Stream-Forked-From": PREFIX + source, **header_names(more)}
    return client("PUT", name, headers, body)


def home(name: str) -> int:
    return shard_of(name, SHARDS)


# -- where forks are -------------------------------------------------------------------------------


def test_a_fork_is_in_the_shard_of_its_source(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    client.create(source, body=b"12345")
    for _ in range(3):  # at each node
        reply = fork(client, name, source)
        assert reply.status in (200, 201)
    assert cluster.where_is(name) == [home(source)]
    assert cluster.aliases() == {name: home(source)}
    client.append(name, b"6")
    assert [client.read(name).body for _ in range(3)] == [b"123456"] * 3
    assert client.read(source).body == b"12345"


def test_a_fork_of_a_fork_follows_the_chain(cluster: LocalCluster, client: Client) -> None:
    first = cluster.name_of("a", "first")
    second, third = cluster.name_of("b", "second"), cluster.name_of("c", "third")
    back = cluster.name_in(home(first), "back")  # at home where the chain is
    client.create(first, body=b"1")
    for name, source in [(second, first), (third, second), (back, third)]:
        assert fork(client, name, source).status == 201
        client.append(name, name[:1].encode())
        assert cluster.where_is(name) == [home(first)]
    assert client.read(back).body == b"1stb"
    assert sorted(cluster.aliases()) == sorted([second, third])


def test_a_fork_at_home_in_its_sources_shard_has_no_alias(
    cluster: LocalCluster, client: Client
) -> None:
    source = cluster.name_in(3, "source")
    client.create(source)
    assert fork(client, cluster.name_in(3, "fork"), source).status == 201
    assert cluster.aliases() == {}


def test_a_location_is_that_of_the_first_node(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    client.create(source)
    for host in ("one.test", "two.test:99"):
        reply = fork(client, f"{name}", source, host=host)
        assert (reply.status, reply["Location"]) == (201, f"http://{host}{PREFIX}{name}")
        client("DELETE", name)


def test_live_readers_follow_a_fork(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    client.create(source, body=b"1")
    fork(client, name, source)
    for origin in cluster.origins.values():
        with EventStream(origin.port, name) as events:
            assert control(events.next_write()[-1])["upToDate"] is True
            client.append(name, b"2")
            assert events.next_write()[0].data == "2"


def test_a_stream_that_is_aliased_is_not_redirected_to(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    """Its owner would not know that it has it without the home shard."""
    source, name = names
    client.create(source, body=b"1")
    fork(client, name, source)
    with cluster.origins["b"].connect() as connection:  # the home
        reply = connection.request("GET", PREFIX + name, {"Weir-Routing": "redirect"})
        assert (reply.status, reply.body) == (200, b"1")
    with cluster.origins["c"].connect() as connection:
        reply = connection.request("GET", PREFIX + name, {"Weir-Routing": "redirect"})
        assert reply["Location"] == cluster.urls["b"] + PREFIX + name


# -- refusals --------------------------------------------------------------------------------------


def test_a_refused_fork_leaves_no_alias(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    assert problem(fork(client, name, source)) == (404, "source-not-found")
    client.create(source, body=b"1")
    assert fork(client, name, source, content_type="image/png").status == 409
    beyond = nameless(9)
    assert fork(client, name, source, stream_fork_offset=beyond).status == 400
    assert cluster.aliases() == {}
    assert client("HEAD", name).status == 404


def test_a_name_that_is_taken_stays(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    client.create(source)
    client.create(name)
    assert problem(fork(client, name, source)) == (409, "config-mismatch")
    assert cluster.where_is(name) == [home(name)] and cluster.aliases() == {}
    client("DELETE", name)
    assert fork(client, name, source).status == 201
    assert problem(client("PUT", name, TEXT)) == (409, "config-mismatch")
    other = cluster.name_of("c", "other")
    client.create(other)
    assert problem(fork(client, name, other)) == (409, "config-mismatch")
    assert cluster.where_is(name) == [home(source)]


# -- ends ------------------------------------------------------------------------------------------


def test_a_deleted_source_is_gone_while_forks_read_it(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    last = cluster.name_of("c", "last")
    client.create(source, body=b"1")
    fork(client, name, source)
    fork(client, last, name)
    for gone in (source, name):
        assert client("DELETE", gone).status == 204
        for _ in range(3):
            assert client.read(gone).status == 410
            assert problem(client("PUT", gone, TEXT)) == (409, "held-by-forks")
    assert client.read(last).body == b"1"
    assert fork(client, last, name).status == 200  # it is there, whatever became of its source
    assert problem(fork(client, cluster.name_of("a", "new"), name)) == (409, "source-gone")
    assert client("DELETE", last).status == 204
    wait_until(lambda: [client("HEAD", n).status for n in (source, name, last)] == [404] * 3)
    for _ in range(3):
        assert client("PUT", name, TEXT).status in (200, 201)


def test_a_plain_stream_takes_the_place_of_a_fork_that_is_gone(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    client.create(source, body=b"1")
    fork(client, name, source)
    client("DELETE", name)
    client.create(name, body=b"2")
    assert [client.read(name).body for _ in range(3)] == [b"2"] * 3
    assert cluster.where_is(name) == [home(source)]


def test_a_fork_of_another_shard_moves_the_alias(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    other = cluster.name_of("c", "other")
    client.create(source, body=b"1")
    client.create(other, body=b"2")
    for _ in range(2):
        for each in (source, other):
            assert fork(client, name, each).status == 201
            assert (cluster.where_is(name), cluster.aliases()) == (
                [home(each)],
                {name: home(each)},
            )
            client("DELETE", name)
    there = cluster.name_in(home(name), "there")
    client.create(there, body=b"3")
    assert fork(client, name, there).status == 201
    assert (cluster.where_is(name), cluster.aliases()) == ([home(name)], {})


def test_aliases_of_streams_that_are_gone_are_swept(
    cluster: LocalCluster, client: Client, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "SWEEP_STEP", 2)
    source, name = names
    client.create(source)
    made = [cluster.name_of(node_id, f"f{n}") for node_id in "bc" for n in range(3)]
    for each in made:
        assert fork(client, each, source).status == 201
    assert sorted(cluster.aliases()) == sorted(made)
    for each in made[1:]:
        client("DELETE", each)
    cluster.sweep_aliases()
    assert list(cluster.aliases()) == made[:1]
    assert client.read(made[0]).status == 200


# -- an owner that is away, or replaced ------------------------------------------------------------


def put_at(cluster: LocalCluster, node_id: str, name: str, source: str | None = None) -> Response:
    headers = TEXT if source is None else {"Stream-Forked-From": PREFIX + source}
    with cluster.origins[node_id].connect() as connection:
        return connection.request("PUT", PREFIX + name, headers)


def away(cluster: LocalCluster, number: int) -> None:
    owner = cluster.owners[number]
    assert owner is not None
    cluster.owners[number] = None
    cluster.lose(owner, number)


def test_no_fork_without_the_owner_of_its_source(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    assert put_at(cluster, "a", source).status == 201
    away(cluster, home(source))
    assert problem(put_at(cluster, "b", name, source)) == (503, "no-owner")
    cluster.move(home(source), "c")
    assert put_at(cluster, "a", name, source).status == 201
    assert cluster.where_is(name) == [home(source)]


def test_an_alias_outlives_its_node(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    with AnyNodeClient(cluster) as client:
        client.create(source, body=b"1")
        assert fork(client, name, source).status == 201
        cluster.move(home(name), "c")
        cluster.move(home(source), "b")
        assert [client.read(name).body for _ in range(3)] == [b"1"] * 3
        client("DELETE", name)
        client.create(name)


class Held:
    """Holds back one call, or its result, until the test lets it go."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, of: type, method: str, *, after: bool = False
    ) -> None:
        call = getattr(of, method)
        self._gate: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_held: Callable[..., bool] = lambda *arguments: True
        held = self

        async def call_when_told(self: object, *arguments: Any, **more: Any) -> Any:
            if held._gate is not None or not held.is_held(self, *arguments):
                return await call(self, *arguments, **more)
            gate = held._gate = asyncio.Event()
            found = await call(self, *arguments, **more) if after else None
            held._loop = asyncio.get_running_loop()
            await gate.wait()
            return found if after else await call(self, *arguments, **more)

        monkeypatch.setattr(of, method, call_when_told)

    def wait_for_it(self) -> None:
        wait_until(lambda: self._loop is not None)

    def let_go(self) -> None:
        assert self._gate is not None and self._loop is not None
        self._loop.call_soon_threadsafe(self._gate.set)


def test_a_creation_that_comes_late_is_refused(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the home was replaced while it created a fork, and the alias was removed."""
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    assert put_at(cluster, "a", source).status == 201
    held = Held(monkeypatch, Creations, "create")
    held.is_held = lambda self, created, *_: created == name
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put_at, cluster, "b", name, source)
        held.wait_for_it()  # at the source's owner
        cluster.move(home(name), "c", tell=False)
        assert cluster.aliases() == {name: home(source)}
        cluster.sweep_aliases("c")
        assert cluster.aliases() == {}
        held.let_go()
        assert late.result().status == 503
    assert put_at(cluster, "a", name).status == 201
    assert cluster.where_is(name) == [home(name)]


@pytest.mark.parametrize("takes_source", [False, True], ids=["same owner", "new owner"])
def test_a_permit_is_worth_nothing_once_it_was_revoked(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch, takes_source: bool
) -> None:
    """Between the commit of the alias and the creation."""
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    assert put_at(cluster, "a", source).status == 201
    held = Held(monkeypatch, placing.Placing, "_create_at")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put_at, cluster, "b", name, source)
        held.wait_for_it()
        if takes_source:
            cluster.move(home(source), "c")
        else:
            cluster.call(home(source), lambda shard: shard.permits.revoke_all())
        held.let_go()
        assert late.result().status == 201  # it asks again
    assert cluster.where_is(name) == [home(source)]


def test_an_old_owner_of_the_home_creates_nothing(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its permit, and does not know that it was replaced: the alias cannot be committed."""
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    assert put_at(cluster, "a", source).status == 201
    held = Held(monkeypatch, Peers, "ask")
    held.is_held = lambda self, shard, question, kind: isinstance(question, Permit)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put_at, cluster, "b", name, source)
        held.wait_for_it()
        cluster.move(home(name), "c", tell=False)
        assert put_at(cluster, "a", name).status == 201
        held.let_go()
        assert late.result().status == 503
    assert cluster.where_is(name) == [home(name)]


def test_an_old_owner_of_the_home_revives_no_alias(start_cluster: StartCluster) -> None:
    """It has an alias that was removed since: it commits it once more before it creates."""
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    put_at(cluster, "a", source)
    assert put_at(cluster, "b", name, source).status == 201
    with cluster.origins["a"].connect() as connection:
        assert connection.request("DELETE", PREFIX + name).status == 204
    cluster.move(home(name), "c", tell=False)
    cluster.sweep_aliases("c")
    assert put_at(cluster, "c", name).status == 201
    assert put_at(cluster, "b", name, source).status == 503
    assert cluster.where_is(name) == [home(name)]


def test_an_alias_is_not_followed_without_the_lease(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    put_at(cluster, "a", source)
    assert put_at(cluster, "b", name, source).status == 201
    cluster.nodes["b"].lease_holds = False
    with cluster.origins["b"].connect() as connection:
        assert problem(connection.request("GET", PREFIX + name)) == (503, "no-owner")


def test_an_unknown_outcome_leaves_an_alias_that_harms_nobody(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster(cluster={"answer_secs": 0.3})
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    put_at(cluster, "a", source)
    held = Held(monkeypatch, placing.Placing, "_create_at")
    assert problem(put_at(cluster, "b", name, source)) == (503, "unknown-outcome")
    held.let_go()
    assert cluster.aliases() == {name: home(source)}
    with AnyNodeClient(cluster) as client:
        assert [client.read(name).status for _ in range(3)] == [404] * 3
        other = cluster.name_of("c", "other")
        client.create(other)
        assert fork(client, name, other).status == 201
        assert cluster.where_is(name) == [home(other)]


def test_a_fork_on_its_way_when_its_home_is_lost_may_be_there(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster()
    source, name = cluster.name_of("a", "source"), cluster.name_of("b", "fork")
    put_at(cluster, "a", source)
    held = Held(monkeypatch, placing.Placing, "_create_at")
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put_at, cluster, "b", name, source)
        held.wait_for_it()
        cluster.move(home(name), "c")
        assert problem(late.result()) == (503, "unknown-outcome")
        held.let_go()


# -- many at once ----------------------------------------------------------------------------------


def test_many_who_fork_at_once_make_one(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    """From two sources of different shards, and as a plain stream, at every node."""
    source, name = names
    other = cluster.name_of("c", "other")
    client.create(source, body=b"1")
    client.create(other, body=b"2")
    for _ in range(5):

        def put(number: int) -> int:
            node_id = "abc"[number % 3]
            return put_at(cluster, node_id, name, (source, other, None)[number // 3 % 3]).status

        with ThreadPoolExecutor(9) as pool:
            found = sorted(pool.map(put, range(18)))
        assert found.count(201) == 1 and set(found) <= {200, 201, 409}, found
        assert len(cluster.where_is(name)) == 1
        client("DELETE", name)


def test_forks_and_deletions_at_once_leave_one_or_none(
    cluster: LocalCluster, client: Client, names: tuple[str, str]
) -> None:
    source, name = names
    other = cluster.name_of("c", "other")
    client.create(source, body=b"1")
    client.create(other, body=b"2")

    def work(number: int) -> int:
        node_id = "abc"[number % 3]
        if number % 4:
            return put_at(cluster, node_id, name, (source, other, None)[number // 3 % 3]).status
        with cluster.origins[node_id].connect() as connection:
            return connection.request("DELETE", PREFIX + name).status

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(work, range(120)))
    assert found <= {200, 201, 204, 404, 409, 503}, found
    assert len(cluster.where_is(name)) <= 1
    found = {client("HEAD", name).status for _ in range(3)}
    assert found == ({200} if cluster.where_is(name) else {404})


def test_a_source_that_moves_is_looked_for_again(
    cluster: LocalCluster, client: Client, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted and created elsewhere after its place was asked for."""
    source, name = names
    origin = cluster.name_of("c", "origin")
    client.create(origin, body=b"1")
    assert fork(client, source, origin).status == 201  # in the shard of `origin`
    held = Held(monkeypatch, Peers, "ask")
    held.is_held = lambda self, shard, question, kind: isinstance(question, Permit)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put_at, cluster, "b", name, source)
        held.wait_for_it()
        client("DELETE", source)
        there = cluster.name_of("a", "there", besides=(home(source),))
        client.create(there, body=b"2")
        assert fork(client, source, there).status == 201
        held.let_go()
        assert late.result().status == 201
    assert cluster.where_is(name) == [home(there)]
    assert client.read(name).body == b"2"


def test_forks_in_buckets_are_counted_where_they_are(cluster: LocalCluster, api: Api) -> None:
    names = [f"/ds/buck/s{n}" for n in range(8)]
    api.create(names[0], body=b"1")
    for name in names[1:]:
        assert api("PUT", name, {"Stream-Forked-From": names[0]}).status == 201
    assert {tuple(cluster.where_is(name)) for name in names} == {(home(names[0]),)}
    assert api("GET", "/ds/buck").json()["streams"] == 8
    assert [row["stream_id"] for row in api.listing()["streams"]] == [f"s{n}" for n in range(8)]
    reply = api("PUT", "/ds/none/s", {"Stream-Forked-From": names[0]})
    assert problem(reply) == (404, "bucket-not-found")
    assert sorted(cluster.aliases()) == sorted(n for n in names if home(n) != home(names[0]))
