"""`weir load compare`: the scenarios against Weir and what could stand in its place, in one run.

Every peer gets a fresh process in front of a fresh origin in memory, or is the origin itself; the
same load, one after another, on the same machine. Bare times move with the machine: what is told
is how many times better or worse than Weir each peer was.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load.connection import Target
from loadtest.load.paced import SCENARIOS, Scenario
from loadtest.load.page import write_report
from loadtest.load.records import Run
from loadtest.load.results import render_results
from loadtest.load.run import RESULTS, Order, Witness, run_order
from loadtest.load.suites import open_gateway_stage
from loadtest.peers.memory import OtherWork
from loadtest.peers.names import ENVOY, NGINX, NODE, OURS, VARNISH
from loadtest.peers.servers import PROXIES
from loadtest.peers.tokens import read_tokens

PEERS = (OURS, NODE, NGINX, VARNISH, ENVOY)
HOME = {OURS: "weir"}
SCOPE = "read:load/* write:load/* create:load/*"
TOKENS = 100


def compare(docs: Path, *, seconds: float | None = None) -> None:
    missing: list[str] = []
    available = list(_available(missing))
    versions = [PROXIES[peer].version() for peer in available]
    others = OtherWork([])
    runs: list[Run] = []
    for scenario in SCENARIOS.values():
        for peer in available:
            if peer not in scenario.peers:
                continue
            try:
                runs.append(_measure(scenario, peer, seconds))
            except RunFailedError as error:
                missing.append(f"{scenario.name} on {HOME.get(peer, peer)}: {error}")
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
            PROXIES[peer].ensure()
        except UnavailableError as error:
            missing.append(f"{HOME.get(peer, peer)}: {error}")
            print(f"without {peer}: {error}", flush=True)
        else:
            yield peer


def _measure(scenario: Scenario, peer: str, seconds: float | None) -> Run:
    knobs, name = scenario.knobs, HOME.get(peer, peer)
    if seconds is not None:
        knobs = replace(knobs, seconds=max(seconds, scenario.least_s))
    tokens = scenario.wants_tokens(knobs) if scenario.wants_tokens else TOKENS
    print(f"\n{scenario.name} on {name}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="weir-load-") as folder,
        open_gateway_stage(Path(folder), PROXIES, tokens, SCOPE) as launch,
        launch(peer) as server,
    ):
        assert server.process is not None and server.tokens is not None
        order = Order(
            scenario,
            f"http://127.0.0.1:{server.port}",
            tokens=read_tokens(server.tokens),
            peer=name,
            knobs=knobs,
            witness=Witness(
                Target.local(server.origin_port) if server.origin_port else None,
                lambda: server.process.pid if server.process else 0,
            ),
            restart=server.process.restart,
            out=RESULTS / f"{scenario.name}-{name}.jsonl",
        )
        return run_order(order)
