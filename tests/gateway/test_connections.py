"""Connections to the origin, on both loops: when they are used again, and how they end."""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohappyeyeballs
import pytest
import uvloop

from gateway.asking import UpstreamError, UpstreamRequest
from gateway.connections import PIECE_BYTES
from gateway.connections import encode_head as encode_request_head
from gateway.upstream import Upstream
from tests.helpers.scripted_origin import Answer, Gate, Piece, ScriptedOrigin, encode_head, until
from tests.helpers.upstreams import (
    GET,
    HELLO,
    LONG_S,
    PATH,
    POST,
    TEXT,
    connected,
    make_certificate,
    make_config,
    refusal,
)

Run = Callable[[Coroutine[Any, Any, None]], None]
BAD_ANSWER = (502, "bad-origin-answer")


@pytest.fixture
def origin() -> Iterator[ScriptedOrigin]:
    with ScriptedOrigin() as origin:
        yield origin


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name leads here; those that were asked for, slowly."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str | bytes, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name != "127.0.0.1":
            asked.append(name)
            time.sleep(0.05)
        return real("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


# -- names ---------------------------------------------------------------------------------------


async def test_a_crowd_asks_for_the_address_once(origin: ScriptedOrigin, names: list[str]) -> None:
    origin.on("GET", PATH, HELLO)
    origin.barrier(200)
    url = f"http://origin.test:{origin.port}"
    async with connected(url, connections=200, connect_timeout_secs=LONG_S) as upstream:
        await asyncio.gather(*(upstream.fetch(GET) for _ in range(200)))
    assert (names, origin.accepted) == (["origin.test"], 200)


async def test_a_name_that_was_not_found_is_asked_for_again(
    origin: ScriptedOrigin, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = socket.getaddrinfo

    def not_found(host: Any, *args: Any, **options: Any) -> Any:
        found(host, *args, **options)
        raise socket.gaierror(socket.EAI_AGAIN, "not now")

    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    async with connected(f"http://origin.test:{origin.port}", retries=0) as upstream:
        error = await refusal(upstream, POST)
        assert (error.code, error.sent) == ("origin-unreachable", False)
        monkeypatch.setattr(socket, "getaddrinfo", found)
        await upstream.fetch(POST)
    assert names == ["origin.test"] * 2


async def test_an_origin_that_has_moved_is_looked_for_at_once(
    origin: ScriptedOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses, real = ["127.0.0.2", "127.0.0.1"], socket.getaddrinfo

    def look_up(host: Any, *args: Any, **options: Any) -> Any:
        return real(addresses.pop(0), *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with connected(f"http://origin.test:{origin.port}", retries=1) as upstream:
        await upstream.fetch(POST)
    assert (origin.count(), addresses) == (1, [])


async def test_whoever_leaves_does_not_take_the_look_up_along(
    origin: ScriptedOrigin, names: list[str]
) -> None:
    async with connected(f"http://origin.test:{origin.port}") as upstream:
        leaving, staying = (asyncio.create_task(upstream.fetch(GET)) for _ in range(2))
        await until(lambda: names != [])
        leaving.cancel()
        await staying
    assert leaving.cancelled() and names == ["origin.test"]


async def test_the_name_is_looked_up_as_it_is_written(
    origin: ScriptedOrigin, names: list[str]
) -> None:
    """Decoded and encoded again it may be another one: xn--strae-oqa becomes strasse."""
    async with connected(f"http://xn--strae-oqa.test:{origin.port}") as upstream:
        await upstream.fetch(GET)
    assert names == ["xn--strae-oqa.test"]


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".test", ".a"])
def test_a_name_that_cannot_be_is_no_connection(run: Run, host: str) -> None:
    async def work() -> None:
        async with connected(f"http://{host}:1", retries=0) as upstream:
            assert (await refusal(upstream, GET)).code == "origin-unreachable"

    run(work())


async def test_the_dot_at_the_end_of_a_name_is_not_in_its_certificate(
    names: list[str], tmp_path: Path
) -> None:
    server, client = make_certificate(tmp_path, "origin.test")
    with ScriptedOrigin(tls=server) as origin:
        origin.on("*", PATH, HELLO)
        config = make_config(f"https://origin.test.:{origin.port}", retries=0)
        upstream = Upstream(config, tls=client)
        await upstream.start()
        assert (await upstream.fetch(GET)).body == b"hello"
        await upstream.close()
    assert names == ["origin.test."]


# -- uploads ---------------------------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
NARROW_BYTES = 4096


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an origin has not read is with us, not in the buffers of the system."""
    start_connection = aiohappyeyeballs.start_connection

    async def start_narrow(*args: Any, **options: Any) -> socket.socket:
        sock = await start_connection(*args, **options)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NARROW_BYTES)
        return sock

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", start_narrow)


async def serve_narrow(serve: Serve) -> tuple[asyncio.Server, str]:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    server = await asyncio.start_server(serve, sock=listening, limit=NARROW_BYTES)
    return server, f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.usefixtures("narrow")
def test_an_upload_that_stops_is_left_however_large_it_is(run: Run) -> None:
    async def work() -> None:
        left = asyncio.Event()

        async def stop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await left.wait()
            writer.close()

        server, url = await serve_narrow(stop)
        async with server, connected(url, first_byte_timeout_secs=0.2) as upstream:
            large = UpstreamRequest("POST", PATH, {}, bytes(128 * 1024 * 1024))
            error = await asyncio.wait_for(refusal(upstream, large), LONG_S)
            assert (error.code, error.sent) == ("origin-timeout", True)
            left.set()

    run(work())


@pytest.mark.usefixtures("narrow")
def test_an_upload_that_goes_on_may_take_longer_than_the_time_for_an_answer(run: Run) -> None:
    timeout_s, pieces = 1.0, 12

    async def work() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            for _ in range(pieces):
                await asyncio.sleep(timeout_s / 4)
                await reader.readexactly(PIECE_BYTES)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            writer.close()

        server, url = await serve_narrow(serve)
        async with server, connected(url, first_byte_timeout_secs=timeout_s) as upstream:
            large = UpstreamRequest("POST", PATH, {}, bytes(pieces * PIECE_BYTES))
            assert (await upstream.fetch(large)).status == 204

    run(work())


# -- when a connection is used again -------------------------------------------------------------


@pytest.mark.parametrize("size", [200_000, 262_144, 300_000])
@pytest.mark.usefixtures("narrow")
def test_not_before_the_upload_is_out(run: Run, size: int) -> None:
    """This origin answers early, takes no more of the body, and says nothing of closing."""

    async def work() -> None:
        accepted, left = 0, asyncio.Event()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
            await left.wait()
            writer.close()

        server, url = await serve_narrow(refuse)
        async with server, connected(url, retries=0, first_byte_timeout_secs=5.0) as upstream:
            large = UpstreamRequest("POST", PATH, {}, bytes(size))
            assert (await upstream.fetch(large)).status == 413
            assert (await upstream.fetch(POST)).status == 413
            left.set()
        assert accepted == 2

    run(work())


def test_not_after_half_an_answer_that_nobody_asked_for(run: Run, origin: ScriptedOrigin) -> None:
    async def work() -> None:
        gate = Gate()
        first, late = encode_head(HELLO) + b"hello", b"HTTP/1.1 408 Request Timeout\r\n"
        pieces: list[Piece] = [first, 0.05, late, gate, b"Connection: close\r\n\r\n"]
        origin.on("POST", PATH, [Answer(raw=pieces, close=True), HELLO])
        async with connected(origin, retries=0) as upstream:
            await upstream.fetch(POST)
            await gate.reached()
            asyncio.get_running_loop().call_later(0.1, gate.open)
            await asyncio.sleep(0.05)
            assert (await upstream.fetch(POST)).body == b"hello"

    run(work())


@pytest.mark.parametrize("size", [262_144, 262_145, 5_000_000])
def test_uploads_of_all_sizes_over_tls(run: Run, tmp_path: Path, size: int) -> None:
    server, client = make_certificate(tmp_path)

    async def work(url: str) -> None:
        upstream = Upstream(make_config(url, retries=0), tls=client)
        await upstream.start()
        for _ in range(2):
            await upstream.fetch(UpstreamRequest("POST", PATH, {}, bytes(size)))
        await upstream.close()

    with ScriptedOrigin(tls=server) as origin:
        run(work(origin.url))
        assert [len(request.body) for request in origin.requests] == [size, size]


# -- bodies that are none ------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["identity", "gzip", "xchunked"])
async def test_a_coding_that_tells_no_end_is_no_framing(
    origin: ScriptedOrigin, coding: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: {coding}\r\n\r\n"
    origin.on("GET", PATH, Answer(raw=head.encode() + b"half of a bo", close=True))
    async with connected(origin) as upstream:
        error = await refusal(upstream, GET)
    assert (error.status, error.code) == BAD_ANSWER


CHUNKED = encode_head(Answer(200, TEXT, chunked=True)) + b"3\r\nabc\r\n"


@pytest.mark.parametrize("rest", [b"zz\r\n", b"3\r\nabc\r\nzz\r\n"])
def test_what_stops_being_http_is_told_at_once(
    run: Run, origin: ScriptedOrigin, rest: bytes
) -> None:
    async def work() -> None:
        gate = Gate()
        origin.on("GET", PATH, Answer(raw=[CHUNKED, 0.05, rest, gate]))
        async with connected(origin, idle_timeout_secs=LONG_S) as upstream:
            error = await refusal(upstream, GET)
            gate.open()
        assert (error.status, error.code) == BAD_ANSWER

    run(work())


def test_and_between_two_pieces_of_a_stream(run: Run, origin: ScriptedOrigin) -> None:
    async def work() -> None:
        gate = Gate()
        origin.on("GET", PATH, Answer(raw=[CHUNKED, gate, b"zz\r\n"]))
        async with connected(origin, idle_timeout_secs=LONG_S) as upstream:
            with pytest.raises(UpstreamError) as refused:
                async with upstream.open(GET) as stream:
                    async for _ in stream.pieces:
                        gate.open()
                        await asyncio.sleep(0.2)
        assert (refused.value.status, refused.value.code) == BAD_ANSWER

    run(work())


# -- the end -------------------------------------------------------------------------------------


def test_a_read_that_was_ended_by_us_is_not_sent_again(run: Run, origin: ScriptedOrigin) -> None:
    async def work() -> None:
        async with connected(origin, retries=3) as upstream:
            gate = origin.hold()
            reading = asyncio.create_task(upstream.fetch(GET))
            await gate.reached()
            await upstream.close()
            with pytest.raises(UpstreamError):
                await reading

    run(work())
    assert origin.count() == 1


def test_whoever_waits_for_a_connection_sends_nothing_after_the_end(
    run: Run, origin: ScriptedOrigin
) -> None:
    async def work() -> None:
        async with connected(origin, connections=1, retries=0) as upstream:
            gate = origin.hold()
            first = asyncio.create_task(upstream.fetch(POST))
            await gate.reached()
            second = asyncio.create_task(upstream.fetch(POST))
            await asyncio.sleep(0)
            await upstream.close()
            answers = await asyncio.gather(first, second, return_exceptions=True)
            assert [getattr(answer, "sent", None) for answer in answers] == [True, False]

    run(work())
    assert origin.count() == 1


def test_a_body_that_is_being_read_ends_too(run: Run, origin: ScriptedOrigin) -> None:
    async def work() -> None:
        gate = Gate()
        origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"abc", gate, b"d"]))
        async with connected(origin, idle_timeout_secs=LONG_S) as upstream:
            reading = asyncio.create_task(upstream.fetch(GET))
            await gate.reached()
            await asyncio.sleep(0.05)
            await upstream.close()
            with pytest.raises(UpstreamError):
                await reading
            gate.open()

    run(work())


def test_and_a_stream_between_two_pieces(run: Run, origin: ScriptedOrigin) -> None:
    async def work() -> None:
        gate = Gate()
        origin.on("GET", PATH, Answer(200, TEXT, pieces=[b"abc", gate, b"d"]))
        async with connected(origin, idle_timeout_secs=LONG_S) as upstream:
            with pytest.raises(UpstreamError):
                async with upstream.open(GET) as stream:
                    async for _ in stream.pieces:
                        await upstream.close()
                        gate.open()

    run(work())


# -- heads ---------------------------------------------------------------------------------------


def test_a_head_is_one_request() -> None:
    head = encode_request_head("GET", "/a?b", {"host": "h", "x-y": "a\tb"})
    assert head == b"GET /a?b HTTP/1.1\r\nhost: h\r\nx-y: a\tb\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "é", "a\r\n\r\nGET /"])
@pytest.mark.parametrize("place", ["method", "target", "name", "value"])
def test_what_would_be_more_is_a_mistake(value: str, place: str) -> None:
    parts = {"method": "GET", "target": "/", "name": "host", "value": "h"} | {place: value}
    with pytest.raises(ValueError):
        encode_request_head(parts["method"], parts["target"], {parts["name"]: parts["value"]})
