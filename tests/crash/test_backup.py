"""Backups of a real server under its clients: each a consistent prefix, whatever is killed."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from origin.storage.base import UnusableData
from origin.storage.copies import read_manifest
from tests.crash.fleet import JSON, TEXT, Fleet, Ledger, Writer, create, repeat
from tests.helpers.offsets import nameless
from tests.helpers.server import ROOT, run_weir
from tests.origin.storage.driver import until

SEED = int(os.environ.get("WEIR_CRASH_SEED", random.randrange(1 << 32)))
# Where a backup is killed, and how many steps of the kind there are in every mode at least.
STEPS = [("copies.Copier._create", 2), ("files.Files.sync_disk", 1), ("backup.write_manifest", 1)]
DYING = """
import functools, importlib, os, signal, sys
from weir.cli import main

step, left = sys.argv[1].split("."), int(sys.argv[2])
holder = functools.reduce(getattr, step[1:-1], importlib.import_module("origin.storage." + step[0]))
work = getattr(holder, step[-1])

def dying(*arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return work(*arguments)

setattr(holder, step[-1], dying)
main(sys.argv[3:])
"""

Acknowledged = dict[str, int]


class Load:
    """Producers, and others who make the server delete, trim and replace files all the time."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self.ledgers: list[Ledger] = []
        self.writers: dict[str, Writer] = {}
        self.deleted: list[str] = []
        self._stopping = asyncio.Event()

    async def begin(self) -> None:
        for number in range(6):
            ledger = await create(self._fleet, f"s{number}", JSON if number % 2 else TEXT)
            self.ledgers.append(ledger)
            self.writers[ledger.name] = Writer(self._fleet, ledger, "p", self._rng)
        await create(self._fleet, "snapped", TEXT)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = [repeat(self._stopping, writer.append, 0.002) for writer in self.writers.values()]
        work += [
            repeat(self._stopping, self._publish, 0.01),
            repeat(self._stopping, self._pass_by, 0.01),
        ]
        clients = asyncio.gather(*work)
        try:
            yield
            assert not clients.done(), clients.exception()
        finally:
            self._stopping.set()
            await clients

    async def _publish(self) -> None:
        """Append, then replace all that is there by a snapshot."""
        text = {"Content-Type": TEXT}
        answer, _ = await self._fleet.insist("POST", "snapped", headers=text, body=b"x" * 3000)
        path = f"snapped/snapshot/{nameless(answer.next_offset)}"
        answer, _ = await self._fleet.insist("PUT", path, headers=text, body=b"y" * 70_000)
        assert answer.status in (200, 201, 204), answer

    async def _pass_by(self) -> None:
        name = f"passing/{len(self.deleted)}"
        ledger = await create(self._fleet, name, TEXT)
        await Writer(self._fleet, ledger, "p", self._rng).append()
        await asyncio.sleep(0.3)  # long enough for a checkpoint to give it a segment
        answer, _ = await self._fleet.insist("DELETE", name)
        assert answer.status == 204
        self.deleted.append(name)

    def acknowledged(self) -> Acknowledged:
        return {ledger.name: ledger.count for ledger in self.ledgers}


@asynccontextmanager
async def under_load(folder: Path, mode: str) -> AsyncIterator[tuple[Fleet, Load]]:
    print(f"WEIR_CRASH_SEED={SEED}")
    rng = random.Random(SEED)
    async with Fleet(folder, mode, rng) as fleet:
        await fleet.start()
        load = Load(fleet, rng)
        await load.begin()
        yield fleet, load


@pytest.mark.parametrize("mode", ["file-durable", "acid"])
async def test_a_backup_under_load_is_a_prefix_with_all_that_was_acknowledged(
    mode: str, tmp_path: Path
) -> None:
    async with under_load(tmp_path, mode) as (fleet, load):
        async with load.running():
            await until(lambda: len(load.deleted) > 0)
            before, gone = load.acknowledged(), list(load.deleted)
            made = await asyncio.to_thread(run_weir, "backup", *paths(tmp_path, "data", "backup"))
            assert made.returncode == 0 and "sound" in made.stdout, (made.stdout, made.stderr)
            during = load.acknowledged()
            await until(lambda: all(load.acknowledged()[name] > during[name] for name in during))
        assert sum(during.values()) > sum(before.values()), "nobody wrote during the backup"
        live = {ledger.name: await fleet.read_all(ledger.name) for ledger in load.ledgers}
    elsewhere = tmp_path / "elsewhere"
    await restore_and_check(tmp_path / "backup", elsewhere)
    async with Fleet(elsewhere, mode, random.Random(SEED)) as again:
        await again.start()
        for ledger in load.ledgers:
            stored, tail, _ = await again.read_all(ledger.name)
            assert live[ledger.name][0].startswith(stored), ledger.name
            kept = sum(1 for sent in ledger.sent["p"] if (sent.end or 0) <= tail)
            assert kept >= before[ledger.name], (ledger.name, kept, before)
            await check_producer(again, ledger, kept)
        for name in gone:
            assert (await again.insist("HEAD", name))[0].status == 404
        answer, _ = await again.insist("GET", "snapped/bootstrap")
        assert answer.status == 200 and b"y" * 70_000 in answer.body
        assert await again.stop() == 0


async def check_producer(fleet: Fleet, ledger: Ledger, kept: int) -> None:
    """It goes on exactly where the backup ends."""
    writer = Writer(fleet, Ledger(ledger.name, ledger.content_type), "p", random.Random(0))
    expected = [(kept - 1, 204), (kept + 1, 409), (kept, 200)]
    for number, status in expected:
        answer, _ = await fleet.insist(
            "POST", ledger.name, headers=writer.headers(number), body=b'"next"'
        )
        assert answer.status == status, (ledger.name, number, answer)


async def restore_and_check(backup: Path, folder: Path) -> None:
    data = str(folder / "data")
    for command in (("restore", str(backup), data), ("fsck", data)):
        done = await asyncio.to_thread(run_weir, *command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)


def paths(folder: Path, *names: str) -> list[str]:
    return [str(folder / name) for name in names]


@pytest.mark.parametrize("mode", ["file-durable", "acid"])
async def test_killed_backups_leave_server_and_earlier_backups_sound(
    mode: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    data = tmp_path / "data"
    async with under_load(tmp_path, mode) as (fleet, load):
        async with load.running():
            await until(lambda: len(load.deleted) > 0)
            made = await asyncio.to_thread(run_weir, "backup", *paths(tmp_path, "data", "first"))
            assert made.returncode == 0, made.stderr
            for number, (step, most) in enumerate(STEPS):
                target = tmp_path / f"killed-{number}"
                await kill_backup(data, target, step, rng.randrange(most))
                with pytest.raises(UnusableData, match="did not finish"):
                    read_manifest(str(target))
            now = load.acknowledged()
            await until(lambda: all(load.acknowledged()[name] > now[name] for name in now))
            await until(lambda: not is_held_back(data))
        assert await fleet.stop() == 0
    await restore_and_check(tmp_path / "first", tmp_path / "elsewhere")
    fsck = await asyncio.to_thread(run_weir, "fsck", str(data))
    assert fsck.returncode == 0, fsck.stdout


async def kill_backup(data: Path, target: Path, step: str, calls: int) -> None:
    """SIGKILL, where it would take that step after so many others of the kind."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DYING, step, str(calls), "backup", str(data), str(target)),
        *("--base", str(data.parent / "first")),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == -signal.SIGKILL, step


def is_held_back(data: Path) -> bool:
    """Whether retired journals or replaced snapshots are still there."""
    journals, snapshots = (data / "journal").glob("*.journal"), (data / "snapshots").rglob("*.seg")
    return len(list(journals)) > 4 or len(list(snapshots)) > 2
