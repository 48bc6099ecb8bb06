"""Snapshots, bootstraps and buckets through gateways: what a crowd costs the origin, and that a
publication is known everywhere when its publisher is answered."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import KEY, LocalGateway, TokenClient, bearer
from tests.helpers.keys import make_token
from tests.helpers.offsets import nameless, unnamed
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import Connection, Response, wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, until
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import Caller, all_answers, tokens
from tests.scenarios.watching import readers, riders

TOKEN = tokens(1)[0]
AT = nameless
HIT = "weir; hit"
TEXT = {"Content-Type": "text/plain"}
JSON = "application/json"


def publish(client: TokenClient, name: str, offset: str, body: bytes = b"state") -> Response:
    return client("PUT", f"{name}/snapshot/{offset}", TEXT, body)


def url_of(origin: LocalOrigin) -> str:
    return f"http://127.0.0.1:{origin.port}"


class Paths:
    """Requests by whole path, with a token that may do everything."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._token = bearer(make_token(KEY))

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        return self._connection.request(method, path, {**self._token, **(headers or {})}, body)


@contextmanager
def paths(gateway: LocalGateway) -> Iterator[Paths]:
    with gateway.connect() as connection:
        yield Paths(connection)


# -- rights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("may", [False, True])
def test_who_may_write_replaces_no_history_by_a_snapshot_unless_configured(
    real: LocalOrigin, start_gateway: StartGateway, may: bool
) -> None:
    gateway = start_gateway(url_of(real), auth={"write_may_snapshot": may})
    with real.client() as behind, gateway.client(make_token(KEY, scope="write:a")) as writer:
        behind.create("a", body=b"what was. ")
        tail = writer.append("a", b"what came.")
        answer = publish(writer, "a", tail, b"what never was")
        assert answer.status == (204 if may else 403)
        assert may or 'scope="snapshot:a"' in answer["WWW-Authenticate"]
        assert behind.read("a").status == (410 if may else 200)


# -- crowds --------------------------------------------------------------------------------------


async def test_a_thousand_readers_of_a_snapshot_are_one_request(
    real: LocalOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(url_of(real))
    body = b"state " * 1000
    with real.client() as behind:
        offset = behind.create("a", body=b"one.")
        behind.append("a", b"two.")
        assert behind("PUT", f"a/snapshot/{offset}", TEXT, body).status == 204
    callers = await gather(gateway, 1000)
    for caller, token in zip(callers, tokens(1000), strict=True):
        caller.ask(f"a/snapshot/{offset}", token=token)
    answers = await all_answers(callers)
    assert {(answer.status, answer.body) for answer in answers} == {(200, body)}
    assert {answer["Stream-Up-To-Date"] for answer in answers} == {"false"}
    assert gateway.metric("upstream_requests", kind="read") == 1


async def test_a_thousand_bootstraps_are_two_requests(
    scripted: ScriptedOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    """The first, and one for all who came while it was on its way."""
    patient = {"first_byte_timeout_secs": 60.0}
    gateway = start_gateway(upstream=patient)
    headers = {
        "Content-Type": "multipart/mixed; boundary=b",
        "Stream-Snapshot-Offset": "-1",
        "Stream-Next-Offset": AT(4),
        "Stream-Up-To-Date": "true",
    }
    scripted.on("GET", "/v1/stream/a/bootstrap", Answer(200, headers, b"--b--", chunked=True))
    gate = scripted.hold()
    callers = await gather(gateway, 1000)
    callers[0].ask("a/bootstrap", token=TOKEN)
    await gate.reached()
    for caller, token in zip(callers[1:], tokens(1000)[1:], strict=True):
        caller.ask("a/bootstrap", token=token)
    await until(lambda: riders(gateway) == 1000)
    scripted.release()
    answers = await all_answers(callers)
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"--b--")}
    assert {answer["Content-Type"] for answer in answers} == {headers["Content-Type"]}
    assert scripted.count() == 2


async def keep_bootstrapping(caller: Caller, acknowledged: list[int]) -> int:
    """Every bootstrap shows what was acknowledged before it was asked for; how many there were."""
    seen = 0
    while acknowledged:
        newest = acknowledged[-1]
        caller.ask("a/bootstrap", token=TOKEN)
        answer = await caller.answer()
        assert answer.status == 200
        assert answer.body.count(b"\r\n\r\n<") >= newest
        seen += 1
    return seen


async def test_a_bootstrap_shows_every_write_from_before_it(
    fleet: list[LocalGateway], gather: Gather
) -> None:
    writing, reading = fleet
    acknowledged = [0]
    with writing.client() as writer:
        writer.create("a")
        callers = [*await gather(writing, 3), *await gather(reading, 3)]
        work = [asyncio.create_task(keep_bootstrapping(c, acknowledged)) for c in callers]
        for number in range(1, 41):
            await asyncio.to_thread(writer.append, "a", b"<%d>" % number)
            acknowledged.append(number)
    acknowledged.clear()
    assert sum(await asyncio.gather(*work)) > 40


# -- publications --------------------------------------------------------------------------------


def test_a_publication_is_known_everywhere_when_its_publisher_is_answered(
    fleet: list[LocalGateway],
) -> None:
    writing, reading = fleet
    with writing.client() as writer, reading.client() as reader:
        ends = [writer.create("a"), writer.append("a", b"0000")]
        ends += [writer.append("a", b"%04d" % number) for number in range(1, 12)]
        old = "-1"
        for number in range(1, 10):
            before, at, after = ends[number - 1 : number + 2]
            for offset in (before, at, after):
                reader.read("a", offset)
                assert reader.read("a", offset)["Cache-Status"] == HIT
            assert publish(writer, "a", at, b"state %d" % number).status == 204
            for offset in ("-1", before):
                refused = reader.read("a", offset)
                assert (refused.status, refused["Stream-Earliest-Offset"]) == (410, at)
            for offset in (at, after):
                assert reader.read("a", offset)["Cache-Status"] == HIT
            assert reader("GET", f"a/snapshot/{old}").status == 404
            for _ in range(2):
                latest = reader("GET", f"a/snapshot/{at}")
                assert (latest.status, latest.body) == (200, b"state %d" % number)
            assert latest["Cache-Status"] == HIT
            assert b"state %d" % number in reader("GET", "a/bootstrap").body
            old = at


async def test_readers_at_the_tail_go_on_across_a_publication(
    fleet: list[LocalGateway], gather: Gather
) -> None:
    writing, reading = fleet
    with writing.client() as writer:
        tail = writer.create("a", body=b"one.")
        sse, poll = await gather(reading, 2)
        sse.ask("a", "offset=-1&live=sse", token=TOKEN)
        poll.ask("a", f"offset={tail}&live=long-poll", token=TOKEN)
        await until(lambda: readers(reading) == 2)
        await until(lambda: reading.metric("upstream_requests", kind="live") == 1)
        assert (await asyncio.to_thread(publish, writer, "a", tail)).status == 204
        assert readers(reading) == 2
        assert reading.metric("upstream_requests", kind="live") == 1
        before, tail = tail, writer.append("a", b"two.")
        answer = await poll.answer()
        assert (answer.status, answer.body) == (200, b"two.")
        await sse.shown(tail)
        assert (await asyncio.to_thread(publish, writer, "a", tail)).status == 204
    poll.ask("a", f"offset={before}&live=long-poll", token=TOKEN)
    assert (await poll.answer()).status == 410, "the hub has forgotten it"
    assert sse.data == "one.two." and not sse.ended


async def test_live_readers_below_a_snapshot_are_told_where_the_stream_begins(
    real: LocalOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(url_of(real))
    with gateway.client() as writer:
        first = writer.create("a", body=b"one.")
        at = writer.append("a", b"two.")
        assert publish(writer, "a", at).status == 204
        callers = await gather(gateway, 4)
        for caller, offset in zip(callers, ("-1", first) * 2, strict=True):
            live = "sse" if caller in callers[:2] else "long-poll"
            caller.ask("a", f"offset={offset}&live={live}", token=TOKEN)
    for answer in await all_answers(callers):
        assert (answer.status, answer["Stream-Earliest-Offset"]) == (410, at)


async def test_a_snapshot_published_behind_the_gateway_shows_with_the_first_410(
    real: LocalOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(url_of(real))
    with gateway.client() as reader, real.client() as behind:
        first = behind.create("a", body=b"one.")
        middle = behind.append("a", b"two.")
        tail = behind.append("a", b"end.")
        for offset in ("-1", middle):
            reader.read("a", offset)
        [poll] = await gather(gateway)
        poll.ask("a", f"offset={tail}&live=long-poll", token=TOKEN)
        await until(lambda: readers(gateway) == 1)
        assert behind("PUT", f"a/snapshot/{middle}", TEXT, b"state").status == 204
        assert reader.read("a", first).status == 410
        assert reader.read("a").status == 410
        assert reader.read("a", tail).status == 200 and readers(gateway) == 1
        behind.append("a", b"new.")
        assert (await poll.answer()).body == b"new."


def test_the_purge_hook_is_called_for_a_publication(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    with ScriptedOrigin() as cdn:
        cdn.on("*", "/*", Answer(200))
        gateway = start_gateway(url_of(real), cdn={"purge_url": f"{cdn.url}/{{tag}}"})
        with gateway.client() as client:
            at = client.create("a", body=b"one.")
            wait_until(lambda: cdn.count() == 1)
            assert publish(client, "a", at).status == 204
            wait_until(lambda: cdn.count() == 2)
            assert publish(client, "a", AT(99)).status == 409
        gateway.stop()
        assert [request.path for request in cdn.requests] == ["/weir-a"] * 2


# -- sizes ---------------------------------------------------------------------------------------

SMALL = {"max_body_bytes": 64 * 1024, "max_snapshot_bytes": 512 * 1024}


def test_a_snapshot_may_be_larger_than_an_append(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(url_of(real), gateway=SMALL)
    large, too_large = b"x" * 500_000, b"x" * 600_000
    with gateway.client() as client:
        at = client.create("a", body=b"one.")
        assert publish(client, "a", at, large).status == 204
        got, looked = (client(method, f"a/snapshot/{at}") for method in ("GET", "HEAD"))
        assert got.body == large and looked["ETag"] == got["ETag"]
    for path, body in ((f"a/snapshot/{at}", too_large), ("b", large), ("a/snapshot", large)):
        with gateway.client() as client:
            assert client("PUT", path, TEXT, body).status == 413, path
    with gateway.connect() as connection:
        framing = {**TEXT, **bearer(TOKEN), "Transfer-Encoding": "chunked"}
        head = "".join(f"{name}: {value}\r\n" for name, value in framing.items())
        target = f"/v1/stream/a/snapshot/{at}"
        connection.send(f"PUT {target} HTTP/1.1\r\nHost: weir.test\r\n{head}\r\n".encode())
        connection.send(b"".join(b"%x\r\n%b\r\n" % (100_000, b"y" * 100_000) for _ in range(4)))
        connection.send(b"0\r\n\r\n")
        assert connection.read_response().status == 204
    with gateway.client() as client:
        assert client("GET", f"a/snapshot/{at}").body == b"y" * 400_000


def test_a_bootstrap_that_is_too_large_to_keep_is_passed_piece_by_piece(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(url_of(real), cache={"max_object_bytes": 64 * 1024})
    with gateway.client() as client:
        client.create("a")
        for _ in range(10):
            at = client.append("a", b"x" * 10_000)
        requests = []
        for _ in range(3):
            before = gateway.metric("upstream_requests", kind="read")
            answer = client("GET", "a/bootstrap")
            assert answer.status == 200 and answer.body.count(b"x" * 10_000) == 10
            assert answer["Cache-Status"] == "weir; fwd=bypass"
            requests.append(gateway.metric("upstream_requests", kind="read") - before)
        assert requests == [2, 1, 1]  # its size is found out once
        known = client("GET", "a/bootstrap", {"If-None-Match": answer["ETag"]})
        assert (known.status, known.body) == (304, b"")
        assert publish(client, "a", at).status == 204
        assert client("GET", "a/bootstrap")["Cache-Status"].endswith("; stored")


# -- reads with a limit --------------------------------------------------------------------------


async def test_limited_reads_come_from_the_origin_in_whole_messages(
    real: LocalOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(url_of(real))
    with gateway.client() as client:
        client.create("a", JSON, b"[1,22,333]")
        assert client("GET", "a", query="offset=-1").json() == [1, 22, 333]
        offset = "-1"
        got: list[int] = []
        while not got or got[-1] != 333:
            answer = client("GET", "a", query=f"offset={offset}&max_bytes=3")
            got += answer.json()
            offset = answer.next_offset
        assert got == [1, 22, 333] and gateway.metric("cache_entries") == 1
        limited, free = await gather(gateway, 2)
        limited.ask("a", f"offset={offset}&live=long-poll&max_bytes=3", token=TOKEN)
        free.ask("a", f"offset={offset}&live=long-poll", token=TOKEN)
        await until(lambda: readers(gateway) == 2)
        client.append("a", b"[4,55,666]", JSON)
    assert (await free.answer()).json() == [4, 55, 666]
    answer = await limited.answer()
    assert answer.json() == [4] and "Stream-Cursor" in answer


# -- buckets and conditions ----------------------------------------------------------------------


def test_buckets_and_their_streams_work_through_the_gateway(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(url_of(real))
    with paths(gateway) as ask:
        assert ask("PUT", "/ds/buck/s", TEXT).status == 404
        assert ask("PUT", "/ds/buck").status == 201
        assert ask("PUT", "/ds/buck").status == 409
        made = ask("PUT", "/ds/buck/s", TEXT, b"one.")
        assert made["Location"] == "http://weir.test/ds/buck/s"
        assert ask("POST", "/ds/buck/s", TEXT, b"two.").status == 204
        assert ask("GET", "/ds/buck/s?offset=-1").body == b"one."
        assert ask("GET", "/ds/buck/s?offset=-1")["Cache-Status"] == HIT
        assert ask("GET", "/ds/buck").json() == {"bucket_id": "buck", "streams": 1}
        listed = ask("GET", "/ds/buck/streams?prefix=s&limit=1&x=1").json()
        assert [row["stream_id"] for row in listed["streams"]] == ["s"]
        assert ask("PUT", f"/ds/buck/s/snapshot/{AT(4)}", TEXT, b"state").status == 204
        latest = ask("GET", "/ds/buck/s/snapshot")
        assert latest.status == 307
        own = latest["Stream-Snapshot-Offset"]
        assert unnamed(own) == AT(4)
        assert latest["Location"] == f"http://weir.test/ds/buck/s/snapshot/{own}"
        assert ask("GET", f"/ds/buck/s/snapshot/{AT(4)}").body == b"state"
        assert b"two." in ask("GET", "/ds/buck/s/bootstrap").body
        fork = {"Stream-Forked-From": "/ds/buck/s"}
        assert ask("PUT", "/v1/stream/fork", fork).status == 201
        assert ask("DELETE", "/ds/buck").status == 409
        assert ask("DELETE", "/v1/stream/fork").status == 204
        assert ask("DELETE", "/ds/buck/s").status == 204
        assert ask("GET", "/ds/buck/s?offset=-1").status == 404
        assert ask("DELETE", "/ds/buck").status == 204
        assert ask("HEAD", "/ds/buck").status == 404


def test_writers_who_meet_are_told_so(real: LocalOrigin, start_gateway: StartGateway) -> None:
    gateway = start_gateway(url_of(real))
    with gateway.client() as client:
        etag = client("PUT", "a", TEXT)["ETag"]
        assert client("HEAD", "a")["ETag"] == etag
        assert client("HEAD", "a", {"If-None-Match": etag}).status == 304
        first = client("POST", "a", {**TEXT, "If-Match": etag}, b"one.")
        second = client("POST", "a", {**TEXT, "If-Match": etag}, b"two.")
        assert (first.status, second.status) == (204, 412)
        assert second["ETag"] == first["ETag"] and second.next_offset == first.next_offset
        assert client("PUT", "a", {**TEXT, "If-None-Match": "*"}).status == 412
        assert client("HEAD", "a", {"If-None-Match": etag}).status == 200


def test_a_refused_state_message_is_explained(
    start_origin: StartOrigin, start_gateway: StartGateway
) -> None:
    """By the origin; the gateway passes the whole explanation on."""
    gateway = start_gateway(url_of(start_origin()))
    with gateway.client() as client:
        client.create("a", JSON, stream_state="strict")
        refused = client("POST", "a", {"Content-Type": JSON}, json.dumps([{}]).encode())
        assert (refused.status, refused.json()["code"]) == (400, "invalid-state-message")
        assert {"position", "field"} <= refused.json().keys()
