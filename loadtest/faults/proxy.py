"""Starts mitmproxy with the faults of a plan before any HTTP server.

It lives in an environment of its own (`make mitmproxy`), because it pins old versions of what we
use. A plan can be changed while it runs; `injected` tells what has really happened.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.errors import UnavailableError
from loadtest.faults.plan import parse_plan
from loadtest.peers.process import ROOT, Start

ADDON = Path(__file__).with_name("addon.py")
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
    """A proxy at `port` before `upstream`, with its plan and its log in a folder."""

    upstream: str
    port: int
    folder: Path

    @property
    def _plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def _log(self) -> Path:
        return self.folder / "faults.jsonl"

    def start(self) -> Start:
        options = OPTIONS | {"weir_plan": str(self._plan), "weir_log": str(self._log)}
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
        draft = self._plan.with_suffix(".new")
        draft.write_text(text)
        os.replace(draft, self._plan)

    def injected(self) -> list[dict[str, Any]]:
        """The faults so far, in order. Whole lines only: a killed proxy may leave half of one."""
        if not self._log.exists():
            return []
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]


def find_program(name: str) -> Path:
    """A program of mitmproxy's environment."""
    path = PROGRAMS / name
    if not path.exists():
        raise UnavailableError("mitmproxy is not installed: make mitmproxy")
    return path
