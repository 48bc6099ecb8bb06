"""What is measured of the gateway, beside what could stand in its place.

Everyone gets the same requests, tokens included; streams are new for each server and round, so
that nothing is cached which the scenario does not want cached.
"""

import re
import time
from collections.abc import Iterable
from itertools import count, cycle

from loadtest.load.client import (
    SETUP_TIMEOUT_S,
    WrongAnswerError,
    build_request,
    create_streams,
    expect,
)
from loadtest.load.exchange import Script, run_scripts
from loadtest.load.goals import ENVOY, NCHAN, NGINX, NODE, OURS, PLAIN_ENVOY, VARNISH
from loadtest.load.origin import READ_BYTES, Contest, Plan, Sample, measure_wrk, run_load
from loadtest.load.replies import Reply
from loadtest.load.wrk import Load, run_wrk
from loadtest.peers.memory import cpu_seconds
from loadtest.peers.process import Server
from loadtest.peers.tokens import read_tokens

TOKENS = 1000
STREAMS = 100
CONNECTIONS = 64
POLLS = 1000
SSE_READERS = 500
IDLE_READERS = 2000
MISSES_PER_S = 200
CONTENT = bytes(range(256)) * (READ_BYTES // 256)

_numbers = count()


def new_path(name: str) -> str:
    """Below `bench/`, which the tokens' scope names."""
    return f"bench/{name}-{next(_numbers)}"


def contest_cached() -> Contest:
    """Reads of small closed streams that are all in the cache already."""

    def prefix(server: Server) -> str:
        return f"bench/cached-{server.port}"

    def paths(server: Server) -> list[str]:
        return [f"{prefix(server)}-{number}" for number in range(STREAMS)]

    def prepare(server: Server, plan: Plan) -> None:
        create_streams(server.write_port, paths(server), CONTENT, closed=True)
        read_once(server, paths(server))
        run_wrk(server.port, load(server), plan.warm_up_s)

    def load(server: Server) -> Load:
        return Load("GET", prefix(server), STREAMS, CONNECTIONS, tokens=server.tokens)

    def measure(server: Server, plan: Plan) -> Sample:
        read_once(server, paths(server))  # what has become stale is fresh again
        before = count_origin_reads(server)
        result, sample = measure_wrk(server, load(server), plan)
        if result.received_bytes < result.requests * READ_BYTES:
            raise WrongAnswerError(f"{result.requests} reads gave {result.received_bytes} bytes")
        if (missed := count_origin_reads(server, before)) > result.requests / 100:
            raise WrongAnswerError(f"{missed} of {result.requests} reads went to the origin")
        return sample

    peers = (OURS, NGINX, VARNISH, ENVOY, PLAIN_ENVOY)
    label = "cached reads of 1 KiB, 1,000 tokens"
    return Contest("cached", label, prepare, measure, needs_wrk=True, peers=peers)


def read_once(server: Server, paths: Iterable[str]) -> None:
    """Read every stream through the server and look at each byte."""
    tokens = read_tokens(server.tokens) if server.tokens else [""]
    script = _read_all(zip(paths, cycle(tokens), strict=False))
    run_scripts(server.port, [script], timeout_s=SETUP_TIMEOUT_S, keep_bodies=True)


def _read_all(reads: Iterable[tuple[str, str]]) -> Script:
    for path, token in reads:
        lines = [f"Authorization: Bearer {token}"]
        reply = yield build_request("GET", path, query="?offset=-1", lines=lines)
        expect(reply, 200)
        if reply.body != CONTENT:
            raise WrongAnswerError("the bytes read are not the bytes written")


def count_origin_reads(server: Server, before: int | None = None) -> int:
    """GET requests that the origin of this server has answered, or has since we last looked."""
    if not server.origin_port:
        return 0
    replies: list[Reply] = []
    script = _fetch_metrics(replies)
    run_scripts(server.origin_port, [script], timeout_s=SETUP_TIMEOUT_S, keep_bodies=True)
    reads = parse_reads(replies[0].body.decode())
    return reads if before is None else reads - before - 1  # the last look is one of them


def _fetch_metrics(replies: list[Reply]) -> Script:
    replies.append((yield b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))


def parse_reads(text: str) -> int:
    found = re.findall(r'^weir_origin_requests_total\{method="GET".*\} (\S+)$', text, re.MULTILINE)
    return sum(int(float(value)) for value in found)


def contest_polls() -> Contest:
    def prepare(server: Server, plan: Plan) -> None:
        run_live("polls", server, POLLS)  # every token has been seen, every thread exists

    def measure(server: Server, plan: Plan) -> Sample:
        before = count_origin_reads(server)
        result = run_live("polls", server, POLLS)
        figures = {"last answer": result["took_s"] * 1000}
        if server.origin_port:
            figures["at origin"] = count_origin_reads(server, before)
        return Sample(figures, client_cpu=result["client_cpu_s"] / result["took_s"])

    peers = (OURS, NGINX, VARNISH, ENVOY, NODE)
    return Contest("polls", "1,000 long-polls, one append", prepare, measure, peers=peers)


def contest_fanout() -> Contest:
    def prepare(server: Server, plan: Plan) -> None:
        run_live("fanout", server, SSE_READERS, "--seconds", "0.5")

    def measure(server: Server, plan: Plan) -> Sample:
        cpu_before, start = cpu_seconds(server.pid), time.perf_counter()
        result = run_live("fanout", server, SSE_READERS, "--seconds", str(plan.fanout_s))
        server_cpu = (cpu_seconds(server.pid) - cpu_before) / (time.perf_counter() - start)
        figures = {name: result[name] for name in ("events", "messages", "window")}
        return Sample(figures, server_cpu, result["client_cpu_s"] / result["took_s"])

    peers = (OURS, NODE, NCHAN)
    return Contest("fanout", "SSE to 500 readers, delivered", prepare, measure, peers=peers)


def contest_misses() -> Contest:
    def prepare(server: Server, plan: Plan) -> None:
        run_paced(server, 1.0)

    def measure(server: Server, plan: Plan) -> Sample:
        result = run_paced(server, plan.paced_s)
        figures = {
            "added p50": result["p50_ms"] - result["direct_p50_ms"],
            "p50": result["p50_ms"],
            "p99": result["p99_ms"],
            "direct p50": result["direct_p50_ms"],
        }
        return Sample(figures, client_cpu=result["client_cpu_s"] / result["took_s"])

    peers = (OURS, NGINX, VARNISH, ENVOY)
    return Contest("miss", "200 misses a second", prepare, measure, peers=peers)


def contest_readers() -> Contest:
    """Once only: a process that has held readers before gives nothing back to the system."""

    def prepare(server: Server, plan: Plan) -> None:
        run_live("idle", server, 5)  # what the first reader alone brings in is not his fault

    def measure(server: Server, plan: Plan) -> Sample:
        result = run_live("idle", server, IDLE_READERS)
        return Sample({"resident": result["bytes_each"] / 1024, **result})

    peers = (OURS, NODE, NCHAN)
    label = "2,000 idle SSE readers, each"
    return Contest("readers", label, prepare, measure, lambda plan: 1, peers=peers)


GATEWAY_SCENARIOS = (
    contest_cached(),
    contest_polls(),
    contest_fanout(),
    contest_misses(),
    contest_readers(),
)


def run_live(kind: str, server: Server, readers: int, *options: str) -> dict[str, float]:
    ports = [str(server.port), str(server.write_port), str(server.pid)]
    place = [new_path(kind), str(readers), str(server.tokens)]
    return run_load("loadtest.load.live", kind, *ports, *place, *options)


def run_paced(server: Server, seconds: float) -> dict[str, float]:
    ports = [str(server.port), str(server.write_port)]
    pace = [str(round(seconds * MISSES_PER_S)), str(MISSES_PER_S)]
    return run_load("loadtest.load.lanes", *ports, new_path("miss"), *pace, str(server.tokens))
