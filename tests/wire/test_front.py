"""The connection: the fast path and aiohttp's path are one server to its clients."""

import asyncio
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from protocol.replies import Headers, Reply
from tests.conftest import StartOrigin
from tests.helpers.fronts import AnswersAll, KeptTransport, connect_front
from tests.helpers.offsets import unnamed
from tests.helpers.origin import MIB, LocalOrigin
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    Connection,
    Response,
    encode_request,
    wait_until,
)
from wire.front import REQUESTS_A_TURN, State
from wire.heads import Head
from wire.http import to_response

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
HALF = 0.5


def producer(epoch: int, seq: int, kind: dict[str, str] = TEXT) -> dict[str, str]:
    numbers = {"Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}
    return {"Producer-Id": "p", **numbers, **kind}


def at(position: int) -> str:
    return f"offset=0000000000000000_{position:016}"


# Method, stream, query, headers, body: told in order to a server that starts with `prepare`.
EXCHANGES: list[tuple[str, str, str, dict[str, str], bytes]] = [
    ("POST", "text", "", TEXT, b"one"),
    ("POST", "text", "", {"Content-Type": "Text/Plain; charset=utf-8"}, b"two"),
    ("POST", "text", "", TEXT | {"Stream-Seq": "5"}, b"three"),
    ("POST", "text", "", TEXT | {"Stream-Seq": "4"}, b"regression"),
    ("POST", "text", "", producer(0, 0), b"first"),
    ("POST", "text", "", producer(0, 0), b"first again"),
    ("POST", "text", "", producer(0, 2), b"gap"),
    ("POST", "text", "", producer(1, 0), b"new epoch"),
    ("POST", "text", "", producer(0, 1), b"zombie"),
    ("POST", "text", "", producer(2, 1), b"bad start"),
    ("POST", "text", "", TEXT | {"Producer-Id": "p"}, b"partial"),
    ("POST", "text", "", JSON, b"1"),
    ("POST", "text", "", {}, b"no type"),
    ("POST", "text", "", {"Content-Type": "nonsense"}, b"bad type"),
    ("POST", "text", "", TEXT, b""),
    ("POST", "missing", "", TEXT, b"x"),
    ("POST", "a//b", "", TEXT, b"x"),
    ("POST", "a%2Fb", "", TEXT, b"x"),
    ("POST", "__ds/x", "", TEXT, b"x"),
    ("POST", "json", "", JSON, b'[{"a":1}, [2]]'),
    ("POST", "json", "", JSON, b"{"),
    ("POST", "json", "", JSON, b"[]"),
    ("POST", "json", "", JSON, b'"\xff"'),
    ("POST", "closed", "", TEXT, b"late"),
    ("POST", "closed", "", {"Stream-Closed": "true"}, b""),
    ("POST", "text", "", TEXT, b"x" * 70_000),
    ("GET", "text", "", {}, b""),
    ("GET", "text", "", {}, b""),
    ("GET", "text", "offset=-1", {"If-None-Match": "*"}, b""),
    ("GET", "text", "offset=-1", {"If-None-Match": '"other"'}, b""),
    ("GET", "text", at(3), {}, b""),
    ("GET", "text", at(10**15), {}, b""),
    ("GET", "text", "offset=bad", {}, b""),
    ("GET", "text", "offset=-1&offset=-1", {}, b""),
    ("GET", "text", "live=no&offset=-1", {}, b""),
    ("GET", "text", "offset=now", {}, b""),
    ("GET", "text", "unknown=1", {}, b""),
    ("GET", "json", "", {}, b""),
    ("GET", "json", at(1), {}, b""),
    ("GET", "closed", "", {}, b""),
    ("GET", "closed", at(5), {}, b""),
    ("GET", "empty", "", {}, b""),
    ("GET", "missing", "", {}, b""),
    ("GET", "a/../b", "", {}, b""),
    ("GET", "ttl", "", {}, b""),
    ("POST", "ttl", "", TEXT, b"more"),
    ("POST", "text", "", TEXT | {"Stream-Closed": "TRUE"}, b"end"),
    ("GET", "text", at(3), {}, b""),
    ("GET", "source", "", {}, b""),
    ("POST", "source", "", TEXT, b"x"),
    ("GET", "fork", "", {}, b""),
]


def prepare(client: Client) -> None:
    client.create("text")
    client.create("json", "application/json")
    client.create("empty")
    client.create("closed", body=b"12345", stream_closed="true")
    client.create("ttl", body=b"t", stream_ttl="3600")
    client.create("source", body=b"inherited")
    client.create("fork", stream_forked_from=PREFIX + "source")
    assert client("DELETE", "source").status == 204


def essence(reply: Response, incarnations: dict[str, str]) -> tuple[int, object, bytes]:
    """Everything but the date and the connection; incarnations become their order of showing."""
    fields = dict(reply.fields)
    fields.pop("date")
    fields.pop("connection", None)
    if "etag" in fields:
        incarnation, _, rest = fields["etag"].partition(":")
        number = incarnations.setdefault(incarnation, str(len(incarnations)))
        fields["etag"] = f"{number}:{rest}"
    if "stream-next-offset" in fields:
        fields["stream-next-offset"] = unnamed(fields["stream-next-offset"])
    return reply.status, fields, reply.body


def exchange_fast(origin: LocalOrigin) -> list[tuple[int, object, bytes]]:
    known: dict[str, str] = {}
    with origin.connect() as connection:
        return [
            essence(connection.request(method, target(name, query), headers, body), known)
            for method, name, query, headers, body in EXCHANGES
        ]


def exchange_closing(origin: LocalOrigin) -> list[tuple[int, object, bytes]]:
    """`Connection: close` is not plain, so each of these goes to aiohttp."""
    known: dict[str, str] = {}
    replies = []
    for method, name, query, headers, body in EXCHANGES:
        with origin.connect() as connection:
            headers = headers | {"Connection": "close"}
            reply = connection.request(method, target(name, query), headers, body)
            replies.append(essence(reply, known))
            assert connection.wait_closed() == b""
    return replies


def target(name: str, query: str) -> str:
    return PREFIX + name + (f"?{query}" if query else "")


@pytest.mark.parametrize("mode", ["memory", "file-durable"])
def test_both_paths_give_the_same_answers(start_origin: StartOrigin, mode: str) -> None:
    servers = [start_origin(mode) for _ in range(3)]
    for server in servers:
        with server.client() as client:
            prepare(client)
    fast = exchange_fast(servers[0])
    closing = exchange_closing(servers[1])
    servers[2].call(servers[2].origin.listener.server.drain)
    slow = exchange_fast(servers[2])
    for exchange, a, b, c in zip(EXCHANGES, fast, closing, slow, strict=True):
        assert a == b == c, exchange


def test_the_fast_path_is_really_taken(origin: LocalOrigin, client: Client) -> None:
    client.create("s")
    fast = origin.origin.listener.server.fast
    assert fast is not None
    taken: list[str] = []
    answer = fast.answer

    def spy(head, body, send):  # type: ignore[no-untyped-def]
        done = answer(head, body, send)
        taken.append(f"{head.method} {done}")
        return done

    origin.call(lambda: setattr(fast, "answer", spy))
    client.append("s", b"x")
    client.read("s")
    client.read("s", "now")
    assert taken == ["POST True", "GET True", "GET False"]


# -- bytes in any pieces -----------------------------------------------------------------------


def dialogue() -> tuple[bytes, list[int]]:
    """Requests for both paths in one run of bytes, and the statuses they must get."""
    chunked = (
        b"POST /v1/stream/s HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    parts = [
        (encode_request("POST", PREFIX + "s", TEXT, b"fast"), 204),
        (encode_request("PUT", PREFIX + "t", TEXT, b"body"), 201),
        (encode_request("GET", PREFIX + "s"), 200),
        (encode_request("DELETE", PREFIX + "t"), 204),
        (encode_request("POST", PREFIX + "t", TEXT, b"late"), 404),
        (chunked, 204),
        (encode_request("GET", PREFIX + "s"), 200),
    ]
    return b"".join(data for data, _ in parts), [status for _, status in parts]


def test_requests_may_be_cut_anywhere(origin: LocalOrigin, client: Client) -> None:
    data, statuses = dialogue()
    expected = b""
    client.create("s")
    for cut in range(1, len(data)):
        expected += b"fastabcde"
        with origin.connect() as connection:
            connection.send(data[:cut])
            if cut % 4 == 0:
                time.sleep(0.0005)  # now and then the halves arrive in two reads for sure
            connection.send(data[cut:])
            replies = [connection.read_response() for _ in statuses]
        assert [reply.status for reply in replies] == statuses, cut
        assert replies[-1].body == expected, cut


def test_requests_may_come_byte_by_byte(origin: LocalOrigin, client: Client) -> None:
    data, statuses = dialogue()
    client.create("s")
    with origin.connect() as connection:
        for byte in data:
            connection.send(bytes([byte]))
        assert [connection.read_response().status for _ in statuses] == statuses


def test_a_body_in_tiny_pieces_takes_no_more_than_its_bytes(
    origin: LocalOrigin, client: Client
) -> None:
    client.create("s")
    body = b"tiny" * 100_000
    request = encode_request("POST", PREFIX + "s", TEXT, body)
    with origin.connect() as connection:
        connection.send(request[: -len(body)])
        wait_until(lambda: len(gathering(origin)) == 1)
        [front] = gathering(origin)
        assert origin.call(lambda: memory_of(lambda: feed(front, body[:-2], 2))) < 2 * len(body)
        connection.send(body[-2:])
        assert connection.read_response().status == 204
    assert client.read("s").body == body


def gathering(origin: LocalOrigin) -> list[Any]:
    """The connections whose request has a body that is still to come."""
    connections: list[Any] = origin.origin.listener.server.connections
    return [found for found in connections if found.state is State.GATHERING]


def feed(front: Any, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        front.data_received(data[start : start + size])


def memory_of(work: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_body_may_come_in_many_pieces(origin: LocalOrigin, client: Client) -> None:
    client.create("s")
    body = bytes(range(97, 123)) * 4000
    data = encode_request("POST", PREFIX + "s", TEXT, body)
    with origin.connect() as connection:
        for start in range(0, len(data), 3001):
            connection.send(data[start : start + 3001])
        assert connection.read_response().status == 204
    assert client.read("s").body == body


@pytest.mark.parametrize("mode", ["memory", "file-durable"])
def test_pipelined_answers_come_in_order(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s")
    requests: list[bytes] = []
    for number in range(50):
        requests.append(encode_request("POST", PREFIX + "s", TEXT, b"%02d" % number))
        if number % 5 == 0:  # aiohttp's
            requests.append(encode_request("HEAD", PREFIX + "s"))
        if number % 7 == 0:
            requests.append(encode_request("GET", PREFIX + "s"))
    with origin.connect() as connection:
        connection.send(b"".join(requests))
        tails: list[str] = []
        for data in requests:
            method = data.partition(b" ")[0].decode()
            reply = connection.read_response(method)
            assert reply.status == (204 if method == "POST" else 200)
            tails.append(reply.next_offset)
        assert tails == sorted(tails)
    with origin.client() as client:
        assert client.read("s").body == b"".join(b"%02d" % number for number in range(50))


@pytest.mark.parametrize("method", ["HEAD", "GET", "POST"])
def test_a_long_pipeline_is_answered_to_its_end(
    origin: LocalOrigin, client: Client, method: str
) -> None:
    client.create("s")
    body = b"x" if method == "POST" else b""
    request = encode_request(method, PREFIX + "s", TEXT if body else {}, body)
    with origin.connect() as connection:
        connection.send(request * 300)
        statuses = {connection.read_response(method).status for _ in range(300)}
    assert statuses == {204 if body else 200}


async def test_a_long_pipeline_takes_turns_with_other_connections() -> None:
    """However much of it has come; nor is more taken in before that is answered."""
    fast, transport = AnswersAll(), KeptTransport()
    front = connect_front(transport, fast)
    for _ in range(2):
        fast.answered = 0
        front.data_received(encode_request("GET", "/", {}) * 10_000)
        assert fast.answered == REQUESTS_A_TURN and not transport.is_reading()
        front.data_received(encode_request("GET", "/", {}))
        assert fast.answered == REQUESTS_A_TURN
        for _ in range(10_001 // REQUESTS_A_TURN + 1):
            await asyncio.sleep(0)
        assert fast.answered == 10_001 and transport.is_reading()
    front.connection_lost(None)


async def test_a_client_that_does_not_read_gets_no_further_answer() -> None:
    fast = AnswersAll()
    front = connect_front(KeptTransport(), fast)
    front.pause_writing()
    for _ in range(3):
        front.data_received(encode_request("GET", "/", {}))
        assert (front.state, fast.answered) == (State.STALLED, 1)
    front.resume_writing()
    await asyncio.sleep(0)
    assert (front.state, fast.answered) == (State.READING, 3)
    front.connection_lost(None)


async def test_nothing_is_answered_behind_the_last_answer() -> None:
    class OnlyReads(AnswersAll):
        def hit(self, head: Head, peer: str) -> bytes | None:
            return super().hit(head, peer) if head.method == "GET" else None

        def wants(self, head: Head, here: int) -> bool:
            return head.method == "GET"

    async def close(request: web.BaseRequest) -> web.StreamResponse:
        response = web.Response()
        response.force_close()
        return response

    fast, transport = OnlyReads(), KeptTransport()
    front = connect_front(transport, fast, close)
    front.data_received(encode_request("PUT", "/", {}) + encode_request("GET", "/", {}) * 10)
    assert front.state is State.WAITING
    for _ in range(10):
        await asyncio.sleep(0)
    front.data_received(encode_request("GET", "/", {}))
    assert (front.state, fast.answered, transport.closing) == (State.ENDING, 0, True)
    assert transport.written.count(b"HTTP/1.1 ") == 1
    front.connection_lost(None)


@pytest.mark.parametrize("has_left", [True, False])
def test_only_a_fault_of_ours_is_an_error_in_the_log(origin: LocalOrigin, has_left: bool) -> None:
    """A client may leave while its answer begins."""
    error, request = ConnectionResetError("closing"), cast(Any, SimpleNamespace(writer=Unwritten))
    with origin.connect() as connection:
        assert connection.request("GET", "/healthz").status == 200
        [front] = origin.origin.listener.server.connections
        if has_left:
            connection.close()
            wait_until(lambda: not origin.origin.listener.server.connections)
        origin.call(lambda: front.handle_error(request, 500, error))
    logged, origin.errors.found = origin.errors.found, []
    assert len(logged) == (0 if has_left else 1)


class Unwritten:
    output_size = 0


def test_large_appends_may_be_sent_ahead(start_origin: StartOrigin) -> None:
    origin = start_origin("file-durable")
    bodies = [bytes([97 + number]) * 30_000 for number in range(20)]
    requests = [encode_request("POST", PREFIX + "s", TEXT, body) for body in bodies]
    with origin.client() as client, origin.connect() as connection:
        client.create("s")
        connection.send(b"".join(requests))
        assert [connection.read_response().status for _ in bodies] == [204] * 20
        assert client.read("s").body == b"".join(bodies)


def test_requests_behind_a_long_poll_wait_for_it(origin: LocalOrigin, client: Client) -> None:
    tail = client.create("s")
    with origin.connect() as connection:
        poll = encode_request("GET", f"{PREFIX}s?offset={tail}&live=long-poll")
        connection.send(poll + encode_request("GET", PREFIX + "s") * 3)
        client.append("s", b"data")
        replies = [connection.read_response() for _ in range(4)]
    assert [reply.body for reply in replies] == [b"data"] * 4
    assert ["Stream-Cursor" in reply for reply in replies] == [True, False, False, False]


# -- limits and clocks -------------------------------------------------------------------------


def slow_origin(start_origin: StartOrigin, **limits: float) -> LocalOrigin:
    return start_origin(limits={"header_timeout_secs": HALF, "body_timeout_secs": HALF} | limits)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"G", id="first-byte"),
        pytest.param(b"GET /v1/stream/s HTTP/1.1\r\nHost: h\r\n", id="head"),
        pytest.param(encode_request("POST", PREFIX + "s", TEXT, b"12345")[:-2], id="fast-body"),
        pytest.param(encode_request("PUT", PREFIX + "t", TEXT, b"12345")[:-2], id="aiohttp-body"),
        pytest.param(
            b"POST /v1/stream/s HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n5\r\n123",
            id="chunked-body",
        ),
    ],
)
def test_a_request_that_never_ends_is_answered_408(start_origin: StartOrigin, data: bytes) -> None:
    origin = slow_origin(start_origin)
    with origin.client() as client, origin.connect() as connection:
        client.create("s")
        connection.send(data)
        reply = connection.read_response()
        assert reply.status == 408
        assert reply.json()["code"] == "timeout"
        connection.wait_closed()
        assert client.read("s").body == b""


def test_a_dripping_head_is_cut_off(start_origin: StartOrigin) -> None:
    origin = slow_origin(start_origin)
    with origin.connect() as connection:
        with pytest.raises(ConnectionError):
            for number in range(600):
                connection.send(b"X-%d: y\r\n" % number)
                time.sleep(0.05)


@pytest.mark.parametrize("first", ["nothing", "fast", "aiohttp", "handed over"])
def test_an_idle_connection_is_closed(start_origin: StartOrigin, first: str) -> None:
    origin = slow_origin(start_origin, idle_timeout_secs=HALF)
    with origin.connect() as connection:
        if first == "fast":
            assert connection.request("GET", PREFIX + "x").status == 404
        elif first == "aiohttp":
            assert connection.request("HEAD", PREFIX + "x").status == 404
        elif first == "handed over":
            assert connection.request("HEAD", PREFIX + "x", {"Expect": ""}).status in (404, 417)
        assert connection.wait_closed() == b""


def test_an_active_connection_is_not_idle(start_origin: StartOrigin) -> None:
    origin = slow_origin(start_origin, idle_timeout_secs=1.5, body_timeout_secs=60)
    with origin.client() as client, origin.connect() as connection:
        client.create("s")
        data = encode_request("POST", PREFIX + "s", TEXT, b"123456")
        time.sleep(0.2)
        connection.send(data[:-3])
        time.sleep(1.6)
        connection.send(data[-3:])
        assert connection.read_response().status == 204


LARGE = 12 * MIB  # more than socket buffers take


@pytest.fixture(params=["fast", "aiohttp"])
def reader(start_origin: StartOrigin, request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A client with little room, to which an answer of LARGE bytes is coming."""
    origin = slow_origin(start_origin, idle_timeout_secs=2.0, max_body_bytes=LARGE)
    with origin.client() as client, socket.socket() as reader:
        client.create("s", body=b"x" * LARGE)
        if request.param == "fast":
            assert len(client.read("s").body) == LARGE  # it is cached from now on
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        reader.settimeout(60)
        reader.connect(("127.0.0.1", origin.port))
        reader.sendall(encode_request("GET", f"{PREFIX}s?offset=-1"))
        yield reader


def test_a_slow_but_steady_reader_gets_everything(reader: socket.socket) -> None:
    taken, started = 0, time.monotonic()
    while taken < LARGE:
        piece = reader.recv(64 * 1024)
        assert piece, f"cut off after {taken} bytes"
        taken += len(piece)
        time.sleep(0.02)
    assert time.monotonic() - started > 2.5, "too quick to be a test"


def test_a_reader_that_takes_nothing_is_cut_off(reader: socket.socket) -> None:
    time.sleep(6)  # the end is behind what was sent: nothing shows it without reading
    taken = 0
    with suppress(ConnectionError):
        while piece := reader.recv(64 * 1024):
            taken += len(piece)
    assert taken < LARGE


@pytest.mark.parametrize("pieces", [1, 10])
@pytest.mark.parametrize("plain", [True, False])
def test_a_large_head_is_refused_however_it_arrives(
    start_origin: StartOrigin, pieces: int, plain: bool
) -> None:
    origin = start_origin(limits={"max_header_bytes": 4096})
    extra = {f"X-{number}": "y" * 100 for number in range(60)}
    if not plain:
        extra["Connection"] = "close"
    data = encode_request("GET", PREFIX + "x", extra)
    size = len(data) // pieces + 1
    with origin.connect() as connection:
        try:
            for start in range(0, len(data), size):
                connection.send(data[start : start + size])
                time.sleep(0.002)
        except ConnectionError:
            pass  # refused before the end; the answer is there all the same
        reply = connection.read_response()
        assert reply.status == 431
        connection.wait_closed()


def test_a_large_head_is_refused_on_a_connection_that_aiohttp_has(
    start_origin: StartOrigin,
) -> None:
    origin = start_origin(limits={"max_header_bytes": 4096})
    large = {f"X-{number}": "y" * 1000 for number in range(60)}
    with origin.connect() as connection:
        assert connection.request("GET", PREFIX + "x", {"TE": "trailers"}).status == 404
        assert connection.request("GET", PREFIX + "x", large).status == 431


def test_a_head_within_the_limit_is_served(start_origin: StartOrigin) -> None:
    origin = start_origin(limits={"max_header_bytes": 4096})
    with origin.connect() as connection:
        for headers in ({"X": "y" * 3800}, {"X": "y" * 3800, "Connection": "close"}):
            assert connection.request("GET", PREFIX + "x", headers).status == 404


def test_connections_beyond_the_limit_are_told_so(start_origin: StartOrigin) -> None:
    origin = start_origin(limits={"max_connections": 3})
    open_ones = [origin.connect() for _ in range(3)]
    for connection in open_ones:
        assert connection.request("GET", "/healthz").status == 200
    with origin.connect() as extra:
        reply = extra.read_response()
        assert (reply.status, reply.json()["code"]) == (503, "too-many-connections")
        assert reply.get("Retry-After") is not None
        extra.wait_closed()
    open_ones.pop().close()
    wait_until(lambda: is_served(origin), what="a freed connection for the next client")
    for connection in open_ones:
        connection.close()


def is_served(origin: LocalOrigin) -> bool:
    with origin.connect() as connection:
        return connection.request("GET", "/healthz").status == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_beyond_the_limit_is_413_and_can_be_read(
    start_origin: StartOrigin, chunked: bool
) -> None:
    origin = start_origin(limits={"max_body_bytes": 1000})
    with origin.client() as client, origin.connect() as connection:
        client.create("s")
        body = b"x" * 300_000
        data = encode_request("POST", PREFIX + "s", TEXT, body)
        if chunked:
            data = (
                b"POST /v1/stream/s HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            )
        sender = threading.Thread(target=send_quietly, args=(connection, data))
        sender.start()
        reply = connection.read_response()
        sender.join()
        assert (reply.status, reply.json()["code"]) == (413, "body-too-large")
        assert client.read("s").body == b""


def send_quietly(connection: Connection, data: bytes) -> None:
    try:
        connection.send(data)
    except OSError:
        pass


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_expect_100_continue_is_answered(origin: LocalOrigin, client: Client, method: str) -> None:
    client.create("s")
    data = encode_request(method, PREFIX + "s", TEXT | {"Expect": "100-continue"}, b"later")
    with origin.connect() as connection:
        connection.send(data[:-5])
        assert connection.read_response().status == 100
        connection.send(data[-5:])
        assert connection.read_response().status in (200, 204)


def test_a_client_of_http_1_0_is_not_told_to_continue(origin: LocalOrigin, client: Client) -> None:
    """RFC 9110, 10.1.1: it would take that for the answer."""
    client.create("s")
    data = encode_request("POST", PREFIX + "s", TEXT | {"Expect": "100-continue"}, b"later")
    with origin.connect() as connection:
        connection.send(data.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert connection.read_response().status == 204


@pytest.mark.parametrize("path", ["fast", "aiohttp"])
def test_an_append_is_kept_although_its_client_left(start_origin: StartOrigin, path: str) -> None:
    origin = start_origin("file-durable")
    with origin.client() as client, origin.connect() as connection:
        client.create("s")
        more = {} if path == "fast" else {"Connection": "close"}
        connection.send(encode_request("POST", PREFIX + "s", TEXT | more, b"data"))
        connection.half_close()
        connection.wait_closed()
        wait_until(lambda: client.read("s").body == b"data")


@pytest.mark.parametrize("next_request", ["offset=now&live=long-poll", ""])
def test_an_answer_that_is_out_is_not_kept_for_the_connection(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch, next_request: str
) -> None:
    """aiohttp remembers the last answer of each connection until it has the next."""
    answers: list[web.Response] = []

    def noted(reply: Reply, stamp: Headers) -> web.Response:
        answers.append(to_response(reply, stamp))
        return answers[-1]

    monkeypatch.setattr("origin.handlers.to_response", noted)
    with start_origin().client() as client:
        client.create("s", body=b"x" * MIB)
        reply = client("GET", "s", query="offset=-1&live=long-poll")
        assert len(reply.body) == MIB
        if next_request:
            path = f"{PREFIX}s?{next_request}"
            client._connection.send(encode_request("GET", path))
        wait_until(lambda: [answer.body for answer in answers] == [None] * len(answers))
    assert len(answers) >= 2
