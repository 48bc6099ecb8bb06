"""`weir verify`: check a fleet's guarantees while injecting faults. loadtest.verify runs it."""

import argparse
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.verify.check import Findings
from loadtest.verify.run import FILE, FILES, Crowd, judge, read_history, verify
from weir.exits import RequestFailed
from wire.settings import SettingsError


def run(arguments: argparse.Namespace) -> int:
    if arguments.check is not None:
        return _exit_code(_check(Path(arguments.check)))
    if arguments.cluster:
        return _run_cluster(arguments)
    folder = _make_folder(arguments.out)
    print(f"seed {arguments.seed}, {arguments.seconds:g} s; results in {folder}")
    crowd = Crowd(readers=arguments.readers)
    findings = _finish(
        verify(folder, arguments.seed, arguments.seconds, crowd, _tell, arguments.without)
    )
    print(f"history: {folder / FILE}; check it again with `weir verify --check {folder}`")
    return _exit_code(findings)


def _run_cluster(arguments: argparse.Namespace) -> int:
    # Only here: its packages are extras.
    from loadtest.verify.cluster.clusterrun import Campaign, verify_cluster
    from loadtest.verify.cluster.damage import HARMS
    from loadtest.verify.cluster.faults import FAULTS
    from loadtest.verify.cluster.machines import Shape

    names = arguments.fault or [*FAULTS, *HARMS]
    for name in names:
        if name not in FAULTS and name not in HARMS:
            raise SettingsError("--fault", f"{name} is none of {', '.join([*FAULTS, *HARMS])}")
    folder = _make_folder(arguments.out)
    print(f"seed {arguments.seed}; results in {folder}")
    campaign = Campaign(
        arguments.seed,
        arguments.seconds,
        [name for name in names if name in FAULTS],
        [name for name in names if name in HARMS],
        arguments.rounds,
    )
    shape = Shape(lease_secs=arguments.lease)
    return _exit_code(_finish(verify_cluster(folder, campaign, shape, _tell)))


def _finish(run: Coroutine[Any, Any, Findings]) -> Findings:
    try:
        return uvloop.run(run)
    except* (RunFailedError, UnavailableError) as errors:
        raise RequestFailed(_first(errors)) from errors


def _check(folder: Path) -> Findings:
    files = sorted(folder.glob(FILES))
    if not files:
        raise SettingsError("--check", f"{folder} has no {FILE}")
    found = [judge(read_history(file), _tell) for file in files]
    return Findings(
        [each for findings in found for each in findings.violations],
        [each for findings in found for each in findings.tolerated],
        [each for findings in found for each in findings.missing],
    )


def _make_folder(out: str | None) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="weir-verify-"))
    folder = Path(out).absolute()
    if any(folder.glob(FILES)):
        raise SettingsError("--out", f"{folder} already has the history of another run")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _first(error: BaseException) -> str:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else str(error)


def _exit_code(findings: Findings) -> int:
    if findings.violations:
        return 1
    return 3 if findings.missing else 0  # 3: an unusable file


def _tell(line: str) -> None:
    print(line, flush=True)
