"""Any node takes any request: it passes it on once, or says that nobody can answer it."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from origin.chunks import Chunk, Chunks
from origin.cluster import forwarding, peers, serving
from origin.cluster.forwarding import MAX_GATHERED
from origin.cluster.view import MAX_SEEN, SEEN_SECS, SeenNodes
from origin.streams import Stream
from protocol.clustermap import ClusterMap, shard_of
from tests.extension.conftest import problem
from tests.helpers.cluster import SHARDS, LocalCluster
from tests.helpers.rawhttp import (
    PREFIX,
    Closed,
    Connection,
    EventStream,
    Response,
    control,
    encode_request,
    wait_until,
)
from tests.helpers.scripted_origin import Answer, Gate, ScriptedOrigin, dropped
from tests.origin.cluster.conftest import StartCluster

TEXT = {"Content-Type": "text/plain"}
NO_OWNER = (503, "no-owner")
UNKNOWN = (503, "unknown-outcome")
ANSWER_SECS = 0.5
MIB = 1024 * 1024


def at(cluster: LocalCluster, node_id: str) -> Connection:
    return cluster.origins[node_id].connect()


def ask(
    cluster: LocalCluster,
    node_id: str,
    method: str,
    name: str,
    body: bytes = b"",
    **headers: str,
) -> Response:
    fields = TEXT | {key.replace("_", "-"): value for key, value in headers.items()}
    with at(cluster, node_id) as connection:
        return connection.request(method, PREFIX + name, fields, body)


@pytest.fixture
def name(cluster: LocalCluster) -> str:
    """Of a stream at node `b`, with some bytes."""
    name = cluster.name_of("b", "fwd")
    assert ask(cluster, "a", "PUT", name, b"12345").status == 201
    return name


def seen_by(cluster: LocalCluster, node_id: str) -> dict[str, str]:
    serving = cluster.origins[node_id].origin._cluster
    assert serving is not None
    return serving._peers.seen.urls


def test_old_bytes_are_served_without_a_lease_unless_another_may_have_taken_the_shard(
    start_cluster: StartCluster,
) -> None:
    """They never change, but whoever took the shard may have deleted them."""
    cluster = start_cluster(storage={"chunk_bytes": 8})
    name = cluster.name_of("b", "old")
    assert ask(cluster, "b", "PUT", name, b"12345678").status == 201
    assert ask(cluster, "b", "POST", name, b"tail").status == 204
    first = f"{name}?offset=-1"
    for node in cluster.nodes.values():
        node.lease_holds = False
    assert ask(cluster, "b", "GET", first).body == b"12345678"  # there is no quorum
    cluster.nodes["a"].lease_holds = True
    assert problem(ask(cluster, "b", "GET", first)) == NO_OWNER
    cluster.nodes["a"].lease_holds = False
    cluster.nodes["b"].old_map = cluster.map
    cluster.version += 1  # it has lost its lease since, but knows more
    assert problem(ask(cluster, "b", "GET", first)) == NO_OWNER
    cluster.nodes["b"].old_map = None
    assert ask(cluster, "b", "GET", first).body == b"12345678"
    cluster.origins["c"].stop()  # nobody can say what it knows
    assert problem(ask(cluster, "b", "GET", first)) == NO_OWNER


@pytest.fixture
def old(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> tuple[LocalCluster, str]:
    """The read of a chunk below the tail of a stream at node `a`."""
    monkeypatch.setattr(serving, "WATCH_SECS", 0.01)
    cluster = start_cluster(storage={"chunk_bytes": 8})
    name = cluster.name_of("a", "old")
    assert ask(cluster, "a", "PUT", name, b"12345678").status == 201
    assert ask(cluster, "a", "POST", name, b"tail").status == 204
    return cluster, f"{name}?offset=-1"


def test_a_node_that_left_is_asked_as_well_before_old_bytes_are_served(
    old: tuple[LocalCluster, str],
) -> None:
    """It may have come back on the other side of a partition."""
    cluster, first = old
    wait_until(lambda: "c" in seen_by(cluster, "a"))
    for id_ in "ab":  # c has left, then both are cut off
        node = cluster.nodes[id_]
        node.lease_holds = False
        nodes = {each: cluster.urls[each] for each in "ab"}
        node.old_map = ClusterMap("test", cluster.version, tuple(cluster.owners), nodes)
    cluster.nodes["c"].lease_holds = False
    assert ask(cluster, "a", "GET", first).body == b"12345678"
    cluster.nodes[
        "c"
    ].lease_holds = True  # it is back: it may take the shard, and delete the stream
    assert problem(ask(cluster, "a", "GET", first)) == NO_OWNER
    cluster.origins["c"].stop()  # nobody can say what it did
    assert problem(ask(cluster, "a", "GET", first)) == NO_OWNER


def test_a_node_does_not_answer_for_another_whose_url_leads_to_it(
    old: tuple[LocalCluster, str],
) -> None:
    cluster, first = old
    for node in cluster.nodes.values():
        node.lease_holds = False
    assert ask(cluster, "a", "GET", first).body == b"12345678"
    cluster.urls["b"] = cluster.urls["a"]  # b advertises a wrong one
    assert problem(ask(cluster, "a", "GET", first)) == NO_OWNER


def test_nodes_are_remembered_for_a_day_where_they_were_last() -> None:
    seen = SeenNodes()
    seen.see({"a": "http://a", "b": "http://b"}, 0.0)
    seen.see({"a": "http://new"}, SEEN_SECS)
    assert seen.urls == {"a": "http://new", "b": "http://b"}
    seen.see({"a": "http://new"}, SEEN_SECS + 1)
    assert seen.urls == {"a": "http://new"}


def test_so_many_nodes_are_remembered_but_never_fewer_than_there_are() -> None:
    seen = SeenNodes()
    many = {f"n{number}": "http://n" for number in range(MAX_SEEN + 1)}
    seen.see({"first": "http://first"}, 0.0)
    seen.see({"second": "http://second"}, 1.0)
    seen.see(many, 2.0)
    assert set(seen.urls) == set(many)
    seen.see({"last": "http://last"}, 3.0)
    assert len(seen.urls) == MAX_SEEN and "last" in seen.urls


def test_an_event_stream_is_sent_no_more_once_the_lease_has_ended(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another owner may have deleted the stream that a slow reader is in the middle of."""
    cluster = start_cluster(storage={"chunk_bytes": 8})
    name, node = cluster.name_of("b", "old"), cluster.nodes["b"]
    assert ask(cluster, "b", "PUT", name, b"12345678").status == 201
    for body in (b"abcdefgh", b"tail"):
        assert ask(cluster, "b", "POST", name, body).status == 204
    get = Chunks.get

    async def get_and_lose_the_lease(chunks: Chunks, stream: Stream, position: int) -> Chunk:
        node.lease_holds = position == 0
        return await get(chunks, stream, position)

    monkeypatch.setattr(Chunks, "get", get_and_lose_the_lease)
    with EventStream(cluster.origins["b"].port, name) as events:
        data, told = events.rest()
    assert (data.data, "upToDate" in control(told)) == ("12345678", False)


@pytest.fixture
def fake(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LocalCluster, ScriptedOrigin, str]]:
    """Node `b` does what the test tells it; the name of a stream of it."""
    monkeypatch.setattr(forwarding, "ANSWER_SECS", ANSWER_SECS)
    cluster = start_cluster()
    with ScriptedOrigin() as owner:
        cluster.urls["b"] = owner.url
        yield cluster, owner, cluster.name_of("b")


# -- every request ---------------------------------------------------------------------------------


@pytest.mark.parametrize("node_id", ["a", "b", "c"])
def test_every_node_answers_for_every_stream(
    cluster: LocalCluster, name: str, node_id: str
) -> None:
    is_owner = node_id == "b"
    for method, body, status in [
        ("GET", b"", 200),
        ("HEAD", b"", 200),
        ("POST", b"6", 204),
        ("PUT", b"", 200),
        ("DELETE", b"", 204),
        ("GET", b"", 404),
    ]:
        reply = ask(cluster, node_id, method, name, body)
        assert (reply.status, reply.get("Weir-Map") is None) == (status, is_owner), reply


def test_answers_are_passed_back_as_they_are(cluster: LocalCluster, name: str) -> None:
    direct, passed = ask(cluster, "b", "GET", name), ask(cluster, "a", "GET", name)
    own = {"date", "weir-map"}
    fields = [{f for f in reply.fields if f[0] not in own} for reply in (direct, passed)]
    assert fields[0] == fields[1] and direct.body == passed.body
    reply = ask(cluster, "a", "GET", name, If_None_Match=direct["ETag"])
    assert (reply.status, reply.body, reply["Weir-Map"]) == (304, b"", str(cluster.version))


def test_the_location_is_as_the_client_addressed_the_first_node(cluster: LocalCluster) -> None:
    name = cluster.name_of("b", "location")
    reply = ask(cluster, "a", "PUT", name, Host="streams.test:81")
    assert reply["Location"] == f"http://streams.test:81{PREFIX}{name}"
    tail = reply.next_offset
    assert ask(cluster, "a", "PUT", f"{name}/snapshot/{tail}", b"{}").status == 204
    reply = ask(cluster, "a", "GET", f"{name}/snapshot", Host="streams.test:81")
    assert reply["Location"].startswith(f"http://streams.test:81{PREFIX}{name}/snapshot/")


def test_large_bodies_pass_within_limits(cluster: LocalCluster) -> None:
    name = cluster.name_of("b", "large")
    body = bytes(range(256)) * 4096
    ask(cluster, "a", "PUT", name)
    assert ask(cluster, "a", "POST", name, body).status == 204
    assert ask(cluster, "c", "GET", name).body == body
    assert problem(ask(cluster, "a", "POST", name, body + b"x")) == (413, "body-too-large")
    tail = ask(cluster, "a", "HEAD", name).next_offset
    assert ask(cluster, "a", "PUT", f"{name}/snapshot/{tail}", 2 * body).status == 204
    assert ask(cluster, "a", "GET", f"{name}/snapshot/{tail}").body == 2 * body


def test_a_body_in_pieces_passes(cluster: LocalCluster, name: str) -> None:
    head = f"POST {PREFIX}{name} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
    with at(cluster, "a") as connection:
        connection.send(f"{head}Transfer-Encoding: chunked\r\n\r\n2\r\n67\r\n0\r\n\r\n".encode())
        assert connection.read_response().status == 204
        connection.send(f"{head}Expect: 100-continue\r\nContent-Length: 1\r\n\r\n".encode())
        assert connection.read_head()[0] == 100
        connection.send(b"8")
        assert connection.read_response().status == 204
    assert ask(cluster, "b", "GET", name).body == b"12345678"


def test_names_that_need_escapes_pass(cluster: LocalCluster) -> None:
    for number in range(8):  # of all nodes
        path = f"caf%C3%A9%20{number}/%25%3F"
        assert ask(cluster, "a", "PUT", path, b"x").status == 201
        assert ask(cluster, "b", "GET", path).body == b"x"


# -- live ------------------------------------------------------------------------------------------


def live_readers(cluster: LocalCluster, node_id: str) -> int:
    origin = cluster.origins[node_id]
    return origin.call(lambda: origin.origin.live.reader_count)


def test_a_long_poll_passes_both_ways(cluster: LocalCluster, name: str) -> None:
    tail = ask(cluster, "a", "HEAD", name).next_offset
    with at(cluster, "a") as waiting:
        waiting.send(encode_request("GET", f"{PREFIX}{name}?offset={tail}&live=long-poll"))
        wait_until(lambda: live_readers(cluster, "b") == 1)
        assert live_readers(cluster, "a") == 0
        ask(cluster, "c", "POST", name, b"new")
        reply = waiting.read_response()
        assert (reply.status, reply.body) == (200, b"new") and "Stream-Cursor" in reply


def test_events_pass_as_they_come(cluster: LocalCluster, name: str) -> None:
    with EventStream(cluster.origins["a"].port, name) as events:
        data, told = events.next_write()
        assert (data.data, control(told)["upToDate"]) == ("12345", True)
        ask(cluster, "c", "POST", name, b"6")
        assert [event.kind for event in events.next_write()] == ["data", "control"]
        ask(cluster, "c", "POST", name, Stream_Closed="true")
        assert control(events.rest()[-1])["streamClosed"] is True


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_client_that_leaves_is_not_read_for(cluster: LocalCluster, name: str, live: str) -> None:
    with at(cluster, "a") as connection:
        connection.send(encode_request("GET", f"{PREFIX}{name}?offset=now&live={live}"))
        wait_until(lambda: live_readers(cluster, "b") == 1)
    wait_until(lambda: live_readers(cluster, "b") == 0)


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_live_reads_that_are_passed_on_do_not_hold_up_a_stop(
    start_cluster: StartCluster, live: str
) -> None:
    cluster = start_cluster(server={"drain_secs": 3600.0, "long_poll_timeout_secs": 3600.0})
    name = cluster.name_of("b")
    ask(cluster, "a", "PUT", name, b"1")
    with at(cluster, "a") as connection:
        connection.send(encode_request("GET", f"{PREFIX}{name}?offset=now&live={live}"))
        wait_until(lambda: live_readers(cluster, "b") == 1)
        cluster.origins["a"].stop()


def test_live_readers_of_a_shard_that_moves_end_and_resume(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    name = cluster.name_of("b")
    tail = ask(cluster, "a", "PUT", name, b"1").next_offset
    number = next(n for n in cluster.where_is(name))
    with EventStream(cluster.origins["a"].port, name, tail) as events, at(cluster, "c") as waiting:
        events.next_write()
        waiting.send(encode_request("GET", f"{PREFIX}{name}?offset={tail}&live=long-poll"))
        wait_until(lambda: live_readers(cluster, "b") == 2)
        cluster.move(number, "c")
        assert events.rest() == []
        assert problem(waiting.read_response()) == NO_OWNER
    ask(cluster, "b", "POST", name, b"2")
    with EventStream(cluster.origins["a"].port, name, tail) as events:
        assert events.next_write()[0].data == "2"


@pytest.mark.parametrize("by_alias", [False, True], ids=["at-home", "by-alias"])
def test_live_readers_at_an_owner_that_stopped_end_when_their_shard_moves(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch, by_alias: bool
) -> None:
    """It never says that the shard has moved; the map of the node that they asked does."""
    monkeypatch.setattr(serving, "WATCH_SECS", 0.05)
    cluster = start_cluster()
    source, fork = cluster.name_of("b"), cluster.name_of("a", "fork")
    name = fork if by_alias else source
    tail = ask(cluster, "a", "PUT", source, b"1").next_offset
    assert ask(cluster, "a", "PUT", fork, Stream_Forked_From=PREFIX + source).status == 201
    event = Answer(200, {"Content-Type": "text/event-stream"}, pieces=(b"data: 1\n\n", Gate()))
    with ScriptedOrigin() as stopped, at(cluster, "a") as waiting:
        cluster.urls["b"] = stopped.url
        stopped.on("GET", PREFIX + name, [event, Answer(wait_for=Gate())])
        with EventStream(cluster.origins["a"].port, name) as events:
            events.next_write()
            waiting.send(encode_request("GET", f"{PREFIX}{name}?offset={tail}&live=long-poll"))
            stopped.wait_for_requests(2)
            cluster.owners[shard_of(source, SHARDS)] = None  # its lease has ended
            assert not waiting.has_come(0.2), "nobody else owns the shard"
            cluster.owners[shard_of(source, SHARDS)] = "b"
            cluster.move(shard_of(source, SHARDS), "c")
            began = time.monotonic()
            assert events.rest() == []
            assert problem(waiting.read_response()) == NO_OWNER
            assert time.monotonic() - began < 10  # long before the long-poll would have ended
    ask(cluster, "a", "POST", name, b"2")
    with EventStream(cluster.origins["a"].port, name) as events:
        assert "2" in events.next_write()[0].data


# -- connections -----------------------------------------------------------------------------------


def test_live_readers_leave_connections_to_others(start_cluster: StartCluster) -> None:
    cluster = start_cluster(limits={"max_live_readers": 4})
    names = [cluster.name_of(node_id, start) for node_id in "bc" for start in "xy"]
    for name in names:
        assert ask(cluster, "a", "PUT", name).status == 201
    with ExitStack() as stack:
        waiting = [stack.enter_context(at(cluster, "a")) for _ in names]
        for name, connection in zip(names, waiting, strict=True):
            connection.send(encode_request("GET", f"{PREFIX}{name}?offset=now&live=long-poll"))
        wait_until(lambda: live_readers(cluster, "b") + live_readers(cluster, "c") == 4)
        for live in ("long-poll", "sse"):
            reply = ask(cluster, "a", "GET", f"{names[0]}?offset=now&live={live}")
            assert problem(reply) == (503, "too-many-readers")
        for name in names:
            assert ask(cluster, "a", "GET", name).status == 200
        with at(cluster, "a") as connection:
            assert connection.request("PUT", "/ds/buck").status == 201
            assert connection.request("GET", "/ds/buck/streams").status == 200  # asks all nodes
        for name in names:
            assert ask(cluster, "a", "POST", name, b"x").status == 204
        assert [connection.read_response().body for connection in waiting] == [b"x"] * 4
    with EventStream(cluster.origins["a"].port, names[0]) as events:
        assert events.next_write()[0].data == "x"


def test_a_write_that_got_no_connection_was_not_sent_and_says_so(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "REQUESTS_PER_NODE", 2)
    monkeypatch.setattr(forwarding, "CONNECT_SECS", 0.2)
    cluster = start_cluster()
    name = cluster.name_of("b")
    with ScriptedOrigin() as owner, ExitStack() as stack:
        cluster.urls["b"] = owner.url
        gate = owner.hold()
        waiting = [stack.enter_context(at(cluster, "a")) for _ in range(2)]
        for connection in waiting:
            connection.send(encode_request("POST", PREFIX + name, TEXT, b"x"))
        owner.wait_for_requests(2)
        for method in ("POST", "PUT", "DELETE", "GET"):
            assert problem(ask(cluster, "a", method, name, b"x")) == NO_OWNER
        assert ask(cluster, "a", "PUT", cluster.name_of("c")).status == 201  # another node
        gate.open()
        assert [connection.read_response().status for connection in waiting] == [404, 404]
        assert ask(cluster, "a", "POST", name, b"x").status == 404
        assert owner.count() == 3


# -- room for bodies -------------------------------------------------------------------------------


def passed_on(cluster: LocalCluster, node_id: str) -> int:
    serving = cluster.origins[node_id].origin._cluster
    assert serving is not None
    return serving.forwarding.forwarded


@pytest.mark.parametrize(
    ("method", "header"),
    [("DELETE", "X: y"), ("PUT", f"Content-Length: {MIB}"), ("PUT", "Transfer-Encoding: chunked")],
    ids=["no-body", "declared", "in-pieces"],
)
def test_bodies_that_have_not_come_take_no_room(
    start_cluster: StartCluster, method: str, header: str
) -> None:
    cluster = start_cluster(limits={"max_body_bytes": MIB, "max_snapshot_bytes": MIB})
    name = cluster.name_of("b")
    assert ask(cluster, "a", "PUT", name).status == 201
    before = passed_on(cluster, "a")
    head = f"{method} {PREFIX}{name}/snapshot/0 HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n"
    with ScriptedOrigin() as owner, ExitStack() as stack:
        cluster.urls["b"] = owner.url
        owner.hold()
        for _ in range(MAX_GATHERED):
            stack.enter_context(at(cluster, "a")).send(head.encode())
        wait_until(lambda: passed_on(cluster, "a") == before + MAX_GATHERED)
        assert ask(cluster, "a", "POST", cluster.name_of("c"), b"x").status == 404


def test_bodies_that_have_come_take_room_until_they_are_answered(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(limits={"max_body_bytes": MIB, "max_snapshot_bytes": MIB})
    name = cluster.name_of("b")
    with ScriptedOrigin() as owner, ExitStack() as stack:
        cluster.urls["b"] = owner.url
        gate = owner.hold()
        waiting = [stack.enter_context(at(cluster, "a")) for _ in range(MAX_GATHERED)]
        for connection in waiting:
            connection.send(encode_request("PUT", f"{PREFIX}{name}/snapshot/0", {}, bytes(MIB)))
        owner.wait_for_requests(MAX_GATHERED)
        reply = ask(cluster, "a", "POST", cluster.name_of("c"), b"x")
        assert (problem(reply), reply["Retry-After"]) == ((503, "busy"), "1")
        assert ask(cluster, "a", "DELETE", cluster.name_of("c")).status == 404
        gate.open()
        assert [connection.read_response().status for connection in waiting] == [404] * MAX_GATHERED
    assert ask(cluster, "a", "POST", cluster.name_of("c"), b"x").status == 404


# -- redirection -----------------------------------------------------------------------------------


def test_who_asks_for_it_is_redirected(cluster: LocalCluster, name: str) -> None:
    reply = ask(cluster, "a", "GET", f"{name}?offset=-1&max_bytes=9", Weir_Routing="redirect")
    assert reply.status == 307
    url = cluster.urls["b"]
    assert reply["Location"] == f"{url}{PREFIX}{name}?offset=-1&max_bytes=9"
    assert (reply["Weir-Map"], reply["Cache-Control"]) == (str(cluster.version), "no-store")
    assert ask(cluster, "b", "GET", name, Weir_Routing="redirect").status == 200


# -- nobody answers --------------------------------------------------------------------------------


def test_a_shard_without_an_owner_is_said_so(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    name = cluster.name_of("b")
    (number,) = (n for n in range(16) if cluster.name_in(n) == name)
    cluster.owners[number] = None
    cluster.lose("b", number)
    for node_id in "ab":
        for method in ("GET", "PUT", "POST", "DELETE"):
            reply = ask(cluster, node_id, method, name, b"x")
            assert (problem(reply), reply["Retry-After"]) == (NO_OWNER, "1")
        assert ask(cluster, node_id, "HEAD", name).status == 503


def test_a_request_is_passed_on_once(cluster: LocalCluster, name: str) -> None:
    for hops in ("1", "2", "7"):
        reply = ask(cluster, "a", "GET", name, Weir_Hop=hops, Weir_Shard="1")
        assert problem(reply) == NO_OWNER
    assert ask(cluster, "a", "GET", name, Weir_Hop="2").status == 400
    assert problem(ask(cluster, "a", "GET", name, Weir_Hop="2", Weir_Shard="999")) == NO_OWNER
    assert ask(cluster, "b", "GET", name, Weir_Hop="1").status == 200


def test_an_old_map_makes_no_loop(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    name = cluster.name_of("b")
    (number,) = (n for n in range(16) if cluster.name_in(n) == name)
    before = cluster.map
    cluster.move(number, "c")
    for node_id in "ab":
        cluster.nodes[node_id].old_map = before
    assert problem(ask(cluster, "a", "GET", name)) == NO_OWNER
    assert problem(ask(cluster, "b", "GET", name)) == NO_OWNER  # it knows that it lost it
    assert ask(cluster, "c", "PUT", name).status == 201


def test_an_owner_that_is_away_is_no_owner(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        cluster.urls["b"] = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert problem(ask(cluster, "a", method, cluster.name_of("b"), b"x")) == NO_OWNER


def test_a_stopped_owner_holds_nobody(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is connected to, by its kernel, and does not answer."""
    monkeypatch.setattr(forwarding, "ANSWER_SECS", ANSWER_SECS)
    cluster = start_cluster()
    name = cluster.name_of("b")
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        cluster.urls["b"] = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        began = time.monotonic()
        assert problem(ask(cluster, "a", "GET", name)) == NO_OWNER
        assert problem(ask(cluster, "a", "GET", f"{name}?offset=now&live=sse")) == NO_OWNER
        for method in ("POST", "PUT", "DELETE"):
            assert problem(ask(cluster, "a", method, name, b"x")) == UNKNOWN
        assert time.monotonic() - began >= 5 * ANSWER_SECS


# -- what crosses a hop ----------------------------------------------------------------------------

Fake = tuple[LocalCluster, ScriptedOrigin, str]


def test_headers_of_one_connection_stay_on_it(fake: Fake) -> None:
    cluster, owner, name = fake
    answer = Answer(200, {"Connection": "X-Here", "X-Here": "1", "X-On": "1"}, b"hello")
    owner.on("POST", PREFIX + name, answer)
    head = {"Connection": "X-Mine", "X-Mine": "1", "TE": "trailers", "X-Kept": "1", "Host": "h"}
    with at(cluster, "a") as connection:
        reply = connection.request("POST", PREFIX + name, head, b"x")
    assert ("X-On" in reply, "X-Here" in reply, reply.body) == (True, False, b"hello")
    (request,) = owner.requests
    sent = request.headers
    assert not {"x-mine", "te", "expect", "user-agent", "accept-encoding"} & set(sent)
    assert (sent["x-kept"], sent["weir-host"], sent["weir-scheme"]) == ("1", "h", "http")
    assert (sent["weir-hop"], sent["content-length"], request.body) == ("1", "1", b"x")
    assert sent["host"] == owner.url.removeprefix("http://")


@pytest.mark.parametrize("value", ["é", "\xff"])
def test_other_characters_are_refused_or_dropped(fake: Fake, value: str) -> None:
    cluster, owner, name = fake
    owner.on("GET", PREFIX + name, Answer(200, {}, b""))
    assert ask(cluster, "a", "GET", name, X_Name=value).status == 200
    assert "x-name" not in owner.requests[0].headers
    assert problem(ask(cluster, "a", "GET", name, If_None_Match=value)) == (400, "invalid-header")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_write_is_never_sent_twice(fake: Fake, method: str) -> None:
    cluster, owner, name = fake
    for reset in (False, True):
        owner.on(method, PREFIX + name, dropped(reset=reset))
        assert problem(ask(cluster, "a", method, name, b"x")) == UNKNOWN
    assert owner.count(path=PREFIX + name) == 2


def test_a_read_is_sent_once_more(fake: Fake) -> None:
    cluster, owner, name = fake
    owner.on("GET", PREFIX + name, dropped())
    assert problem(ask(cluster, "a", "GET", name)) == NO_OWNER
    assert owner.count(path=PREFIX + name) == 2


def test_a_cut_answer_is_cut_for_the_client(fake: Fake) -> None:
    cluster, owner, name = fake
    owner.on("GET", PREFIX + name, Answer(200, {}, b"hello", cut_after=3))
    with pytest.raises(Closed):
        ask(cluster, "a", "GET", name)
    owner.on("GET", PREFIX + name, Answer(200, {}, pieces=(b"hello", 60.0)))
    with pytest.raises(Closed):  # it stops in the middle
        ask(cluster, "a", "GET", name)


def test_no_redirection_is_followed(fake: Fake) -> None:
    cluster, owner, name = fake
    owner.on("GET", PREFIX + name, Answer(307, {"Location": owner.url + "/other"}))
    assert ask(cluster, "a", "GET", name).status == 307
    assert owner.count() == 1


# -- who is admitted -------------------------------------------------------------------------------


def test_nodes_know_each_other_by_the_key(start_cluster: StartCluster) -> None:
    cluster = start_cluster(server={"access_key": "k" * 32, "allowed_hosts": ()})
    name = cluster.name_of("b")
    assert problem(ask(cluster, "a", "PUT", name, Host="localhost")) == (401, "access-key-required")
    key = "k" * 32
    reply = ask(cluster, "a", "PUT", name, Host="localhost:5", Weir_Access_Key=key)
    assert (reply.status, reply["Location"]) == (201, f"http://localhost:5{PREFIX}{name}")
    assert problem(ask(cluster, "a", "GET", name, Host="evil.test", Weir_Access_Key=key)) == (
        421,
        "foreign-host",
    )
