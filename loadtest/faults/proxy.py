"""Starts mitmproxy with the faults of a plan before any HTTP server.

It lives in an environment of its own (`make mitmproxy`), because it pins old versions of what we
use. A plan can be changed while it runs; `injected` tells what has really happened.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.errors import UnavailableError
from loadtest.faults.plan import parse_plan
from loadtest.peers.process import ROOT, Start

ADDON = Path(__file__).with_name("addon.py")
PROGRAMS = ROOT / ".venv-mitm" / "bin"
PLAN, LOG = "plan.json", "faults.jsonl"
OPTIONS = {
    "connection_strategy": "lazy",  # a server that is away is found out by a request
    "keep_host_header": "true",
    "flow_detail": "0",
    "termlog_verbosity": "warn",
    "http2": "false",
}


@dataclass(frozen=True, slots=True)
class FaultProxy:
    """A proxy at `port` before `upstream`, with its plan and its log in a folder."""

    upstream: str
    port: int
    folder: Path

    def start(self) -> Start:
        options = OPTIONS | {"weir_plan": self.folder / PLAN, "weir_log": self.folder / LOG}
        command = [
            str(find_program("mitmdump")),
            *("--mode", f"reverse:{self.upstream}", "--listen-host", "127.0.0.1"),
            *("--listen-port", str(self.port), "-s", str(ADDON)),
            *(word for name, value in options.items() for word in ("--set", f"{name}={value}")),
        ]
        return Start(command, self.port)

    def set_plan(self, plan: Mapping[str, Any]) -> None:
        """From the next request on. The file is replaced as a whole: it may be read any moment."""
        text = json.dumps(plan)
        parse_plan(text)
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"{PLAN}.new"
        draft.write_text(text)
        draft.replace(self.folder / PLAN)

    def injected(self) -> list[dict[str, Any]]:
        """The faults so far, in order. Whole lines only: a killed proxy may leave half of one."""
        log = self.folder / LOG
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def find_program(name: str) -> Path:
    """A program of mitmproxy's environment."""
    path = PROGRAMS / name
    if not path.exists():
        raise UnavailableError("mitmproxy is not installed: make mitmproxy")
    return path
