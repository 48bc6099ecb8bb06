"""Requests without an outcome in time: answered, while their work goes on."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from origin.config import OriginConfig
from origin.outcomes import Outcomes
from protocol.replies import Reply
from tests.conftest import StartOrigin
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import PREFIX, TIMEOUT_S, Client, Response, encode_request, wait_until
from tests.origin.conftest import code

KIND = {"Content-Type": "text/plain"}
ANSWER_SECS = 0.2
DONE = Reply(204, ())


class SlowStorage:
    """Holds back what an origin's storage does until the test lets it go."""

    def __init__(self, origin: LocalOrigin, monkeypatch: pytest.MonkeyPatch) -> None:
        self._origin, self._monkeypatch = origin, monkeypatch
        self._gate = asyncio.Event()
        self._held: list[Callable[[], None]] = []
        self._storage: Any = origin.origin.shard.storage
        self._stage = self._storage.stage
        read_now = self._storage.read_now

        def hold(*arguments: Any) -> None:
            self._held.append(lambda: self._stage(*arguments))

        async def wait(*arguments: Any) -> Any:
            await self._gate.wait()
            return read_now(*arguments)

        monkeypatch.setattr(self._storage, "stage", hold)
        monkeypatch.setattr(self._storage, "read", wait)
        monkeypatch.setattr(self._storage, "read_now", lambda *_: None)

    def let_go(self) -> None:
        self._origin.call(self._let_go)

    def _let_go(self) -> None:
        self._monkeypatch.setattr(self._storage, "stage", self._stage)
        self._gate.set()
        for stage in self._held:
            stage()


@pytest.fixture
def origin(start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch) -> LocalOrigin:
    """As in a cluster, where storage waits for others."""
    monkeypatch.setattr(OriginConfig, "answer_secs", ANSWER_SECS)
    return start_origin()


@pytest.fixture
def client(origin: LocalOrigin) -> Iterator[Client]:
    with origin.client() as client:
        yield client


def unknown(reply: Response) -> bool:
    return code(reply) == (503, "unknown-outcome") and reply["Retry-After"] == "1"


def test_a_write_without_an_outcome_is_unknown_and_goes_on(
    origin: LocalOrigin, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("a")
    client.create("b")
    slow = SlowStorage(origin, monkeypatch)
    chunked = (
        b"POST %b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n%b\r\n1\r\ny\r\n0\r\n\r\n"
    )
    assert unknown(client("POST", "a", KIND, b"x"))
    with origin.connect() as connection:
        connection.send(chunked % (f"{PREFIX}a".encode(), b"Content-Type: text/plain\r\n"))
        assert unknown(connection.read_response())
    assert unknown(client("PUT", "new", KIND))
    assert unknown(client("DELETE", "b"))
    slow.let_go()
    wait_until(lambda: client("HEAD", "new").status == 200)
    assert client.read("a").body == b"xy"
    assert client("HEAD", "b").status == 404


def test_an_unknown_outcome_needs_no_lease(
    origin: LocalOrigin, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the node cannot reach takes the outcome away, and the lease as well."""
    client.create("s")
    slow = SlowStorage(origin, monkeypatch)
    monkeypatch.setattr(origin.origin.shard, "fresh", lambda: False)
    assert unknown(client("POST", "s", KIND, b"x"))
    assert unknown(client("PUT", "new", KIND))
    slow.let_go()


def test_a_read_that_waits_for_storage_is_refused_in_time(
    origin: LocalOrigin, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("s", body=b"bytes")
    slow = SlowStorage(origin, monkeypatch)
    assert code(client.read("s")) == (503, "slow-storage")
    slow.let_go()
    assert client.read("s").body == b"bytes"


def test_live_reads_wait_longer(origin: LocalOrigin, client: Client) -> None:
    tail = client.create("s", body=b"bytes")
    with origin.connect() as waiting, origin.client() as pulse:
        waiting.send(encode_request("GET", f"{PREFIX}s?offset={tail}&live=long-poll"))
        assert waiting.rests(2 * ANSWER_SECS, lambda: pulse("HEAD", "s"))
        client.append("s", b"more")
        assert waiting.read_response().body == b"more"


def test_a_lost_shard_keeps_nobody_waiting(
    origin: LocalOrigin, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OriginConfig, "answer_secs", 3600)
    origin.restart()
    with origin.connect() as connection:
        SlowStorage(origin, monkeypatch)
        connection.send(encode_request("PUT", PREFIX + "s", KIND))
        shard = origin.origin.shard
        wait_until(lambda: origin.call(lambda: "s" in shard.registry.by_name))
        origin.call(shard.lose)
        assert code(connection.read_response()) == (503, "unknown-outcome")


# -- the queue of those without a task -------------------------------------------------------------


class Sent:
    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self._came = asyncio.Event()

    def by(self, name: str) -> Callable[[Reply], None]:
        def send(reply: Reply) -> None:
            self.found.append((name, reply.status))
            self._came.set()

        return send

    async def all_of(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.found) < count:
                self._came.clear()
                await self._came.wait()


async def test_each_is_answered_once_and_in_time() -> None:
    outcomes, sent = Outcomes(0.05), Sent()
    early, late, last = (outcomes.awaited(sent.by(name)) for name in ("early", "late", "last"))
    last(DONE)
    early(DONE)
    await sent.all_of(3)
    late(DONE)
    assert sent.found == [("last", 204), ("early", 204), ("late", 503)]
    assert len(outcomes) == 0


async def test_what_is_answered_leaves_the_queue() -> None:
    outcomes = Outcomes(3600)
    sends = [outcomes.awaited(lambda reply: None) for _ in range(100)]
    for send in sends:
        send(DONE)
    assert len(outcomes) == 0


async def test_one_timer_serves_all() -> None:
    outcomes, sent = Outcomes(0.05), Sent()
    outcomes.awaited(sent.by("first"))
    await asyncio.sleep(0.02)
    outcomes.awaited(sent.by("second"))
    await sent.all_of(2)
    assert sent.found == [("first", 503), ("second", 503)]
