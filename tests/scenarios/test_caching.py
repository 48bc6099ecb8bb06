"""What is kept and for how long, what a reader is told about it, and what never is."""

import asyncio
import gzip
import os
import time
from collections.abc import Iterator

import pytest
import zstandard

from gateway import encodings
from tests.conftest import StartOrigin
from tests.helpers.gateway import LocalGateway, TokenClient
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, SimpleStream, simple_stream, until
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import all_answers, tokens
from tests.scenarios.watching import grow_older, riders, watch

PATH = "/v1/stream/a"
CHUNK = b"ten bytes."
AT_10, AT_20 = nameless(10), nameless(20)
MISS = "weir; fwd=uri-miss; fwd-status=200; stored"
HIT = "weir; hit"
STALE = "weir; hit; detail=stale"
REVALIDATED = "weir; fwd=stale; fwd-status=304"
PROBLEM = "application/problem+json"


@pytest.fixture
def stream(scripted: ScriptedOrigin) -> SimpleStream:
    """Two whole chunks and a tail."""
    stream = SimpleStream(scripted, PATH, chunk_bytes=10)
    for _ in range(3):
        stream.append(CHUNK)
    stream.append(b"tail")
    return stream


@pytest.fixture
def client(gateway: LocalGateway) -> Iterator[TokenClient]:
    with gateway.client() as client:
        yield client


TAIL = nameless(30)


# -- verdicts ------------------------------------------------------------------------------------


def test_a_chunk_is_missed_hit_stale_and_revalidated(
    stream: SimpleStream, gateway: LocalGateway, client: TokenClient
) -> None:
    verdicts = []
    for older in (0, 0, 45, 30, 0, 500, 0):
        grow_older(gateway, older)
        answer = client.read("a")
        verdicts.append((answer["Cache-Status"], int(answer["Age"]) // 5 * 5))
        assert answer.body == CHUNK
        wait_until(lambda: riders(gateway) == 0)
    assert verdicts == [
        (MISS, 0),
        (HIT, 0),
        (HIT, 45),
        (STALE, 75),  # refreshed behind the answer
        (HIT, 0),
        (REVALIDATED, 0),
        (HIT, 0),
    ]
    assert stream.counts["catch-up"] == 3


def test_a_tail_is_revalidated_by_every_read(stream: SimpleStream, client: TokenClient) -> None:
    answers = [client.read("a", TAIL) for _ in range(3)]
    assert [answer["Cache-Status"] for answer in answers] == [MISS, REVALIDATED, REVALIDATED]
    stream.append(b"!")
    assert client.read("a", TAIL).body == b"tail!"
    assert all(answer.up_to_date for answer in answers)


def test_a_closed_stream_never_changes_to_its_end(
    stream: SimpleStream, client: TokenClient
) -> None:
    client.read("a", TAIL)
    stream.close()
    answers = [client.read("a", TAIL) for _ in range(3)]
    assert [answer["Cache-Status"] for answer in answers] == [MISS, HIT, HIT]
    assert all(answer.closed and answer.up_to_date for answer in answers)


def test_a_tail_may_be_trusted_to_the_hub_by_configuration(
    stream: SimpleStream, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(cache={"tail_reads": "hub"})
    with gateway.client() as client, gateway.events("a", TAIL) as events:
        events.next_write()
        wait_until(lambda: stream.waiting == 1)
        client.read("a", TAIL)
        before = stream.counts["catch-up"]
        assert client.read("a", TAIL)["Cache-Status"] == "weir; hit; detail=hub"
        stream.append(b"!")
        events.next_write()
        assert client.read("a", TAIL).body == b"tail!"
        assert stream.counts["catch-up"] == before + 1


# -- stale ---------------------------------------------------------------------------------------


async def test_a_crowd_at_a_stale_chunk_is_served_at_once_and_refreshes_it_once(
    scripted: ScriptedOrigin, stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    callers = await gather(gateway, 50)
    callers[0].ask("a", "offset=-1", token=tokens(50)[0])
    await callers[0].answer()
    grow_older(gateway, 61)
    gate = scripted.hold()
    for caller, token in zip(callers, tokens(50), strict=True):
        caller.ask("a", "offset=-1", token=token)
    answers = await all_answers(callers)  # although the origin holds back
    assert {(answer.body, answer["Cache-Status"]) for answer in answers} == {(CHUNK, STALE)}
    assert all(61 <= int(answer["Age"]) < 65 for answer in answers)
    await gate.reached()
    scripted.release()
    await until(lambda: riders(gateway) == 0)
    assert scripted.count() == 2
    assert "if-none-match" in scripted.requests[1].headers
    callers[0].ask("a", "offset=-1", token=tokens(1)[0])
    answer = await callers[0].answer()
    assert (answer["Cache-Status"], answer["Age"]) == (HIT, "0")


def test_only_chunks_that_never_change_outlive_the_origin(
    scripted: ScriptedOrigin, stream: SimpleStream, gateway: LocalGateway, client: TokenClient
) -> None:
    client.read("a")
    client.read("a", TAIL)
    scripted.down()
    assert client.read("a")["Cache-Status"] == HIT
    grow_older(gateway, 86_000)  # far beyond the time for revalidation
    answer = client.read("a")
    assert (answer.status, answer.body, answer["Cache-Status"]) == (200, CHUNK, STALE)
    assert int(answer["Age"]) >= 86_000
    refused = client.read("a", TAIL)
    assert refused.status in (502, 503, 504) and refused["Content-Type"] == PROBLEM
    grow_older(gateway, 1000)
    assert client.read("a").status in (502, 503, 504)


def test_an_error_status_of_the_origin_is_not_covered_up(
    scripted: ScriptedOrigin, stream: SimpleStream, gateway: LocalGateway, client: TokenClient
) -> None:
    """What it says goes on, but is not kept."""
    scripted.on("GET", PATH, [Answer(500), Answer(404), Answer(410), Answer(302)])
    assert [client.read("a").status for _ in range(3)] == [500, 404, 410]
    assert gateway.metric("cache_entries") == 0


# -- conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", ["-1", TAIL], ids=["chunk", "tail"])
def test_if_none_match_is_as_rfc_9110_has_it(
    offset: str, stream: SimpleStream, client: TokenClient
) -> None:
    first = client.read("a", offset)
    etag = first["ETag"]
    hits = [etag, f"W/{etag}", "*", f'"x", {etag}', f'W/"x",{etag},"y"', f" , {etag}"]
    for condition in hits:
        answer = client.read("a", offset, if_none_match=condition)
        assert (answer.status, answer.body, answer["ETag"]) == (304, b"", etag), condition
        assert answer.next_offset == first.next_offset
        assert answer["Cache-Control"] == first["Cache-Control"]
        assert "Content-Type" not in answer
    for condition in ('"x"', etag[1:-1], f'{etag[:-1]}x"', '"*"'):
        assert client.read("a", offset, if_none_match=condition).status == 200


def test_a_condition_of_the_past_brings_the_present(
    stream: SimpleStream, client: TokenClient
) -> None:
    etag = client.read("a", TAIL)["ETag"]
    stream.append(b"!")
    answer = client.read("a", TAIL, if_none_match=etag)
    assert (answer.status, answer.body) == (200, b"tail!")
    stream.close()
    closed = client.read("a", TAIL, if_none_match=answer["ETag"])
    assert (closed.status, closed.closed) == (200, True)


# -- never kept ----------------------------------------------------------------------------------


def test_head_and_now_always_reach_the_origin(
    stream: SimpleStream, gateway: LocalGateway, client: TokenClient
) -> None:
    for _ in range(3):
        assert client("HEAD", "a").status == 200
        answer = client.read("a", "now")
        assert (answer.status, answer.next_offset) == (200, stream.tail)
        assert answer["Cache-Control"] == "no-store"
        assert answer["Cache-Status"] == "weir; fwd=bypass"
    assert stream.counts == {"head": 3, "now": 3}
    assert gateway.metric("cache_entries") == 0


@pytest.mark.parametrize("control", ["no-store", "private", "private, max-age=60"])
def test_what_the_origin_forbids_is_not_kept(
    control: str, scripted: ScriptedOrigin, gateway: LocalGateway, client: TokenClient
) -> None:
    stream = SimpleStream(scripted, PATH, chunk_bytes=10, headers={"Cache-Control": control})
    for _ in range(2):
        stream.append(CHUNK)
    for _ in range(2):
        assert client.read("a")["Cache-Status"] == "weir; fwd=uri-miss; fwd-status=200"
    assert gateway.metric("cache_entries") == 0


def test_an_origin_that_says_nothing_is_trusted_once_it_is_known_not_to_expire(
    scripted: ScriptedOrigin, gateway: LocalGateway, client: TokenClient
) -> None:
    body = {"Content-Type": "text/plain", "Stream-Next-Offset": AT_10, "ETag": '"e"'}
    scripted.on("GET", PATH, Answer(200, body, CHUNK))
    scripted.on("HEAD", PATH, Answer(200, body))
    client.read("a")
    wait_until(lambda: scripted.count("HEAD") == 1)
    wait_until(lambda: client.read("a")["Cache-Status"] == HIT)
    assert scripted.count("HEAD") == 1


@pytest.mark.parametrize("header", ["Stream-TTL", "Stream-Expires-At"])
@pytest.mark.parametrize("through", ["origin", "gateway"])
def test_reads_of_streams_that_can_expire_reach_the_origin(
    through: str, header: str, start_origin: StartOrigin, start_gateway: StartGateway
) -> None:
    origin = start_origin(storage={"chunk_bytes": 4})
    gateway = start_gateway(f"http://127.0.0.1:{origin.port}")
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    value = "1" if header == "Stream-TTL" else ends
    with gateway.client() as client, origin.client() as direct:
        creator = client if through == "gateway" else direct
        reply = creator("PUT", "a", {"Content-Type": "text/plain", header: value}, b"one.")
        assert reply.status == 201
        direct.append("a", b"two.")
        for _ in range(3):
            answer = client.read("a")
            assert answer.body == b"one." and "max-age=0" in answer["Cache-Control"]
        assert gateway.metric("upstream_requests", kind="read") == 3
        if header == "Stream-Expires-At":
            wait_until(lambda: client.read("a").status in (404, 410))


# -- keys ----------------------------------------------------------------------------------------


def test_order_spelling_and_unknown_parameters_do_not_split_the_cache(
    stream: SimpleStream, client: TokenClient
) -> None:
    start = ["", "offset=-1", "offset=%2D1", f"offset={nameless(0)}", "offset=-1&x=1"]
    start += ["x=1&offset=-1", "utm_source=a&utm_medium=b", "cursor=17&offset=-1", "x", "&&"]
    start += ["Offset=5", "offset=-1&cursor=", "%6Fffset=-1"]
    for query in start:
        assert client("GET", "a", query=query).body == CHUNK, query
    assert stream.counts["catch-up"] == 1
    for query in (f"offset={AT_10}", f"x=1&offset={AT_10.replace('_', '%5F')}"):
        assert client("GET", "a", query=query).next_offset == AT_20, query
    assert stream.counts["catch-up"] == 2


def test_spellings_of_a_path_share_one_entry(
    scripted: ScriptedOrigin, gateway: LocalGateway, client: TokenClient
) -> None:
    stream = SimpleStream(scripted, "/v1/stream/a-b/c", chunk_bytes=10)
    for _ in range(2):
        stream.append(CHUNK)
    for name in ("a-b/c", "a%2Db/c", "a%2db/%63"):
        assert client.read(name).body == CHUNK, name
    assert stream.counts["catch-up"] == 1


# -- bounds --------------------------------------------------------------------------------------


def test_the_store_stays_within_its_bytes_and_serves_right_bytes_throughout(
    scripted: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    stream = SimpleStream(scripted, PATH, chunk_bytes=4096)
    for number in range(60):
        stream.append(b"%d" % (number % 10) * 4096)
    gateway = start_gateway(cache={"max_bytes": 100_000})
    with gateway.client() as client:
        for number in [*range(50), *range(50)]:
            answer = client.read("a", nameless(4096 * number))
            assert answer.body == b"%d" % (number % 10) * 4096
            assert gateway.metric("cache_bytes") <= 100_000
    assert gateway.metric("cache_evictions") > 0
    assert gateway.metric("cache_entries") < 20


def test_what_is_too_large_to_keep_is_passed_on_whole(
    scripted: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    body = os.urandom(300_000)
    simple_stream(scripted, PATH, "application/octet-stream", body)
    gateway = start_gateway(cache={"max_object_bytes": 100_000})
    with gateway.client() as client:
        for _ in range(2):
            answer = client.read("a")
            assert (answer.status, answer.body == body) == (200, True)
            assert answer.next_offset == nameless(300_000)
    assert gateway.metric("cache_entries") == 0


# -- encodings -----------------------------------------------------------------------------------


def decoded(encoding: str | None, body: bytes) -> bytes:
    match encoding:
        case "gzip":
            return gzip.decompress(body)
        case "zstd":
            return zstandard.ZstdDecompressor().decompress(body)
    return body


@pytest.mark.parametrize("size", [4_000, 200_000], ids=["small", "large"])
async def test_a_chunk_is_compressed_once_for_a_whole_crowd(
    size: int,
    scripted: ScriptedOrigin,
    gateway: LocalGateway,
    gather: Gather,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    really_compress = encodings.compress

    def compress(body: bytes, encoding: str) -> bytes:
        done.append(encoding)
        return really_compress(body, encoding)

    monkeypatch.setattr("gateway.encodings.compress", compress)
    stream = SimpleStream(scripted, PATH, chunk_bytes=size)
    text = (b"some text. " * size)[:size]
    for _ in range(2):
        stream.append(text)
    watched = watch(scripted, stream, PATH)
    callers = await gather(gateway, 60)
    accepted = ["gzip", "gzip, zstd", ""]
    for number, (caller, token) in enumerate(zip(callers, tokens(60), strict=True)):
        wanted = {"Accept_Encoding": accepted[number % 3]} if accepted[number % 3] else {}
        caller.ask("a", "offset=-1", token=token, method="GET", body=b"", **wanted)
    await until(lambda: riders(gateway) == 60)
    watched.gate.open()
    answers = await all_answers(callers)
    for number, answer in enumerate(answers):
        assert answer.get("Content-Encoding") == ["gzip", "zstd", None][number % 3]
        assert decoded(answer.get("Content-Encoding"), answer.body) == text
    assert sorted(done) == ["gzip", "zstd"]
    assert stream.counts["catch-up"] == 1
    assert len({(answer["ETag"], answer.get("Content-Encoding")) for answer in answers}) == 3
    assert len({answer["ETag"] for answer in answers}) == 3


def test_every_encoding_has_its_own_tag_and_answers_its_own_condition(
    scripted: ScriptedOrigin, client: TokenClient
) -> None:
    simple_stream(scripted, PATH, "application/json", b'{"a":1}' + b" " * 5000).close()
    plain = client.read("a")
    small = client.read("a", accept_encoding="gzip")
    assert plain["ETag"] != small["ETag"]
    assert plain["Vary"] == small["Vary"] == "Authorization, Accept-Encoding"
    both = f"{plain['ETag']}, {small['ETag']}"
    for accept, condition, status in (
        ("gzip", small["ETag"], 304),
        ("gzip", plain["ETag"], 200),
        ("identity", small["ETag"], 200),
        ("identity", both, 304),
        ("gzip", both, 304),
    ):
        answer = client.read("a", accept_encoding=accept, if_none_match=condition)
        assert answer.status == status, (accept, condition)


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "application/gzip"])
def test_binary_bodies_and_small_ones_stay_as_they_are(
    kind: str, scripted: ScriptedOrigin, client: TokenClient
) -> None:
    simple_stream(scripted, PATH, kind, b"x" * 5000)
    simple_stream(scripted, "/v1/stream/b", "text/plain", b"x" * 1000)
    for name in ("a", "b"):
        assert "Content-Encoding" not in client.read(name, accept_encoding="gzip, zstd")


# -- downstream ----------------------------------------------------------------------------------


def test_answers_are_private_unless_the_stream_is_public(
    scripted: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    for name in ("pub/a", "pub2", "a"):
        stream = SimpleStream(scripted, f"/v1/stream/{name}", chunk_bytes=10)
        for _ in range(2):
            stream.append(CHUNK)
    cdn = {"public": ("pub/*",), "tag_header": "Cache-Tag", "cache_control": "max-age=3600"}
    gateway = start_gateway(cdn=cdn)
    with gateway.client() as client:
        public = client.read("pub/a")
        assert public["Cache-Control"].startswith("public, max-age=60")
        assert "immutable" in public["Cache-Control"]
        assert (public["CDN-Cache-Control"], public["Cache-Tag"]) == (
            "max-age=3600",
            "weir-pub~2Fa",
        )
        assert "Authorization" not in public["Vary"]
        assert client.read("pub/a", AT_10)["Cache-Control"] == "public, max-age=0, must-revalidate"
        assert "CDN-Cache-Control" not in client.read("pub/a", AT_10)
        for name in ("pub2", "a"):
            private = client.read(name)
            assert private["Cache-Control"].startswith("private, max-age=60")
            assert private["Cache-Tag"] == f"weir-{name}"
            assert "CDN-Cache-Control" not in private
            assert "Authorization" in private["Vary"]


@pytest.mark.parametrize(
    ("name", "control", "told"),
    [
        ("pub/a", "max-age=3600", "max-age=20"),
        ("pub/a", "", None),
        ("a", "max-age=3600", None),
    ],
)
def test_a_cdn_may_keep_live_data_of_a_public_stream_until_its_url_changes(
    scripted: ScriptedOrigin, start_gateway: StartGateway, name: str, control: str, told: str | None
) -> None:
    stream = SimpleStream(scripted, f"/v1/stream/{name}", long_poll_s=0.05)
    stream.append(CHUNK)
    gateway = start_gateway(cdn={"public": ("pub/*",), "cache_control": control})
    with gateway.client() as client:
        answer = client("GET", name, query="offset=-1&live=long-poll")
        assert (answer.status, answer.get("CDN-Cache-Control")) == (200, told)
        empty = client("GET", name, query=f"offset={stream.tail}&live=long-poll")
        assert (empty.status, empty.get("CDN-Cache-Control")) == (204, None)


def test_a_public_stream_still_needs_a_token(
    scripted: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    simple_stream(scripted, PATH, "text/plain", b"x").close()
    gateway = start_gateway(cdn={"public": ("*",)})
    with gateway.client() as client, gateway.client(None) as nobody:
        assert client.read("a").body == b"x"
        refused = nobody.read("a")
        assert refused.status == 401 and b"x" != refused.body


async def test_the_fast_way_and_the_long_way_say_the_same(
    stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    """A second hit of the same request is answered before it is a call of its own."""
    [caller] = await gather(gateway)
    answers = []
    for _ in range(5):
        caller.ask("a", "offset=-1", token=tokens(1)[0])
        answers.append(await caller.answer())
        await asyncio.sleep(0)
    own = {"x-request-id", "cache-status", "date", "age"}
    heads = {tuple(sorted(f for f in a.fields if f[0] not in own)) for a in answers}
    assert len(heads) == 1
    assert [answer["Cache-Status"] for answer in answers] == [MISS, HIT, HIT, HIT, HIT]
