"""Readers of one stream: those who wait, those who follow, those who catch up."""

import asyncio
import re
import time

from loadtest.load.client import NEXT_OFFSET, reached_tail
from loadtest.load.connection import Broken, Connection, connect
from loadtest.load.replies import verdict_of
from loadtest.load.session import HOLD_TIMEOUT_SECS, Session
from protocol.offsets import START

CURSOR = "stream-cursor"
CONTROL_OFFSET = re.compile(rb'"streamNextOffset"\s*:\s*"([^"]+)"')
BLOCK_END = re.compile(rb"\r?\n\r?\n")
PAUSE_SECS = (0.05, 0.5)
"""Before trying again after a failure: at random in between, as good clients do."""


class Events:
    """Server-Sent Events as they come in pieces: whole ones, and where to go on after them."""

    def __init__(self, offset: str) -> None:
        self.offset = offset
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        *blocks, self._rest = BLOCK_END.split(self._rest + piece)
        for block in blocks:
            if found := CONTROL_OFFSET.search(block):
                self.offset = found[1].decode()
        return blocks


async def wait_for_news(session: Session, path: str, offset: str) -> None:
    """Long-polls, one after another, for ever."""
    connection: Connection | None = None
    cursor = ""
    try:
        while True:
            query = f"?offset={offset}&live=long-poll" + (f"&cursor={cursor}" if cursor else "")
            session.waiting += 1
            begun = time.perf_counter()
            try:
                if connection is None or not connection.usable:
                    connection = await connect(session.target)
                async with asyncio.timeout(HOLD_TIMEOUT_SECS):
                    request = session.request("GET", path, query)
                    reply = await connection.ask(request, keep_body=True)
            except (Broken, TimeoutError) as error:
                await _failed(session, "long-poll", str(error) or "no answer in time")
                continue
            finally:
                session.waiting -= 1
            if reply.status not in (200, 204):
                await _failed(session, "long-poll", str(reply.status))
                continue
            held_s = reply.read_at - begun
            session.meter.done("long-poll", held_s, reply.body_bytes, verdict_of(reply))
            session.note_delivery(bytes(reply.body), reply.read_at)
            offset = reply.headers.get(NEXT_OFFSET, offset)
            cursor = reply.headers.get(CURSOR, "")
    finally:
        if connection is not None:
            connection.close()


async def follow(session: Session, path: str, offset: str) -> None:
    """Server-Sent Events; when they end, on from the last offset, for ever."""
    events = Events(offset)
    since = time.perf_counter()
    while True:
        since = await _follow_once(session, path, events, since)


async def _follow_once(session: Session, path: str, events: Events, since: float) -> float:
    """One connection; how long it took to get is counted from the end of the one before."""
    begun = False

    def take(piece: bytes) -> None:
        nonlocal begun
        if not begun:
            begun = True
            session.meter.done("connect", connection.read_at - since)
        for block in events.feed(piece):
            session.note_delivery(block, connection.read_at)

    try:
        connection = await connect(session.target)
    except Broken as error:
        return await _failed(session, "connect", str(error), since)
    session.waiting += 1
    try:
        request = session.request(
            "GET", path, f"?offset={events.offset}&live=sse", lines=["Accept: text/event-stream"]
        )
        reply = await connection.ask(request, on_body=take)
        if reply.status != 200:
            return await _failed(session, "connect", str(reply.status), since)
    except Broken as error:
        if str(error) == "reset" or not begun:
            return await _failed(session, "connect", str(error), since)
    finally:
        session.waiting -= 1
        connection.close()
    return time.perf_counter()


async def _failed(session: Session, what: str, reason: str, since: float = 0.0) -> float:
    session.meter.failed(what, reason)
    await asyncio.sleep(session.random.uniform(*PAUSE_SECS))
    return since


async def catch_up(session: Session, path: str, due: float, offset: str = START) -> str:
    """Read on to the tail, answer by answer, and count that as one; the offset there."""
    size, first = 0, True
    while True:
        request = session.request("GET", path, f"?offset={offset}")
        reply = await session.ask("read", request, due, 200, late=first)
        if reply is None:
            return offset
        size, first = size + reply.body_bytes, False
        offset = reply.headers.get(NEXT_OFFSET, offset)
        if reached_tail(reply) or not reply.body_bytes:
            session.meter.done("catch-up", reply.read_at - due, size)
            return offset
