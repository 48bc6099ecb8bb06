"""Links between processes: passed, cut, frozen, slow; each source by itself."""

import asyncio
import gc
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from loadtest.verify.cluster.links import SLOW_SECS, Link, Mode
from loadtest.verify.cluster.sources import find_source

US = "us"


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, list[bytes]]]:
    """A link to an echo server, which notes what it is sent."""
    heard: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            heard.append(data)
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    link = Link(server.sockets[0].getsockname()[1], lambda: {US: os.getpid()})
    await link.start()
    try:
        yield link, heard
    finally:
        await link.close()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def connected(
    link: Link,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"hello")
    return await asyncio.wait_for(reader.read(1000), 10)


async def is_refused(link: Link) -> bool:
    try:
        async with connected(link) as streams:
            return await exchange(*streams) == b""
    except OSError:
        return True


async def passes(link: Link) -> bool:
    async with connected(link) as streams:
        return await exchange(*streams) == b"hello"


async def test_a_link_passes_on_what_it_is_given() -> None:
    async with linked() as (link, _), connected(link) as (reader, writer):
        assert await exchange(reader, writer) == b"hello"
        writer.write_eof()
        assert await reader.read() == b""


async def test_a_cut_link_resets_what_is_open_and_refuses_what_comes() -> None:
    async with linked() as (link, _):
        async with connected(link) as (reader, writer):
            assert await exchange(reader, writer) == b"hello"
            link.set(US, Mode.CUT)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert await is_refused(link)
        link.set(US, Mode.PASS)
        assert await passes(link)


async def test_a_frozen_link_delivers_when_it_thaws_even_what_was_given_up() -> None:
    async with linked() as (link, heard):
        async with connected(link) as (reader, writer):
            assert await exchange(reader, writer) == b"hello"
            link.set(US, Mode.FROZEN)
            writer.write(b"late")
        async with connected(link) as (_, writer):
            writer.write(b"later")
        await asyncio.sleep(0.05)
        assert heard == [b"hello"]
        link.set(US, Mode.PASS)
        async with asyncio.timeout(10):
            while len(heard) < 3:  # noqa: ASYNC110 -- the server has no event for it
                await asyncio.sleep(0.01)
        assert sorted(heard) == [b"hello", b"late", b"later"]


async def test_a_slow_link_takes_its_time() -> None:
    async with linked() as (link, _):
        link.set(US, Mode.SLOW)
        began = asyncio.get_running_loop().time()
        assert await passes(link)
        assert asyncio.get_running_loop().time() - began >= 2 * SLOW_SECS


async def test_others_do_not_feel_it() -> None:
    async with linked() as (link, _):
        link.set("somebody", Mode.CUT)
        assert await passes(link)


async def test_a_link_that_is_shut_while_it_accepts_leaves_nothing() -> None:
    """An asyncio.Server forgets such connections, which are then collected unclosed."""
    async with linked() as (link, _):
        for turns in range(5):
            with socket.create_connection(("127.0.0.1", link.port)):
                for _ in range(turns):
                    await asyncio.sleep(0)
                link.shut()
                await link.start()
        gc.collect()
        assert await passes(link)


async def test_a_connection_that_is_being_accepted_does_not_hold_up_the_end() -> None:
    async with linked() as (link, _):
        with socket.create_connection(("127.0.0.1", link.port)):
            while not link._tasks:  # noqa: ASYNC110 -- it has no event for it
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await link.close()


async def test_a_server_that_is_not_there_is_a_reset() -> None:
    dead = Link(1, lambda: {})
    await dead.start()
    assert await is_refused(dead)
    await dead.close()


CONNECT = """
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
connection.bind(("127.0.0.1", int(sys.argv[2])))
connection.connect(("127.0.0.1", int(sys.argv[1])))
connection.recv(1)
"""


@contextmanager
def child_connected(server: socket.socket, port: int = 0) -> Iterator[tuple[int, int]]:
    """The child's process id, and the port it connects from."""
    command = [sys.executable, "-c", CONNECT, str(server.getsockname()[1]), str(port)]
    with subprocess.Popen(command) as child:
        taken, (_, port) = server.accept()
        with taken:
            yield child.pid, port


def test_the_source_of_a_connection_is_found() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        child_connected(server) as (pid, port),
    ):
        to_port = server.getsockname()[1]
        assert find_source(port, to_port, {"us": os.getpid(), "child": pid}) == "child"
        assert find_source(port, to_port, {"us": os.getpid()}) == ""
        assert find_source(port, 1, {"child": pid}) is None


def test_two_sources_with_the_same_port_are_told_apart() -> None:
    """The system gives a port to several, if they connect to different servers."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
        child_connected(one) as (first, port),
        child_connected(other, port) as (second, same),
    ):
        assert same == port
        pids = {"first": first, "second": second}
        found = [find_source(port, each.getsockname()[1], pids) for each in (one, other)]
        assert found == ["first", "second"]
