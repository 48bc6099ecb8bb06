"""`make bench`: our servers beside others like them, on one machine in one run, as ratios.

Peers take turns in many short rounds and the median counts, because a shared machine is noisy.
Exit code 0 also when a target is missed (unless --strict), 1 when a run failed.
"""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load.contest import QUICK, Contest, Plan, Results, Trial, run_contest, run_trial
from loadtest.load.goals import Judgement, Verdict, judge
from loadtest.load.histogram import nearest_rank
from loadtest.load.run import raise_descriptor_limit
from loadtest.load.suites import SUITES, Suite
from loadtest.load.table import build_rows, render_table
from loadtest.load.wrk import ensure_wrk
from loadtest.peers.memory import read_machine
from loadtest.peers.names import BEFORE, OURS
from loadtest.peers.servers import find_node

DISK_PROBES = 40


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and data go too
    raise_descriptor_limit()
    options = parse_options(arguments)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("")
    suites = chosen_suites(options)
    if options.before is not None:
        suites = [suite.beside(options.before) for suite in suites]
    return max(run_suite(suite, options) for suite in suites)


def chosen_suites(options: argparse.Namespace) -> list[Suite]:
    """Those asked for: by name, or by the name of a scenario; else all."""
    if options.suite:
        return [suite for suite in SUITES if suite.name in options.suite]
    wanted = set(options.only or ())
    having = [suite for suite in SUITES if wanted & set(scenario_names(suite))]
    return having if wanted else list(SUITES)


def scenario_names(suite: Suite) -> list[str]:
    return [scenario.name for scenario in suite.scenarios]


def run_suite(suite: Suite, options: argparse.Namespace) -> int:
    results = Results(options.out)
    wanted = [peer for peer in suite.peers if peer in (options.peers or suite.peers)]
    peers = usable_peers(suite, wanted, results)
    scenarios = usable_scenarios(
        suite, options.only or default_names(suite, options.quick), results
    )
    plan = QUICK if options.quick else Plan()
    plan = replace(plan, lines=options.lines or plan.lines, peers=tuple(peers))
    facts = run_all(suite, scenarios, peers, plan, options.dir, results)
    judgements = [
        judgement
        for scenario in scenarios
        for judgement in judge(scenario.name, scenario.measures, results.figures)
    ]
    write_verdicts(judgements, results)
    print(render_report(suite, facts, results, judgements), flush=True)
    return exit_code(results, judgements, strict=options.strict)


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    names = [name for suite in SUITES for name in scenario_names(suite)]
    peers = [*dict.fromkeys(peer for suite in SUITES for peer in suite.peers), BEFORE]
    suites = [suite.name for suite in SUITES]
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench", description=__doc__)
    parser.add_argument("--suite", action="append", choices=suites, help="default: all")
    parser.add_argument("--quick", action="store_true", help="one short round of most")
    parser.add_argument("--only", action="append", choices=names, help="may be given repeatedly")
    parser.add_argument("--peers", action="append", choices=peers, help="default: all")
    parser.add_argument("--before", type=Path, help="another checkout: our servers there compete")
    parser.add_argument("--lines", type=int, help="of access logs; default: 10,000,000")
    parser.add_argument("--dir", type=Path, default=Path(".bench"), help="on the disk to measure")
    parser.add_argument("--out", type=Path, help="file for the results, as JSON lines")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args(arguments)


def usable_peers(suite: Suite, wanted: Sequence[str], results: Results) -> list[str]:
    usable = []
    for name in wanted:
        try:
            suite.peers[name]()
            usable.append(name)
        except UnavailableError as error:
            results.skip(name, str(error))
    return usable


def default_names(suite: Suite, quick: bool) -> list[str]:
    return [scenario.name for scenario in suite.scenarios if scenario.in_quick or not quick]


def usable_scenarios(
    suite: Suite, wanted: Sequence[str], results: Results
) -> list[Contest | Trial]:
    chosen = [scenario for scenario in suite.scenarios if scenario.name in wanted]
    with_wrk = [scenario.name for scenario in chosen if scenario.needs_wrk]
    if not with_wrk:
        return chosen
    try:
        ensure_wrk()
    except UnavailableError as error:
        results.skip(", ".join(with_wrk), str(error))
        return [scenario for scenario in chosen if not scenario.needs_wrk]
    return chosen


def run_all(
    suite: Suite,
    scenarios: Sequence[Contest | Trial],
    peers: Sequence[str],
    plan: Plan,
    parent: Path,
    results: Results,
) -> dict[str, Any]:
    """Run them one after the other; what is worth knowing about the machine meanwhile."""
    started, before = time.monotonic(), read_machine()
    with scratch_directory(parent) as scratch:
        facts, plan = describe_machine(scratch), replace(plan, folder=scratch)
        results.write("machine", **facts)
        for scenario in scenarios:
            run_scenario(suite, scenario, peers, plan, results)
    after = read_machine()
    end = {
        "took_s": time.monotonic() - started,
        "stolen_cpu": (after.stolen - before.stolen) / max(after.total - before.total, 1),
        "other_cpu": median(results.other_cpu or [0.0]),
    }
    results.write("end", **end)
    return {**facts, **end}


def run_scenario(
    suite: Suite, scenario: Contest | Trial, peers: Sequence[str], plan: Plan, results: Results
) -> None:
    try:
        with suite.open_stage(plan.folder, suite.servers) as launch:
            if isinstance(scenario, Contest):
                run_contest(scenario, launch, peers, plan, results)
            elif OURS in peers:
                run_trial(scenario, launch, plan, results)
    except RunFailedError as error:  # of what all peers share
        results.fail(scenario.name, OURS, 0, error)


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """A directory of our own, gone at the end; the parent too if it was not there before."""
    existed = parent.exists()
    parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=parent)).resolve()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if not existed:
            shutil.rmtree(parent, ignore_errors=True)


def describe_machine(scratch: Path) -> dict[str, Any]:
    return {
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "node": _node_version(),
        "fdatasync_ms": probe_disk(scratch / "probe"),
    }


def _node_version() -> str:
    try:
        command = [find_node(), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (UnavailableError, OSError, subprocess.SubprocessError):
        return "none"


def probe_disk(path: Path) -> float:
    """What the disk takes for the least durable write, in ms: no append can be faster."""
    times_s = []
    with path.open("wb") as sink:
        for _ in range(DISK_PROBES):
            start = time.perf_counter()
            os.write(sink.fileno(), b"x" * 100)
            os.fdatasync(sink.fileno())
            times_s.append(time.perf_counter() - start)
    path.unlink()
    return nearest_rank(times_s, 0.5) * 1000


def write_verdicts(judgements: Sequence[Judgement], results: Results) -> None:
    for judgement in judgements:
        where = {"scenario": judgement.scenario, "measure": judgement.measure}
        target = where | asdict(judgement.goal) | {"bound": judgement.goal.bound.value}
        verdict = judgement.verdict.value
        results.write("verdict", target=target, figure=judgement.figure, reached=verdict)


def render_report(
    suite: Suite, facts: Mapping[str, Any], results: Results, judgements: Sequence[Judgement]
) -> str:
    rows = build_rows(suite.scenarios, results.figures, judgements, suite.board)
    reached = sum(judgement.verdict is Verdict.REACHED for judgement in judgements)
    return "\n".join(
        [
            suite.heading,
            f"{facts['cores']} cores, Python {facts['python']}, Node {facts['node']}; fdatasync"
            f" {facts['fdatasync_ms']:.2f} ms at the start. Besides us, other programs used"
            f" {facts['other_cpu']:.2f} cores (median), other machines of the host"
            f" {facts['stolen_cpu']:.0%} of the CPU.",
            "Figures are medians of the rounds. A ratio (median of the rounds' own ratios) says"
            " how many times better ours is: above 1 is better, for rates and for times.",
            "",
            render_table(rows, suite.board),
            "",
            *(f"skipped: {reason}" for reason in results.skips),
            *(f"note: {note}" for note in results.notes),
            *(f"FAILED: {reason}" for reason in results.failures),
            f"{reached} of {len(judgements)} targets reached, {facts['took_s']:.0f} s",
        ]
    )


def exit_code(results: Results, judgements: Sequence[Judgement], *, strict: bool) -> int:
    if results.failures:
        return 1
    if results.skips and os.environ.get("WEIR_REQUIRE_ALL") == "1":
        return 1
    if strict and any(judgement.verdict is not Verdict.REACHED for judgement in judgements):
        return 1
    return 0
