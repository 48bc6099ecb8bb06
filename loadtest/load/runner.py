"""Runs one scenario: the crowd, a sample each second, the file and the view."""

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from loadtest.load.connection import Broken, Target, connect
from loadtest.load.gateway import parse_reads
from loadtest.load.histogram import Histogram, percentile
from loadtest.load.paced import Scenario
from loadtest.load.records import Ended, Gauges, Record, Second, Started, encode
from loadtest.load.session import Session
from loadtest.peers.memory import resident_bytes

OnSecond = Callable[[list[Second], Gauges], None]

TICK_S = 0.005
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Witness:
    """Where to see more than answers tell: the origin's own count of reads, a process's memory."""

    origin: Target | None = None
    pid: Callable[[], int] = lambda: 0

    async def look(self) -> dict[str, float]:
        seen: dict[str, float] = {}
        if self.origin is not None and (reads := await _origin_reads(self.origin)) is not None:
            seen["upstream"] = reads
        if (pid := self.pid()) and (resident := resident_bytes(pid)):
            seen["memory_mb"] = resident / 1e6
        return seen


async def _origin_reads(origin: Target) -> int | None:
    try:
        connection = await connect(origin)
        async with asyncio.timeout(5):
            reply = await connection.ask(METRICS, keep_body=True)
    except (Broken, TimeoutError):
        return None
    connection.close()
    return parse_reads(reply.body.decode())


class Recorder:
    """Writes each second as it passes."""

    def __init__(self, session: Session, witness: Witness, out: BinaryIO) -> None:
        self._session = session
        self._witness = witness
        self._out = out
        self._looks = 0
        self._upstream_before = 0.0
        self._cpu_before = time.process_time()
        self._at = time.perf_counter()
        self._begun = (self._cpu_before, self._at)

    async def begin(self) -> None:
        self._upstream_before = (await self._witness.look()).get("upstream", 0.0)
        self._looks = 0
        self._session.meter.take(0)  # what the setting-up did is not the scenario's
        self._begun = (time.process_time(), time.perf_counter())

    def end(self) -> None:
        cpu_before, before = self._begun
        took_s, meter = time.perf_counter() - before, self._session.meter
        self.write(
            Ended(
                seconds=took_s,
                generator_cores=(time.process_time() - cpu_before) / took_s,
                late_ms=_worst_ms(meter.lateness),
                lag_ms=_worst_ms(meter.lag),
                notes=self._session.notes,
            )
        )

    def write(self, record: Record) -> None:
        self._out.write(encode(record))
        self._out.flush()

    async def step(self, second: int) -> tuple[list[Second], Gauges]:
        seen = await self._witness.look()
        self._looks += 1
        if "upstream" in seen:  # our own looks are reads too
            seen["upstream"] -= self._upstream_before + self._looks
        now, cpu = time.perf_counter(), time.process_time()
        seen["generator_cores"] = (cpu - self._cpu_before) / (now - self._at)
        self._at, self._cpu_before = now, cpu
        seen["waiting"] = self._session.waiting
        seconds, gauges = self._session.meter.take(second), Gauges(second, seen)
        for record in seconds:
            self.write(record)
        self.write(gauges)
        return seconds, gauges


async def run_scenario(
    scenario: Scenario,
    session: Session,
    started: Started,
    witness: Witness,
    path: Path,
    on_second: OnSecond,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        recorder = Recorder(session, witness, out)
        recorder.write(started)
        begun = asyncio.Event()

        async def begin() -> None:
            await recorder.begin()
            begun.set()

        session.on_begin = begin
        recording = asyncio.create_task(_record(recorder, begun, on_second))
        watching = asyncio.create_task(_watch_own_loop(session, begun))
        try:
            await _crowd(scenario.run, session)
        finally:
            for task in (watching, recording):
                task.cancel()
            helped = await asyncio.gather(watching, recording, return_exceptions=True)
            await session.remove_streams()
        for error in helped:
            if isinstance(error, Exception):
                raise error
        recorder.end()


def _worst_ms(times: Histogram) -> float:
    return percentile(times, 0.99) * 1000 if times else 0.0


async def _watch_own_loop(session: Session, begun: asyncio.Event) -> None:
    """While we are busy, what arrives waits for us: times are then partly our own."""
    await begun.wait()
    due = time.perf_counter()
    while True:
        due += TICK_S
        await asyncio.sleep(due - time.perf_counter())
        now = time.perf_counter()
        session.meter.lagged(now - due, TICK_S)
        due = now


async def _crowd(run: Callable[[Session], Awaitable[None]], session: Session) -> None:
    try:
        await run(session)
    finally:
        await session.finish()


async def _record(recorder: Recorder, begun: asyncio.Event, on_second: OnSecond) -> None:
    await begun.wait()
    start, second = time.perf_counter(), 0
    try:
        while True:
            await asyncio.sleep(max(0.0, start + second + 1 - time.perf_counter()))
            on_second(*await recorder.step(second))
            second += 1
    finally:
        on_second(*await asyncio.shield(recorder.step(second)))


def describe(scenario: Scenario, session: Session, peer: str, target: str) -> Started:
    knobs = {name: float(value) for name, value in asdict(session.knobs).items()}
    return Started(scenario.name, peer, target, time.time(), knobs, describe_machine())


def describe_machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
