"""The access log under attack: one line a request, true to the byte, and nobody writes into it."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.accesslog import AccessRecord
from tests.helpers.gateway import bearer
from tests.helpers.rawhttp import PREFIX, encode_request, wait_until
from tests.helpers.scripted_origin import Answer, SimpleStream
from tests.hostile.gateway.arena import CANARY, Arena

NEWLINES = {
    "lf": "%0A",
    "cr": "%0D",
    "crlf": "%0D%0A",
    "nul": "%00",
    "u2028": "%E2%80%A8",
    "u0085": "%C2%85",
    "quote": "%22",
    "backslash": "%5C",
}


def raw_lines(arena: Arena) -> list[bytes]:
    arena.lines()
    return b"".join(path.read_bytes() for path in arena._folder.glob("*")).split(b"\n")


def own_lines(arena: Arena, agent: str, count: int) -> list[AccessRecord]:
    """The lines of requests that were sent under this name."""
    found: list[AccessRecord] = []

    def complete() -> bool:
        found[:] = [line for line in arena.lines() if line.user_agent == agent]
        return len(found) >= count

    wait_until(complete, what=f"{count} lines of {agent}")
    assert len(found) == count
    return found


# -- writing into it -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEWLINES)
def test_no_path_breaks_a_line(arena: Arena, name: str) -> None:
    forged = f'x{NEWLINES[name]}{{"v":1,"status":200,"subject":"{CANARY}"}}'.replace('"', "%22")
    for headers in ({}, {"Connection": "close"}):
        arena.ask(forged, headers=headers)
        arena.ask("secret", f"offset={forged}", headers=headers)
    check_lines(arena)


@pytest.mark.parametrize(
    "agent",
    [
        b'x","subject":"admin',
        b"x\\",
        b"\xff\xfe\xc3(",
        "\u2028é\u0085".encode(),
        b"a\tb",
        b"y" * 5000,
        b'"' * 7000,
        b"\xe9" * 7000,
    ],
    ids=["quotes", "backslash", "bytes", "separators", "tab", "long", "long-quotes", "long-bytes"],
)
def test_no_user_agent_breaks_or_swells_a_line(arena: Arena, agent: bytes) -> None:
    for path in ("secret", "live", "nothing"):
        data = encode_request("GET", PREFIX + path, bearer(arena.token()))
        arena.send(data[:-2] + b"User-Agent: " + agent + b"\r\nConnection: close\r\n\r\n")
        arena.send(data[:-2] + b"User-Agent: " + agent + b"\r\n\r\n", 1)
    check_lines(arena)


def test_headers_that_go_into_the_log_are_bounded(arena: Arena) -> None:
    for name in ("X-Request-Id", "X-Forwarded-For", "Referer", "Origin", "Host-"):
        for value in (f'{CANARY}"\\', "z" * 4000, "1.2.3.4\t5"):
            arena.ask("secret", headers={name: value})
    method = f"{'M' * 3000} {PREFIX}secret HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    arena.send(method.encode())
    check_lines(arena)


def check_lines(arena: Arena) -> None:
    """Each line is one whole record, short, and nobody but our tokens' subjects is in it."""
    *lines, end = raw_lines(arena)
    assert end == b"" and lines
    for line in lines:
        assert len(line) < 8192
        record = json.loads(line)
        assert set(record) == set(AccessRecord.__struct_fields__)
        assert record["subject"] in ("", "alice") and record["gateway"] == "test"
        assert len(record["user_agent"]) <= 200
    sequence = [json.loads(line)["seq"] for line in lines]
    assert sequence == list(range(1, len(lines) + 1))


def test_a_user_agent_of_a_megabyte_is_refused_without_an_echo(arena: Arena) -> None:
    agent = CANARY + "u" * 1_000_000
    data = encode_request("GET", PREFIX + "secret", {"User-Agent": agent})
    (reply,) = arena.send(data)
    assert reply.status == 431 and CANARY.encode() not in reply.body
    check_lines(arena)


# -- the truth of it -----------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path, arena_class: type[Arena]) -> Iterator[Arena]:
    """A gateway whose log has nothing but the test's own requests."""
    serving = {"max_body_bytes": 10_000, "max_reader_backlog_bytes": 200_000}
    with arena_class(tmp_path, gateway=serving, cache={"max_object_bytes": 50_000}) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "doc", chunk_bytes=3000)
        for number in range(4):
            stream.append(b"%d" % number * 3000)
        yield arena


def test_what_the_log_says_was_sent_is_what_was_received(shop: Arena) -> None:
    """Of every kind of answer, compressed, conditional, refused and streamed past the cache."""
    big = {"Content-Type": "image/png", "Stream-Next-Offset": "9", "ETag": '"x"'}
    shop.origin.on("GET", PREFIX + "big", Answer(200, big, b"b" * 60_000, chunked=True))
    shop.origin.on("GET", PREFIX + "gone", Answer(500, {}, b"sorry"))
    SimpleStream(shop.origin, PREFIX + "open").append(b"tail")
    etag = shop.ask("doc")["ETag"]
    asked: list[tuple[str, str, dict[str, str]]] = [
        ("doc", "", {}),
        ("doc", "", {"Accept-Encoding": "gzip"}),
        ("doc", "", {"Accept-Encoding": "gzip"}),
        ("doc", "", {"If-None-Match": etag}),
        ("doc", "", {"Connection": "close"}),
        ("doc", "offset=now", {}),
        ("big", "", {}),
        ("gone", "", {}),
        ("open", "", {}),
        ("nothing", "", {}),
        ("doc", "offset=-1&offset=-1", {}),
        ("doc", "offset=-1&live=long-poll", {}),
    ]
    replies = [shop.ask(name, query, headers=headers) for name, query, headers in asked]
    replies.append(shop.ask("doc", method="HEAD"))
    for reply in replies:
        line = shop.line_of(reply["X-Request-Id"])
        assert (line.bytes_sent, line.status) == (len(reply.body), reply.status), line
        assert line.encoding == (reply.get("Content-Encoding") or "")
    lines = [line for line in shop.lines() if line.mode != "service"]  # Envoy looks in at any time
    counted = Counter((line.mode, line.verdict, str(line.status)) for line in lines)
    for (mode, verdict, status), count in counted.items():
        labels = {"mode": mode, "verdict": verdict, "status": status}
        assert shop.gateway.metric("requests", **labels) == count, labels


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"Content-Length: 20000\r\n\r\n" + b"x" * 20_000, 413),
        (b"Transfer-Encoding: chunked\r\n\r\n4e20\r\n" + b"x" * 20_000 + b"\r\n0\r\n\r\n", 413),
        (b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415),
        (b"Stream-Seq: 1\r\nStream-Seq: 2\r\nContent-Length: 1\r\n\r\nx", 400),
    ],
    ids=["too-large", "too-large-chunked", "encoded", "repeated-header"],
)
def test_a_request_that_is_refused_for_its_form_has_its_line_too(
    shop: Arena, data: bytes, status: int
) -> None:
    head = f"POST {PREFIX}doc HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
    head += f"Authorization: Bearer {shop.token()}\r\n"
    reply = shop.send(head.encode() + data, 1)[0]
    assert reply.status == status
    line = shop.line_of(reply["X-Request-Id"])
    assert (line.status, line.verdict, line.bytes_sent) == (status, "refused", len(reply.body))


def test_every_collapsed_reader_has_a_line_of_its_own(shop: Arena) -> None:
    """With the flight, its role and how long it waited; one of them led."""
    gate = shop.origin.hold()
    connections = [shop.connect() for _ in range(6)]
    for number, connection in enumerate(connections):
        who = bearer(shop.token(sub=f"reader-{number}"))
        connection.send(encode_request("GET", PREFIX + "doc", {**who, "User-Agent": "crowd"}))
    shop.origin.wait_for_requests(1, path=PREFIX + "doc")
    flights = shop.gateway.gateway.holdings.flights
    wait_until(lambda: [f.riders for f in flights._open.values()] == [6])
    held = time.monotonic()
    while time.monotonic() - held < 0.1:
        time.sleep(0.01)
    gate.open()
    shop.origin.release()
    for connection in connections:
        assert len(connection.read_response().body) == 3000
        connection.close()
    lines = own_lines(shop, "crowd", 6)
    assert sorted(line.subject for line in lines) == [f"reader-{number}" for number in range(6)]
    assert Counter(line.role for line in lines) == {"leader": 1, "follower": 5}
    assert len({line.flight_id for line in lines}) == 1 and lines[0].flight_id
    assert all(line.wait_ms >= 90 for line in lines if line.role == "follower")
    assert sum(line.upstream_requests for line in lines) == 1
    assert all(line.bytes_sent == 3000 and line.duration_ms >= 90 for line in lines)


def test_what_a_hub_asks_is_in_the_lines_of_its_readers_once(shop: Arena) -> None:
    stream = SimpleStream(shop.origin, PREFIX + "crowd")
    crowd = [shop.poll("crowd", stream.tail) for _ in range(5)]
    shop.wait_for_polls("crowd", 5)
    shop.origin.wait_for_requests(1, path=PREFIX + "crowd")
    stream.append(b"news")
    for connection in crowd:
        assert connection.read_response().body == b"news"
        connection.close()
    lines = [line for line in shop.lines(5) if line.stream == "crowd"]
    assert {(line.role, line.verdict) for line in lines} == {("hub", "hub")}
    assert sorted(line.upstream_requests for line in lines) == [0, 0, 0, 0, 1]
    assert shop.origin.count(path=PREFIX + "crowd") == 1


def test_an_event_stream_is_billed_what_its_body_had(shop: Arena) -> None:
    stream = SimpleStream(shop.origin, PREFIX + "sse")
    stream.append(b"one")
    with shop.events("sse") as events:
        pieces = [next(events.writes)]
        for data in (b"two", b"three", b"x" * 5000):
            stream.append(data)
            pieces.append(next(events.writes))
        stream.close()
        pieces += events.writes
    wait_until(lambda: any(line.mode == "sse" for line in shop.lines()))
    (line,) = [line for line in shop.lines() if line.mode == "sse"]
    assert (line.bytes_sent, line.ended) == (sum(map(len, pieces)), "closed")


def test_an_event_stream_that_its_reader_aborts_is_billed_what_he_got(shop: Arena) -> None:
    stream = SimpleStream(shop.origin, PREFIX + "sse")
    stream.append(b"one")
    connection = shop.connect()
    target = f"{PREFIX}sse?offset=-1&live=sse"
    connection.send(encode_request("GET", target, bearer(shop.token())))
    connection.read_head()
    size = len(next(connection.chunks()))
    connection.reset()
    wait_until(lambda: any(line.mode == "sse" for line in shop.lines()))
    (line,) = [line for line in shop.lines() if line.mode == "sse"]
    assert (line.status, line.bytes_sent, line.ended) == (200, size, "client-left")


def test_a_reader_that_is_dropped_is_not_billed_for_what_it_never_got(shop: Arena) -> None:
    """It reads nothing until it is thrown out, and then all that was on its way."""
    stream = SimpleStream(shop.origin, PREFIX + "sse")
    stream.append(b"one")
    connection = shop.connect()
    target = f"{PREFIX}sse?offset=-1&live=sse"
    connection.send(encode_request("GET", target, bearer(shop.token())))
    wait_until(lambda: shop.readers_of("sse") == (1, 0))
    tail = shop.gateway.gateway.hubs.tails.get("sse")
    assert tail is not None
    while len(tail.readers):
        stream.append(b"x" * 40_000)
        wait_until(lambda: tail.position == stream.tail)
    received = len(connection.wait_closed())
    connection.close()
    wait_until(lambda: any(line.mode == "sse" for line in shop.lines()))
    (line,) = [line for line in shop.lines() if line.mode == "sse"]
    assert line.ended == "slow"
    assert abs(line.bytes_sent - received) < 0.01 * received, (line.bytes_sent, received)


@pytest.mark.parametrize(
    ("hops", "client"), [(0, "127.0.0.1"), (1, "10.0.0.2"), (2, "10.0.0.1"), (9, "127.0.0.1")]
)
def test_the_last_hop_that_is_trusted_names_the_client(
    tmp_path: Path, hops: int, client: str, arena_class: type[Arena]
) -> None:
    """What stands before it in X-Forwarded-For is what the client made up."""
    spoofed = {"X-Forwarded-For": "6.6.6.6, 10.0.0.1, 10.0.0.2"}
    others = ("Forwarded", "X-Real-IP", "X_Forwarded_For", "True-Client-IP", "X-Client-IP")
    with arena_class(tmp_path, gateway={"trusted_hops": hops}) as arena:
        for headers in (spoofed, {**spoofed, "Connection": "close"}):
            arena.ask("x", headers={**headers, "User-Agent": "by-proxy"})
        for name in others:
            arena.ask("x", headers={name: "for=6.6.6.6", "User-Agent": "direct"})
        lines = arena.lines(2 + len(others))
    assert {line.client for line in lines if line.user_agent == "by-proxy"} == {client}
    assert {line.client for line in lines if line.user_agent == "direct"} == {"127.0.0.1"}
