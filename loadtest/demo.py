"""`make demo-report`: a little traffic through a real gateway, and the report of it.

Some streams are hot, most are not; readers replay, wait and follow; a few come with bad tokens or
ask for what is not there. Producers write State messages, so that there is state beside traffic.
Archives are closed and large, and many read them from the beginning.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import aiohttp

FOLDER = Path(".bench/demo")
STREAMS = 24
ARCHIVES = 4
ARCHIVE_PIECES = 12
FOLLOWERS = 30
WAITERS = 60
READERS = 10
VISITORS = 8  # of archives
POLLS = 10  # of one waiter at one stream
READY = re.compile(r"weir (origin|gateway admin|gateway) \D*(http://127\.0\.0\.1:\d+)")
START_SECS = 30.0

Step = Callable[[], Awaitable[None]]


class Visitors:
    """Everybody who uses the gateway for a while."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tokens: list[str]) -> None:
        self._session = session
        self._url = url
        self._tokens = tokens
        self._random = random.Random(7)

    def _address(self, number: int) -> str:
        return f"{self._url}/v1/stream/team/{number}"

    def _archive(self, number: int) -> str:
        return f"{self._url}/v1/stream/archive/{number}"

    def _stream(self) -> str:
        """The lower the number, the hotter."""
        return self._address(min(int(self._random.paretovariate(0.8)) - 1, STREAMS - 1))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._random.choice(self._tokens)}"}

    async def create_all(self) -> None:
        json_state = {"Content-Type": "application/json", "Stream-State": "strict"}
        for number in range(STREAMS):
            headers = self._headers() | json_state
            async with self._session.put(self._address(number), headers=headers) as answer:
                answer.raise_for_status()

    async def create_archives(self) -> None:
        kind = {"Content-Type": "application/json"}
        for number in range(ARCHIVES):
            async with self._session.put(self._archive(number), headers=self._headers() | kind):
                pass
            for piece in range(ARCHIVE_PIECES):
                changes = [self._change() for _ in range(1000)]
                is_last = {"Stream-Closed": "true"} if piece == ARCHIVE_PIECES - 1 else {}
                async with self._session.post(
                    self._archive(number),
                    headers=self._headers() | kind | is_last,
                    data=json.dumps(changes),
                ) as answer:
                    answer.raise_for_status()

    async def write(self) -> None:
        messages = [self._change() for _ in range(self._random.randrange(1, 20))]
        headers = self._headers() | {"Content-Type": "application/json"}
        async with self._session.post(
            self._stream(), headers=headers, data=json.dumps(messages)
        ) as answer:
            await answer.read()
        await asyncio.sleep(0.1)

    def _change(self) -> dict[str, object]:
        kind = self._random.choice(["user", "message", "flag"])
        operation = self._random.choice(["insert", "insert", "update", "delete"])
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {
            "type": kind,
            "key": str(self._random.randrange(200)),
            "value": {"n": self._random.random()},
            "headers": {"operation": operation, "timestamp": stamp},
        }

    async def visit_archive(self) -> None:
        await self._read(self._archive(self._random.randrange(ARCHIVES)))
        await asyncio.sleep(self._random.uniform(0.1, 0.5))

    async def replay(self) -> None:
        await self._read(self._stream())
        await asyncio.sleep(self._random.uniform(0.02, 0.2))

    async def _read(self, address: str) -> None:
        offset, up_to_date = "-1", ""
        while not up_to_date:
            async with self._session.get(
                address, headers=self._headers(), params={"offset": offset}
            ) as answer:
                await answer.read()
                offset = answer.headers.get("Stream-Next-Offset", offset)
                up_to_date = answer.headers.get("Stream-Up-To-Date", "")

    async def wait(self) -> None:
        """For news of one stream, again and again."""
        address, headers = self._stream(), self._headers()
        asked = {"offset": "now", "live": "long-poll"}
        for _ in range(POLLS):
            async with self._session.get(address, headers=headers, params=asked) as answer:
                await answer.read()
                asked["offset"] = answer.headers.get("Stream-Next-Offset", asked["offset"])
                asked["cursor"] = answer.headers.get("Stream-Cursor", "")

    async def follow(self) -> None:
        async with self._session.get(
            self._stream(), headers=self._headers(), params={"offset": "-1", "live": "sse"}
        ) as answer:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(1, 8)):
                    async for _ in answer.content.iter_any():
                        pass

    async def stray(self) -> None:
        """Sometimes without a token, sometimes to nowhere."""
        headers = self._headers() if self._random.random() < 0.5 else {"Authorization": "Bearer no"}
        async with self._session.get(f"{self._url}/v1/stream/nowhere", headers=headers) as answer:
            await answer.read()
        await asyncio.sleep(0.5)


async def visit(url: str, tokens: list[str], seconds: float) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        visitors = Visitors(session, url, tokens)
        await visitors.create_all()
        await visitors.create_archives()
        crowd = [visitors.write] * 3 + [visitors.replay] * READERS + [visitors.stray]
        crowd += [visitors.visit_archive] * VISITORS
        crowd += [visitors.wait] * WAITERS + [visitors.follow] * FOLLOWERS
        until = time.monotonic() + seconds
        await asyncio.gather(*(_repeat(step, until) for step in crowd))


async def _repeat(step: Step, until: float) -> None:
    while (left := until - time.monotonic()) > 0:
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(left):
                await step()


def start_servers(folder: Path) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """Gateway and origin on free ports; the addresses of `origin`, `gateway`, `gateway admin`."""
    env = os.environ | {
        "DS_GATEWAY__ACCESS_LOG": str(folder / "logs"),
        "DS_GATEWAY__ADMIN_PORT": "0",
    }
    command = [sys.executable, "-m", "weir", "up", "--gateway-port", "0", "--origin-port", "0"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(folder / "data")],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found: dict[str, str] = {}
    until = time.monotonic() + START_SECS
    while len(found) < 3 and time.monotonic() < until:
        line = process.stdout.readline()
        found |= {name: url for name, url in READY.findall(line)}
        if not line:
            break
    if len(found) < 3:
        process.kill()
        raise SystemExit("weir up did not start; `make run` says why")
    return process, found


def stop_servers(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.terminate()
    process.wait()
    process.stdout.close()


def make_tokens(folder: Path, count: int) -> list[str]:
    key = str(folder / "data/keys/dev-key.pem")
    command = [sys.executable, "-m", "weir", "token", "--key", key, "--sub"]
    return [
        subprocess.run(
            [*command, f"user-{n}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for n in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make traffic and the report of it.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of traffic (60)")
    seconds = parser.parse_args().seconds
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    process, urls = start_servers(FOLDER)
    try:
        print(f"traffic at {urls['gateway']} for {seconds:.0f} s", flush=True)
        asyncio.run(visit(urls["gateway"], make_tokens(FOLDER, 8), seconds))
        command = [sys.executable, "-m", "weir", "report", "--origin", urls["origin"]]
        subprocess.run(
            [*command, "--logs", str(FOLDER / "logs"), "--out", str(FOLDER / "out")], check=True
        )
    finally:
        stop_servers(process)
    print(f"open {FOLDER / 'out/report.html'}")


if __name__ == "__main__":
    main()
