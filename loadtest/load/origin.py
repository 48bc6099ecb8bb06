"""What is measured.

A `Contest` prepares each running server once and then loads one after the other, round by round.
A `Trial` is of our server alone: it starts it more than once on the same data, or looks at the
same data in more than one way.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.load.client import (
    WrongAnswerError,
    check_stream,
    create_streams,
    fill_stream,
    read_tails,
)
from loadtest.load.goals import OURS
from loadtest.load.wrk import Load, WrkResult, run_wrk
from loadtest.peers.memory import MB, cpu_seconds, resident_bytes, watch_memory
from loadtest.peers.process import Server

STREAMS = 64
APPEND_BYTES = 100
READ_BYTES = 1024
BULK_BYTES = 1 << 20
CROWD_READERS = 1000
CROWD_PIECES, CROWD_PIECE_BYTES = 20, 100_000
IDLE_STREAMS = 100_000
BIG_PIECES, BIG_PIECE_BYTES = 500, 1_000_000
CLIENT_TIMEOUT_S = 240
SHORTEST_CPU_S = 0.01  # what the kernel's clock can tell from nothing


@dataclass(frozen=True, slots=True)
class Plan:
    """How often, how long and how much; the quick plan trades certainty for time."""

    rounds: int = 7
    crowd_rounds: int = 3
    warm_up_s: float = 1.0
    load_s: float = 2.0
    bulk_s: float = 1.5
    fanout_s: float = 2.0
    paced_s: float = 2.0
    lines: int = 10_000_000  # of access logs
    folder: Path = Path(".bench")  # for what trials write themselves
    peers: tuple[str, ...] = ()  # who may take part in a trial beside ours


QUICK = Plan(
    rounds=1, crowd_rounds=1, load_s=1.0, bulk_s=1.0, fanout_s=1.0, paced_s=1.0, lines=500_000
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one run, and who used how much CPU meanwhile (1 = one core)."""

    figures: Mapping[str, float]
    server_cpu: float | None = None
    client_cpu: float | None = None


Launch = Callable[[], AbstractContextManager[Server]]
Sides = Mapping[str, Sequence[Sample]]
"""The rounds of those who are compared; most trials have `OURS` only."""


@dataclass(frozen=True, slots=True)
class Contest:
    name: str
    label: str
    prepare: Callable[[Server, Plan], None]
    measure: Callable[[Server, Plan], Sample]
    count_rounds: Callable[[Plan], int] = lambda plan: plan.rounds
    in_quick: bool = True
    needs_wrk: bool = False
    peers: tuple[str, ...] | None = None
    """Those who can take part; None: all."""


@dataclass(frozen=True, slots=True)
class Trial:
    name: str
    label: str
    run: Callable[[Launch, Plan], Sides]
    in_quick: bool = True
    needs_wrk: bool = False


def contest_appends(name: str, label: str, connections: int, unlike: bool = False) -> Contest:
    load = Load("POST", name, connections, connections, APPEND_BYTES, unlike)
    paths = [f"{name}-{number}" for number in range(connections)]

    def prepare(server: Server, plan: Plan) -> None:
        create_streams(server.port, paths)
        run_wrk(server.port, load, plan.warm_up_s)

    def measure(server: Server, plan: Plan) -> Sample:
        before = sum(read_tails(server.port, paths))
        result, sample = measure_wrk(server, load, plan)
        stored = sum(read_tails(server.port, paths)) - before
        if stored < result.requests * APPEND_BYTES:
            raise WrongAnswerError(f"{result.requests} appends answered, {stored} bytes stored")
        return sample

    return Contest(name, label, prepare, measure, in_quick=not unlike, needs_wrk=True)


def contest_reads(name: str, label: str) -> Contest:
    load = Load("GET", name, 1, STREAMS)

    def prepare(server: Server, plan: Plan) -> None:
        content = bytes(range(256)) * (READ_BYTES // 256)
        fill_stream(server.port, f"{name}-0", [content])
        check_stream(server.port, f"{name}-0", content)
        run_wrk(server.port, load, plan.warm_up_s)

    def measure(server: Server, plan: Plan) -> Sample:
        result, sample = measure_wrk(server, load, plan)
        if result.received_bytes < result.requests * READ_BYTES:
            raise WrongAnswerError(f"{result.requests} reads gave {result.received_bytes} bytes")
        return sample

    return Contest(name, label, prepare, measure, needs_wrk=True)


def measure_wrk(server: Server, load: Load, plan: Plan) -> tuple[WrkResult, Sample]:
    cpu_before = cpu_seconds(server.pid)
    result, client_cpu_s = run_wrk(server.port, load, plan.load_s)
    server_cpu_s = cpu_seconds(server.pid) - cpu_before
    figures = {"rate": result.rate, "p50": result.p50_ms, "p99": result.p99_ms}
    figures["per core"] = result.requests / max(server_cpu_s, SHORTEST_CPU_S)
    took_s = result.duration_s
    return result, Sample(figures, server_cpu_s / took_s, client_cpu_s / took_s)


def contest_bulk(name: str, label: str, connections: int) -> Contest:
    options = [name, str(connections), str(BULK_BYTES)]

    def prepare(server: Server, plan: Plan) -> None:
        create_streams(server.port, [f"{name}-{number}" for number in range(connections)])
        run_client("bulk", server.port, *options, "0.3")

    def measure(server: Server, plan: Plan) -> Sample:
        cpu_before = cpu_seconds(server.pid)
        result = run_client("bulk", server.port, *options, str(plan.bulk_s))
        figures = {"rate": result["rate"], "p50": result["p50_ms"], "p99": result["p99_ms"]}
        return _with_cpu(figures, server, cpu_before, result, plan.bulk_s)

    return Contest(name, label, prepare, measure)


def contest_crowd(name: str, label: str) -> Contest:
    total = str(CROWD_PIECES * CROWD_PIECE_BYTES)

    def prepare(server: Server, plan: Plan) -> None:
        pieces = [bytes([65 + piece]) * CROWD_PIECE_BYTES for piece in range(CROWD_PIECES)]
        fill_stream(server.port, name, pieces)
        check_stream(server.port, name, b"".join(pieces))
        run_client("crowd", server.port, name, "20", total)

    def measure(server: Server, plan: Plan) -> Sample:
        cpu_before = cpu_seconds(server.pid)
        result = run_client("crowd", server.port, name, str(CROWD_READERS), total)
        took_s = result["last_byte_s"]
        return _with_cpu({"last byte": took_s}, server, cpu_before, result, took_s)

    return Contest(name, label, prepare, measure, lambda plan: plan.crowd_rounds)


def _with_cpu(
    figures: Mapping[str, float],
    server: Server,
    cpu_before: float,
    result: Mapping[str, float],
    took_s: float,
) -> Sample:
    server_cpu_s = cpu_seconds(server.pid) - cpu_before
    return Sample(figures, server_cpu_s / took_s, result["client_cpu_s"] / took_s)


def try_idle(launch: Launch, plan: Plan) -> Sides:
    """Resident size with many streams, as made and as found after a restart: the larger."""
    paths = [f"idle/{number // 1000}/{number}" for number in range(IDLE_STREAMS)]
    with launch() as server:
        start = time.perf_counter()
        create_streams(server.port, paths, b"x" * APPEND_BYTES)
        create_s = time.perf_counter() - start
        made = resident_bytes(server.pid)
    with launch() as server:
        start = time.perf_counter()
        read_tails(server.port, [paths[0], paths[-1]])
        ready_s = server.ready_s + time.perf_counter() - start
        found = resident_bytes(server.pid)
    figures = {"resident": max(made, found) / MB, "ready": ready_s}
    more = {"made": made / MB, "found": found / MB, "create_s": create_s}
    return {OURS: [Sample({**figures, **more})]}


def try_bigread(launch: Launch, plan: Plan) -> Sides:
    """How far the resident size rises above that of a fresh start while one reader reads all."""
    piece = bytes(range(250)) * (BIG_PIECE_BYTES // 250)
    with launch() as server:
        fill_stream(server.port, "big", [piece] * BIG_PIECES)
    with launch() as server:
        read_tails(server.port, ["big"])
        with watch_memory(server.pid) as peak:
            total = str(BIG_PIECES * BIG_PIECE_BYTES)
            result = run_client("crowd", server.port, "big", "1", total)
    figures = {"growth": (peak.highest - peak.start) / MB}
    more = {"start": peak.start / MB, "read_s": result["last_byte_s"]}
    return {OURS: [Sample({**figures, **more})]}


SCENARIOS: tuple[Contest | Trial, ...] = (
    contest_appends("append64", "append 100 B, 64 connections", STREAMS),
    contest_appends("unlike64", "the same, all heads unlike", STREAMS, unlike=True),
    contest_appends("append1", "append 100 B, 1 connection", 1),
    contest_reads("read64", "read 1 KiB, 64 connections"),
    contest_bulk("bulk1", "append 1 MiB, 1 connection", 1),
    contest_bulk("bulk4", "append 1 MiB, 4 connections", 4),
    contest_crowd("crowd", "1,000 readers of 2 MB"),
    Trial("idle", "100,000 idle streams", try_idle, in_quick=False),
    Trial("bigread", "reading a 500 MB stream", try_bigread),
)


def run_client(kind: str, port: int, *arguments: str) -> dict[str, float]:
    return run_load("loadtest.load.client", kind, str(port), *arguments)


def run_load(module: str, *arguments: str) -> dict[str, float]:
    """One of our clients in a process of its own; what it printed."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError("the client did not end") from error
    if done.returncode:
        raise RunFailedError(f"client: {done.stderr.strip()[-300:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result
