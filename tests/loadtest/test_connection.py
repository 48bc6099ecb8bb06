"""Connections against small real servers, because sockets are all they are about."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.load.client import Client
from loadtest.load.connection import Broken, Target, connect
from tests.helpers.upstreams import make_certificate

ECHO_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"


def serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Three bytes for each request, or `SIZE` many; `QUIT` gets half an answer, `HANG` none."""
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"QUIT"):
                connection.sendall(ECHO_HEAD + b"a")
                return
            if line.startswith(b"SIZE"):
                size = int(line[4:])
                head = ECHO_HEAD.replace(b"3", b"%d" % size)
                connection.sendall(head + b"x" * size)
            elif not line.startswith(b"HANG"):
                connection.sendall(ECHO_HEAD + line[:3])


@pytest.fixture
def target() -> Iterator[Target]:
    listener = socket.create_server(("127.0.0.1", 0))
    accepting = threading.Thread(target=serve, args=(listener,), daemon=True)
    accepting.start()
    yield Target.local(listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    accepting.join(60)


async def test_everyone_gets_his_own_answers(target: Target) -> None:
    async def ask(client: Client, *requests: bytes) -> list[bytes]:
        replies = [await client.fetch(request, keep_body=True) for request in requests]
        assert all(reply.read_at > 0 for reply in replies)
        return [bytes(reply.body) for reply in replies]

    async with Client(target) as client:
        answers = await asyncio.gather(
            *(ask(client, b"%03d\n" % number, b"abc\n") for number in range(20))
        )
    assert answers == [[b"%03d" % number, b"abc"] for number in range(20)]


async def test_a_request_larger_than_the_socket_takes(target: Target) -> None:
    async with Client(target) as client:
        reply = await client.fetch(b"big" + b"x" * 20_000_000 + b"\n", keep_body=True)
    assert reply.body == b"big"


async def test_bodies_that_are_only_counted(target: Target) -> None:
    async def count(client: Client, *sizes: int) -> None:
        for size in sizes:
            reply = await client.fetch(b"SIZE%d\n" % size)
            assert reply.body_bytes == size and not reply.body

    async with Client(target) as client:
        await asyncio.gather(*(count(client, 10_000_000, 0, 1, 300_000) for _ in range(5)))


@pytest.mark.parametrize(
    ("request_line", "reason"), [(b"QUIT\n", "cut off"), (b"HANG\n", "no answer in time")]
)
async def test_a_broken_exchange_is_an_error(
    target: Target, request_line: bytes, reason: str
) -> None:
    async with Client(target) as client:
        with pytest.raises(Broken, match=reason):
            await client.fetch(request_line, timeout_s=0.3)


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = Target.local(listener.getsockname()[1])
    with pytest.raises(Broken, match="refused"):
        await connect(free)


async def test_what_arrives_can_be_tapped(target: Target) -> None:
    ended = asyncio.Event()
    pieces: list[bytes] = []

    def tap(data: bytes) -> None:
        pieces.append(data)
        if not data:
            ended.set()

    connection = await connect(target)
    connection.tap = tap
    connection.send(b"QUIT\n")
    await asyncio.wait_for(ended.wait(), 10)
    assert b"".join(pieces) == ECHO_HEAD + b"a" and not connection.usable


async def test_a_secure_target(tmp_path: Path) -> None:
    context, trusting = make_certificate(tmp_path)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            size = int(line[4:])
            writer.write(ECHO_HEAD.replace(b"3", b"%d" % size) + b"x" * size)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(Target("127.0.0.1", port, trusting)) as client:
            for size in (3, 200_000):
                reply = await client.fetch(b"SIZE%d\n" % size, keep_body=True, timeout_s=10)
                assert reply.body == b"x" * size
        insecure = await connect(Target.parse(f"https://127.0.0.1:{port}", insecure=True))
        insecure.close()
        with pytest.raises(Broken, match="refused"):
            await connect(Target.parse(f"https://127.0.0.1:{port}"))
