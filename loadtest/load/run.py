"""`weir load SCENARIO`: one scenario on one target, seen as it runs and kept in a file."""

import asyncio
import os
import platform
import resource
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

import uvloop

from loadtest.load.client import fetch_metrics, parse_reads
from loadtest.load.connection import Broken, Target
from loadtest.load.histogram import Histogram, percentile
from loadtest.load.paced import SCENARIOS, Scenario
from loadtest.load.records import Ended, Gauges, Record, Run, Second, Started, encode, read_run
from loadtest.load.session import Knobs, Restart, Session
from loadtest.load.summary import summarise
from loadtest.load.view import View, closing_lines
from loadtest.peers.memory import resident_bytes

RESULTS = Path("load-results")
UP_AND_CLEAR = "\x1b[{}F\x1b[J"
RESTART_TIMEOUT_SECS = 60.0
TICK_SECS = 0.005

OnSecond = Callable[[list[Second], Gauges], None]


class Looks(Protocol):
    async def look(self) -> dict[str, float]:
        """Gauges of this moment."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Where to see more than answers tell: the origin's own count of reads, a process's memory."""

    origin: Target | None = None
    pid: Callable[[], int] = lambda: 0

    async def look(self) -> dict[str, float]:
        seen: dict[str, float] = {}
        if self.origin is not None:
            with suppress(Broken):
                seen["upstream"] = parse_reads(await fetch_metrics(self.origin))
        if (pid := self.pid()) and (resident := resident_bytes(pid)):
            seen["memory_mb"] = resident / 1e6
        return seen


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, on whom, and where the result goes."""

    scenario: Scenario
    url: str
    tokens: Sequence[str] = ()
    peer: str = "target"
    insecure: bool = False
    knobs: Knobs | None = None
    witness: Looks = Witness()
    restart: Restart | None = None
    prefix: str = "load"
    out: Path | None = None


def run_order(order: Order, sink: TextIO = sys.stdout) -> Run:
    """Run it to its end, and say what came of it."""
    return uvloop.run(carry_out(order, sink))


async def carry_out(order: Order, sink: TextIO) -> Run:
    path = order.out or RESULTS / result_name(order)
    await _run(order, path, sink)
    run = read_run(path)
    for line in closing_lines(summarise(run, order.scenario.headline), order.scenario.headline):
        print(line, file=sink)
    print(f"  kept in {path}", file=sink, flush=True)
    return run


def result_name(order: Order) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return f"{order.scenario.name}-{order.peer}-{stamp}.jsonl"


async def _run(order: Order, path: Path, sink: TextIO) -> None:
    scenario = order.scenario
    session = Session(
        Target.parse(order.url, insecure=order.insecure),
        order.tokens,
        order.knobs or scenario.knobs,
        # Nobody has met these streams before, no cache and no earlier run.
        prefix=f"{order.prefix}/{secrets.token_hex(4)}",
        restart=order.restart,
    )
    knobs = {name: float(value) for name, value in asdict(session.knobs).items()}
    started = Started(scenario.name, order.peer, order.url, time.time(), knobs, describe_machine())
    screen = Screen(View(started, scenario.headline, scenario.sentence(knobs)), sink)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        recorder = Recorder(session, order.witness, out)
        recorder.write(started)
        session.when_begun(recorder.begin)
        helpers = [
            asyncio.create_task(recorder.record(screen.show)),
            asyncio.create_task(recorder.watch_own_loop()),
        ]
        try:
            try:
                await scenario.run(session)
            finally:
                await session.finish()
        finally:
            for helper in helpers:
                helper.cancel()
            ended = await asyncio.gather(*helpers, return_exceptions=True)
            await session.remove_streams()
        for error in ended:
            if isinstance(error, Exception):
                raise error
        recorder.end()


class Recorder:
    """Writes each second as it passes, from when the scenario begins."""

    def __init__(self, session: Session, witness: Looks, out: BinaryIO) -> None:
        self._session = session
        self._witness = witness
        self._out = out
        self._begun = asyncio.Event()
        self._looks = 0
        self._upstream_before = 0.0
        self._start = self._last = (time.process_time(), time.perf_counter())

    def write(self, record: Record) -> None:
        self._out.write(encode(record))
        self._out.flush()

    async def begin(self) -> None:
        self._upstream_before = (await self._witness.look()).get("upstream", 0.0)
        self._looks = 0
        self._session.meter.take(0)  # what the setting-up did is not the scenario's
        self._start = (time.process_time(), time.perf_counter())
        self._begun.set()

    async def record(self, on_second: OnSecond) -> None:
        await self._begun.wait()
        start, second = time.perf_counter(), 0
        try:
            while True:
                await asyncio.sleep(max(0.0, start + second + 1 - time.perf_counter()))
                on_second(*await self._step(second))
                second += 1
        finally:
            on_second(*await asyncio.shield(self._step(second)))

    async def _step(self, second: int) -> tuple[list[Second], Gauges]:
        seen = await self._witness.look()
        self._looks += 1
        if "upstream" in seen:  # our own looks are reads too
            seen["upstream"] -= self._upstream_before + self._looks
        seen["generator_cores"] = _cores_since(self._last)
        self._last = (time.process_time(), time.perf_counter())
        seen["waiting"] = self._session.waiting
        seconds, gauges = self._session.meter.take(second), Gauges(second, seen)
        for record in seconds:
            self.write(record)
        self.write(gauges)
        return seconds, gauges

    async def watch_own_loop(self) -> None:
        """While we are busy, what arrives waits for us: times are then partly our own."""
        await self._begun.wait()
        due = time.perf_counter()
        while True:
            due += TICK_SECS
            await asyncio.sleep(due - time.perf_counter())
            now = time.perf_counter()
            self._session.meter.lagged(now - due, TICK_SECS)
            due = now

    def end(self) -> None:
        meter = self._session.meter
        self.write(
            Ended(
                seconds=time.perf_counter() - self._start[1],
                generator_cores=_cores_since(self._start),
                late_ms=_worst_ms(meter.lateness),
                lag_ms=_worst_ms(meter.lag),
                notes=self._session.notes,
            )
        )


def _cores_since(before: tuple[float, float]) -> float:
    """That we have used ourselves; `before` is (CPU time, time)."""
    cpu_s, at = before
    return (time.process_time() - cpu_s) / (time.perf_counter() - at)


def _worst_ms(times: Histogram) -> float:
    return percentile(times, 0.99) * 1000 if times else 0.0


class Screen:
    """Draws the board over itself on a terminal, a line a second elsewhere."""

    def __init__(self, view: View, sink: TextIO) -> None:
        self._view = view
        self._sink = sink
        self._draws = sink.isatty()
        self._tall = 0

    def show(self, seconds: list[Second], gauges: Gauges) -> None:
        self._view.take(seconds, gauges)
        if not self._draws:
            print(self._view.line(), file=self._sink, flush=True)
            return
        width = shutil.get_terminal_size().columns
        lines = [line[: width - 1] for line in self._view.board()]
        before = UP_AND_CLEAR.format(self._tall) if self._tall else ""
        print(before + "\n".join(lines), file=self._sink, flush=True)
        self._tall = len(lines)


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


def restart_by(command: str) -> Restart:
    """A shell command of the operator's own that restarts the target."""

    async def restart() -> None:
        process = await asyncio.create_subprocess_shell(command)
        async with asyncio.timeout(RESTART_TIMEOUT_SECS):
            await process.wait()

    return restart


def turn_knobs(scenario: Scenario, given: dict[str, float | None]) -> Knobs:
    """Readers, streams and bytes are whole; seconds and rates need not be."""
    whole = {field.name for field in fields(Knobs) if field.type is int}
    turned: dict[str, Any] = {
        name: int(value) if name in whole else value
        for name, value in given.items()
        if value is not None
    }
    return replace(scenario.knobs, **turned)


def find_scenario(name: str) -> Scenario:
    if name not in SCENARIOS:
        raise ValueError(f"there is no scenario {name}; there are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def raise_descriptor_limit() -> None:
    """A crowd needs a descriptor for each reader."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
