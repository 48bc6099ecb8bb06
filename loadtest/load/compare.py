"""`weir load compare`: the scenarios against Weir and what could stand in its place, in one run.

Every peer gets a fresh process in front of a fresh origin in memory, or is the origin itself; the
same load, one after another, on the same machine. Bare times move with the machine: what is told
is how many times better or worse than Weir each peer was.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load.connection import Target
from loadtest.load.goals import ENVOY, NGINX, NODE, OURS, VARNISH
from loadtest.load.paced import SCENARIOS, Scenario, tokens_wanted
from loadtest.load.page import write_report
from loadtest.load.program import RESULTS, Order, run_order
from loadtest.load.records import Run
from loadtest.load.results import render_results
from loadtest.load.runner import Witness
from loadtest.load.session import Knobs, SetupFailed
from loadtest.peers.memory import OtherWork
from loadtest.peers.process import Server, Start, run_process
from loadtest.peers.servers import (
    PROXIES,
    WITHOUT_ORIGIN,
    Stage,
    ensure_proxy,
    free_port,
    start_origin,
    version_of,
)
from loadtest.peers.tokens import read_tokens, write_tokens

PEERS = (OURS, NODE, NGINX, VARNISH, ENVOY)
WORDS = {OURS: "weir", NODE: "node", NGINX: "nginx", VARNISH: "varnish", ENVOY: "envoy"}
WITHOUT_CACHE = frozenset({NODE})
CHECKS_TOKENS = frozenset({OURS, ENVOY})
SCOPE = "read:load/* write:load/* create:load/*"


def peers_of(scenario: Scenario, available: list[str]) -> list[str]:
    """A scenario of caches or tokens tells nothing of those who have none."""
    if scenario.name == "cold":
        return [peer for peer in available if peer not in WITHOUT_CACHE]
    if scenario.name == "tokens":
        return [peer for peer in available if peer in CHECKS_TOKENS]
    return available


def compare(docs: Path, *, seconds: float | None = None) -> None:
    missing: list[str] = []
    available = list(_available(missing))
    versions = [version_of(peer) for peer in available]
    others = OtherWork([])
    runs: list[Run] = []
    for scenario in SCENARIOS.values():
        for peer in peers_of(scenario, available):
            try:
                runs.append(_measure(scenario, peer, seconds))
            except (RunFailedError, SetupFailed) as error:
                missing.append(f"{scenario.name} on {WORDS[peer]}: {error}")
                print(f"  failed: {error}", flush=True)
        if runs:  # after each, so that a run that is broken off has told what it knows
            (docs / "results.md").write_text(
                render_results(runs, others.cores(), versions, missing)
            )
    if not runs:
        raise RunFailedError("; ".join(missing))
    page = write_report(runs, RESULTS, images=docs / "images")
    print(f"open {page}, or read {docs / 'results.md'}")


def _available(missing: list[str]) -> Iterator[str]:
    for peer in PEERS:
        try:
            ensure_proxy(peer)
        except UnavailableError as error:
            missing.append(f"{WORDS[peer]}: {error}")
            print(f"without {peer}: {error}", flush=True)
        else:
            yield peer


def _measure(scenario: Scenario, peer: str, seconds: float | None) -> Run:
    knobs = scenario.knobs
    if seconds is not None and scenario.name != "rotation":
        knobs = replace(knobs, seconds=seconds)
    print(f"\n{scenario.name} on {WORDS[peer]}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="weir-load-") as folder,
        _stage(Path(folder), scenario, knobs) as stage,
    ):
        return _measure_on(stage, scenario, peer, knobs)


@contextmanager
def _stage(folder: Path, scenario: Scenario, knobs: Knobs) -> Iterator[Stage]:
    tokens = write_tokens(folder, tokens_wanted(knobs) if scenario.name == "tokens" else 100, SCOPE)
    (folder / "origin").mkdir()
    with run_process(start_origin(folder / "origin"), folder / "origin.log") as origin:
        yield Stage(folder / "peer", origin.port, tokens)


class _Box:
    """One peer, which can be restarted where it was."""

    def __init__(self, peer: str, stage: Stage) -> None:
        stage.folder.mkdir()
        self._start = fix_port(PROXIES[peer](stage))
        self._log = stage.folder / "log"
        self._running = ExitStack()
        self.pid = 0

    def start(self) -> Server:
        server = self._running.enter_context(run_process(self._start, self._log))
        self.pid = server.pid
        return server

    def stop(self) -> None:
        self._running.close()

    async def restart(self) -> None:
        await asyncio.to_thread(self.stop)
        await asyncio.to_thread(self.start)


def fix_port(start: Start) -> Start:
    """Instead of any port one that stays the same."""
    command, port = list(start.command), free_port()
    if "--port" not in command:
        return start
    command[command.index("--port") + 1] = str(port)
    return replace(start, command=command, port=port)


def _measure_on(stage: Stage, scenario: Scenario, peer: str, knobs: Knobs) -> Run:
    box = _Box(peer, stage)
    try:
        server = box.start()
        origin = None if peer in WITHOUT_ORIGIN else Target("127.0.0.1", stage.origin_port)
        order = Order(
            scenario,
            f"http://127.0.0.1:{server.port}",
            tokens=read_tokens(stage.tokens.tokens),
            peer=WORDS[peer],
            knobs=knobs,
            witness=Witness(origin, lambda: box.pid),
            restart=box.restart,
            out=RESULTS / f"{scenario.name}-{WORDS[peer]}.jsonl",
        )
        return run_order(order)
    finally:
        box.stop()
