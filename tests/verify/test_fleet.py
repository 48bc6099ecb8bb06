"""The processes of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.peers.process import READY_TIMEOUT_S, Start, free_port
from loadtest.verify.doors import Door
from loadtest.verify.fleet import EnvoyOrder, Fleet, Part, make_fleet
from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import ROOT

PROGRAM = """
import os, socket, sys, time
open("pid", "w").write(str(os.getpid()))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""


def is_written(folder: Path) -> bool:
    return (folder / "pid").exists() and (folder / "pid").read_text() != ""


def make_part(folder: Path, program: str = PROGRAM) -> Part:
    port = free_port()
    return Part("part", folder, Start([sys.executable, "-c", program, str(port)], port))


async def start(part: Part, folder: Path) -> int:
    await part.start()
    return int((folder / "part/pid").read_text())


async def test_a_part_can_be_killed_and_started_again(tmp_path: Path) -> None:
    part = make_part(tmp_path)
    first = await start(part, tmp_path)
    await part.kill()
    assert is_gone(first)
    second = await start(part, tmp_path)
    assert second != first and not is_gone(second)
    await part.stop()
    assert is_gone(second)


async def test_a_part_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    part = make_part(tmp_path, "raise SystemExit(3)")
    with pytest.raises(RunFailedError, match=r"exit code 3.*part\.log"):
        await part.start()


RUN = """
import asyncio, sys
from pathlib import Path
from loadtest.peers.process import Start
from loadtest.verify.fleet import Part
async def run():
    port = int(sys.argv[2])
    await Part("part", Path.cwd(), Start([sys.executable, "-c", *sys.argv[1:]], port)).start()
    await asyncio.sleep(60)
asyncio.run(run())
"""


def test_nothing_of_a_fleet_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    """The run is a process of its own here, which starts a part and is then killed."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, PROGRAM, str(free_port())], env=env, cwd=tmp_path
    )
    try:
        wait_until(lambda: is_written(tmp_path / "part"), READY_TIMEOUT_S)
        part = int((tmp_path / "part/pid").read_text())
        assert not is_gone(part)
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: is_gone(part))


def no_envoy(order: EnvoyOrder) -> list[str]:
    raise UnavailableError("no Envoy here")


async def test_what_is_not_installed_is_left_out_and_said(tmp_path: Path) -> None:
    fleet: Fleet = make_fleet(tmp_path, "http://127.0.0.1:1/", no_envoy, left_out=["faults"])
    assert "envoy: no Envoy here" in fleet.missing
    assert {"origin", "gateway-0", "gateway-1"} <= fleet.parts.keys()
    assert [type(door) for door in fleet.front] == [Door, Door]
