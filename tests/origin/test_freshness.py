"""What is said while the lease of a shard holds, and what without it."""

from collections.abc import Iterator

import pytest

from origin.freshness import is_lasting
from origin.outcomes import slow_storage, unknown_outcome
from protocol import replies
from protocol.replies import Headers, Reply, problem_of
from tests.conftest import StartOrigin
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    EventStream,
    Response,
    control,
    encode_request,
    wait_until,
)
from tests.origin.conftest import code

KIND = {"Content-Type": "text/plain"}
NO_OWNER = (503, "no-owner")
END: Headers = (("Stream-Next-Offset", "5"),)
TAIL: Headers = (*END, replies.UP_TO_DATE)


class Lease:
    """In the place of a node's lease."""

    def __init__(self) -> None:
        self.holds = True

    def __call__(self) -> bool:
        return self.holds


@pytest.fixture
def origin(start_origin: StartOrigin) -> LocalOrigin:
    return start_origin(
        storage={"chunk_bytes": 8}, server={"long_poll_timeout_secs": 0.2, "sse_heartbeat_secs": 60}
    )


@pytest.fixture
def lease(origin: LocalOrigin, monkeypatch: pytest.MonkeyPatch) -> Lease:
    lease = Lease()
    monkeypatch.setattr(origin.origin.shard, "fresh", lease)
    return lease


@pytest.fixture
def client(origin: LocalOrigin) -> Iterator[Client]:
    with origin.client() as client:
        yield client


def refused(reply: Response) -> bool:
    assert reply["Retry-After"] == "1", reply
    return code(reply) == NO_OWNER


@pytest.mark.parametrize(
    ("method", "reply", "lasts"),
    [
        ("GET", Reply(200, END, b"bytes"), True),
        ("GET", Reply(200, TAIL, b"bytes"), False),
        ("GET", Reply(200, (), b'{"streams": 1}'), False),
        ("GET", Reply(204, TAIL), False),
        ("GET", Reply(304, END), False),
        ("GET", Reply(307, END), False),
        ("GET", replies.not_found(), False),
        ("GET", replies.gone(), False),
        ("HEAD", Reply(200, END), False),
        ("POST", Reply(200, END), True),
        ("POST", Reply(204, END), True),
        ("POST", Reply(409, END), False),
        ("PUT", Reply(201, END), True),
        ("PUT", Reply(200, END), False),
        ("PUT", Reply(204, END), True),
        ("DELETE", Reply(204, ()), True),
        ("DELETE", replies.not_found(), False),
        ("POST", problem_of(unknown_outcome()), True),
        ("GET", problem_of(slow_storage()), True),
    ],
)
def test_commits_and_bytes_below_the_tail_last(method: str, reply: Reply, lasts: bool) -> None:
    assert is_lasting(method, reply) is lasts


def test_bytes_below_the_tail_are_served_without_a_lease(client: Client, lease: Lease) -> None:
    client.create("s", body=b"12345678")
    client.append("s", b"9")
    lease.holds = False
    for _ in range(2):  # read, and then from memory
        reply = client.read("s")
        assert (reply.status, reply.body, reply.up_to_date) == (200, b"12345678", False)
        assert refused(client.read("s", reply.next_offset))
    lease.holds = True
    assert client.read("s", reply.next_offset).up_to_date


@pytest.mark.parametrize(
    "query", ["offset=now", "offset=-1", "offset=now&live=long-poll", "offset=now&live=sse"]
)
def test_reads_that_reach_the_tail_need_the_lease(client: Client, lease: Lease, query: str) -> None:
    client.create("s", body=b"123")
    assert client("GET", "s", query="offset=-1").up_to_date
    lease.holds = False
    assert refused(client("GET", "s", query=query))
    assert refused(client("GET", "s", {"If-None-Match": "*"}, query="offset=-1"))


def test_what_is_not_there_needs_the_lease(client: Client, lease: Lease) -> None:
    lease.holds = False
    assert refused(client.read("none"))
    assert client("HEAD", "none").status == 503
    for method in ("POST", "DELETE"):
        assert refused(client(method, "none", KIND, b"x"))
    assert refused(client("GET", "none/bootstrap"))


def test_a_commit_is_confirmed_and_a_refusal_is_not(client: Client, lease: Lease) -> None:
    """The storage decides whether a write is ours to make, not the lease."""
    client.create("s")
    lease.holds = False
    assert client("POST", "s", KIND, b"x").status == 204
    assert refused(client("POST", "s", {"Content-Type": "image/png"}, b"x"))
    assert refused(client("PUT", "s", KIND))  # as it is
    assert refused(client("DELETE", "s", {"If-Match": '"other"'}))
    assert client("PUT", "t", KIND).status == 201


def test_snapshots_and_buckets_need_the_lease(
    origin: LocalOrigin, client: Client, lease: Lease
) -> None:
    tail = client.create("s", body=b"123")
    assert client("PUT", f"s/snapshot/{tail}", KIND, b"snap").status == 204
    with origin.connect() as connection:
        assert connection.request("PUT", "/ds/buck").status == 201
        lease.holds = False
        paths = ("/ds/buck", "/ds/buck/streams", PREFIX + "s/snapshot", PREFIX + "s/bootstrap")
        for path in (*paths, f"{PREFIX}s/snapshot/{tail}"):
            assert refused(connection.request("GET", path)), path


def test_a_long_poll_without_news_needs_the_lease(origin: LocalOrigin, lease: Lease) -> None:
    with origin.client() as client, origin.connect() as waiting:
        tail = client.create("s", body=b"123")
        waiting.send(encode_request("GET", f"{PREFIX}s?offset={tail}&live=long-poll"))
        wait_until(lambda: origin.call(lambda: origin.origin.live.reader_count) == 1)
        lease.holds = False
        assert refused(waiting.read_response())


def test_a_reader_of_events_is_ended_before_it_is_told_the_tail(
    origin: LocalOrigin, client: Client, lease: Lease
) -> None:
    client.create("s", body=b"12345678")
    with EventStream(origin.port, "s") as events:
        assert control(events.next_write()[-1])["upToDate"] is True
        lease.holds = False
        client.append("s", b"9")
        assert events.rest() == []


# -- a lost shard ----------------------------------------------------------------------------------


def test_a_lost_shard_lets_go_of_everyone(origin: LocalOrigin, client: Client) -> None:
    client.create("s", body=b"123")
    with origin.connect() as waiting, EventStream(origin.port, "s", "now") as events:
        events.next_write()
        waiting.send(encode_request("GET", f"{PREFIX}s?offset=now&live=long-poll"))
        wait_until(lambda: origin.call(lambda: origin.origin.live.reader_count) == 2)
        origin.call(origin.origin.shard.lose)
        assert refused(waiting.read_response())
        assert events.rest() == []
    for method in ("GET", "PUT", "POST", "DELETE"):
        assert refused(client(method, "s", KIND, b"x"))
    assert client("HEAD", "s").status == 503
