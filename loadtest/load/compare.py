"""The scenarios of `weir load` on Weir and on what could stand in its place.

Load is paced, so one long round tells more than many short ones. Each run is also kept by itself,
for the charts.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

from loadtest.load.connection import Target
from loadtest.load.contest import Contest, Plan, Sample
from loadtest.load.goals import Measure, less, more
from loadtest.load.histogram import percentile
from loadtest.load.paced import SCENARIOS as PACED
from loadtest.load.paced import Scenario, tokens_wanted
from loadtest.load.records import Run
from loadtest.load.run import RESULTS, Order, Witness, carry_out
from loadtest.load.summary import HOME, summarise
from loadtest.peers.names import ENVOY, NGINX, NODE, OURS, VARNISH
from loadtest.peers.process import Server
from loadtest.peers.tokens import read_tokens

PEERS = (OURS, NODE, NGINX, VARNISH, ENVOY)
SCOPE = "read:load/* write:load/* create:load/*"
TOKENS = tokens_wanted(PACED["tokens"].knobs)


def contest(scenario: Scenario) -> Contest:
    async def prepare(server: Server, plan: Plan) -> None:
        """Nothing: the load meets a server as it was started."""

    async def measure(server: Server, plan: Plan) -> Sample:
        run = await carry_out(build_order(scenario, server, plan), sys.stderr)
        return take_sample(run, scenario.headline)

    return Contest(
        f"load-{scenario.name}",
        scenario.name,
        measures_of(scenario),
        prepare,
        measure,
        count_rounds=lambda plan: 1,
        in_quick=not scenario.least_s,
        peers=scenario.peers,
    )


def measures_of(scenario: Scenario) -> tuple[Measure, ...]:
    return (
        less("p50", "ms"),
        less("p99", "ms", *scenario.goals),
        more("rate", "/s"),
        less("failed", "requests"),
        less("readers'", "requests"),
        less("at origin", "requests"),
        less("peak", "MB"),
        less("away", "s"),
    )


def build_order(scenario: Scenario, server: Server, plan: Plan) -> Order:
    assert server.process is not None and server.tokens is not None
    process, knobs = server.process, scenario.knobs
    if plan.seconds is not None:
        knobs = replace(knobs, seconds=max(plan.seconds, scenario.least_s))
    return Order(
        scenario,
        f"http://127.0.0.1:{server.port}",
        tokens=read_tokens(server.tokens),
        peer=name_of(server.name),
        knobs=knobs,
        witness=Witness(
            Target.local(server.origin_port) if server.origin_port else None, lambda: process.pid
        ),
        restart=process.restart,
        out=run_path(scenario.name, server.name),
    )


def name_of(peer: str) -> str:
    return HOME if peer == OURS else peer


def run_path(scenario: str, peer: str) -> Path:
    return RESULTS / f"{scenario}-{name_of(peer)}.jsonl"


def take_sample(run: Run, headline: str) -> Sample:
    summary = summarise(run, headline)
    figures = {
        "p50": summary.p50_ms,
        "p99": summary.p99_ms,
        "rate": summary.rate,
        "failed": summary.failed,
        "readers'": summary.asked or math.nan,
        "at origin": summary.upstream if summary.asked else math.nan,
        "peak": summary.peak_mb,
        "away": percentile(run.times("restart"), 1.0),
    }
    known = {name: value for name, value in figures.items() if not math.isnan(value)}
    return Sample(known, notes=summary.limits)


SCENARIOS = tuple(map(contest, PACED.values()))
