"""`make demo-report`: a little traffic through a real gateway, and the report of it.

Some streams are hot, most are not; readers replay, wait and follow; a few come with bad tokens or
ask for what is not there. Producers write State messages, so that there is state beside traffic.
Archives are closed and large, and many read them from the beginning.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loadtest.load.client import Client, expect
from loadtest.load.connection import Target
from loadtest.load.readers import catch_up, follow, wait_for_news
from loadtest.load.session import Knobs, Session
from loadtest.peers.process import Start, free_ports, run_process
from loadtest.peers.servers import run_weir, weir_start
from protocol.names import JSON_TYPE
from protocol.offsets import NOW, START

FOLDER = Path(".bench/demo")
STREAMS = 24
ARCHIVES = 4
ARCHIVE_PIECES = 12
FOLLOWERS = 30
WAITERS = 60
READERS = 10
VISITORS = 8  # of archives
STAY_SECS = (1.0, 8.0)  # how long readers wait or follow at one stream


class Visitors(Session):
    """Everybody who uses the gateway for a while."""

    def _stream(self) -> str:
        """The lower the number, the hotter."""
        return f"team/{min(int(self.random.paretovariate(0.8)) - 1, STREAMS - 1)}"

    async def prepare(self) -> None:
        for number in range(STREAMS):
            await self._send("PUT", f"team/{number}", b"", "Stream-State: strict")
        for number in range(ARCHIVES):
            await self._send("PUT", f"archive/{number}", b"")
            for piece in range(ARCHIVE_PIECES):
                is_last = ["Stream-Closed: true"] if piece == ARCHIVE_PIECES - 1 else []
                await self._send("POST", f"archive/{number}", self._changes(1000), *is_last)

    async def _send(self, method: str, path: str, body: bytes, *lines: str) -> None:
        request = self.request(method, path, body=body, lines=lines, content_type=JSON_TYPE)
        expect(await self.fetch(request), 200, 201, 204)

    def _changes(self, count: int) -> bytes:
        return json.dumps([self._change() for _ in range(count)]).encode()

    def _change(self) -> dict[str, object]:
        kind = self.random.choice(["user", "message", "flag"])
        operation = self.random.choice(["insert", "insert", "update", "delete"])
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {
            "type": kind,
            "key": str(self.random.randrange(200)),
            "value": {"n": self.random.random()},
            "headers": {"operation": operation, "timestamp": stamp},
        }

    async def write(self) -> None:
        await self._send("POST", self._stream(), self._changes(self.random.randrange(1, 20)))
        await asyncio.sleep(0.1)

    async def visit_archive(self) -> None:
        path = f"archive/{self.random.randrange(ARCHIVES)}"
        await catch_up(self, path, time.perf_counter())
        await asyncio.sleep(self.random.uniform(0.1, 0.5))

    async def replay(self) -> None:
        await catch_up(self, self._stream(), time.perf_counter())
        await asyncio.sleep(self.random.uniform(0.02, 0.2))

    async def wait_at_one(self) -> None:
        await self._stay(wait_for_news(self, self._stream(), NOW))

    async def follow_one(self) -> None:
        await self._stay(follow(self, self._stream(), START))

    async def _stay(self, reading: Awaitable[None]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.random.uniform(*STAY_SECS)):
                await reading

    async def stray(self) -> None:
        """Sometimes without a token, sometimes to nowhere."""
        tokens = ["no"] if self.random.random() < 0.5 else []
        async with Client(self.target, tokens) as client:
            asking = client if tokens else self
            await asking.fetch(asking.request("GET", "nowhere"))
        await asyncio.sleep(0.5)


async def visit(url: str, tokens: list[str], seconds: float) -> None:
    async with Visitors(Target.parse(url), tokens, Knobs(seconds), prefix="demo") as visitors:
        await visitors.prepare()
        await visitors.begin()
        crowd = [visitors.write] * 3 + [visitors.replay] * READERS + [visitors.stray]
        crowd += [visitors.visit_archive] * VISITORS
        crowd += [visitors.wait_at_one] * WAITERS + [visitors.follow_one] * FOLLOWERS
        for step in crowd:
            visitors.spawn(_repeat(step))
        await visitors.finish()


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    while True:
        await step()


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, str]]:
    """Addresses of `origin`, `gateway` and `gateway admin`, as `weir up` starts them."""
    folder = folder.absolute()
    named = dict(zip(("origin", "gateway", "gateway admin"), free_ports(3), strict=True))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in named.items()}
    command = [*weir_start(), "up", "--data-dir", str(folder / "data")]
    command += ["--gateway-port", str(named["gateway"]), "--origin-port", str(named["origin"])]
    settings = {"DS_GATEWAY__ADMIN_PORT": str(named["gateway admin"])}
    settings["DS_GATEWAY__ACCESS_LOG"] = str(folder / "logs")
    start = Start(command, named["gateway"], settings, f"{urls['gateway admin']}/readyz")
    with run_process(start, folder / "weir-up.log"):
        yield urls


def make_tokens(folder: Path, count: int) -> list[str]:
    key = str(folder / "data/keys/dev-key.pem")
    return [run_weir("token", "--key", key, "--sub", f"user-{n}") for n in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make traffic and the report of it.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of traffic (60)")
    seconds = parser.parse_args().seconds
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with servers(FOLDER) as urls:
        print(f"traffic at {urls['gateway']} for {seconds:.0f} s", flush=True)
        asyncio.run(visit(urls["gateway"], make_tokens(FOLDER, 8), seconds))
        command = [*weir_start(), "report", "--origin", urls["origin"]]
        subprocess.run(
            [*command, "--logs", str(FOLDER / "logs"), "--out", str(FOLDER / "out")], check=True
        )
    print(f"open {FOLDER / 'out/report.html'}")


if __name__ == "__main__":
    main()
