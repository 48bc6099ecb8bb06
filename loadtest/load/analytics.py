"""What the Spark pipeline takes: `weir report` on millions of log lines, beside DuckDB, which makes
the same tables of the same files, and goaccess, which counts less; and the state of a stream of a
million messages, beside `weir state`, which is plain Python.

Each is a program that starts, reads everything and ends. A tenth of the lines comes first: more
input must cost in proportion and no more memory. All results are compared, or the run has failed.
"""

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtest.analytics.accesslogs import ROOM_PER_LINE
from loadtest.analytics.changes import History
from loadtest.errors import RunFailedError
from loadtest.load.client import ROOT, Client
from loadtest.load.connection import Target
from loadtest.load.contest import Launch, Plan, Sample, Sides, Trial
from loadtest.load.goals import below, less, more
from loadtest.load.state import PATH, write_changes
from loadtest.peers.debian import ensure_debian
from loadtest.peers.jobs import Job, run_job
from loadtest.peers.memory import MB
from loadtest.peers.names import DUCK, GOACCESS, OURS, PYTHON
from loadtest.peers.servers import need_package, weir_start

HISTORY = History(entities=50_000, rounds=20)
TENTH = 10
JOB_TIMEOUT_SECS = 3600.0

# What goaccess is told to find in a line; the duration in its unit is wrong, its work is the same.
GOACCESS_FIELDS = {
    **{"time_ms": "%x", "client": "%h", "subject": "%e", "method": "%m", "stream": "%U"},
    **{"status": "%s", "verdict": "%C", "bytes_sent": "%b", "duration_ms": "%T"},
    "user_agent": "%u",
}
_STEP = re.compile(r"(batch|tables|report)\b.* in (\d+\.\d) s$", re.MULTILINE)


def ensure_spark() -> None:
    ensure_debian("java", "openjdk-17-jre-headless")
    need_package("pyspark")


# -- access logs -----------------------------------------------------------------------------------


async def try_lines(launch: Launch, plan: Plan) -> Sides:
    folder = plan.folder / "analytics"
    folder.mkdir(parents=True)
    check_room(folder, plan.lines)
    few = write_logs(folder / "few", plan.lines // TENTH)
    many = write_logs(folder / "many", plan.lines)
    before = report(folder, "few")
    after = report(folder, "many")
    sides = {OURS: [Sample(grown_figures(before, few["lines"], after, many["lines"]))]}
    if DUCK in plan.peers:
        command = ["make", str(folder / "many"), str(folder / "duck")]
        job = run_python("loadtest.analytics.duck", command, folder / "duck-make")
        sides[DUCK] = [Sample(figures(job, many["lines"]))]
        check_tables(folder, many)
    if GOACCESS in plan.peers:
        job = run_goaccess(folder / "many", folder / "goaccess")
        check_goaccess(job.output.with_name("goaccess.json"), many)
        sides[GOACCESS] = [Sample(figures(job, many["lines"]))]
    return sides


def check_room(folder: Path, lines: int) -> None:
    needed, free = lines * ROOM_PER_LINE, shutil.disk_usage(folder).free
    if free < needed:
        raise RunFailedError(f"{needed // MB:,} MB of disk are needed, {free // MB:,} MB are free")


def write_logs(folder: Path, lines: int) -> Mapping[str, int]:
    """What `loadtest.analytics.accesslogs.Written` says."""
    name = folder.with_name(f"{folder.name}-written")
    job = run_python("loadtest.analytics.accesslogs", [str(folder), str(lines)], name)
    written: dict[str, int] = json.loads(job.output.read_bytes())
    return written


def report(folder: Path, logs: str, *options: str) -> Job:
    """Into the folder `logs`-out."""
    out = folder / f"{logs}-out"
    command = [*weir_start(), "report", "--logs", str(folder / logs), "--out", str(out), *options]
    return run_job(command, folder / f"{logs}-report", JOB_TIMEOUT_SECS)


def grown_figures(few: Job, few_lines: int, many: Job, many_lines: int) -> dict[str, float]:
    """`times as long` is for just ten times as many lines: a few more are copies."""
    took_s, tenth_s = many.took_s / many_lines, few.took_s / few_lines
    return {
        **figures(many, many_lines),
        **{f"tenth, {name}": figure for name, figure in needs(few).items()},
        "times as long": TENTH * took_s / tenth_s,
        "times the peak": many.peak_bytes / few.peak_bytes,
        **step_seconds(many.errors.read_text()),
    }


def figures(job: Job, lines: int) -> dict[str, float]:
    return {"input": lines, "lines": lines / job.took_s, **needs(job)}


def needs(job: Job) -> dict[str, float]:
    return {"took": job.took_s, "CPU": job.cpu_s, "peak": job.peak_bytes / MB}


def step_seconds(said: str) -> dict[str, float]:
    """Of the steps that a run has told of; batches are added up."""
    seconds: dict[str, float] = {}
    for step, took in _STEP.findall(said):
        seconds[step] = seconds.get(step, 0.0) + float(took)
    return seconds


def check_tables(folder: Path, written: Mapping[str, int]) -> None:
    command = ["compare", str(folder / "many-out/tables"), str(folder / "duck")]
    found = json.loads(
        run_python("loadtest.analytics.duck", command, folder / "compared").output.read_bytes()
    )
    expected = {name: written[name] for name in found["ours"]}
    if found["differ"] or found["ours"] != expected or found["theirs"] != written["requests"]:
        raise RunFailedError(f"ours and DuckDB's tables differ: {found}, written: {written}")


def run_goaccess(logs: Path, name: Path) -> Job:
    """From a pipe, because it does not read compressed files."""
    files = sorted(map(str, logs.rglob("access-*")))
    command = ["goaccess", "-", "--no-global-config", "--no-progress", "-o", f"{name}.json"]
    command += [f"--log-format={json.dumps(GOACCESS_FIELDS, separators=(',', ':'))}"]
    command += ["--datetime-format=%*", "--date-format=%*", "--time-format=%*"]
    return run_job(command, name, JOB_TIMEOUT_SECS, source=["gzip", "-dcf", *files])


def check_goaccess(path: Path, written: Mapping[str, int]) -> None:
    """It knows no copies."""
    valid = json.loads(path.read_bytes())["general"]["valid_requests"]
    if valid != written["requests"] + written["duplicates"]:
        raise RunFailedError(f"goaccess found {valid} requests, written: {written}")


# -- state -----------------------------------------------------------------------------------------


async def try_messages(launch: Launch, plan: Plan, history: History = HISTORY) -> Sides:
    folder = plan.folder / "messages"
    (folder / "none").mkdir(parents=True)
    with launch() as server:
        async with Client(Target.local(server.port)) as client:
            await write_changes(client, history)
        url = f"http://127.0.0.1:{server.port}"
        ours = report(folder, "none", "--origin", url, "--stream", PATH)
        plain = run_job(
            [*weir_start(), "state", f"{url}{ROOT}{PATH}", "--json"],
            folder / "plain",
            JOB_TIMEOUT_SECS,
        )
    check_states(folder, plain, history)
    return {
        OURS: [Sample(message_figures(ours, len(history)))],
        PYTHON: [Sample(message_figures(plain, len(history)))],
    }


def message_figures(job: Job, messages: int) -> dict[str, float]:
    return {"messages": messages / job.took_s, **needs(job)}


def check_states(folder: Path, plain: Job, history: History) -> None:
    expected = {
        kind: {key: json.loads(value) for key, value in entities.items()}
        for kind, entities in history.final_state().entities.items()
    }
    command = ["state", str(folder / "none-out/tables"), str(folder)]
    ours = run_python("loadtest.analytics.duck", command, folder / "state")
    for side, job in {"weir report": ours, "weir state": plain}.items():
        if json.loads(job.output.read_bytes()) != expected:
            raise RunFailedError(f"{side} came to another state than was written")


def run_python(module: str, arguments: Sequence[str], name: Path) -> Job:
    return run_job([sys.executable, "-m", module, *arguments], name, JOB_TIMEOUT_SECS)


SCENARIOS = (
    Trial(
        "loglines",
        "access logs to tables",
        (
            more("input", "lines"),
            more("lines", "/s"),
            less("took", "s"),
            less("CPU", "s"),
            less("peak", "MB"),
            less("tenth, took", "s"),
            less("tenth, CPU", "s"),
            less("tenth, peak", "MB"),
            less("times as long", "for 10x", below(11)),
            less("times the peak", "for 10x", below(1.5)),
        ),
        try_lines,
    ),
    Trial(
        "messages",
        f"state of {len(HISTORY):,} messages",
        (more("messages", "/s"), less("took", "s"), less("CPU", "s"), less("peak", "MB")),
        try_messages,
    ),
)
