"""A failure is named while other tests are still running, in one process and in several."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFTEST = """
from tests.helpers.failures import Failures

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))
"""
TESTS = """
import time
from pathlib import Path

import pytest

def test_first():
    assert 1 == 2, "this is why"

@pytest.fixture
def broken():
    raise OSError("no disk")

def test_second(broken):
    pass

def test_last():
    until = time.monotonic() + 60
    while not Path("go").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert Path("go").exists()
"""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_failures_are_named_as_they_happen(processes: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    settings = [f"pythonpath={ROOT}", "asyncio_default_fixture_loop_scope=function"]
    command = [sys.executable, "-m", "pytest", "-n", processes, "test_it.py"]
    with subprocess.Popen(
        [*command, *(word for setting in settings for word in ("-o", setting))],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        named = (line for line in run.stdout if line.startswith(("FAILED", "ERROR")))
        told = [next(named), next(named)]
        (tmp_path / "go").touch()  # without which the last test would fail, too
        rest = run.stdout.read()
    assert told[0] == "FAILED test_it.py::test_first: AssertionError: this is why\n"
    assert told[1] == "ERROR test_it.py::test_second: OSError: no disk\n"
    assert "1 failed, 1 passed, 1 error" in rest
