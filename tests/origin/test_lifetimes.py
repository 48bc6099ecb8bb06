"""Expiry, renewal and the sweep, on a clock that only the test moves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from origin.storage.base import Done
from tests.conftest import StartOrigin
from tests.helpers.origin import MODES, ONE_SHARD_MODES, PERSISTENT_MODES, Clock, LocalOrigin
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    Connection,
    EventStream,
    encode_request,
    wait_until,
)
from tests.origin.storage.driver import has_batches

RENEWING: dict[str, Callable[[Client], object]] = {
    "read": lambda client: client.read("s"),
    "read again": lambda client: client.read("s", if_none_match="*"),
    "read now": lambda client: client.read("s", "now"),
    "append": lambda client: client.append("s", b"x"),
    "close": lambda client: client.append("s", b"", stream_closed="true"),
    "producer close": lambda client: client(
        "POST",
        "s",
        {
            "Stream-Closed": "true",
            "Producer-Id": "p",
            "Producer-Epoch": "0",
            "Producer-Seq": "0",
        },
    ),
    "long-poll": lambda client: client("GET", "s", query="offset=-1&live=long-poll"),
}


@pytest.mark.parametrize("renew", RENEWING.values(), ids=RENEWING.keys())
def test_use_moves_the_idle_window(
    clock: Clock, client: Client, renew: Callable[[Client], object]
) -> None:
    client.create("s", stream_ttl="10", body=b"data")
    clock += 9
    renew(client)
    clock += 9
    assert client("HEAD", "s").status == 200
    clock += 1.001
    assert client("HEAD", "s").status == 404


def test_event_streams_move_the_idle_window(
    clock: Clock, origin: LocalOrigin, client: Client
) -> None:
    client.create("s", stream_ttl="10")
    clock += 9
    with EventStream(origin.port, "s") as events:
        events.next_write()
    clock += 9
    assert client("HEAD", "s").status == 200


def sweep(origin: LocalOrigin) -> None:
    origin.call(origin.origin.shard.lifetimes.sweep)


def attach(origin: LocalOrigin, live: str) -> Connection:
    """A live reader of `s` who waits at its tail."""
    connection = origin.connect()
    connection.send(encode_request("GET", f"{PREFIX}s?offset=now&live={live}"))
    wait_until(lambda: readers_of(origin) == 1)
    return connection


def readers_of(origin: LocalOrigin) -> int:
    return origin.call(lambda: origin.origin.live.reader_count)


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_stream_does_not_expire_under_its_live_readers(
    clock: Clock, origin: LocalOrigin, client: Client, live: str
) -> None:
    client.create("s", stream_ttl="10")
    with attach(origin, live):
        for _ in range(3):
            clock += 60
            sweep(origin)
        clock += 60
        assert client("HEAD", "s").status == 200
    wait_until(lambda: readers_of(origin) == 0)
    clock += 9
    assert client("HEAD", "s").status == 200  # its window begins when the last one has left
    clock += 1.01
    assert client("HEAD", "s").status == 404


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_fixed_expiry_comes_whoever_reads(
    clock: Clock, origin: LocalOrigin, client: Client, live: str
) -> None:
    client.create("s", stream_expires_at="2030-03-17T17:46:50Z")  # ten seconds ahead
    with attach(origin, live):
        clock += 10
        sweep(origin)
        wait_until(lambda: readers_of(origin) == 0)
    assert client("HEAD", "s").status == 404


def test_a_stream_with_live_readers_outlives_a_restart(
    clock: Clock, start_origin: StartOrigin
) -> None:
    """What is kept on disk about its window keeps up with them."""
    origin = start_origin("file-durable")
    with origin.client() as client:
        client.create("s", stream_ttl="1000")
    with attach(origin, "sse"):
        for _ in range(20):
            clock += 490
            sweep(origin)
    origin.restart()
    clock += 500
    with origin.client() as client:
        assert client("HEAD", "s").status == 200


def test_head_does_not_move_it(clock: Clock, client: Client) -> None:
    client.create("s", stream_ttl="10")
    for _ in range(4):
        clock += 2.4
        assert client("HEAD", "s")["Stream-TTL"] == "10"
    clock += 0.5
    assert client("HEAD", "s").status == 404


def test_a_refused_append_does_not_move_it(clock: Clock, client: Client) -> None:
    client.create("s", stream_ttl="10")
    clock += 9
    assert client("POST", "s", {"Content-Type": "image/png"}, b"x").status == 409
    clock += 1.001
    assert client("HEAD", "s").status == 404


def test_expires_at_never_moves(clock: Clock, client: Client) -> None:
    client.create("s", stream_expires_at="2030-03-17T17:46:50Z")  # ten seconds ahead
    clock += 9
    client.read("s")
    client.append("s", b"x")
    clock += 1
    assert client.read("s").status == 404


@pytest.mark.parametrize("method", ["HEAD", "GET", "POST", "DELETE"])
def test_an_expired_stream_is_404_and_its_name_is_free(
    clock: Clock, client: Client, method: str
) -> None:
    client.create("s", stream_ttl="1", body=b"old")
    clock += 1.001
    body = b"x" if method == "POST" else b""
    assert client(method, "s", {"Content-Type": "text/plain"}, body).status == 404
    client.create("s", "application/json", b"[1]")
    assert client.read("s").body == b"[1]"


def test_ttl_zero_is_gone_at_once(clock: Clock, client: Client) -> None:
    client.create("s", stream_ttl="0", body=b"x")
    assert client.read("s").status == 404


def test_an_expiry_in_the_past_is_refused(clock: Clock, client: Client) -> None:
    reply = client("PUT", "s", {"Stream-Expires-At": "2029-01-01T00:00:00Z"})
    assert (reply.status, reply.json()["code"]) == (400, "invalid-expiry")
    assert client("HEAD", "s").status == 404


@pytest.mark.parametrize("mode", PERSISTENT_MODES)
def test_renewals_survive_a_restart(start_origin: StartOrigin, clock: Clock, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("read", stream_ttl="100", body=b"x")
        client.create("idle", stream_ttl="100", body=b"x")
        clock += 90
        client.read("read")
    origin.restart()
    with origin.client() as client:
        clock += 90
        assert client("HEAD", "read")["Stream-TTL"] == "100"
        assert client("HEAD", "idle").status == 404
        clock += 30
        assert client("HEAD", "read").status == 404


@pytest.mark.parametrize("mode", PERSISTENT_MODES)
def test_renewals_survive_a_checkpoint_and_a_restart(
    start_origin: StartOrigin, clock: Clock, mode: str
) -> None:
    """A read that stages nothing, because one before it looked ahead, counts all the same."""
    origin = start_origin(mode, storage={"checkpoint_secs": 0.05})
    with origin.client() as client:
        client.create("s", stream_ttl="1600", body=b"x")
        clock += 100
        client.read("s")
        wait_until(lambda: not has_batches(Path(origin.config.storage.data_dir)))
        clock += 99
        client.read("s")
    origin.restart()
    clock += 1599
    with origin.client() as client:
        assert client("HEAD", "s").status == 200


@pytest.mark.parametrize("mode", PERSISTENT_MODES)
def test_what_expired_while_down_is_gone(
    start_origin: StartOrigin, clock: Clock, mode: str
) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s", stream_ttl="5", body=b"x")
        client.create("fork", stream_forked_from=PREFIX + "s", stream_ttl="1000")
    origin.stop()
    clock += 6
    origin.start()
    with origin.client() as client:
        assert client.read("s").status in (404, 410)
        assert client.read("fork").body == b"x"
        assert client("PUT", "s").status == 409


@pytest.mark.parametrize("mode", MODES)
def test_an_expired_source_is_held_for_its_forks(
    start_origin: StartOrigin, clock: Clock, mode: str
) -> None:
    with start_origin(mode).client() as client:
        client.create("source", stream_ttl="5", body=b"inherited")
        client.create("fork", stream_forked_from=PREFIX + "source", stream_ttl="1000")
        clock += 6
        assert client("PUT", "source", {"Content-Type": "text/plain"}, b"other").status == 409
        assert client.read("source").status in (404, 410)
        assert client("POST", "source", {"Content-Type": "text/plain"}, b"x").status in (404, 410)
        assert client("PUT", "f2", {"Stream-Forked-From": PREFIX + "source"}).status in (404, 409)
        assert client.read("fork").body == b"inherited"
        assert client("DELETE", "fork").status == 204
        wait_until(lambda: client("PUT", "source").status == 201, what="the name is free again")


def test_an_expired_fork_lets_its_source_go(clock: Clock, client: Client) -> None:
    client.create("source", body=b"x")
    client.create("fork", stream_forked_from=PREFIX + "source", stream_ttl="5")
    assert client("DELETE", "source").status == 204
    assert client("HEAD", "source").status == 410
    clock += 6
    wait_until(lambda: client("HEAD", "source").status == 404)


def test_expired_streams_leave_without_being_asked(clock: Clock, origin: LocalOrigin) -> None:
    with origin.client() as client:
        client.create("s", stream_ttl="5", body=b"x" * 1000)
    clock += 6
    shard = origin.origin.shard
    wait_until(lambda: origin.call(lambda: len(shard.registry.by_id)) == 0)
    assert shard.registry.stored_bytes == 0


@pytest.mark.parametrize("mode", ONE_SHARD_MODES)
def test_what_expires_at_one_moment_leaves_step_by_step(
    start_origin: StartOrigin, clock: Clock, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("origin.lifetimes.SWEEP_STEP", 7)
    origin = start_origin(mode)
    shard = origin.origin.shard
    ended: list[int] = []
    barrier = shard.storage.barrier

    def count(done: Done) -> None:
        ended.append(shard.lifetimes.expired)
        barrier(done)

    with origin.client() as client:
        for number in range(30):
            client.create(f"s{number}", stream_ttl="5", body=b"x")
    monkeypatch.setattr(shard.storage, "barrier", count)
    clock += 6
    wait_until(lambda: origin.call(lambda: len(shard.registry.by_id)) == 0)
    assert [n for n in ended if n < 30] == [7, 14, 21, 28]


def test_deadlines_of_deleted_streams_are_forgotten(
    client: Client, origin: LocalOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("origin.lifetimes.SPARE_DEADLINES", 16)
    client.create("kept", stream_ttl="1000")
    for _ in range(100):
        client.create("s", stream_ttl="1000")
        assert client("DELETE", "s").status == 204
    deadlines = origin.call(lambda: list(origin.origin.shard.lifetimes.deadlines))
    assert len(deadlines) <= 16 + 2 * 2
    assert len({stream_id for _, stream_id in deadlines}) == len(deadlines)
