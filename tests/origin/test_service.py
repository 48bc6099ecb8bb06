"""Creation, expiry, forks and limits, on a clock that only the test moves."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from origin.storage import filestore
from origin.storage.base import Done
from origin.storage.memory import MemoryStorage
from protocol.replies import Reply
from tests.conftest import StartOrigin
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.helpers.origin import MODES, PERSISTENT_MODES, STOP_S, Clock, LocalOrigin, make_config
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    Connection,
    EventStream,
    Response,
    encode_request,
    wait_until,
)
from tests.origin.storage.driver import has_batches


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("origin.app.time", clock)
    return clock


# -- expiry --------------------------------------------------------------------------------------

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
    origin.call(origin.origin._service.sweep)


def attach(origin: LocalOrigin, live: str) -> Connection:
    """A live reader of `s` who waits at its tail."""
    connection = origin.connect()
    connection.send(encode_request("GET", f"{PREFIX}s?offset=now&live={live}"))
    wait_until(lambda: readers_of(origin) == 1)
    return connection


def readers_of(origin: LocalOrigin) -> int:
    return origin.call(lambda: origin.origin._service.totals.live_readers)


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
    service = origin.origin._service
    wait_until(lambda: origin.call(lambda: service.stream_count) == 0)
    assert service.totals.stored_bytes == 0


@pytest.mark.parametrize("mode", MODES)
def test_what_expires_at_one_moment_leaves_step_by_step(
    start_origin: StartOrigin, clock: Clock, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("origin.service.SWEEP_STEP", 7)
    origin = start_origin(mode)
    service = origin.origin._service
    ended: list[int] = []
    barrier = service._storage.barrier

    def count(done: Done) -> None:
        ended.append(service.totals.expired)
        barrier(done)

    with origin.client() as client:
        for number in range(30):
            client.create(f"s{number}", stream_ttl="5", body=b"x")
    monkeypatch.setattr(service._storage, "barrier", count)
    clock += 6
    wait_until(lambda: origin.call(lambda: service.stream_count) == 0)
    assert [n for n in ended if n < 30] == [7, 14, 21, 28]


def test_deadlines_of_deleted_streams_are_forgotten(
    client: Client, origin: LocalOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("origin.service.SPARE_DEADLINES", 16)
    client.create("kept", stream_ttl="1000")
    for _ in range(100):
        client.create("s", stream_ttl="1000")
        assert client("DELETE", "s").status == 204
    deadlines = origin.call(lambda: list(origin.origin._service._deadlines))
    assert len(deadlines) <= 16 + 2 * 2
    assert len({stream_id for _, stream_id in deadlines}) == len(deadlines)


# -- forks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("again", "status"),
    [
        ({}, 200),
        ({"Content-Type": "TEXT/plain; charset=utf-8"}, 200),
        ({"Stream-TTL": "60"}, 200),
        ({"Stream-Fork-Sub-Offset": "0"}, 200),
        ({"Content-Type": "image/png"}, 409),
        ({"Stream-TTL": "61"}, 409),
        ({"Stream-Expires-At": "2099-01-01T00:00:00Z"}, 409),
        ({"Stream-Closed": "true"}, 409),
        ({"Stream-Fork-Offset": "0000000000000000_0000000000000001"}, 409),
        ({"Stream-Forked-From": PREFIX + "other"}, 409),
    ],
)
def test_a_repeated_fork_takes_what_it_omits_from_its_source(
    client: Client, again: dict[str, str], status: int
) -> None:
    client.create("source", stream_ttl="60", body=b"abc")
    client.create("other", body=b"abc")
    first = {"Stream-Forked-From": PREFIX + "source"}
    created = client("PUT", "fork", first)
    assert (created.status, created["Content-Type"]) == (201, "text/plain")
    client.append("source", b"later")
    assert client("PUT", "fork", first | again).status == status
    assert client("HEAD", "fork")["Stream-TTL"] == "60"


def test_a_repeated_fork_is_the_same_after_its_source_is_gone(client: Client) -> None:
    client.create("source", body=b"abc")
    headers = {"Stream-Forked-From": PREFIX + "source"}
    assert client("PUT", "fork", headers).status == 201
    assert client("DELETE", "source").status == 204
    assert client("PUT", "fork", headers).status == 200
    assert client("PUT", "second", headers).status == 409


@pytest.mark.parametrize(
    "wrong", [{"Content-Type": "image/png"}, {"Stream-Fork-Offset": "9" * 16 + "_" + "9" * 16}]
)
def test_a_refused_fork_does_not_hold_its_source(client: Client, wrong: dict[str, str]) -> None:
    client.create("source", body=b"abc")
    assert client("PUT", "fork", {"Stream-Forked-From": PREFIX + "source", **wrong}).status >= 400
    assert client("DELETE", "source").status == 204
    assert client("HEAD", "source").status == 404


@pytest.mark.parametrize("names", [("fork", "source"), ("source", "fork")])
@pytest.mark.parametrize("mode", MODES)
def test_a_fork_and_its_source_are_deleted_at_the_same_time(
    start_origin: StartOrigin, mode: str, names: tuple[str, str]
) -> None:
    origin = start_origin(mode)
    service = origin.origin._service

    async def delete_both() -> list[Reply]:
        return await asyncio.gather(*(service.delete(name) for name in names))

    with origin.client() as client:
        client.create("source", body=b"x")
        client.create("fork", stream_forked_from=PREFIX + "source")
        deletes = asyncio.run_coroutine_threadsafe(delete_both(), origin._loop)
        assert [reply.status for reply in deletes.result(STOP_S)] == [204, 204]
        wait_until(lambda: origin.call(lambda: service.stream_count) == 0)
        assert [client("HEAD", name).status for name in names] == [404, 404]


def test_a_gone_source_leaves_when_a_full_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash came between the removal of the last fork and that of its source."""
    files = FaultyFiles()
    monkeypatch.setattr(filestore, "Files", lambda: files)
    monkeypatch.setattr(filestore, "RETRY_SECS", 0.05)
    origin = LocalOrigin(make_config(tmp_path, "file-durable"))
    origin.start()
    with origin.client() as client:
        client.create("source", body=b"x")
        client.create("fork", stream_forked_from=PREFIX + "source")
        assert client("DELETE", "source").status == 204
        monkeypatch.setattr(origin.origin._service, "_release", lambda source: None)
        assert client("DELETE", "fork").status == 204
    origin.stop()
    files.faults = [Fault("create", ".journal", errno.ENOSPC)]
    origin.start()
    origin.restart()  # a stop does not wait for room
    with origin.client() as client:
        assert client("PUT", "new").status == 507
        files.faults = []
        wait_until(lambda: client("HEAD", "source").status == 404)
    origin.stop()


def test_fork_of_itself_is_not_there(client: Client) -> None:
    assert client("PUT", "s", {"Stream-Forked-From": PREFIX + "s"}).status == 404


@pytest.mark.parametrize("mode", MODES)
def test_forks_of_forks_have_an_end(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("origin.forks.MAX_FORK_DEPTH", 3)
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("0", body=b"0")
        forks = [
            client("PUT", str(n), {"Stream-Forked-From": f"{PREFIX}{n - 1}"}, str(n).encode())
            for n in range(1, 6)
        ]
        assert [reply.status for reply in forks] == [201, 201, 201, 413, 404]
        assert code(forks[3]) == (413, "fork-too-deep")
        again = client("PUT", "3", {"Stream-Forked-From": PREFIX + "2"})
        assert again.status == 200
        monkeypatch.setattr("origin.forks.MAX_FORK_DEPTH", 2)  # what is deeper stays readable
        assert client.read("3").body == b"0123"
        client("DELETE", "2")
        assert client("PUT", "beside", {"Stream-Forked-From": PREFIX + "1"}).status == 201


@pytest.mark.parametrize("mode", MODES)
def test_a_fork_starts_open_and_without_producers(start_origin: StartOrigin, mode: str) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    kind = {"Content-Type": "text/plain"}
    with start_origin(mode).client() as client:
        client.create("source")
        assert client("POST", "source", kind | producer | {"Stream-Seq": "9"}, b"a").status == 200
        client.append("source", b"", stream_closed="true")
        client.create("fork", stream_forked_from=PREFIX + "source")
        assert client("POST", "fork", kind | producer | {"Stream-Seq": "1"}, b"b").status == 200
        assert client.read("fork").body == b"ab"


# -- limits --------------------------------------------------------------------------------------


def code(reply: Response) -> tuple[int, str]:
    return reply.status, reply.json()["code"]


def test_a_stream_has_a_largest_size(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_stream_bytes": 100}).client() as client:
        kind = {"Content-Type": "text/plain"}
        client.create("s", body=b"x" * 60)
        assert code(client("POST", "s", kind, b"x" * 41)) == (413, "stream-too-large")
        client.append("s", b"x" * 40)
        assert code(client("POST", "s", kind, b"x")) == (413, "stream-too-large")
        assert code(client("PUT", "t", kind, b"x" * 101)) == (413, "stream-too-large")
        client.append("s", b"", stream_closed="true")
        assert len(client.read("s").body) == 100


@pytest.mark.parametrize("mode", MODES)
def test_all_streams_together_have_a_largest_size(start_origin: StartOrigin, mode: str) -> None:
    limits = {"max_total_bytes": 100, "max_memory_bytes": 100}
    with start_origin(mode, limits=limits).client() as client:
        client.create("a", body=b"x" * 60)
        kind = {"Content-Type": "text/plain"}
        assert code(client("PUT", "b", kind, b"x" * 41)) == (413, "server-full")
        client.create("b", body=b"x" * 40)
        assert code(client("POST", "a", kind, b"x")) == (413, "server-full")
        client.create("fork", stream_forked_from=PREFIX + "a")  # inherits without storing
        assert client("DELETE", "b").status == 204
        client.append("a", b"x" * 40)


def test_a_refused_append_can_be_retried_by_its_producer(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_stream_bytes": 10}).client() as client:
        client.create("s")
        headers = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
        headers["Content-Type"] = "text/plain"
        assert client("POST", "s", headers, b"x" * 11).status == 413
        assert client("POST", "s", headers, b"x" * 10).status == 200


def test_there_is_a_largest_number_of_streams(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_streams": 2}).client() as client:
        client.create("a")
        client.create("b")
        assert code(client("PUT", "c")) == (413, "too-many-streams")
        assert client("PUT", "a", {"Content-Type": "text/plain"}).status == 200
        assert client("DELETE", "a").status == 204
        client.create("c")


def produce(client: Client, producer: str, seq: int = 0, epoch: int = 0) -> Response:
    headers = {
        "Content-Type": "text/plain",
        "Producer-Id": producer,
        "Producer-Epoch": str(epoch),
        "Producer-Seq": str(seq),
    }
    return client("POST", "s", headers, b"x")


def test_a_stream_knows_so_many_producers(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_producers_per_stream": 2}).client() as client:
        client.create("s")
        replies = [produce(client, *each) for each in [("a", 0), ("b", 0), ("c", 0), ("a", 1)]]
        assert [reply.status for reply in replies] == [200, 200, 429, 200]


@pytest.mark.parametrize("mode", MODES)
def test_idle_producers_make_room_for_others(
    clock: Clock, start_origin: StartOrigin, mode: str
) -> None:
    limits = {"max_producers_per_stream": 2, "producer_idle_secs": 100}
    with start_origin(mode, limits=limits).client() as client:
        client.create("s")
        produce(client, "a")
        clock += 40
        produce(client, "b")
        clock += 20
        produce(client, "a", 1)
        refused = produce(client, "c")
        assert (code(refused), refused["Retry-After"]) == ((429, "too-many-producers"), "80")
        clock += 80
        assert produce(client, "c").status == 429  # b has its time to the end
        clock += 0.01
        assert produce(client, "c").status == 200
        assert produce(client, "a", 2).status == 200  # was heard of later


@pytest.mark.parametrize("mode", PERSISTENT_MODES)
@pytest.mark.parametrize("is_checkpointed", [False, True], ids=["journal", "checkpoint"])
def test_a_restart_forgets_neither_sooner_nor_later(
    clock: Clock, start_origin: StartOrigin, mode: str, is_checkpointed: bool
) -> None:
    origin = start_origin(mode, limits={"producer_idle_secs": 100})
    with origin.client() as client:
        client.create("s")
        produce(client, "old")
        clock += 60
        produce(client, "new")
    if is_checkpointed:
        origin.restart()  # a start moves what it finds in the journal to the catalog
    clock += 40
    origin.restart()
    with origin.client() as client:
        assert produce(client, "old").status == 204
        clock += 0.01
        assert produce(client, "old").status == 200
        assert produce(client, "new").status == 204


def test_a_forgotten_producer_is_a_new_one(clock: Clock, start_origin: StartOrigin) -> None:
    with start_origin(limits={"producer_idle_secs": 100}).client() as client:
        client.create("s")
        produce(client, "p", 0, epoch=7)
        clock += 100.01
        refused = produce(client, "p", 1, epoch=7)
        assert code(refused) == (409, "sequence-gap")
        assert refused["Producer-Expected-Seq"] == "0"
        assert produce(client, "p", 0, epoch=3).status == 200


def test_a_closing_append_stays_a_duplicate_for_good(
    clock: Clock, start_origin: StartOrigin
) -> None:
    with start_origin(limits={"producer_idle_secs": 100}).client() as client:
        client.create("s")
        closing = {"Stream-Closed": "true", "Producer-Id": "p"}
        closing |= {"Producer-Epoch": "0", "Producer-Seq": "0"}
        assert client("POST", "s", closing).status == 204
        clock += 1000
        assert client("POST", "s", closing).status == 204


@pytest.mark.parametrize(
    ("limit", "status"),
    [("max_live_readers", 503), ("max_live_readers_per_stream", 429)],
)
@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_live_readers_are_limited(
    start_origin: StartOrigin, limit: str, status: int, live: str
) -> None:
    origin = start_origin(limits={limit: 2})
    with origin.client() as client:
        client.create("s")
        first, second = EventStream(origin.port, "s"), EventStream(origin.port, "s")
        reply = client("GET", "s", query=f"offset=now&live={live}")
        assert code(reply) == (status, "too-many-readers")
        assert int(reply["Retry-After"]) >= 1
        assert client.read("s").status == 200
        first.connection.close()
        wait_until(lambda: origin.origin._service.totals.live_readers == 1)
        with EventStream(origin.port, "s"):
            pass
        second.connection.close()


def test_a_long_name_is_refused(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_path_bytes": 20}).client() as client:
        client.create("x" * 20)
        assert client("PUT", "x" * 21).status == 400
        assert client("GET", "x" * 21).status == 400


def test_bodies_that_wait_for_room_are_limited(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = start_origin()
    waiting: list[Callable[[], None]] = []
    append = encode_request("POST", PREFIX + "s", {"Content-Type": "text/plain"}, b"x" * 5000)
    monkeypatch.setattr("origin.service.MAX_WAITING_BYTES", 10_000)
    monkeypatch.setattr(MemoryStorage, "when_room", lambda self, retry: waiting.append(retry))
    with origin.client() as client, origin.connect() as first, origin.connect() as second:
        client.create("s")
        with monkeypatch.context() as full:
            full.setattr(MemoryStorage, "admits", lambda self, size_bytes: False)
            for number, connection in enumerate((first, second), 1):
                connection.send(append)
                wait_until(lambda n=number: len(waiting) == n)  # type: ignore[misc]
            assert code(client("POST", "s", {"Content-Type": "text/plain"}, b"x")) == (503, "busy")
        origin.call(lambda: [retry() for retry in waiting])
        assert [first.read_response().status, second.read_response().status] == [204, 204]
        client.append("s", b"x")
