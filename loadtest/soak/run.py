"""`make soak`: minutes of everything at once, and whether anything grows.

An origin, Redis, gateways and Envoy in front, as processes of their own; a crowd of live readers
(half by Server-Sent Events, half by long-poll) who are sent home by rotation, leave and come back;
producers, people who catch up, streams that come and go. Memory, descriptors and tasks of each
process are sampled. After the warm-up each must be flat: `trend` says what that means, TOLERANCES
how flat.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import uvloop

from loadtest.errors import RunFailedError
from loadtest.load.client import expect, fetch_metrics
from loadtest.load.connection import Broken, Target
from loadtest.load.readers import catch_up, follow, wait_for_news
from loadtest.load.session import Knobs, Session
from loadtest.peers.memory import MB, process_tree, resident_bytes
from loadtest.peers.process import Server, Start, free_port, free_ports, run_process
from loadtest.peers.servers import redis_command, start_gateway, start_origin, weir_start
from loadtest.peers.tokens import TokenFiles, auth_settings, read_tokens, write_tokens
from loadtest.soak.trend import Tolerance, Trend, find_trend

FOLDER = Path(".bench/soak")
STREAMS = 20
CLOSED_STREAMS = 50
CLOSED_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024  # the origin's default
STAY_S = 120.0  # how long a reader stays, on average
ARRIVAL_S = 20.0
FILLING_LANES = 32
HEADS_EACH = 20_000  # more than a server remembers
SMALL_REDIS = ("--maxmemory", "8mb", "--maxmemory-policy", "volatile-lru")
TASKS = re.compile(r"^weir_(?:origin|gateway)_tasks(?:\{.*\})? (\S+)$", re.MULTILINE)

TOLERANCES = {
    "memory_mb": Tolerance(share=0.05, least=5.0),
    "descriptors": Tolerance(share=0.02, least=20.0),
    "tasks": Tolerance(share=0.05, least=20.0),
}
MOST_FAILURES = 0.001  # of all that was asked
LEAST_READERS = 0.95  # of the crowd, at the median: some are always on their way


@dataclass(frozen=True, slots=True)
class Process:
    """One of those that must not grow; `metrics_port` is 0 where there are no tasks to count."""

    name: str
    pid: int
    metrics_port: int = 0

    @property
    def group(self) -> str:
        return self.name.partition("-")[0]

    async def look(self) -> dict[str, float]:
        seen = {
            "memory_mb": resident_bytes(self.pid) / MB,
            "descriptors": float(sum(map(_count_descriptors, process_tree(self.pid)))),
        }
        if self.metrics_port:
            text = await fetch_metrics(Target.local(self.metrics_port))
            seen["tasks"] = sum(map(float, TASKS.findall(text)))
        return seen


def _count_descriptors(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


# -- the servers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    target: Target
    processes: list[Process]
    tokens: TokenFiles


@contextmanager
def running_stage(folder: Path, gateways: int, *, envoy: bool) -> Iterator[Stage]:
    """All caches are small enough to be full when the warm-up is over: filling up is no leak."""
    folder = folder.absolute()
    tokens = write_tokens(folder, 200, "read:* write:* create:* delete:*")
    processes: list[Process] = []
    with ExitStack() as stack:

        def run(name: str, start: Start, metrics_port: int = 0) -> Server:
            server = stack.enter_context(run_process(start, folder / f"{name}.log"))
            processes.append(Process(name, server.pid, metrics_port))
            return server

        origin_port, redis_port = free_ports(2)
        settings = {"DS_STORAGE__CACHE_BYTES": str(2 * MB)}
        start = start_origin(folder / "data", settings=settings, port=origin_port)
        run("origin", start, origin_port)
        run("redis", Start(redis_command(redis_port, *SMALL_REDIS), redis_port))
        ports: list[int] = []
        for number in range(gateways):
            name, admin = f"gateway-{number}", free_port()
            settings = auth_settings(tokens) | {
                "DS_GATEWAY__NAME": name,
                "DS_GATEWAY__TRUSTED_HOPS": "1" if envoy else "0",
                "DS_GATEWAY__ACCESS_LOG": str(folder / "access"),
                "DS_CACHE__MAX_BYTES": str(16 * MB),
                "DS_CACHE__REDIS_URL": f"redis://127.0.0.1:{redis_port}",
                "DS_CACHE__HUB_WINDOW_BYTES": "16384",
            }
            start = start_gateway(f"http://127.0.0.1:{origin_port}", settings, admin_port=admin)
            ports.append(run(name, start, admin).port)
        front = ports[0]
        if envoy:
            front = free_port()
            command = [*weir_start(), "envoy", "--plain-port", str(front), "--admin-port", "0"]
            command += ["--access-log", ""]
            command += [word for port in ports for word in ("--gateway", f"127.0.0.1:{port}")]
            run("envoy", Start(command, front, auth_settings(tokens)))
        yield Stage(Target.local(front), processes, tokens)


# -- the crowd -----------------------------------------------------------------------------------


class Crowd:
    """Everybody who uses the servers, until the session ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._live: list[str] = []
        self._closed: list[str] = []

    async def begin(self) -> None:
        session = self._session
        self._live = [session.new_path("live") for _ in range(STREAMS)]
        self._closed = [session.new_path("closed") for _ in range(CLOSED_STREAMS)]
        for number, path in enumerate(self._live):
            # At all stages of a chunk, as streams are after years: an empty one's tail grows, and
            # with it what the caches make of the same number of bytes.
            await session.create(path, b"x" * (number * CHUNK_BYTES // STREAMS))
        await session.create_all(self._closed, b"x" * CLOSED_BYTES, closed=True)
        await session.begin()
        for number in range(session.knobs.readers):
            session.spawn(self._stay(number))
        session.spawn(session.append_paced(self._live))
        session.spawn(self._catch_up())
        session.spawn(self._come_and_go())

    async def _stay(self, number: int) -> None:
        """Follow one stream, leave without a word, come back to it, for ever."""
        session = self._session
        live = follow if number % 2 else wait_for_news
        path = self._live[number // 2 % STREAMS]
        await asyncio.sleep(session.random.uniform(0, ARRIVAL_S))
        while True:
            offset = await catch_up(session, path, time.perf_counter(), "-1")
            with suppress(TimeoutError):
                async with asyncio.timeout(session.random.expovariate(1 / STAY_S)):
                    await live(session, path, offset)

    async def _catch_up(self) -> None:
        session = self._session
        async for due in session.due_times(session.knobs.rate):
            path = session.random.choice(self._closed)
            session.spawn(self._read(path, due))

    async def _read(self, path: str, due: float) -> None:
        await catch_up(self._session, path, due)

    async def _come_and_go(self) -> None:
        """A stream a second: created, written, read, deleted."""
        session = self._session
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
    session.meter.take(0)


# -- watching ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Record:
    """All samples, by process and measure, and what the crowd did."""

    points: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    waiting: list[float] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def add(self, at_s: float, process: str, seen: dict[str, float]) -> None:
        for measure, value in seen.items():
            self.points.setdefault((process, measure), []).append((at_s, value))


async def watch(
    session: Session, processes: Sequence[Process], every_s: float, warm_up_s: float, out: TextIO
) -> Record:
    """Sample until the session's time is over; what was before the end of the warm-up is written
    down, but not judged."""
    record, start = Record(), time.perf_counter()
    while session.left_s > every_s:
        await asyncio.sleep(every_s)
        at_s = time.perf_counter() - start
        judged = at_s >= warm_up_s
        try:
            looks = [(process, await process.look()) for process in processes]
        except (Broken, TimeoutError) as error:
            session.meter.failed("metrics", str(error))
            looks = []
        for process, seen in looks:
            _write(out, at_s=round(at_s, 1), process=process.name, **seen)
        if judged:
            for group, total in add_up(looks).items():
                record.add(at_s, group, total)
        seconds = session.meter.take(int(at_s))
        failed = Counter({f"{s.what}: {why}": n for s in seconds for why, n in s.failed.items()})
        done = Counter({s.what: s.done for s in seconds})
        _write(out, at_s=round(at_s, 1), waiting=session.waiting, done=done, failed=failed)
        if judged:
            record.waiting.append(session.waiting)
            record.done += done
            record.failed += failed
    return record


def add_up(looks: Sequence[tuple[Process, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """By group: a stream that moves from one gateway to another makes neither of them grow."""
    totals: dict[str, Counter[str]] = {}
    for process, seen in looks:
        totals.setdefault(process.group, Counter()).update(seen)
    return {group: dict(total) for group, total in totals.items()}


def _write(out: TextIO, **values: object) -> None:
    out.write(json.dumps(values) + "\n")
    out.flush()


# -- the verdict ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    trends: dict[tuple[str, str], Trend]
    complaints: list[str]


def judge(record: Record, readers: int) -> Verdict:
    trends = {key: find_trend(points, TOLERANCES[key[1]]) for key, points in record.points.items()}
    complaints = [
        f"{measure} of {process} grew by {trend.growth:.1f}, {trend.allowed:.1f} is allowed"
        for (process, measure), trend in trends.items()
        if not trend.is_flat
    ]
    failures, asked = record.failed.total(), record.done.total() + record.failed.total()
    if failures > asked * MOST_FAILURES:
        complaints.append(f"{failures} of {asked} requests failed: {dict(record.failed)}")
    present = sorted(record.waiting)[len(record.waiting) // 2] if record.waiting else 0.0
    if present < readers * LEAST_READERS:
        complaints.append(f"{present:.0f} readers were there at the median, not {readers}")
    if not trends:
        complaints.append("nothing was sampled after the warm-up")
    return Verdict(trends, complaints)


def describe(verdict: Verdict, record: Record) -> str:
    lines = [f"{'process':12} {'measure':12} {'level':>9} {'growth':>9} {'allowed':>9}"]
    for (process, measure), trend in verdict.trends.items():
        mark = "" if trend.is_flat else "  GREW"
        lines.append(
            f"{process:12} {measure:12} {trend.level:9.1f} {trend.growth:+9.1f} "
            f"{trend.allowed:9.1f}{mark}"
        )
    counts = ", ".join(f"{what} {count:,}" for what, count in sorted(record.done.items()))
    lines += ["", f"done: {counts}", f"failed: {dict(record.failed) or 'nothing'}"]
    lines += ["", *verdict.complaints] if verdict.complaints else ["", "flat: nothing grew"]
    return "\n".join(lines)


async def soak(stage: Stage, options: argparse.Namespace, out: TextIO) -> tuple[Verdict, Record]:
    seconds = options.minutes * 60
    knobs = Knobs(seconds=seconds, readers=options.readers, rate=options.rate, size=256)
    session = Session(stage.target, read_tokens(stage.tokens.tokens), knobs, prefix="soak")
    try:
        await fill_memos(session, HEADS_EACH * options.gateways)
        await Crowd(session).begin()
        warm_up_s = options.warm_up * 60
        record = await watch(session, stage.processes, options.every, warm_up_s, out)
    finally:
        await session.finish()
        session.close()
    return judge(record, options.readers), record


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make soak", description="Minutes of mixed load.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=10.0, metavar="MINUTES")
    parser.add_argument("--readers", type=int, default=2000, help="live readers (2000)")
    parser.add_argument("--rate", type=float, default=10.0, help="appends a second (10)")
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--no-envoy", action="store_true", help="straight at one gateway")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples (5)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers go too
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    gateways = 1 if options.no_envoy else options.gateways
    try:
        with running_stage(FOLDER, gateways, envoy=not options.no_envoy) as stage:
            print(f"{options.readers} readers for {options.minutes:g} minutes", flush=True)
            with (FOLDER / "samples.jsonl").open("w") as out:
                verdict, record = uvloop.run(soak(stage, options, out))
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return 1
    print(describe(verdict, record))
    print(f"samples: {FOLDER / 'samples.jsonl'}")
    return 1 if verdict.complaints else 0
