"""Clients that never give up, a server that is killed under them, and what each was promised.

Every payload names its producer and number, so the final bytes tell by themselves whether an
append is missing, doubled or out of order. A client moves on only when it was acknowledged.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from yarl import URL

from tests.helpers.offsets import nameless
from tests.helpers.server import Server, launch

SETTINGS = {
    "DS_STORAGE__JOURNAL_BYTES": "262144",
    "DS_LIMITS__MAX_BODY_BYTES": "65536",
    "DS_STORAGE__CHECKPOINT_SECS": "0.2",
    "DS_STORAGE__CHUNK_BYTES": "65536",
    "DS_STORAGE__ACID_MAP_BYTES": str(1 << 32),
    "DS_SERVER__LONG_POLL_TIMEOUT_SECS": "0.3",
}
PATIENCE_SECS = 60.0
TEXT, JSON = "text/plain", "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def next_offset(self) -> int:
        return int(self.headers["stream-next-offset"].rpartition("_")[2])

    @property
    def stored(self) -> bytes:
        """The body in the form that offsets count: every JSON message followed by a comma."""
        if self.headers.get("content-type") != JSON:
            return self.body
        return self.body[1:-1] + b"," if self.body not in (b"", b"[]") else b""

    @property
    def is_closed(self) -> bool:
        return self.headers.get("stream-closed") == "true"

    @property
    def is_up_to_date(self) -> bool:
        return self.headers.get("stream-up-to-date") == "true"


class Fleet:
    """The server of the moment and the way to it."""

    def __init__(
        self,
        folder: Path,
        mode: str,
        rng: random.Random,
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        self._folder = folder
        self._mode = mode
        self._rng = rng
        self._settings = settings
        self._server: Server | None = None
        self._up = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None
        self.kills = 0
        self.starts_cut_short = 0

    async def __aenter__(self) -> "Fleet":
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()
        if self._server is not None:
            self._server.kill()

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    async def start(self) -> None:
        server = self._server = launch(self._folder, self._mode, settings=self._settings)
        await asyncio.to_thread(server.wait_until_ready)
        self._up.set()

    async def kill(self) -> None:
        assert self._server is not None
        self._up.clear()
        await asyncio.to_thread(self._server.kill)
        self.kills += 1

    async def start_and_kill_early(self) -> None:
        """Die somewhere between the first instruction and the first requests."""
        self._server = launch(self._folder, self._mode, settings=self._settings)
        await asyncio.sleep(self._rng.uniform(0.1, 0.6))
        await self.kill()
        self.starts_cut_short += 1

    async def stop(self) -> int:
        assert self._server is not None
        self._up.clear()
        return await asyncio.to_thread(self._server.stop)

    async def ask(
        self,
        method: str,
        name: str,
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer | None:
        """One try; None when the connection broke and nothing is known.

        A name that begins with a slash is a whole path.
        """
        await self._up.wait()
        assert self._server is not None and self._session is not None
        path = name if name.startswith("/") else f"/v1/stream/{name}"
        url = URL(f"{self._server.url}{path}{query}", encoded=True)
        try:
            async with self._session.request(
                method, url, headers=headers, data=body, allow_redirects=False
            ) as reply:
                found = {key.lower(): value for key, value in reply.headers.items()}
                return Answer(reply.status, found, await reply.read())
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return None

    async def insist(
        self,
        method: str,
        name: str,
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[Answer, int]:
        """Ask until there is an answer; also says how many tries got none."""
        deadline = time.monotonic() + PATIENCE_SECS
        lost = 0
        while time.monotonic() < deadline:
            answer = await self.ask(method, name, query=query, headers=headers, body=body)
            if answer is not None and answer.status != 503:
                return answer, lost
            lost += 1
            await asyncio.sleep(0.02)
        raise AssertionError(f"{method} {name}: no answer for {PATIENCE_SECS} s")

    async def read_all(self, name: str) -> tuple[bytes, int, bool]:
        """(bytes as stored, tail, closed) by catch-up reads."""
        parts: list[bytes] = []
        position = 0
        while True:
            query = f"?offset={nameless(position)}"
            answer, _ = await self.insist("GET", name, query=query)
            assert answer.status == 200, (name, answer)
            parts.append(answer.stored)
            assert answer.next_offset >= position
            position = answer.next_offset
            if answer.is_up_to_date:
                return b"".join(parts), position, answer.is_closed


@dataclass(slots=True)
class Sent:
    """One acknowledged append: its bytes as stored, and where its 200 said it ends."""

    stored: bytes
    end: int | None


@dataclass(slots=True)
class Ledger:
    """All that one stream's clients were promised."""

    name: str
    content_type: str
    sent: dict[str, list[Sent]] = field(default_factory=dict)
    closed_by: str | None = None
    last_seq: str | None = None
    deleted: bool = False

    @property
    def count(self) -> int:
        return sum(map(len, self.sent.values()))


class Writer:
    """One idempotent producer on one stream."""

    def __init__(self, fleet: Fleet, ledger: Ledger, producer: str, rng: random.Random) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._producer = producer
        self._rng = rng
        self._sent = ledger.sent.setdefault(producer, [])

    def _payload(self, number: int) -> tuple[bytes, bytes]:
        """(body, stored form)"""
        size = self._rng.choice([0, 10, 100, 1000, 5000])
        if self._rng.random() < 0.02:
            size = 40_000
        text = f"{self._producer}:{number}:{'x' * size}"
        if self._ledger.content_type == TEXT:
            body = f"{text}\n".encode()
            return body, body
        message = f'"{text}"'
        if self._rng.random() < 0.3:
            more = f'{{"{self._producer}":{number}}}'
            return f"[{message},{more}]".encode(), f"{message},{more},".encode()
        return message.encode(), f"{message},".encode()

    def headers(self, number: int) -> dict[str, str]:
        return {
            "Content-Type": self._ledger.content_type,
            "Producer-Id": self._producer,
            "Producer-Epoch": "0",
            "Producer-Seq": str(number),
        }

    async def append(self, *, seq: str | None = None, close: bool = False) -> None:
        number = len(self._sent)
        body, stored = self._payload(number)
        headers = self.headers(number)
        if seq is not None:
            headers["Stream-Seq"] = seq
        if close:
            headers["Stream-Closed"] = "true"
        answer, lost = await self._fleet.insist(
            "POST", self._ledger.name, headers=headers, body=body
        )
        if answer.status == 204:
            assert lost, f"called a duplicate, but it is new: {answer}"
            assert answer.headers["producer-seq"] == str(number)
        else:
            assert answer.status == 200, (self._ledger.name, number, lost, answer)
        end = answer.next_offset if answer.status == 200 else None
        self._sent.append(Sent(stored, end))
        if seq is not None:
            self._ledger.last_seq = seq
        if close:
            assert answer.is_closed
            self._ledger.closed_by = self._producer


class PlainWriter:
    """No producer: Stream-Seq alone tells a retry that it came through."""

    def __init__(self, fleet: Fleet, ledger: Ledger, rng: random.Random) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._rng = rng
        self._sent = ledger.sent.setdefault("plain", [])

    async def append(self) -> None:
        number = len(self._sent)
        seq = f"{number:08d}"
        body = f"plain:{number}:{'y' * self._rng.randrange(300)}\n".encode()
        headers = {"Content-Type": TEXT, "Stream-Seq": seq}
        answer, lost = await self._fleet.insist(
            "POST", self._ledger.name, headers=headers, body=body
        )
        if answer.status == 409:
            assert lost and b"seq-regression" in answer.body, answer
        else:
            assert answer.status == 204, answer
        end = answer.next_offset if answer.status == 204 else None
        self._sent.append(Sent(body, end))
        self._ledger.last_seq = seq


@dataclass(slots=True)
class Watcher:
    """A reader that was there all the time and forgets nothing it saw."""

    fleet: Fleet
    name: str
    seen: bytes = b""
    tail: int = 0
    closed: bool = False
    answers: int = 0

    async def look(self) -> None:
        query = f"?offset={nameless(self.tail)}&live=long-poll"
        if self.answers % 3 == 0:
            query = f"?offset={nameless(self.tail)}"
        answer = await self.fleet.ask("GET", self.name, query=query)
        if answer is None:
            return
        assert answer.status in (200, 204), f"{self.name} at {self.tail}: {answer}"
        assert answer.next_offset >= self.tail, "the tail went back"
        assert answer.is_closed or not self.closed or not answer.is_up_to_date, "it was closed"
        self.seen += answer.stored
        self.tail = answer.next_offset
        self.closed = self.closed or answer.is_closed
        self.answers += 1


async def create(fleet: Fleet, name: str, content_type: str) -> Ledger:
    answer, _ = await fleet.insist("PUT", name, headers={"Content-Type": content_type})
    assert answer.status in (200, 201), answer
    return Ledger(name, content_type)


async def repeat(
    stopping: asyncio.Event, step: Callable[[], Awaitable[None]], pause_s: float
) -> None:
    while not stopping.is_set():
        await step()
        await asyncio.sleep(pause_s)
