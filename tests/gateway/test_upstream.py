"""The client to the origin, against an origin that does what it is told."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import uvloop

from gateway.asking import BAD_ANSWER, TooLarge, UpstreamError, UpstreamRequest, UpstreamResponse
from gateway.breaker import State
from gateway.slots import Payers
from gateway.upstream import LARGE_BYTES, Upstream
from tests.helpers.scripted_origin import (
    Answer,
    Gate,
    Piece,
    Recorded,
    ScriptedOrigin,
    SimpleStream,
    dropped,
    encode_head,
    simple_stream,
    until,
)
from tests.helpers.upstreams import (
    DELETE,
    GET,
    HEAD,
    HELLO,
    LONG_S,
    PATH,
    POST,
    PRODUCER,
    PRODUCER_POST,
    PUT,
    TEXT,
    Clock,
    connected,
    make_certificate,
    make_config,
    refusal,
)


@pytest.fixture
def origin() -> Iterator[ScriptedOrigin]:
    with ScriptedOrigin() as origin:
        yield origin


class TickingClock(Clock):
    """Goes on between two looks: first what is in `looks`, then long after the pause."""

    def __init__(self) -> None:
        self.looks: list[float] = [0.0] * 20

    def __call__(self) -> float:
        return self.looks.pop(0) if self.looks else 100.0


def state(upstream: Upstream) -> State:
    return upstream.state


# -- what is sent and what comes back ----------------------------------------------------------


async def test_an_answer_comes_back_whole(origin: ScriptedOrigin) -> None:
    headers = TEXT | {"Stream-Next-Offset": "0_5", "Server": "x", "Set-Cookie": "a=b"}
    origin.on("GET", PATH, Answer(200, headers, b"hello"))
    async with connected(origin) as upstream:
        found = await upstream.fetch(GET)
    kept = {"content-type": "text/plain", "stream-next-offset": "0_5"}
    assert found == UpstreamResponse(200, kept, b"hello")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
async def test_bodies_of_all_sizes(origin: ScriptedOrigin, size: int, chunked: bool) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    origin.on("GET", PATH, Answer(200, TEXT, body[:size], chunked=chunked))
    async with connected(origin) as upstream:
        assert (await upstream.fetch(GET)).body == body[:size]


@pytest.mark.parametrize("status", [200, 201, 204, 404, 409, 410, 429, 500, 503, 507])
async def test_every_status_of_the_origin_is_an_answer(origin: ScriptedOrigin, status: int) -> None:
    origin.on("POST", PATH, Answer(status, {"Retry-After": "3"}))
    async with connected(origin) as upstream:
        found = await upstream.fetch(POST)
    assert (found.status, found.headers, found.body) == (status, {"retry-after": "3"}, b"")


@pytest.mark.parametrize(
    "target",
    ["/v1/stream/a%2Fb", "/v1/stream/%C3%A9?offset=-1&live=long-poll", "/a+b%20c/:@!$'()*,;=~"]
    + ["/v1/stream/__ds/subscriptions/x/streams/manual%2Fb", "/v1/stream/a?offset=%2D1&x"],
)
async def test_the_target_arrives_byte_for_byte(origin: ScriptedOrigin, target: str) -> None:
    async with connected(origin) as upstream:
        await upstream.fetch(UpstreamRequest("GET", target, {}))
    assert origin.requests[0].target == target


@pytest.mark.parametrize("target", ["a", "", "/a b", "/a\r\nX: y", "/é", "/a#b", "http://x/"])
def test_other_targets_are_mistakes(target: str) -> None:
    with pytest.raises(ValueError):
        UpstreamRequest("GET", target, {})


async def test_nothing_is_sent_that_nobody_gave(origin: ScriptedOrigin) -> None:
    async with connected(origin) as upstream:
        for request in (GET, DELETE, *(UpstreamRequest("POST", PATH, {}, b) for b in (b"", b"x"))):
            await upstream.fetch(request)
    ours = {"host", "user-agent", "accept", "accept-encoding"}
    assert {request.headers["accept-encoding"] for request in origin.requests} == {"identity"}
    sent = [set(request.headers) - ours for request in origin.requests]
    assert sent == [set(), *[{"content-length"}] * 3]


async def test_every_request_brings_the_key_that_the_origin_asks_for(
    origin: ScriptedOrigin,
) -> None:
    origin.on("*", PATH, HELLO)
    async with connected(origin, access_key="k" * 16) as upstream:
        for request in (GET, POST, DELETE):
            await upstream.fetch(request)
        await upstream.fetch(GET, live=True)
        async with upstream.open(GET) as opened:
            assert opened.status == 200
    assert [request.headers["weir-access-key"] for request in origin.requests] == ["k" * 16] * 5


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (Answer(401, {"WWW-Authenticate": "Weir-Access-Key"}), "upstream.access_key"),
        (Answer(421, {}), "gateway.origin_url"),
    ],
)
async def test_an_origin_that_does_not_know_us_is_our_fault_not_the_clients(
    origin: ScriptedOrigin, answer: Answer, named: str
) -> None:
    origin.on("GET", PATH, answer)
    async with connected(origin) as upstream:
        error = await refusal(upstream, GET)
    assert (error.status, error.code) == (502, BAD_ANSWER) and named in error.detail


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_a_body_has_a_length(origin: ScriptedOrigin, method: str, size: int) -> None:
    body = bytes(size)
    async with connected(origin) as upstream:
        await upstream.fetch(UpstreamRequest(method, PATH, {}, body))
    (seen,) = origin.requests
    assert seen.headers["content-length"] == str(size)
    assert "transfer-encoding" not in seen.headers
    assert seen.body == body


async def test_a_base_path_and_credentials_of_the_origin_are_used(origin: ScriptedOrigin) -> None:
    location = {"Location": f"{origin.url}/base/v1/stream/a"}
    origin.on("PUT", "/base/v1/stream/a", Answer(201, location))
    async with connected(f"http://user:word@127.0.0.1:{origin.port}/base/") as upstream:
        found = await upstream.fetch(PUT)
    assert found.headers == {"location": "/v1/stream/a"}
    assert origin.requests[0].headers["authorization"] == "Basic dXNlcjp3b3Jk"


async def test_a_forwarded_token_goes_before_credentials(origin: ScriptedOrigin) -> None:
    async with connected(f"http://user:word@127.0.0.1:{origin.port}") as upstream:
        await upstream.fetch(UpstreamRequest("GET", PATH, {"authorization": "Bearer t"}))
    assert origin.requests[0].headers["authorization"] == "Bearer t"


async def test_cookies_of_the_origin_are_forgotten(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(200, {"Set-Cookie": "a=b; Path=/"}))
    # By name: no client keeps cookies of a bare address.
    async with connected(f"http://localhost:{origin.port}") as upstream:
        await upstream.fetch(GET)
        await upstream.fetch(GET)
    assert "cookie" not in origin.requests[1].headers


async def test_redirects_are_answers(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(307, {"Location": "/v1/stream/b"}))
    async with connected(origin) as upstream:
        found = await upstream.fetch(GET)
    assert (found.status, found.headers) == (307, {"location": "/v1/stream/b"})
    assert origin.count() == 1


async def test_connections_are_used_again(origin: ScriptedOrigin) -> None:
    origin.on("*", PATH, HELLO)
    async with connected(origin) as upstream:
        for request in (GET, HEAD, POST, PUT, DELETE, GET):
            await upstream.fetch(request)
    assert origin.accepted == 1


async def test_head_brings_headers_and_no_body(origin: ScriptedOrigin) -> None:
    origin.on("HEAD", PATH, Answer(200, TEXT | {"Content-Length": "1000000000"}))
    async with connected(origin) as upstream:
        found = await upstream.fetch(HEAD, max_bytes=10)
    assert (found.headers, found.body) == ({"content-type": "text/plain"}, b"")


# -- answers that must not be passed on --------------------------------------------------------

CUT = {
    "length and end": Answer(200, TEXT | {"Content-Length": "99"}, b"x" * 9, close=True),
    "length and reset": Answer(200, TEXT, b"x" * 99, cut_after=9),
    "nothing of a body": Answer(200, TEXT, b"x" * 99, cut_after=0, reset=False),
    "chunks and end": Answer(200, TEXT, b"x" * 99, chunked=True, cut_after=9, reset=False),
    "chunks and reset": Answer(200, TEXT, b"x" * 99, chunked=True, cut_after=9),
    "inside a chunk": Answer(
        raw=encode_head(Answer(200, TEXT, chunked=True)) + b"9\r\nxxx", cut_after=0, reset=False
    ),
}


@pytest.mark.parametrize("answer", CUT.values(), ids=CUT)
async def test_a_body_that_was_cut_short_is_no_answer(
    origin: ScriptedOrigin, answer: Answer
) -> None:
    origin.on("GET", PATH, answer)
    async with connected(origin) as upstream:
        error = await refusal(upstream, GET)
        assert upstream.failures == {error.code: 1}
    assert error.status == 502
    assert origin.count() == error.sent


@pytest.mark.parametrize("answer", CUT.values(), ids=CUT)
async def test_a_stream_that_was_cut_short_says_so(origin: ScriptedOrigin, answer: Answer) -> None:
    origin.on("GET", PATH, answer)
    async with connected(origin, retries=0) as upstream:
        with pytest.raises(UpstreamError) as refused:
            async with upstream.open(GET) as stream:
                [piece async for piece in stream.pieces]
    assert refused.value.status == 502


def raw(text: str) -> Answer:
    return Answer(raw=text.replace("\n", "\r\n").encode("latin-1"), close=True)


BAD = {
    "encoded": Answer(200, {"Content-Encoding": "gzip"}, b"x"),
    "no length": raw("HTTP/1.1 200 OK\n\nhello"),
    "old version": raw("HTTP/1.0 200 OK\n\nhello"),
    "part": Answer(206, {"Content-Range": "bytes 0-0/9"}, b"x"),
    "unasked 304": Answer(304, {"ETag": '"1"'}),
    "unknown status": raw("HTTP/1.1 299 Hm\nContent-Length: 0\n\n"),
    "upgrade": raw("HTTP/1.1 101 Switching\nUpgrade: x\nConnection: upgrade\n\n"),
    "not HTTP": raw("SSH-2.0-OpenSSH\n\n"),
    "two lengths": raw("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\nab"),
    "length and chunks": raw(
        "HTTP/1.1 200 OK\nContent-Length: 1\nTransfer-Encoding: chunked\n\n0\n\n"
    ),
    "negative length": raw("HTTP/1.1 200 OK\nContent-Length: -1\n\n"),
    "bad chunk": raw("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nzz\n\n"),
    "control character": raw("HTTP/1.1 200 OK\nContent-Length: 0\nETag: a\x01b\n\n"),
    "NUL": raw("HTTP/1.1 200 OK\nContent-Length: 0\nStream-Cursor: a\x00b\n\n"),
    "not ASCII": raw("HTTP/1.1 200 OK\nContent-Length: 0\nContent-Type: caf\xe9/x\n\n"),
    "repeated": raw('HTTP/1.1 200 OK\nContent-Length: 0\nETag: "1"\nETag: "2"\n\n'),
    "long field": Answer(200, {"Stream-Cursor": "x" * 20_000}),
    "many fields": Answer(200, {f"X-{number}": "x" for number in range(500)}),
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
async def test_bad_answers_are_not_passed_on(origin: ScriptedOrigin, answer: Answer) -> None:
    origin.on("GET", PATH, answer)
    async with connected(origin) as upstream:
        error = await refusal(upstream, GET)
    assert (error.status, error.code, error.sent) == (502, "bad-origin-answer", True)
    assert origin.count() == 1


@pytest.mark.parametrize("status", [200, 204])
async def test_a_read_of_a_stream_says_where_it_ends(origin: ScriptedOrigin, status: int) -> None:
    origin.on("GET", PATH, Answer(status, TEXT))
    read = UpstreamRequest("GET", PATH, {}, of_stream=True)
    async with connected(origin) as upstream:
        assert (await refusal(upstream, read)).code == BAD_ANSWER
        origin.on("GET", PATH, Answer(status, TEXT | {"Stream-Next-Offset": "0_5"}))
        assert (await upstream.fetch(read)).status == status


async def test_304_answers_a_condition(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(304, {"ETag": '"1"'}))
    async with connected(origin) as upstream:
        found = await upstream.fetch(UpstreamRequest("GET", PATH, {"if-none-match": '"1"'}))
    assert (found.status, found.headers) == (304, {"etag": '"1"'})


async def test_bytes_after_an_answer_are_not_the_next_answer(origin: ScriptedOrigin) -> None:
    forged = encode_head(Answer(200, TEXT, b"forged")) + b"forged"
    first = encode_head(HELLO) + b"hello"
    origin.on("GET", PATH, [Answer(raw=first + forged), HELLO])
    async with connected(origin) as upstream:
        bodies = [(await upstream.fetch(GET)).body for _ in range(2)]
    assert bodies == [b"hello", b"hello"]
    assert origin.accepted == 2


async def test_bytes_that_come_later_are_not_the_next_answer(origin: ScriptedOrigin) -> None:
    forged = encode_head(Answer(200, TEXT, b"forged")) + b"forged"
    gate = Gate()
    first = encode_head(HELLO) + b"hello"
    origin.on("GET", PATH, [Answer(raw=[first, gate, forged]), HELLO])
    async with connected(origin) as upstream:
        await upstream.fetch(GET)
        await gate.reached()
        gate.open()
        await asyncio.sleep(0.05)  # for the bytes to arrive: nothing else shows them
        assert (await upstream.fetch(GET)).body == b"hello"


@pytest.mark.parametrize("chunked", [False, True])
async def test_too_large_a_body_is_not_held(origin: ScriptedOrigin, chunked: bool) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, bytes(5_000_000), chunked=chunked))
    async with connected(origin, connections=1) as upstream:
        for _ in range(2):  # the connection's place is free again
            with pytest.raises(TooLarge):
                await upstream.fetch(GET, max_bytes=4_999_999)
        assert len((await upstream.fetch(GET, max_bytes=5_000_000)).body) == 5_000_000


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_usual_limit_is_that_of_the_cache(origin: ScriptedOrigin, chunked: bool) -> None:
    head, body = encode_head(Answer(200, chunked=chunked, body=bytes(11))), bytes(11)
    at_once = head + (b"b\r\n" + body + b"\r\n0\r\n\r\n" if chunked else body)
    origin.on("GET", PATH, Answer(raw=at_once))
    async with connected(origin, max_bytes=10) as upstream:
        assert isinstance(await refusal(upstream, GET), TooLarge)
        assert (await upstream.fetch(GET, max_bytes=11)).body == body


async def test_a_body_is_known_to_be_too_large_by_its_head(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(200, {"Content-Length": "11"}))
    async with connected(origin, max_bytes=10, idle_timeout_secs=LONG_S) as upstream:
        async with asyncio.timeout(60):
            assert isinstance(await refusal(upstream, GET), TooLarge)


async def test_an_open_stream_passes_on_bodies_of_any_size(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, bytes(9_000_000)))
    async with connected(origin, max_bytes=10) as upstream:
        async with upstream.open(GET) as stream:
            sizes = [len(piece) async for piece in stream.pieces]
        assert (stream.status, stream.headers) == (200, {"content-type": "text/plain"})
        assert (sum(sizes), len(sizes) > 1) == (9_000_000, True)
        await upstream.fetch(HEAD)
    assert origin.accepted == 1


async def test_pieces_come_as_the_origin_sends_them(origin: ScriptedOrigin) -> None:
    gate = Gate()
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"one", gate, b"two"]))
    async with connected(origin) as upstream, upstream.open(GET) as stream:
        pieces = aiter(stream.pieces)
        assert await anext(pieces) == b"one"
        gate.open()
        assert [piece async for piece in pieces] == [b"two"]


async def test_leaving_a_stream_early_ends_its_connection(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"one", Gate()]))
    async with connected(origin, connections=1) as upstream:
        async with upstream.open(GET) as stream:
            assert await anext(aiter(stream.pieces)) == b"one"
        await until(lambda: origin.abandoned == 1)
        await upstream.fetch(HEAD)


# -- times -------------------------------------------------------------------------------------


async def test_an_origin_that_does_not_answer_is_left(origin: ScriptedOrigin) -> None:
    origin.hold()
    async with connected(origin, first_byte_timeout_secs=1.0, connections=1) as upstream:
        error = await refusal(upstream, GET)
        origin.release()
        await upstream.fetch(GET)
    assert (error.status, error.code, error.sent) == (504, "origin-timeout", True)
    assert origin.count() == 2  # the timeout was not repeated


async def test_a_head_in_drops_does_not_gain_time(origin: ScriptedOrigin) -> None:
    drops: list[Piece] = [b"X: y\r\n", 0.03]
    origin.on("GET", PATH, Answer(raw=[b"HTTP/1.1 200 OK\r\n", *drops * 99]))
    async with connected(origin, first_byte_timeout_secs=0.2) as upstream:
        assert (await refusal(upstream, GET)).code == "origin-timeout"


async def test_a_body_that_stops_is_left(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"one", Gate()]))
    async with connected(origin, idle_timeout_secs=0.1) as upstream:
        error = await refusal(upstream, GET)
        with pytest.raises(UpstreamError, match="in time"):
            async with upstream.open(GET) as stream:
                [piece async for piece in stream.pieces]
    assert (error.status, error.code) == (504, "origin-timeout")


async def test_a_body_in_drops_does_not_gain_time(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"x", 0.03] * 99))
    async with connected(origin, idle_timeout_secs=0.2) as upstream:
        assert (await refusal(upstream, GET)).code == "origin-timeout"


async def test_a_body_that_goes_on_may_take_longer_than_the_idle_time(
    origin: ScriptedOrigin,
) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[bytes(2000), 0.4] * 6))
    async with connected(origin, idle_timeout_secs=2.0) as upstream:
        assert len((await upstream.fetch(GET)).body) == 12_000


async def test_a_live_read_may_wait_longer_than_others(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, b"late", hold=0.3))
    async with connected(origin, first_byte_timeout_secs=0.1) as upstream:
        assert (await upstream.fetch(GET, live=True)).body == b"late"


async def test_a_live_read_does_not_wait_for_ever(origin: ScriptedOrigin) -> None:
    origin.hold()
    async with connected(origin, live_timeout_secs=0.1) as upstream:
        assert (await refusal(upstream, GET, live=True)).code == "origin-timeout"


async def test_an_origin_that_takes_no_connection_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(8)]  # more than the queue holds
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(address)
        async with connected(f"http://127.0.0.1:{address[1]}", connect_timeout_secs=0.2) as it:
            error = await refusal(it, POST)
            assert (error.status, error.code, error.sent) == (504, "origin-timeout", False)
            assert (it.retries, it.requests) == (0, {})
        for client in waiting:
            client.close()


# -- pools -------------------------------------------------------------------------------------


async def test_waiting_live_reads_do_not_hold_up_others(origin: ScriptedOrigin) -> None:
    stream = simple_stream(origin, PATH, "text/plain", b"hello")
    live = UpstreamRequest("GET", f"{PATH}?offset={stream.tail}&live=long-poll", {})
    async with connected(origin, live_connections=50, connections=1) as upstream:
        waiting = [asyncio.create_task(upstream.fetch(live, live=True)) for _ in range(60)]
        await until(lambda: stream.waiting == 50)
        assert (await upstream.fetch(GET)).body == b"hello"
        assert stream.waiting == 50
        stream.append(b"more")
        assert {(await task).body for task in waiting} == {b"more"}


async def test_too_many_at_a_time_wait_for_their_turn(origin: ScriptedOrigin) -> None:
    gate = origin.hold()
    async with connected(origin, connections=2) as upstream:
        waiting = [asyncio.create_task(upstream.fetch(GET)) for _ in range(6)]
        await gate.reached(2)
        assert origin.count() == 2
        origin.release()
        await asyncio.gather(*waiting)
    assert (origin.count(), origin.accepted) == (6, 2)


async def test_waiting_for_a_connection_ends_as_well(origin: ScriptedOrigin) -> None:
    held = Gate()
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"one", held]))
    async with connected(
        origin, connections=1, first_byte_timeout_secs=1.0, breaker_failures=1
    ) as upstream:
        async with upstream.open(GET):
            error = await refusal(upstream, POST)
        assert (error.status, error.code, error.sent) == (503, "origin-busy", False)
        assert error.headers == (("Retry-After", "1"),)
        assert state(upstream) is State.CLOSED


async def test_one_subject_leaves_connections_to_the_others(origin: ScriptedOrigin) -> None:
    held = Gate()
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"one", held]))
    async with (
        connected(origin, auth="jwt", connections=4, first_byte_timeout_secs=0.2) as upstream,
        AsyncExitStack() as stack,
    ):
        for _ in range(2):
            await stack.enter_async_context(upstream.open(GET, payers=Payers("greedy")))
        error = await refusal(upstream, POST, payers=Payers("greedy"))
        assert (error.status, error.code) == (429, "origin-busy-for-subject")
        assert error.headers == (("Retry-After", "1"),)
        assert (await upstream.fetch(POST, payers=Payers("modest"))).status == 404
        assert (await upstream.fetch(POST)).status == 404  # ours
        for _ in range(2):
            await stack.enter_async_context(upstream.open(GET, payers=Payers("modest")))
        error = await refusal(upstream, POST, payers=Payers("third"))
        assert (error.status, error.code) == (503, "origin-busy")


async def test_large_answers_come_into_memory_a_few_at_a_time(origin: ScriptedOrigin) -> None:
    gate, half = Gate(), b"x" * LARGE_BYTES
    head = encode_head(Answer(200, TEXT | {"Content-Length": str(2 * len(half))}))
    origin.on("GET", PATH, Answer(raw=[head, half, gate, half]))
    origin.on("GET", "/v1/stream/large", Answer(200, TEXT, half + b"x"))
    origin.on("GET", "/v1/stream/small", Answer(200, TEXT, half))
    large, small = (UpstreamRequest("GET", f"/v1/stream/{name}", {}) for name in ("large", "small"))
    async with connected(origin, auth="jwt", first_byte_timeout_secs=2.0) as upstream:
        slow = [asyncio.create_task(upstream.fetch(GET, payers=Payers("greedy"))) for _ in "12"]
        await gate.reached(2)
        error = await refusal(upstream, large, payers=Payers("greedy"))
        assert (error.status, error.code) == (429, "origin-busy-for-subject")
        assert (await upstream.fetch(small, payers=Payers("greedy"))).status == 200
        assert (await upstream.fetch(large, payers=Payers("modest"))).status == 200
        gate.open()
        assert [len(each.body) for each in await asyncio.gather(*slow)] == [2 * len(half)] * 2
        assert (await upstream.fetch(large, payers=Payers("greedy"))).status == 200


async def test_whoever_leaves_makes_room(origin: ScriptedOrigin) -> None:
    gate = origin.hold()
    async with connected(origin, connections=1) as upstream:
        task = asyncio.create_task(upstream.fetch(GET))
        await gate.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: origin.abandoned == 1)
        origin.release()
        await upstream.fetch(GET)


# -- departure ---------------------------------------------------------------------------------


async def test_departure_is_told_before_the_origin_can_know(origin: ScriptedOrigin) -> None:
    seen: list[int] = []
    async with connected(origin) as upstream:
        for number in range(3):  # new connection or not
            await upstream.fetch(GET, on_departure=lambda: seen.append(origin.count()))
            assert seen == list(range(number + 1))


async def test_a_request_that_waits_for_a_connection_has_not_departed(
    origin: ScriptedOrigin,
) -> None:
    departed: list[str] = []
    gate = origin.hold()
    async with connected(origin, connections=1) as upstream:
        first = asyncio.create_task(upstream.fetch(GET, on_departure=lambda: departed.append("1")))
        await gate.reached()
        second = asyncio.create_task(upstream.fetch(GET, on_departure=lambda: departed.append("2")))
        await asyncio.sleep(0.02)
        assert departed == ["1"]
        origin.release()
        await asyncio.gather(first, second)
    assert departed == ["1", "2"]


async def test_a_repeated_request_departs_once(origin: ScriptedOrigin) -> None:
    origin.on("GET", PATH, [dropped(), HELLO])
    departed: list[int] = []
    async with connected(origin) as upstream:
        found = await upstream.fetch(GET, on_departure=lambda: departed.append(1))
    assert (departed, found.body, upstream.retries, origin.count()) == ([1], b"hello", 1, 2)


async def test_a_request_without_a_connection_never_departs(origin: ScriptedOrigin) -> None:
    origin.down()
    departed: list[int] = []
    async with connected(origin) as upstream:
        await refusal(upstream, GET, on_departure=lambda: departed.append(1))
    assert departed == []


# -- repetition --------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("request_", [GET, HEAD, PRODUCER_POST], ids=lambda r: r.method)
async def test_what_is_safe_is_sent_again(
    origin: ScriptedOrigin, request_: UpstreamRequest, reset: bool
) -> None:
    origin.on("*", PATH, [dropped(reset=reset), HELLO])
    async with connected(origin) as upstream:
        found = await upstream.fetch(request_)
        assert (found.status, upstream.retries, upstream.failures) == (200, 1, {})
    assert [request.body for request in origin.requests] == [request_.body] * 2


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("request_", [POST, PUT, DELETE], ids=lambda r: r.method)
async def test_what_may_have_been_done_is_not_sent_again(
    origin: ScriptedOrigin, request_: UpstreamRequest, reset: bool
) -> None:
    origin.on("*", PATH, [dropped(reset=reset), HELLO])
    async with connected(origin) as upstream:
        error = await refusal(upstream, request_)
        assert upstream.retries == 0
    assert (error.status, error.code, error.sent) == (502, "origin-unreachable", True)
    assert origin.count() == 1


@pytest.mark.parametrize("request_", [POST, PUT, DELETE, GET], ids=lambda r: r.method)
async def test_nor_over_a_connection_that_was_used_before(
    origin: ScriptedOrigin, request_: UpstreamRequest
) -> None:
    origin.on("*", PATH, [HELLO, dropped(), HELLO])
    async with connected(origin, retries=0) as upstream:
        await upstream.fetch(HEAD)
        assert (await refusal(upstream, request_)).sent
    assert (origin.count(), origin.accepted) == (2, 1)


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_repetition_has_an_end(origin: ScriptedOrigin, retries: int) -> None:
    origin.on("GET", PATH, dropped())
    async with connected(origin, retries=retries) as upstream:
        assert (await refusal(upstream, GET)).code == "origin-unreachable"
        assert upstream.retries == retries
    assert origin.count() == retries + 1


async def test_what_never_left_may_always_be_tried_again(origin: ScriptedOrigin) -> None:
    origin.down()
    async with connected(origin, retries=2) as upstream:
        error = await refusal(upstream, POST)
        assert (error.status, error.code, error.sent) == (502, "origin-unreachable", False)
        assert (upstream.retries, upstream.requests) == (2, {})


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_closed_while_idle_costs_no_append(
    origin: ScriptedOrigin, new_loop: Callable[[], asyncio.AbstractEventLoop], reset: bool
) -> None:
    async def append() -> None:
        async with connected(origin, retries=0) as upstream:
            for _ in range(10):
                await upstream.fetch(POST)
                # Our loop stands still meanwhile, so it has not heard of the end.
                origin.drop_connections(reset=reset)

    origin.on("*", PATH, HELLO)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(append())
    assert (origin.count(), origin.accepted) == (10, 10)


async def test_a_pool_of_closed_connections_costs_no_append(origin: ScriptedOrigin) -> None:
    origin.on("*", PATH, HELLO)
    async with connected(origin, retries=0) as upstream:
        origin.barrier(20)
        await asyncio.gather(*(upstream.fetch(GET) for _ in range(20)))
        origin.drop_connections()
        await upstream.fetch(POST)
    assert origin.accepted == 21


async def test_an_origin_that_hangs_up_on_everyone_is_not_tried_for_ever(
    origin: ScriptedOrigin,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = await asyncio.start_server(lambda _, writer: writer.close(), sock=listening)
        port = listening.getsockname()[1]
        async with server, connected(f"http://127.0.0.1:{port}", retries=3) as upstream:
            error = await refusal(upstream, GET)
    assert error.code == "origin-unreachable"


async def test_an_answer_before_the_end_of_the_upload_counts() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await left.wait()
        writer.close()

    left = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, connected(url, idle_timeout_secs=LONG_S) as upstream:
        request = UpstreamRequest("POST", PATH, {}, bytes(30_000_000))
        found = await asyncio.wait_for(upstream.fetch(request), 60)
        assert (found.status, found.body) == (413, b"no")
        left.set()


# -- the breaker -------------------------------------------------------------------------------


async def test_an_origin_that_is_away_is_not_asked_for_a_while(origin: ScriptedOrigin) -> None:
    clock = Clock()
    origin.down()
    async with connected(origin, clock=clock, breaker_failures=3, breaker_secs=2.0) as upstream:
        codes = [(await refusal(upstream, GET)).code for _ in range(3)]
        assert (codes, state(upstream)) == (["origin-unreachable"] * 3, State.OPEN)
        clock.now = 0.5
        error = await refusal(upstream, GET)
    assert (error.status, error.code, error.sent) == (503, "origin-unavailable", False)
    assert error.headers == (("Retry-After", "2"),)


async def test_an_origin_that_is_back_is_found(origin: ScriptedOrigin) -> None:
    clock = Clock()
    origin.on("GET", PATH, HELLO)
    origin.down()
    async with connected(origin, clock=clock, breaker_failures=1, breaker_secs=2.0) as upstream:
        await refusal(upstream, GET)
        origin.up()
        assert (await refusal(upstream, GET)).code == "origin-unavailable"
        clock.now = 2.0
        assert (await upstream.fetch(GET)).status == 200
        assert state(upstream) is State.CLOSED


@pytest.mark.parametrize("ends_at", [1, 2, 3, 4])
async def test_a_pause_that_ends_between_two_looks_at_the_clock_costs_no_probe(
    origin: ScriptedOrigin, ends_at: int
) -> None:
    clock = TickingClock()
    origin.on("GET", PATH, HELLO)
    origin.down()
    async with connected(origin, clock=clock, breaker_failures=1, breaker_secs=2.0) as upstream:
        await refusal(upstream, GET)
        origin.up()
        clock.looks = [0.0] * (ends_at - 1)  # then it is later
        with suppress(UpstreamError):
            await upstream.fetch(GET)
        clock.looks = []
        assert (await upstream.fetch(GET)).status == 200


async def test_an_origin_is_away_until_it_has_answered(origin: ScriptedOrigin) -> None:
    """Also while nobody asks, and while a probe is out: what a pause does is to end."""
    clock = Clock()
    origin.on("GET", PATH, HELLO)
    origin.down()
    async with connected(origin, clock=clock, breaker_failures=1, breaker_secs=2.0) as upstream:
        await refusal(upstream, GET)
        for now in (1.0, 2.0, 200.0):
            clock.now = now
            assert not upstream.is_up
        origin.up()
        await upstream.fetch(GET)
        assert upstream.is_up


async def test_one_probe_at_a_time(origin: ScriptedOrigin) -> None:
    clock = Clock()
    origin.down()
    async with connected(origin, clock=clock, breaker_failures=1, breaker_secs=2.0) as upstream:
        await refusal(upstream, GET)
        origin.up()
        gate = origin.hold()
        clock.now = 2.0
        probe = asyncio.create_task(upstream.fetch(GET))
        await gate.reached()
        assert (await refusal(upstream, GET)).code == "origin-unavailable"
        gate.open()
        assert (await probe).status == 404
        assert state(upstream) is State.CLOSED
    assert origin.count() == 1


async def test_a_probe_whose_caller_left_does_not_block_the_next(origin: ScriptedOrigin) -> None:
    clock = Clock()
    origin.down()
    async with connected(origin, clock=clock, breaker_failures=1, breaker_secs=2.0) as upstream:
        await refusal(upstream, GET)
        origin.up()
        gate = origin.hold()
        clock.now = 2.0
        probe = asyncio.create_task(upstream.fetch(GET))
        await gate.reached()
        probe.cancel()
        await asyncio.wait([probe])
        origin.release()
        await upstream.fetch(GET)
        assert state(upstream) is State.CLOSED


async def test_a_live_read_proves_the_origin_as_soon_as_it_has_left(origin: ScriptedOrigin) -> None:
    clock = Clock()
    origin.down()
    async with connected(origin, clock=clock, breaker_failures=1, breaker_secs=2.0) as upstream:
        await refusal(upstream, GET, live=True)
        assert state(upstream) is State.OPEN
        origin.up()
        gate = origin.hold()
        clock.now = 2.0
        probe = asyncio.create_task(upstream.fetch(GET, live=True))
        await gate.reached()
        assert state(upstream) is State.CLOSED
        origin.release()
        await probe


async def test_errors_of_the_origin_are_no_reason_to_stop(origin: ScriptedOrigin) -> None:
    origin.on("POST", PATH, Answer(507))
    origin.on("GET", PATH, Answer(200, {"Content-Encoding": "gzip"}, b"x"))
    async with connected(origin, breaker_failures=1) as upstream:
        for _ in range(3):
            assert (await upstream.fetch(POST)).status == 507
            assert (await refusal(upstream, GET)).code == "bad-origin-answer"
        assert state(upstream) is State.CLOSED


async def test_timeouts_count_but_not_those_of_live_reads(origin: ScriptedOrigin) -> None:
    origin.hold()
    async with connected(
        origin, breaker_failures=1, first_byte_timeout_secs=0.05, live_timeout_secs=0.05
    ) as upstream:
        await refusal(upstream, GET, live=True)
        assert state(upstream) is State.CLOSED
        await refusal(upstream, GET)
        assert state(upstream) is State.OPEN


async def test_cut_live_reads_do_not_count(origin: ScriptedOrigin) -> None:
    gate = origin.hold()
    async with connected(origin, breaker_failures=1, retries=0) as upstream:
        waiting = [asyncio.create_task(upstream.fetch(GET, live=True)) for _ in range(5)]
        await gate.reached(5)
        origin.drop_connections(reset=True)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {getattr(error, "code", None) for error in results} == {"origin-unreachable"}
        assert state(upstream) is State.CLOSED


async def test_nobody_waits_for_a_connection_to_an_origin_that_is_away(
    origin: ScriptedOrigin,
) -> None:
    origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"one", Gate()]))
    async with connected(
        origin, connections=1, breaker_failures=1, first_byte_timeout_secs=LONG_S
    ) as upstream:
        async with upstream.open(GET):
            origin.down()
            await refusal(upstream, GET, live=True)
            async with asyncio.timeout(60):
                assert (await refusal(upstream, GET)).code == "origin-unavailable"


# -- the rest ----------------------------------------------------------------------------------


async def test_requests_are_counted_by_kind(origin: ScriptedOrigin) -> None:
    async with connected(origin) as upstream:
        for request in (GET, HEAD, POST, PUT, DELETE):
            await upstream.fetch(request)
        await upstream.fetch(GET, live=True)
        assert upstream.requests == {"read": 1, "head": 1, "write": 3, "live": 1}


@pytest.mark.parametrize("up", [False, True])
async def test_errors_name_no_address(origin: ScriptedOrigin, up: bool) -> None:
    origin.on("GET", PATH, dropped())
    if not up:
        origin.down()
    async with connected(origin) as upstream:
        error = await refusal(upstream, GET)
    assert str(origin.port) not in error.detail and "127." not in error.detail


async def test_a_closed_client_refuses(origin: ScriptedOrigin) -> None:
    async with connected(origin) as upstream:
        pass
    error = await refusal(upstream, GET)
    assert (error.status, error.code, error.sent) == (503, "origin-unavailable", False)


async def test_the_reads_of_a_script_come_in_order(origin: ScriptedOrigin) -> None:
    def echo(request: Recorded) -> Answer:
        return Answer(200, TEXT, request.query.encode())

    origin.on("GET", "/v1/stream/*", echo)
    async with connected(origin) as upstream:
        requests = [UpstreamRequest("GET", f"{PATH}?n={n}", {}) for n in range(200)]
        found = await asyncio.gather(*(upstream.fetch(request) for request in requests))
    assert [answer.body for answer in found] == [b"n=%d" % n for n in range(200)]


# -- the stream that other tests of the gateway read -------------------------------------------


def read(query: str, **headers: str) -> UpstreamRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return UpstreamRequest("GET", f"{PATH}?{query}", named)


async def test_a_simple_stream_is_read_in_chunks(origin: ScriptedOrigin) -> None:
    stream = SimpleStream(origin, PATH, chunk_bytes=4)
    for message in (b"aaa", b"bbb", b"cc"):
        stream.append(message)
    async with connected(origin) as upstream:
        first = await upstream.fetch(GET)
        assert (first.body, "immutable" in first.headers["cache-control"]) == (b"aaabbb", True)
        last = await upstream.fetch(read(f"offset={first.headers['stream-next-offset']}"))
        assert (last.body, last.headers["stream-up-to-date"]) == (b"cc", "true")
        again = await upstream.fetch(read("offset=-1", if_none_match=first.headers["etag"]))
        assert (again.status, again.headers["etag"]) == (304, first.headers["etag"])
    assert stream.counts == {"catch-up": 3}


async def test_a_simple_stream_answers_long_polls(origin: ScriptedOrigin) -> None:
    stream = SimpleStream(origin, PATH, "application/json", long_poll_s=0.05)
    async with connected(origin) as upstream:
        empty = await upstream.fetch(read("offset=-1&live=long-poll"))
        assert (empty.status, empty.headers["stream-next-offset"]) == (204, stream.tail)
        await upstream.fetch(UpstreamRequest("POST", PATH, PRODUCER, b'{"a":1}'))
        repeated = await upstream.fetch(UpstreamRequest("POST", PATH, PRODUCER, b'{"a":1}'))
        found = await upstream.fetch(read("offset=-1&live=long-poll"))
    assert (repeated.status, found.body) == (204, b'[{"a":1}]')


async def test_the_end_of_a_simple_stream_wakes_its_readers(origin: ScriptedOrigin) -> None:
    stream = simple_stream(origin, PATH, "text/plain", b"hello")
    poll = read(f"offset={stream.tail}&live=long-poll")
    async with connected(origin) as upstream:
        for end, status in ((stream.close, 204), (stream.delete, 404)):
            stream.create()
            stream.append(b"hello")
            waiting = asyncio.create_task(upstream.fetch(poll, live=True))
            await until(lambda: stream.waiting == 1)
            end()
            found = await waiting
            assert (found.status, found.headers.get("stream-closed") == "true") == (
                status,
                status == 204,
            )


async def test_a_new_simple_stream_has_new_tags(origin: ScriptedOrigin) -> None:
    stream = simple_stream(origin, PATH, "text/plain", b"old")
    async with connected(origin) as upstream:
        old = await upstream.fetch(GET)
        await upstream.fetch(DELETE)
        assert (await upstream.fetch(GET)).status == 404
        assert (await upstream.fetch(PUT)).headers["location"] == PATH
        stream.append(b"new")
        new = await upstream.fetch(GET)
    assert new.body == b"new"
    assert new.headers["etag"] != old.headers["etag"]


# -- TLS ---------------------------------------------------------------------------------------


async def test_an_origin_behind_tls(tmp_path: Path) -> None:
    server, client = make_certificate(tmp_path)
    with ScriptedOrigin(tls=server) as origin:
        origin.on("*", PATH, HELLO)
        upstream = Upstream(make_config(origin.url, retries=0), tls=client)
        await upstream.start()
        for _ in range(3):
            assert (await upstream.fetch(POST)).body == b"hello"
        assert origin.accepted == 1
        await asyncio.to_thread(origin.drop_connections)  # TLS says goodbye to both sides
        assert (await upstream.fetch(POST)).body == b"hello"
        await upstream.close()


async def test_a_certificate_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    server, _ = make_certificate(tmp_path)
    with ScriptedOrigin(tls=server) as origin:
        async with connected(origin) as upstream:
            error = await refusal(upstream, GET)
    assert (error.status, error.code, error.sent) == (502, "origin-unreachable", False)
    assert origin.count() == 0
