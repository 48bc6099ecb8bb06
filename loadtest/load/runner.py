"""Runs one scenario: the crowd, a sample each second, the file and the view."""

import asyncio
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from loadtest.gateway_scenarios import parse_reads
from loadtest.load.histogram import percentile
from loadtest.load.records import Ended, Gauges, Record, Second, Started, encode
from loadtest.load.scenarios import Scenario
from loadtest.load.session import Session
from loadtest.load.wires import Broken, Target, connect
from loadtest.memory import resident_bytes

OnSecond = Callable[[list[Second], Gauges], None]

METRICS = b"GET /metrics HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Witness:
    """Where to see more than answers tell: the origin's own count of reads, a process's memory."""

    origin: Target | None = None
    pid: int = 0

    async def look(self) -> dict[str, float]:
        seen: dict[str, float] = {}
        if self.origin is not None and (reads := await _origin_reads(self.origin)) is not None:
            seen["upstream"] = reads
        if self.pid and (resident := resident_bytes(self.pid)):
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

    async def begin(self) -> None:
        self._upstream_before = (await self._witness.look()).get("upstream", 0.0)
        self._looks = 0
        self._session.meter.take(0)  # what the setting-up did is not the scenario's

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
    cpu_before, before = time.process_time(), time.perf_counter()
    with path.open("wb") as out:
        recorder = Recorder(session, witness, out)
        recorder.write(started)
        begun = asyncio.Event()
        session.on_begin = begun.set
        recording = asyncio.create_task(_record(recorder, begun, on_second))
        try:
            await _crowd(scenario.run, session)
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)
        took_s = time.perf_counter() - before
        late_s = percentile(session.meter.lateness, 0.99)
        recorder.write(
            Ended(
                seconds=took_s,
                generator_cores=(time.process_time() - cpu_before) / took_s,
                late_ms=late_s * 1000 if session.meter.lateness else 0.0,
                notes=session.notes,
            )
        )


async def _crowd(run: Callable[[Session], Awaitable[None]], session: Session) -> None:
    try:
        await run(session)
    finally:
        await session.finish()


async def _record(recorder: Recorder, begun: asyncio.Event, on_second: OnSecond) -> None:
    await begun.wait()
    await recorder.begin()
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
    return {
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
    }
