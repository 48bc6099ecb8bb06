"""Requests that meet each other before anything is on disk."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.conftest import StartOrigin
from tests.helpers.origin import MODES, LocalOrigin
from tests.helpers.rawhttp import PREFIX, Response, encode_request, wait_until

KIND = {"Content-Type": "text/plain"}
CROWD = 12

pytestmark = pytest.mark.parametrize("mode", MODES)


def at_once(origin: LocalOrigin, requests: list[bytes]) -> list[Response]:
    """Each request on a connection of its own, all sent before any answer is read."""
    connections = [origin.connect() for _ in requests]
    for connection in connections:  # all are accepted
        assert connection.request("GET", "/healthz").status == 200
    for connection, data in zip(connections, requests, strict=True):
        connection.send(data)
    replies = []
    for connection, data in zip(connections, requests, strict=True):
        with connection:
            replies.append(connection.read_response(data.partition(b" ")[0].decode()))
    return replies


def statuses(replies: list[Response]) -> Counter[int]:
    return Counter(reply.status for reply in replies)


def post(body: bytes, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return encode_request("POST", PREFIX + "s", KIND | named, body)


def test_one_of_many_equal_creations_creates(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    put = encode_request("PUT", PREFIX + "s", KIND, b"first")
    replies = at_once(origin, [put] * CROWD)
    assert statuses(replies) == {201: 1, 200: CROWD - 1}
    with origin.client() as client:
        assert client.read("s").body == b"first"


def test_one_of_many_different_creations_creates(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    puts = [
        encode_request("PUT", PREFIX + "s", {"Content-Type": f"text/x{number}"})
        for number in range(CROWD)
    ]
    assert statuses(at_once(origin, puts)) == {201: 1, 409: CROWD - 1}


def test_the_same_batch_sent_by_many_is_stored_once(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s")
        batch = post(b"once", Producer_Id="p", Producer_Epoch="0", Producer_Seq="0")
        replies = at_once(origin, [batch] * CROWD)
        assert statuses(replies) == {200: 1, 204: CROWD - 1}
        assert client.read("s").body == b"once"
        assert len({reply.next_offset for reply in replies}) == 1


def test_one_of_many_with_the_same_seq_wins(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s")
        replies = at_once(origin, [post(b"%02d" % n, Stream_Seq="1") for n in range(CROWD)])
        assert statuses(replies) == {204: 1, 409: CROWD - 1}
        assert len(client.read("s").body) == 2


def test_plain_appends_of_many_all_count(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s")
        replies = at_once(origin, [post(b"%02d" % n) for n in range(CROWD)])
        assert statuses(replies) == {204: CROWD}
        assert len({reply.next_offset for reply in replies}) == CROWD
        body = client.read("s").body
        for number, reply in enumerate(replies):  # each answer names the end of its own bytes
            end = int(reply.next_offset[-16:])
            assert body[end - 2 : end] == b"%02d" % number


def test_after_a_close_nothing_is_appended(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s")
        requests = [post(b"%02d" % n) for n in range(CROWD)]
        requests[CROWD // 2] = post(b"!!", Stream_Closed="true")
        replies = at_once(origin, requests)
        accepted = [reply for reply in replies if reply.status == 204]
        last = replies[CROWD // 2]
        assert last.status == 204 and last.closed
        assert max(reply.next_offset for reply in accepted) == last.next_offset
        for reply in replies:
            if reply.status == 409:
                assert reply.closed and reply.next_offset == last.next_offset
        final = client.read("s")
        assert final.closed and final.body.endswith(b"!!")
        assert len(final.body) == 2 * len(accepted)


def test_one_of_many_deletes_deletes(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s", body=b"x")
        delete = encode_request("DELETE", PREFIX + "s")
        assert statuses(at_once(origin, [delete] * CROWD)) == {204: 1, 404: CROWD - 1}


@pytest.mark.parametrize("other", ["append", "read", "create", "fork"])
def test_a_delete_meets_another_request(start_origin: StartOrigin, mode: str, other: str) -> None:
    make: dict[str, Callable[[], bytes]] = {
        "append": lambda: post(b"x"),
        "read": lambda: encode_request("GET", PREFIX + "s"),
        "create": lambda: encode_request("PUT", PREFIX + "s", KIND, b"new"),
        "fork": lambda: encode_request(
            "PUT", PREFIX + "fork", {"Stream-Forked-From": PREFIX + "s"}
        ),
    }
    allowed = {
        "append": {204, 404},
        "read": {200, 404},
        "create": {200, 201},
        "fork": {200, 201, 404, 409},
    }
    origin = start_origin(mode)
    with origin.client() as client:
        for _ in range(10):
            client("PUT", "s", KIND, b"old")
            requests = [make[other](), encode_request("DELETE", PREFIX + "s"), make[other]()]
            first, deleted, second = at_once(origin, requests)
            assert deleted.status in (204, 404)
            assert {first.status, second.status} <= allowed[other], (first, second)
            if second.status == 200 and other == "read":
                assert second.body == b"old"
            for name in ("fork", "s"):
                client("DELETE", name)


def test_forks_and_deletes_of_a_chain(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        for round_ in range(5):
            names = [f"r{round_}/{n}" for n in range(5)]
            client.create(names[0], body=b"0")
            for number in range(1, 5):
                client.create(
                    names[number],
                    stream_forked_from=PREFIX + names[number - 1],
                    body=b"%d" % number,
                )
            deletes = [encode_request("DELETE", PREFIX + name) for name in names[:4]]
            assert statuses(at_once(origin, deletes)) == {204: 4}
            assert client.read(names[4]).body == b"01234"
            assert client("DELETE", names[4]).status == 204
    if mode != "memory":
        origin.restart()
    registries = [shard.registry for shard in origin.origin.shards.all()]

    def are_empty() -> bool:
        return not any(registry.by_id for registry in registries)

    wait_until(lambda: origin.call(are_empty), what="all are collected")
    assert sum(registry.stored_bytes for registry in registries) == 0
