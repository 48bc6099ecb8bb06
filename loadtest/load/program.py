"""`weir load SCENARIO`: one scenario on one target, seen as it runs."""

import asyncio
import resource
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO

import uvloop

from loadtest.load.connection import Target
from loadtest.load.paced import SCENARIOS, Scenario
from loadtest.load.records import Gauges, Run, Second, read_run
from loadtest.load.runner import Witness, describe, run_scenario
from loadtest.load.session import Knobs, Restart, Session
from loadtest.load.summary import summarise
from loadtest.load.view import View, closing_lines

RESULTS = Path("load-results")
UP_AND_CLEAR = "\x1b[{}F\x1b[J"
RESTART_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, on whom, and where the result goes."""

    scenario: Scenario
    url: str
    tokens: Sequence[str] = ()
    peer: str = "target"
    insecure: bool = False
    knobs: Knobs | None = None
    witness: Witness = Witness()
    restart: Restart | None = None
    prefix: str = "load"
    out: Path | None = None


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


def run_order(order: Order, sink: TextIO = sys.stdout) -> Run:
    """Run it to its end, and say what came of it."""
    path = order.out or RESULTS / result_name(order)
    uvloop.run(_run(order, path, sink))
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
    started = describe(scenario, session, order.peer, order.url)
    view = View(started, scenario.headline, scenario.sentence(started.knobs))
    screen = Screen(view, sink)
    await run_scenario(scenario, session, started, order.witness, path, screen.show)


def restart_by(command: str) -> Restart:
    """A shell command of the operator's own that restarts the target."""

    async def restart() -> None:
        process = await asyncio.create_subprocess_shell(command)
        async with asyncio.timeout(RESTART_TIMEOUT_S):
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
