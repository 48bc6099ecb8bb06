"""Runs wrk, a load generator in C that leaves the CPU to the server, and reads its result."""

import re
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from loadtest.errors import RunFailedError
from loadtest.peers.debian import ensure_debian

SCRIPT = Path(__file__).with_name("requests.lua")
REPLY_TIMEOUT_SECS = 10


@dataclass(frozen=True, slots=True)
class WrkResult:
    requests: int
    duration_s: float
    received_bytes: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    bad_statuses: int
    broken: int

    @property
    def rate(self) -> float:
        return self.requests / self.duration_s


class Lane(NamedTuple):
    """Streams, and the port where requests for them go."""

    port: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Connections that send one kind of request round the streams PREFIX-0, PREFIX-1 ..."""

    method: str
    prefix: str
    streams: int
    connections: int
    body_bytes: int = 0
    unlike: bool = False
    tokens: Path | None = None
    lanes: tuple[Lane, ...] = ()
    """Instead of numbered streams at one port; each has its part of the connections."""
    access_key: str = ""
    """Of those who are asked in lanes."""

    @property
    def threads(self) -> int:
        """One for each lane. Every thread has as many connections, so that of 64 in 3 lanes there
        are 63."""
        return min(max(len(self.lanes), 1), self.connections)

    @property
    def words(self) -> list[str]:
        """For requests.lua."""
        words = [self.method, self.prefix, str(self.streams), str(self.body_bytes)]
        if self.lanes:
            lanes = (f"{lane.port}:{','.join(lane.paths)}" for lane in self.lanes)
            return [*words, "lanes", self.access_key, *lanes]
        words += ["unlike"] if self.unlike else []
        return words + ([str(self.tokens)] if self.tokens else [])


def parse_result(output: str) -> WrkResult:
    """The line that requests.lua prints at the end, or an error if it is missing."""
    found = re.search(r"^RESULT (.+)$", output, re.MULTILINE)
    if not found:
        raise RunFailedError(f"wrk gave no result: {output.strip()[-200:]}")
    fields = dict(pair.split("=") for pair in found[1].split())
    return WrkResult(
        requests=int(fields["requests"]),
        duration_s=int(fields["duration_us"]) / 1e6,
        received_bytes=int(fields["bytes"]),
        p50_ms=int(fields["p50_us"]) / 1e3,
        p99_ms=int(fields["p99_us"]) / 1e3,
        max_ms=int(fields["max_us"]) / 1e3,
        bad_statuses=int(fields["status"]),
        broken=int(fields["broken"]),
    )


def check_result(result: WrkResult) -> None:
    """A figure counts only if every request was answered with success."""
    if result.bad_statuses:
        raise RunFailedError(f"{result.bad_statuses} answers of {result.requests} were errors")
    if result.broken:
        raise RunFailedError(f"{result.broken} requests broke or timed out")
    if not result.requests:
        raise RunFailedError("no request was answered")


def ensure_wrk() -> None:
    ensure_debian("wrk", "wrk")


def run_wrk(port: int, load: Load, seconds: float) -> tuple[WrkResult, float]:
    """Run the load; the checked result and the CPU seconds that wrk itself took."""
    before = _children_cpu_s()
    command = ["wrk", f"-t{load.threads}", f"-c{load.connections}"]
    command += [
        f"-d{max(round(seconds), 1)}s",
        f"--timeout={REPLY_TIMEOUT_SECS}s",
        f"--script={SCRIPT}",
        f"http://127.0.0.1:{port}",
    ]
    command += ["--", *load.words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + 60, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError("wrk did not end") from error
    result = parse_result(done.stdout + done.stderr)
    check_result(result)
    return result, _children_cpu_s() - before


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
