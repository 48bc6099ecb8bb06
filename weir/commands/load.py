"""`weir load`: runs a scenario against a server; charts and comparisons of results."""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gateway.devkeys import DEFAULT_KEY, DEV_AUDIENCE, DEV_ISSUER, sign_token
from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load import bench
from loadtest.load.connection import Target
from loadtest.load.paced import SCENARIOS
from loadtest.load.records import read_run
from loadtest.load.report import read_kept, write_docs, write_report
from loadtest.load.run import (
    RESULTS,
    Order,
    Witness,
    find_scenario,
    raise_descriptor_limit,
    restart_by,
    run_order,
    turn_knobs,
)
from loadtest.peers.tokens import read_tokens
from weir.client.access import TOKEN_VARIABLE
from weir.commands.token import ALL_SCOPES
from weir.exits import RequestFailed
from wire.settings import SettingsError

HOME, ORIGIN = "http://127.0.0.1:8080", "http://127.0.0.1:4437"
TOKEN_SECS = 3600
KNOBS = ("seconds", "readers", "streams", "rate", "size")


def run(arguments: argparse.Namespace) -> int:
    raise_descriptor_limit()
    match arguments.scenario:
        case "list":
            for scenario in SCENARIOS.values():
                print(f"{scenario.name:<10} {scenario.tells}")
        case "report":
            _report(arguments)
        case "compare":
            _compare(arguments)
        case _:
            _run(arguments)
    return 0


def _run(arguments: argparse.Namespace) -> None:
    try:
        scenario = find_scenario(arguments.scenario)
        order = Order(
            scenario,
            arguments.target or HOME,
            tokens=_tokens(arguments),
            peer=arguments.peer,
            insecure=arguments.insecure,
            knobs=turn_knobs(scenario, {name: getattr(arguments, name) for name in KNOBS}),
            witness=Witness(_origin(arguments), lambda: arguments.pid),
            restart=restart_by(arguments.restart) if arguments.restart else None,
            out=Path(arguments.out) if arguments.out else None,
        )
    except ValueError as error:
        raise SettingsError("load", str(error)) from None
    try:
        run_order(order)
    except RunFailedError as error:
        raise RequestFailed(str(error)) from None


def _origin(arguments: argparse.Namespace) -> Target | None:
    """The origin whose reads are counted; known for `weir up`."""
    url = arguments.origin or (None if arguments.target else ORIGIN)
    return Target.parse(url) if url else None


def _tokens(arguments: argparse.Namespace) -> Sequence[str]:
    """The given tokens, or as many as the scenario needs, signed with the key of `weir up`."""
    if arguments.tokens:
        return read_tokens(Path(arguments.tokens))
    given = arguments.token or os.environ.get(TOKEN_VARIABLE)
    if given:
        return [given]
    if arguments.target or not DEFAULT_KEY.is_file():
        return []
    scenario = find_scenario(arguments.scenario)
    knobs = turn_knobs(scenario, {name: getattr(arguments, name) for name in KNOBS})
    count = scenario.wants_tokens(knobs) if scenario.wants_tokens else 1
    now = time.time()
    return [
        sign_token(DEFAULT_KEY, f"load-{n}", ALL_SCOPES, TOKEN_SECS, DEV_AUDIENCE, DEV_ISSUER, now)
        for n in range(count)
    ]


def _compare(arguments: argparse.Namespace) -> None:
    seconds = [] if arguments.seconds is None else ["--seconds", str(arguments.seconds)]
    code = bench.main(["--suite", "load", *seconds])
    docs = Path(arguments.out or "docs")
    try:
        write_docs(docs)
    except (RunFailedError, UnavailableError) as error:
        raise RequestFailed(str(error)) from None
    print(f"read {docs / 'results.md'}")
    if code:
        raise RequestFailed("some runs failed; the results say which")


def _report(arguments: argparse.Namespace) -> None:
    paths = [Path(name) for name in arguments.results] or sorted(RESULTS.glob("*.jsonl"))
    if not paths and not read_kept():
        raise SettingsError("load report", f"no results in {RESULTS}")
    try:
        runs = [read_run(path) for path in paths]
    except ValueError as error:
        raise SettingsError("load report", str(error)) from None
    images = Path(arguments.images) if arguments.images else None
    try:
        print(f"open {write_report(runs, Path(arguments.out or RESULTS), images)}")
    except (RunFailedError, UnavailableError) as error:
        raise RequestFailed(str(error)) from None
