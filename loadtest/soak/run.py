"""`make soak`: minutes of everything at once, and whether anything grows.

An origin, Redis, gateways and Envoy in front, as processes of their own; a crowd of live readers
(half by Server-Sent Events, half by long-poll) who are sent home by rotation, leave and come back;
producers, people who catch up, streams that come and go. It is a run like those of `weir load`,
with memory, descriptors and tasks of each process among its gauges. After the warm-up each must be
flat: `judge` says what that means.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.load.client import expect, fetch_metrics
from loadtest.load.connection import Broken, Target
from loadtest.load.paced import Scenario
from loadtest.load.readers import catch_up, follow, wait_for_news
from loadtest.load.run import Order, raise_descriptor_limit, run_order
from loadtest.load.session import Knobs, Session
from loadtest.peers.memory import MB, process_tree, resident_bytes
from loadtest.peers.process import Server, Start, free_port, run_process
from loadtest.peers.servers import start_edge, start_gateway, start_origin, start_redis
from loadtest.peers.tokens import TokenFiles, auth_settings, read_tokens, write_tokens
from loadtest.soak.judge import describe, judge

FOLDER = Path(".bench/soak")
STREAMS = 20
CLOSED_STREAMS = 50
CLOSED_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024  # the origin's default
STAY_SECS = 120.0  # how long a reader stays, on average
ARRIVAL_SECS = 20.0
FILLING_LANES = 32
HEADS_EACH = 20_000  # more than a server remembers
SMALL_REDIS = ("--maxmemory", "8mb", "--maxmemory-policy", "volatile-lru")
Live = Callable[[Session, str, str], Awaitable[None]]
TASKS = re.compile(r"^weir_(?:origin|gateway)_tasks(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """One of those that must not grow; `metrics_port` is 0 where there are no tasks to count."""

    name: str
    pid: int
    metrics_port: int = 0

    async def look(self) -> dict[str, float]:
        """By what is judged together: a stream that moves between gateways makes neither grow."""
        group = self.name.partition("-")[0]
        seen = {
            f"{group} memory_mb": resident_bytes(self.pid) / MB,
            f"{group} descriptors": float(
                sum(len(os.listdir(f"/proc/{member}/fd")) for member in process_tree(self.pid))
            ),
        }
        if self.metrics_port:
            text = await fetch_metrics(Target.local(self.metrics_port))
            seen[f"{group} tasks"] = sum(map(float, TASKS.findall(text)))
        return seen


@dataclass(frozen=True, slots=True)
class Watch:
    """All processes, as a run's witness."""

    processes: Sequence[Process]

    async def look(self) -> dict[str, float]:
        seen: Counter[str] = Counter()
        try:
            for process in self.processes:
                seen.update(await process.look())
        except (Broken, OSError):
            return {}  # half of a sum would look like a fall
        return dict(seen)


# -- the servers ---------------------------------------------------------------------------------


@contextmanager
def running_servers(
    folder: Path, tokens: TokenFiles, gateways: int, *, envoy: bool
) -> Iterator[tuple[Target, Watch]]:
    """All caches are small enough to be full when the warm-up is over: filling up is no leak."""
    processes: list[Process] = []
    with ExitStack() as stack:

        def run(name: str, start: Start, metrics_port: int = 0) -> Server:
            server = stack.enter_context(run_process(start, folder / f"{name}.log"))
            processes.append(Process(name, server.pid, metrics_port))
            return server

        port = free_port()
        settings = {"DS_STORAGE__CACHE_BYTES": str(2 * MB)}
        run("origin", start_origin(folder / "data", settings=settings, port=port), port)
        redis = run("redis", start_redis(*SMALL_REDIS))
        ports: list[int] = []
        for number in range(gateways):
            name, admin = f"gateway-{number}", free_port()
            settings = auth_settings(tokens) | {
                "DS_GATEWAY__NAME": name,
                "DS_GATEWAY__TRUSTED_HOPS": "1" if envoy else "0",
                "DS_GATEWAY__ACCESS_LOG": str(folder / "access"),
                "DS_CACHE__MAX_BYTES": str(16 * MB),
                "DS_CACHE__REDIS_URL": f"redis://127.0.0.1:{redis.port}",
                "DS_CACHE__HUB_WINDOW_BYTES": "16384",
            }
            start = start_gateway(f"http://127.0.0.1:{port}", settings, admin_port=admin)
            ports.append(run(name, start, admin).port)
        front = run("envoy", start_edge(ports, auth_settings(tokens))).port if envoy else ports[0]
        yield Target.local(front), Watch(processes)


# -- the crowd -----------------------------------------------------------------------------------


async def begin_crowd(session: Session) -> None:
    """Everybody who uses the servers, until the session ends."""
    live = [session.new_path("live") for _ in range(STREAMS)]
    closed = [session.new_path("closed") for _ in range(CLOSED_STREAMS)]
    for number, path in enumerate(live):
        # At all stages of a chunk, as streams are after years: an empty one's tail grows, and
        # with it what the caches make of the same number of bytes.
        await session.create(path, b"x" * (number * CHUNK_BYTES // STREAMS))
    await session.create_all(closed, b"x" * CLOSED_BYTES, closed=True)
    await session.begin()
    for number in range(session.knobs.readers):
        read = follow if number % 2 else wait_for_news
        session.spawn(stay(session, live[number // 2 % STREAMS], read))
    session.spawn(session.append_paced(live))
    session.spawn(read_paced(session, closed))
    session.spawn(come_and_go(session))


async def stay(session: Session, path: str, read: Live) -> None:
    """Follow one stream, leave without a word, come back to it, for ever."""
    await asyncio.sleep(session.random.uniform(0, ARRIVAL_SECS))
    while True:
        offset = await catch_up(session, path, time.perf_counter())
        with suppress(TimeoutError):
            async with asyncio.timeout(session.random.expovariate(1 / STAY_SECS)):
                await read(session, path, offset)


async def read_paced(session: Session, paths: Sequence[str]) -> None:
    async for due in session.due_times(session.knobs.rate):
        session.spawn(catch_up(session, session.random.choice(paths), due))


async def come_and_go(session: Session) -> None:
    """A stream a second: created, written, read, deleted."""
    async for due in session.due_times(1.0):
        path = session.new_path("short")
        await session.ask("create", session.request("PUT", path, body=b""), due, 201)
        await session.append_stamped(path, time.perf_counter())
        await catch_up(session, path, time.perf_counter())
        request = session.request("DELETE", path)
        await session.ask("delete", request, time.perf_counter(), 200, 204)


async def fill_memos(session: Session, count: int) -> None:
    """Servers remember so many heads of requests that came twice, request lines and header lines
    apart, and forget the oldest when there are more. So many different reads, each beyond the end
    of a short stream, and so many different appends of nothing fill what would else fill up slowly
    and look like a leak."""

    async def ask(lane: int) -> None:
        path = session.new_path("short")  # of each lane, so that every gateway gets its share
        await session.create(path)
        for number in range(lane + 1, count, FILLING_LANES):
            read = session.request("GET", path, f"?offset={0:016}_{number:016}")
            append = session.request("POST", path, body=b"", lines=[f"Stream-Seq: {number:032}"])
            for request in (read, read, append, append):
                expect(await session.fetch(request), 400)

    await asyncio.gather(*(ask(lane) for lane in range(FILLING_LANES)))


def run_soak(target: Target, watch: Watch, tokens: TokenFiles, options: Namespace) -> int:
    async def run_crowd(session: Session) -> None:
        await fill_memos(session, HEADS_EACH * options.gateways)
        await begin_crowd(session)

    knobs = Knobs(options.minutes * 60, readers=options.readers, rate=options.rate, size=256)
    order = Order(
        Scenario("soak", "everything at once, for minutes", "delivered", knobs, run_crowd),
        f"http://{target.authority}",
        tokens=read_tokens(tokens.tokens),
        peer="weir",
        witness=watch,
        prefix="soak",
        out=FOLDER / "samples.jsonl",
    )
    run = run_order(order, sys.stdout if sys.stdout.isatty() else StringIO())
    verdict = judge(run, options.warm_up * 60, options.readers)
    print(describe(verdict))
    print(f"samples: {order.out}")
    return 1 if verdict.complaints else 0


def main(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(prog="make soak", description="Minutes of mixed load.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=10.0, metavar="MINUTES")
    parser.add_argument("--readers", type=int, default=2000, help="live readers (2000)")
    parser.add_argument("--rate", type=float, default=10.0, help="appends a second (10)")
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--no-envoy", action="store_true", help="straight at one gateway")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers go too
    raise_descriptor_limit()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    gateways = 1 if options.no_envoy else options.gateways
    tokens = write_tokens(FOLDER, 200, "read:* write:* create:* delete:*")
    servers = running_servers(FOLDER.absolute(), tokens, gateways, envoy=not options.no_envoy)
    try:
        with servers as (target, watch):
            print(f"{options.readers} readers for {options.minutes:g} minutes", flush=True)
            return run_soak(target, watch, tokens, options)
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return 1
