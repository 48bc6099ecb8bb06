"""Readers of one stream: those who wait, those who follow, those who catch up."""

import asyncio
import re
import time

from loadtest.load.client import NEXT_OFFSET
from loadtest.load.connection import Broken, Connection, connect, verdict_of
from loadtest.load.session import ANSWER_TIMEOUT_S, HOLD_TIMEOUT_S, Session, reached_tail

CURSOR = "stream-cursor"
CONTROL_OFFSET = re.compile(rb'"streamNextOffset"\s*:\s*"([^"]+)"')
BLOCK_END = re.compile(rb"\r?\n\r?\n")
PAUSE_S = (0.05, 0.5)
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
                async with asyncio.timeout(HOLD_TIMEOUT_S):
                    request = session.request("GET", path, query)
                    reply = await connection.ask(request, keep_body=True)
            except (Broken, TimeoutError) as error:
                session.meter.failed("long-poll", str(error) or "no answer in time")
                await asyncio.sleep(session.random.uniform(*PAUSE_S))
                continue
            finally:
                session.waiting -= 1
            if reply.status not in (200, 204):
                session.meter.failed("long-poll", str(reply.status))
                await asyncio.sleep(session.random.uniform(*PAUSE_S))
                continue
            held_s, verdict = time.perf_counter() - begun, verdict_of(reply)
            session.meter.done("long-poll", held_s, reply.body_bytes, verdict)
            session.note_delivery(bytes(reply.body), connection.read_at)
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
        return await _failed(session, str(error), since)
    session.waiting += 1
    try:
        request = session.request(
            "GET", path, f"?offset={events.offset}&live=sse", lines=["Accept: text/event-stream"]
        )
        reply = await connection.ask(request, on_body=take)
        if reply.status != 200:
            return await _failed(session, str(reply.status), since)
    except Broken as error:
        if str(error) == "reset" or not begun:
            return await _failed(session, str(error), since)
    finally:
        session.waiting -= 1
        connection.close()
    return time.perf_counter()


async def _failed(session: Session, reason: str, since: float) -> float:
    session.meter.failed("connect", reason)
    await asyncio.sleep(session.random.uniform(*PAUSE_S))
    return since


async def catch_up(session: Session, path: str, due: float, offset: str = "-1") -> str:
    """Read on to the tail, answer by answer, and count that as one; the offset there."""
    size, first = 0, True
    while True:
        request = session.request("GET", path, f"?offset={offset}")
        try:
            reply = await session.pool.ask(
                request, due if first else None, timeout_s=ANSWER_TIMEOUT_S
            )
        except Broken as error:
            session.meter.failed("catch-up", str(error))
            return offset
        if reply.status != 200:
            session.meter.failed("catch-up", str(reply.status))
            return offset
        size, first = size + reply.body_bytes, False
        offset = reply.headers.get(NEXT_OFFSET, offset)
        session.meter.done("read", time.perf_counter() - due, reply.body_bytes, verdict_of(reply))
        if reached_tail(reply) or not reply.body_bytes:
            session.meter.done("catch-up", time.perf_counter() - due, size)
            return offset
