import sys
import time
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.peers.jobs import run_job
from loadtest.peers.memory import MB

PYTHON = (sys.executable, "-c")


def test_a_job_tells_its_time_and_what_it_wrote(tmp_path: Path) -> None:
    program = (
        "import sys, time; time.sleep(0.3); print('x' * 100_000); print('hm', file=sys.stderr)"
    )
    job = run_job([*PYTHON, program], tmp_path / "job", timeout_s=30)
    assert job.output.read_text() == "x" * 100_000 + "\n"
    assert job.errors.read_text() == "hm\n"
    assert job.took_s > 0.3
    assert job.took_s >= job.cpu_s


def test_the_peak_counts_children(tmp_path: Path) -> None:
    child = "held = b'x' * 60_000_000; input()"
    program = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE)\n"
        "time.sleep(1)\n"
        "child.communicate(b'\\n')"
    )
    job = run_job([*PYTHON, program], tmp_path / "job", timeout_s=30)
    assert job.peak_bytes > 60 * MB


def test_a_job_reads_what_its_source_writes(tmp_path: Path) -> None:
    job = run_job(["cat"], tmp_path / "job", timeout_s=30, source=["echo", "hello"])
    assert job.output.read_text() == "hello\n"


def test_a_job_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="ended with 1: no disk"):
        run_job([*PYTHON, "raise SystemExit('no disk')"], tmp_path / "job", timeout_s=30)


def test_a_job_that_does_not_end_is_ended(tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(RunFailedError, match="did not end"):
        run_job(["sleep", "100"], tmp_path / "job", timeout_s=0.1)
    assert time.monotonic() - before < 50
