"""`weir verify`: check a fleet's guarantees while injecting faults. loadtest.verify runs it."""

import argparse
import asyncio
import tempfile
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.verify.check import Findings
from loadtest.verify.run import FILE, Crowd, judge, read_history, verify
from weir.exits import RequestFailed
from wire.settings import SettingsError


def run(arguments: argparse.Namespace) -> int:
    if arguments.check is not None:
        return _exit_code(_check(Path(arguments.check)))
    folder = _make_folder(arguments.out)
    print(f"seed {arguments.seed}, {arguments.seconds:g} s; results in {folder}")
    crowd = Crowd(readers=arguments.readers)
    run = verify(folder, arguments.seed, arguments.seconds, crowd, _tell, arguments.without)
    try:
        findings = asyncio.run(run)
    except* RunFailedError as errors:
        raise RequestFailed(_first(errors)) from errors
    print(f"history: {folder / FILE}; check it again with `weir verify --check {folder}`")
    return _exit_code(findings)


def _check(folder: Path) -> Findings:
    if not (folder / FILE).is_file():
        raise SettingsError("--check", f"{folder} has no {FILE}")
    return judge(read_history(folder), _tell)


def _make_folder(out: str | None) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="weir-verify-"))
    folder = Path(out).absolute()
    if (folder / FILE).exists():
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
