"""Producers, and appends that are refused or wait for room."""

from collections.abc import Callable

import pytest

from origin.storage.memory import MemoryStorage
from tests.conftest import StartOrigin
from tests.helpers.origin import MODES, PERSISTENT_MODES, Clock
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    Response,
    encode_request,
    wait_until,
)
from tests.origin.conftest import code


def test_a_refused_append_can_be_retried_by_its_producer(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_stream_bytes": 10}).client() as client:
        client.create("s")
        headers = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
        headers["Content-Type"] = "text/plain"
        assert client("POST", "s", headers, b"x" * 11).status == 413
        assert client("POST", "s", headers, b"x" * 10).status == 200


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


def test_bodies_that_wait_for_room_are_limited(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = start_origin()
    waiting: list[Callable[[], None]] = []
    append = encode_request("POST", PREFIX + "s", {"Content-Type": "text/plain"}, b"x" * 5000)
    monkeypatch.setattr("origin.staging.MAX_WAITING_BYTES", 10_000)
    monkeypatch.setattr(MemoryStorage, "when_room", lambda self, retry: waiting.append(retry))
    with origin.client() as client, origin.connect() as first, origin.connect() as second:
        client.create("s")
        with monkeypatch.context() as full:
            full.setattr(MemoryStorage, "admits", lambda self, size_bytes, *, urgent: False)
            for number, connection in enumerate((first, second), 1):
                connection.send(append)
                wait_until(lambda n=number: len(waiting) == n)  # type: ignore[misc]
            assert code(client("POST", "s", {"Content-Type": "text/plain"}, b"x")) == (503, "busy")
        origin.call(lambda: [retry() for retry in waiting])
        assert [first.read_response().status, second.read_response().status] == [204, 204]
        client.append("s", b"x")
