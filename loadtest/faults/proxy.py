"""Starts mitmproxy with the faults of a plan before any HTTP server.

It lives in an environment of its own (`make mitmproxy`), because it pins old versions of what we
use. A plan can be changed while it runs; `injected` tells what has really happened.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.errors import UnavailableError
from loadtest.faults.plan import parse_plan
from loadtest.peers.process import Start, run_process
from loadtest.peers.servers import free_port

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / ".venv-mitm" / "bin"
OPTIONS = {
    "connection_strategy": "lazy",  # a server that is away is found out by a request
    "keep_host_header": "true",
    "flow_detail": "0",
    "termlog_verbosity": "warn",
    "http2": "false",
}


@dataclass(frozen=True, slots=True)
class FaultProxy:
    url: str
    pid: int
    plan_path: Path
    log_path: Path

    def set_plan(self, plan: Mapping[str, Any]) -> None:
        """From the next request on."""
        write_plan(self.plan_path, plan)

    def injected(self) -> list[dict[str, Any]]:
        """The faults so far, in order."""
        return read_injected(self.log_path)


@contextmanager
def start_faults(
    upstream: str, folder: Path, plan: Mapping[str, Any], *, port: int = 0
) -> Iterator[FaultProxy]:
    """A proxy before `upstream` that is gone after the `with`; files are kept in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    plan_path, log_path = folder / "plan.json", folder / "faults.jsonl"
    write_plan(plan_path, plan)
    start = Start(faults_command(upstream, port, plan_path, log_path), port)
    with run_process(start, folder / "mitmdump.log") as server:
        yield FaultProxy(f"http://127.0.0.1:{port}", server.pid, plan_path, log_path)


def faults_command(upstream: str, port: int, plan_path: Path, log_path: Path) -> list[str]:
    options = OPTIONS | {"weir_plan": str(plan_path), "weir_log": str(log_path)}
    return [
        str(find_program("mitmdump")),
        *("--mode", f"reverse:{upstream}", "--listen-host", "127.0.0.1"),
        *("--listen-port", str(port), "-s", str(ROOT / "loadtest/faults/addon.py")),
        *(word for name, value in options.items() for word in ("--set", f"{name}={value}")),
    ]


def find_program(name: str) -> Path:
    """A program of mitmproxy's environment."""
    path = PROGRAMS / name
    if not path.exists():
        raise UnavailableError("mitmproxy is not installed: make mitmproxy")
    return path


def write_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """As a whole: the proxy may read at any moment."""
    text = json.dumps(plan)
    parse_plan(text)
    draft = path.with_suffix(".new")
    draft.write_text(text)
    os.replace(draft, path)


def read_injected(log_path: Path) -> list[dict[str, Any]]:
    """Whole lines only: a killed proxy may have left half of one."""
    if not log_path.exists():
        return []
    lines = log_path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
