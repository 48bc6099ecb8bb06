"""`make bench`: our servers beside others like them, on one machine in one run, as ratios.

Peers take turns in many short rounds and the median counts, because a shared machine is noisy.
Exit code 0 also when a target is missed (unless --strict), 1 when a run failed.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load.contest import QUICK, Contest, Plan, Results, Trial, run_contest, run_trial
from loadtest.load.goals import Judgement, Verdict
from loadtest.load.histogram import nearest_rank
from loadtest.load.report import KEPT, judge_all, render_text
from loadtest.load.run import describe_machine, raise_descriptor_limit
from loadtest.load.suites import SUITES, Suite
from loadtest.load.wrk import ensure_wrk
from loadtest.peers.memory import MB, read_machine
from loadtest.peers.names import BEFORE, OURS

DISK_PROBES = 40


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and data go too
    raise_descriptor_limit()
    options = parse_options(arguments)
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
    folder = options.out or (KEPT if is_whole(options) else None)
    results = Results(folder and folder / f"{suite.name}.jsonl")
    wanted = [peer for peer in suite.peers if peer in (options.peers or suite.peers)]
    peers = usable_peers(suite, wanted, results)
    scenarios = usable_scenarios(
        suite, options.only or default_names(suite, options.quick), results
    )
    plan = QUICK if options.quick else Plan()
    plan = replace(plan, lines=options.lines or plan.lines, peers=tuple(peers))
    plan = replace(plan, seconds=options.seconds or plan.seconds)
    plan = replace(plan, streams=options.streams or plan.streams)
    plan = replace(plan, journal_bytes=(options.journal_mb or 0) * MB or plan.journal_bytes)
    run_all(suite, scenarios, plan, options.dir, results)
    done = replace(suite, scenarios=tuple(scenarios))
    print(render_text(done, results), flush=True)
    return exit_code(results, judge_all(done, results), strict=options.strict)


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
    parser.add_argument("--seconds", type=float, help="of each scenario of `weir load`")
    parser.add_argument("--streams", type=int, help="to recover; default: 100,000")
    parser.add_argument("--journal-mb", type=int, help="to replay; default: 1,000")
    parser.add_argument("--dir", type=Path, default=Path(".bench"), help="on the disk to measure")
    parser.add_argument("--out", type=Path, help=f"folder for the results (whole suites: {KEPT})")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args(arguments)


def is_whole(options: argparse.Namespace) -> bool:
    """Whether it measures all that a suite has: part of it must not replace what reports show."""
    return not (options.quick or options.only or options.peers or options.before)


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
    suite: Suite, scenarios: Sequence[Contest | Trial], plan: Plan, parent: Path, results: Results
) -> None:
    """Run them one after the other; keep what is worth knowing about the machine meanwhile."""
    started, before = time.monotonic(), read_machine()
    versions = [suite.servers[peer].version() for peer in plan.peers if peer in suite.servers]
    with scratch_directory(parent) as scratch:
        plan = replace(plan, folder=scratch)
        results.tell(
            **describe_machine(),
            at=time.time(),
            versions=[version for version in versions if version],
            fdatasync_ms=probe_disk(scratch / "probe"),
        )
        for scenario in scenarios:
            run_scenario(suite, scenario, plan, results)
    after = read_machine()
    results.tell(
        took_s=time.monotonic() - started,
        stolen_cpu=(after.stolen - before.stolen) / max(after.total - before.total, 1),
        other_cpu=median(results.other_cpu or [0.0]),
    )


def run_scenario(suite: Suite, scenario: Contest | Trial, plan: Plan, results: Results) -> None:
    try:
        with suite.open_stage(plan.folder, suite.servers) as launch:
            if isinstance(scenario, Contest):
                run_contest(scenario, launch, plan.peers, plan, results)
            elif OURS in plan.peers:
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


def exit_code(results: Results, judgements: Sequence[Judgement], *, strict: bool) -> int:
    if results.failures:
        return 1
    if results.skips and os.environ.get("WEIR_REQUIRE_ALL") == "1":
        return 1
    if strict and any(judgement.verdict is not Verdict.REACHED for judgement in judgements):
        return 1
    return 0
