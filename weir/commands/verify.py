"""`weir verify`: check a fleet's guarantees while injecting faults.

The run itself is in loadtest.verify; how Envoy is configured is known here.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gateway.config import load_config
from loadtest.errors import RunFailedError, UnavailableError
from loadtest.verify.check import Findings
from loadtest.verify.fleet import EnvoyOrder
from loadtest.verify.recorded import FILE, read_history
from loadtest.verify.run import Crowd, judge, verify
from weir.edge.envoy import envoy_command, find_envoy, write_config
from weir.edge.settings import EnvoySettings
from weir.exits import RequestFailed
from wire.settings import SettingsError


def run(arguments: argparse.Namespace) -> int:
    if arguments.check is not None:
        return _exit_code(_check(Path(arguments.check)))
    folder = _make_folder(arguments.out)
    print(f"seed {arguments.seed}, {arguments.seconds:g} s; everything is kept in {folder}")
    crowd = Crowd(readers=arguments.readers)
    run = verify(
        folder,
        arguments.seed,
        arguments.seconds,
        crowd,
        make_envoy,
        _tell,
        left_out=arguments.without,
    )
    try:
        findings = asyncio.run(run)
    except* RunFailedError as errors:
        raise RequestFailed(_first(errors)) from errors
    print(f"history: {folder / FILE}; look again with `weir verify --check {folder}`")
    return _exit_code(findings)


def make_envoy(order: EnvoyOrder) -> Sequence[str]:
    """Envoy by the configuration of its gateways, without TLS."""
    try:
        find_envoy()
    except SettingsError as error:
        raise UnavailableError(str(error)) from error
    settings = EnvoySettings(
        gateways=order.gateways,
        config=load_config({}, order.settings),
        plain_port=order.port,
        admin_port=order.admin_port,
        access_log=str(order.folder / "access.jsonl"),
    )
    return envoy_command(write_config(settings, order.folder / "envoy.json"))


def _check(folder: Path) -> Findings:
    if not (folder / FILE).is_file():
        raise SettingsError("--check", f"{folder} has no {FILE}")
    return judge(read_history(folder), _tell)


def _make_folder(out: str | None) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="weir-verify-"))
    folder = Path(out).absolute()
    if (folder / FILE).exists():
        raise SettingsError("--out", f"{folder} has the history of another run")
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
