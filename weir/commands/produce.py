"""`weir produce URL`: appends a message every second, for demos and monitoring.

It is an idempotent producer: a message whose response was lost is sent again with the same number,
so each message is in the stream exactly once, whatever fails. Each start is a new epoch. `judge`
decides the next step after a response; the rest is waiting.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import aiohttp
from yarl import URL

from gateway.devkeys import DEV_AUDIENCE, DEV_ISSUER, sign_token
from protocol.heads import ReplyHead, parse_head
from protocol.names import JSON_TYPE, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ
from weir.client.access import access_headers, token_of
from weir.client.stream import FIRST_PAUSE_SECS, LAST_PAUSE_SECS, parse_url
from weir.commands.token import ALL_SCOPES, parse_duration
from weir.exits import RequestFailed, warn
from weir.serve import stop_asked

TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
TOKEN_SECS = 900.0
TOKEN_MARGIN_SECS = 60.0


class Step(Enum):
    """The next step after a response."""

    DONE = "stored"
    CREATE = "the stream does not exist"
    EPOCH = "a new stream, or another producer has our name: start a new epoch"
    AGAIN = "outcome unknown, or a temporary failure"
    TOKEN = "the token is no longer valid"
    NEVER = "a permanent failure"


def judge(status: int, head: ReplyHead) -> Step:
    if status in (200, 204):
        return Step.DONE
    if status == 404:
        return Step.CREATE
    if status == 401:
        return Step.TOKEN
    if status == 409 and head.expected_seq is not None and not head.closed:
        return Step.EPOCH
    if status == 403 and head.producer_epoch is not None:
        return Step.EPOCH
    return Step.AGAIN if status == 429 or status >= 500 else Step.NEVER


@dataclass(slots=True)
class Number:
    """The number of the next message; a new epoch starts from 0."""

    epoch: int
    seq: int = 0

    def next_epoch(self) -> None:
        self.epoch, self.seq = max(_now_ms(), self.epoch + 1), 0


Tokens = Callable[[float], str | None]


def run(arguments: argparse.Namespace) -> int:
    producer = Producer(parse_url(arguments.url), arguments.id, make_tokens(arguments))
    every_secs = parse_duration("--every", arguments.every)
    asyncio.run(_run(producer, every_secs, arguments.count))
    return 0


def make_tokens(arguments: argparse.Namespace) -> Tokens:
    """Returns the current token; a token signed with a key is renewed before it expires."""
    if arguments.key is None:
        given = token_of(arguments)
        return lambda now: given
    held: tuple[float, str] = (0.0, "")

    def sign(now: float) -> str:
        nonlocal held
        if held[0] < now + TOKEN_MARGIN_SECS:
            key, who = Path(arguments.key), arguments.id
            token = sign_token(key, who, ALL_SCOPES, TOKEN_SECS, DEV_AUDIENCE, DEV_ISSUER, now)
            held = now + TOKEN_SECS, token
        return held[1]

    return sign


async def _run(producer: "Producer", every_secs: float, count: int | None) -> None:
    stop = asyncio.create_task(stop_asked(None).wait(), name="stop asked")
    beats = asyncio.create_task(producer.beat(every_secs, count), name="beats")
    await asyncio.wait((stop, beats), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if beats.done():
        return beats.result()
    beats.cancel()


class Producer:
    def __init__(self, url: str, name: str, tokens: Tokens) -> None:
        self._url = url
        self._name = name
        self._tokens = tokens
        self._number = Number(_now_ms())

    async def beat(self, every_secs: float, count: int | None) -> None:
        """Messages missed during an outage are not sent later: the next one is on schedule."""
        async with aiohttp.ClientSession(timeout=TIMEOUT, headers=access_headers()) as session:
            self._session = session
            sent = 0
            due = time.monotonic()
            while count is None or sent < count:
                await asyncio.sleep(due - time.monotonic())
                sent += 1
                now = datetime.now(UTC).isoformat(timespec="milliseconds")
                await self._deliver({"producer": self._name, "beat": sent, "time": now})
                if sent == 1:
                    print(f"weir produce: appending to {self._url}", flush=True)
                due = max(due + every_secs, time.monotonic())

    async def _deliver(self, message: dict[str, object]) -> None:
        body = json.dumps(message).encode()
        pause = FIRST_PAUSE_SECS
        failed = renewed = False
        while True:
            step, said = await self._append(body)
            if step is Step.CREATE:
                step, said = await self._ask("PUT", {}, b"")
                step = Step.EPOCH if step is Step.DONE else step
            match step:
                case Step.DONE:
                    self._number.seq += 1
                    if failed:
                        warn("appending again")
                    return
                case Step.NEVER:
                    raise RequestFailed(said)
                case Step.EPOCH if not renewed:
                    renewed = True
                    self._number.next_epoch()
                    continue
            if not failed:
                warn(f"{said}; retrying until it works")
            failed, renewed = True, False
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECS)

    async def _append(self, body: bytes) -> tuple[Step, str]:
        epoch, seq = str(self._number.epoch), str(self._number.seq)
        headers = {PRODUCER_ID: self._name, PRODUCER_EPOCH: epoch, PRODUCER_SEQ: seq}
        return await self._ask("POST", headers, body)

    async def _ask(self, method: str, headers: dict[str, str], body: bytes) -> tuple[Step, str]:
        token = self._tokens(time.time())
        headers = {"Content-Type": JSON_TYPE, **headers}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            async with self._session.request(
                method, URL(self._url, encoded=True), data=body, headers=headers
            ) as answer:
                await answer.read()
                status = 200 if answer.status == 201 else answer.status
                step = judge(status, parse_head(answer.headers))
                return step, f"{method} {self._url}: {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return Step.AGAIN, f"{method} {self._url}: {error or type(error).__name__}"


def _now_ms() -> int:
    """Epochs only need to increase from start to start."""
    return int(time.time() * 1000)
