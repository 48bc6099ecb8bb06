"""`weir verify` itself: a minute of faults against a fleet of real processes."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from loadtest.verify.history import Append, Fault, ReadResult, Run
from loadtest.verify.run import FILE, read_history
from tests.helpers.require import need
from tests.helpers.server import ROOT

SECONDS = 60
SEED = 2  # its plan has everything that can be done to a fleet
DONE = {
    *("kill origin", "pause origin", "kill redis", "kill envoy"),
    *("kill gateway-0", "stop gateway-0", "kill gateway-1", "stop gateway-1"),
    *("inject faults", "inject network"),
}
PATIENCE_SECS = 300


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_SECS + 30)
def test_a_fleet_keeps_its_promises_for_a_minute_of_faults(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "weir", "verify", "--seconds", str(SECONDS)]
    run = subprocess.run(
        [*command, "--seed", str(SEED), "--readers", "1", "--out", str(out)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    history = read_history(out / FILE)
    heading = history[0]
    assert isinstance(heading, Run)
    served = Counter(type(record).__name__ for record in history)
    modes = Counter(r.mode for r in history if isinstance(r, ReadResult) and r.ids)
    faults = {f"{r.what} {r.target}" for r in history if isinstance(r, Fault)}
    # A verdict about nothing would be worth nothing.
    assert sum(isinstance(r, Append) and r.outcome == "ok" for r in history) > 200, served
    assert min(modes[mode] for mode in ("catch-up", "long-poll", "sse")) > 50, modes
    need({"redis", "faults", "envoy"} <= set(heading.parts), "a part of the fleet is missing")
    assert faults == DONE
    assert {"rotate", "recreate", "snapshot"} <= {step.action for step in heading.plan}
