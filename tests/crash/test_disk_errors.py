"""A full or broken disk: clients are told, nothing acknowledged is lost, a restart works."""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from origin.storage.base import Storage, StorageFailed, StorageFull
from origin.storage.files import Files
from tests.crash.http import Answer, call
from tests.helpers.faulty_files import VARIABLE, Fault, FaultyFiles, write_faults
from tests.helpers.require import need
from tests.helpers.server import Server, started
from tests.origin.storage.driver import Driver, blob_names, copy_as_killed, opened, until

SETTINGS = {
    "DS_STORAGE__JOURNAL_BYTES": "262144",
    "DS_LIMITS__MAX_BODY_BYTES": "65536",
    "DS_STORAGE__CHECKPOINT_SECS": "0.2",
    "DS_SERVER__LONG_POLL_TIMEOUT_SECS": "0.5",
}
TEXT = {"Content-Type": "text/plain"}
FAULTY = "tests.helpers.faulty_files"


def producer(number: int) -> dict[str, str]:
    return TEXT | {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(number)}


def check_problem(answer: Answer, *statuses: int) -> None:
    assert answer.status in statuses, answer
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert json.loads(answer.body)["status"] == answer.status
    assert int(answer.headers["Retry-After"]) >= 1


def read_all(url: str) -> bytes:
    data, offset = b"", "-1"
    while True:
        answer = call("GET", f"{url}?offset={offset}")
        assert answer.status == 200, answer
        data += answer.body
        offset = answer.headers["Stream-Next-Offset"]
        if "Stream-Up-To-Date" in answer.headers:
            return data


# -- a full disk ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """4 MiB that are really all there is."""
    need(os.geteuid() == 0, "mounting a small tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "weir-test", str(folder)], capture_output=True
    )
    need(mounted.returncode == 0, f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Filler:
    """One producer that appends until it is told that there is no room."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.sent: list[bytes] = []

    def append(self, server: Server, size: int = 20_000) -> Answer:
        line = f"{len(self.sent):06d}:{'x' * size}\n".encode()
        url = f"{server.url}/v1/stream/{self._name}"
        answer = call("POST", url, producer(len(self.sent)), line)
        if answer.status in (200, 204):
            self.sent.append(line)
        return answer

    def fill(self, server: Server) -> Answer:
        for _ in range(1000):
            answer = self.append(server)
            if answer.status not in (200, 204):
                return answer
        raise AssertionError("the disk never filled up")

    def check(self, server: Server) -> None:
        assert read_all(f"{server.url}/v1/stream/{self._name}") == b"".join(self.sent)


def append_again(server: Server, filler: Filler) -> None:
    """Room is found within a few seconds, without a restart."""
    deadline = time.monotonic() + 60
    while (answer := filler.append(server)).status != 200:
        check_problem(answer, 503, 507)
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def take_all_space(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast:
        try:
            while ballast.write(bytes(4096)):
                pass
        except OSError:
            pass


@pytest.mark.parametrize("mode", ["file-durable", "file-fast"])
def test_full_disk_refuses_and_recovers_without_restart(
    small_disk: Path, tmp_path: Path, mode: str
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    data = str(small_disk / "data")
    filler = Filler("a")
    with started(tmp_path, mode, settings=SETTINGS, data_dir=data) as server:
        assert call("PUT", f"{server.url}/v1/stream/a", TEXT).status == 201
        check_problem(filler.fill(server), 503, 507)
        filler.check(server)
        check_problem(call("PUT", f"{server.url}/v1/stream/new", TEXT, b"x" * 60_000), 503, 507)
        assert call("GET", f"{server.url}/healthz").status == 200
        ballast.unlink()
        append_again(server, filler)
        filler.check(server)
        check_problem(filler.fill(server), 503, 507)
        server.kill()
    with started(tmp_path, mode, settings=SETTINGS, data_dir=data) as server:
        filler.check(server)
        assert "Traceback" not in server.stderr
        assert server.stop() == 0


def test_full_disk_stop_and_start(small_disk: Path, tmp_path: Path) -> None:
    data = str(small_disk / "data")
    filler = Filler("a")
    with started(tmp_path, "file-durable", settings=SETTINGS, data_dir=data) as server:
        assert call("PUT", f"{server.url}/v1/stream/a", TEXT).status == 201
        check_problem(filler.fill(server), 503, 507)
        assert server.stop() == 0
    for _ in range(3):  # it starts and serves reads; a restart may free some room, but not for long
        with started(tmp_path, "file-durable", settings=SETTINGS, data_dir=data) as server:
            filler.check(server)
            check_problem(filler.fill(server), 503, 507)
            filler.check(server)
            assert server.stop() == 0


def test_deleting_streams_on_a_full_disk_makes_room(small_disk: Path, tmp_path: Path) -> None:
    """The way out that every client has. No DELETE may hang, and space comes back."""
    data = str(small_disk / "data")
    with started(tmp_path, "file-durable", settings=SETTINGS, data_dir=data) as server:
        fillers = [Filler(f"s{number}") for number in range(12)]
        for number in range(12):
            assert call("PUT", f"{server.url}/v1/stream/s{number}", TEXT).status == 201
        for round_ in range(3):
            fill_evenly(server, fillers)
            for number in range(round_ * 3, round_ * 3 + 3):
                delete_somehow(f"{server.url}/v1/stream/s{number}")
                fillers.pop(0)
            for filler in fillers:
                append_again(server, filler)
                filler.check(server)


def fill_evenly(server: Server, fillers: list[Filler]) -> None:
    """Until for some seconds not even a small append is taken, whatever checkpoints do."""
    full_since = time.monotonic()
    while time.monotonic() < full_since + 3:
        for filler in fillers:
            if filler.append(server, 5000).status == 200:
                full_since = time.monotonic()
        time.sleep(0.01)


def delete_somehow(url: str) -> None:
    deadline = time.monotonic() + 60
    while (answer := call("DELETE", url)).status != 204:
        check_problem(answer, 503, 507)
        assert time.monotonic() < deadline, "no room for the record of a removal"
        time.sleep(0.2)


def test_many_deletes_on_a_full_disk_never_hang(small_disk: Path, tmp_path: Path) -> None:
    """Removals are small, but there are many: they too must be refused when nothing is left."""
    data = str(small_disk / "data")
    settings = SETTINGS | {"DS_STORAGE__CHECKPOINT_SECS": "3600"}
    with started(tmp_path, "file-durable", settings=settings, data_dir=data) as server:
        for number in range(1500):
            assert call("PUT", f"{server.url}/v1/stream/s{number}", TEXT).status == 201
        filler = Filler("a")
        assert call("PUT", f"{server.url}/v1/stream/a", TEXT).status == 201
        take_all_space(small_disk / "ballast")
        check_problem(filler.fill(server), 503, 507)
        while filler.append(server, 10).status == 200:
            pass
        statuses = set()
        for number in range(1500):
            answer = call("DELETE", f"{server.url}/v1/stream/s{number}")
            statuses.add(answer.status)
        assert statuses <= {204, 503, 507}, statuses
        filler.check(server)
        server.kill()
    (small_disk / "ballast").unlink()
    with started(tmp_path, "file-durable", settings=settings, data_dir=data) as server:
        filler.check(server)


def test_full_disk_in_acid_mode(small_disk: Path, tmp_path: Path) -> None:
    data = str(small_disk / "data")
    settings = SETTINGS | {"DS_STORAGE__ACID_SHARD_COUNT": "2"}
    filler = Filler("a")
    with started(tmp_path, "acid", settings=settings, data_dir=data) as server:
        assert call("PUT", f"{server.url}/v1/stream/a", TEXT).status == 201
        check_problem(filler.fill(server), 503, 507)
        filler.check(server)
        server.kill()
    assert subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)]).returncode == 0
    with started(tmp_path, "acid", settings=settings, data_dir=data) as server:
        filler.check(server)
        assert filler.append(server).status in (200, 204)
        filler.check(server)


# -- injected errors: the storage ----------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write_at", "sync"])
@pytest.mark.parametrize("partial", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
async def test_failed_batch_fails_all_of_its_appends(
    tmp_path: Path, operation: str, partial: float, code: int
) -> None:
    live = tmp_path / "live"
    files = FaultyFiles()
    async with opened("file-durable", live, files=files) as driver:
        await driver.begin("a", b"a,")
        await driver.begin("b", b"b,")
        files.faults = [Fault(operation, ".journal$", code, times=1, partial=partial)]
        doomed = [driver.append(name, b"doomed,") for name in "abab"]
        doomed += [driver.begin("c", b"doomed,")]
        results = await asyncio.gather(*doomed, return_exceptions=True)
        assert [type(result) for result in results] == [StorageFailed] * 5
        assert driver.storage.failure is not None
        with pytest.raises(StorageFailed):
            driver.storage.admits(10)
        with pytest.raises(StorageFailed):
            await driver.barrier()
        for name in "ab":  # readers see what was committed and nothing else
            stream_id = driver.states[name].id
            assert await driver.storage.read(stream_id, 0, 2) == f"{name},".encode()
            assert driver.storage.read_now(stream_id, 0, 2) == f"{name},".encode()
        killed = copy_as_killed(live, tmp_path / "killed")
    for folder in (killed, live):  # killed there, or stopped in good order
        async with opened("file-durable", folder) as driver:
            found = await driver.contents()
            # A batch that was written but not synced may come back, whole; a torn one may not.
            whole = operation == "sync" or partial == 1.0
            rest = b"doomed," * 2 if whole else b""
            assert found.pop("c", b"doomed,") == b"doomed,"
            assert found == {"a": b"a," + rest, "b": b"b," + rest}
            await driver.append("a", b"on,")


async def test_what_waits_behind_a_failed_batch_fails_too(tmp_path: Path) -> None:
    """It was judged by a state that includes what was lost."""
    files = FaultyFiles()
    async with opened("file-durable", tmp_path, files=files) as driver:
        await driver.begin("a")
        with files.hold_syncs(".journal$"):
            first = driver.append("a", b"1")
            assert await asyncio.to_thread(files.arrived.wait, 60)
            second = driver.append("a", b"2")
            follower = driver.barrier()
            files.faults = [Fault("sync", ".journal$", times=1)]
        results = await asyncio.gather(first, second, follower, return_exceptions=True)
        assert [type(result) for result in results] == [StorageFailed] * 3


@pytest.mark.parametrize(
    "fault",
    [
        Fault("open", "segments", times=2),
        Fault("write_at", "segments", errno.ENOSPC, times=1, partial=0.3),
        Fault("write_at", "segments", after=1, times=1, partial=0.9),
        Fault("sync", "segments", times=2),
        Fault("sync_dir", "segments", times=1),
        Fault("write_at", "catalog", errno.ENOSPC, times=2, partial=0.5),
        Fault("write_at", "catalog", times=1, partial=1.0),
        Fault("sync", "catalog", times=2),
    ],
    ids=lambda fault: f"{fault.operation} {fault.where} {fault.partial}",
)
async def test_failed_checkpoint_loses_nothing(tmp_path: Path, fault: Fault) -> None:
    live = tmp_path / "live"
    files = FaultyFiles()
    async with opened("file-durable", live, checkpoint_secs=0.02, files=files) as driver:
        for name in "abc":
            await driver.begin(name, f"{name}0,".encode())
        await driver.flushed("a")
        files.faults = [fault]
        for number in range(1, 4):
            for name in "abc":
                await driver.append(name, f"{name}{number},".encode())
        await driver.begin("new", b"new,")
        await driver.remove("c")
        await until(lambda: files.struck > 0)
        expected = await driver.contents()
        killed = copy_as_killed(live, tmp_path / "killed")
        async with opened("file-durable", killed) as other:
            assert await other.contents() == expected
        await driver.flushed("a", "b", "new")  # it is tried again until it works
        assert await driver.contents() == expected
        assert driver.storage.failure is None
    async with opened("file-durable", live) as driver:
        assert await driver.contents() == expected


async def test_checkpoints_that_never_work_do_not_hold_up_the_stop(tmp_path: Path) -> None:
    files = FaultyFiles([Fault("sync", "segments")])
    driver_context = opened("file-durable", tmp_path, checkpoint_secs=0.02, files=files)
    async with asyncio.timeout(60):
        async with driver_context as driver:
            await driver.begin("a", b"bytes")
            await until(lambda: files.struck > 0)
    async with opened("file-durable", tmp_path) as driver:
        assert await driver.contents() == {"a": b"bytes"}


@pytest.mark.parametrize("operation", ["create", "write_at", "sync", "rename"])
async def test_no_next_journal_file(tmp_path: Path, operation: str) -> None:
    """Appends are refused as `full`, not as `failed`, and go on when the file can be made."""
    files = FaultyFiles()
    async with opened("file-durable", tmp_path, journal_bytes=8192, files=files) as driver:
        await driver.begin("a")
        files.faults = [Fault(operation, ".journal$" if operation == "rename" else ".new")]
        with pytest.raises(StorageFull):
            for _ in range(100):
                await asyncio.wait_for(driver.append_when_admitted("a", b"x" * 1000), 60)
        expected = await driver.contents()
        assert driver.storage.failure is None
        files.faults = []
        await until(lambda: _admits(driver.storage, 1000))
        await driver.append("a", b"y" * 1000)
        assert await driver.read("a") == expected["a"] + b"y" * 1000
    async with opened("file-durable", tmp_path) as driver:
        assert await driver.read("a") == expected["a"] + b"y" * 1000


def _admits(storage: Storage, size: int) -> bool:
    try:
        return storage.admits(size)
    except StorageFull:
        return False


async def test_journal_goes_on_after_a_slow_checkpoint(tmp_path: Path) -> None:
    """All journal files fill up while one checkpoint runs: appends wait, and then go on."""
    files = FaultyFiles()
    async with opened(
        "file-durable", tmp_path, journal_bytes=8192, journal_files=2, files=files
    ) as driver:
        await driver.begin("a")
        with files.hold_syncs("segments"):
            waiting = await _fill_journal(driver, files)
            assert not waiting.done(), "the journal has no bounds"
        await asyncio.wait_for(waiting, 60)
        assert driver.states["a"].tail == 40_000


async def test_appends_are_refused_when_checkpoints_never_work(tmp_path: Path) -> None:
    """The journal fills up and nothing empties it: `full`, without a wait that nobody ends."""
    files = FaultyFiles()
    async with opened(
        "file-durable", tmp_path, journal_bytes=8192, journal_files=2, files=files
    ) as driver:
        await driver.begin("a")
        with files.hold_syncs("segments"):
            waiting = await _fill_journal(driver, files)
            files.faults = [Fault("sync", "segments")]
        with pytest.raises(StorageFull):
            await asyncio.wait_for(waiting, 60)
        expected = await driver.contents()
        assert driver.storage.failure is None
        files.faults = []
        await until(lambda: _admits(driver.storage, 1000))
        await driver.append_when_admitted("a", b"y" * 1000)
        assert await driver.read("a") == expected["a"] + b"y" * 1000
    async with opened("file-durable", tmp_path) as driver:
        assert await driver.read("a") == expected["a"] + b"y" * 1000


async def _fill_journal(driver: Driver, files: FaultyFiles) -> "asyncio.Future[None]":
    """Append while a checkpoint is held, until the journal admits no more; the rest waits."""
    waiting = asyncio.ensure_future(_append_many(driver, 40))
    assert await asyncio.to_thread(files.arrived.wait, 60)
    await until(lambda: waiting.done() or not _admits(driver.storage, 1000))
    return waiting


async def _append_many(driver: Driver, count: int) -> None:
    for _ in range(count):
        await driver.append_when_admitted("a", b"x" * 1000)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, real_read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_write(fd, data[:7], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real_read(fd, min(size, 5), at))
    files = Files()
    fd = files.open(str(tmp_path / "file"), create=True)
    files.write_at(fd, bytes(range(100)), 11)
    assert files.read_at(fd, 100, 11) == bytes(range(100))
    assert files.read_at(fd, 500, 100) == bytes(range(89, 100))
    files.close(fd)


def test_a_short_synced_write_is_completed_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write, real_sync = os.pwritev, os.fdatasync
    synced: list[int] = []
    monkeypatch.setattr(
        os, "pwritev", lambda fd, parts, at, flags: real_write(fd, [parts[0][:3]], at, flags)
    )

    def sync(fd: int) -> None:
        synced.append(fd)
        real_sync(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    files = Files()
    fd = files.open(str(tmp_path / "file"), create=True)
    files.write_synced(fd, [b"abcdef", b"ghi"], 4)
    assert files.read_at(fd, 20, 4) == b"abcdefghi"
    assert synced == [fd]
    files.close(fd)


# -- injected errors: the server -----------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write_at", "sync"])
def test_broken_journal_of_the_real_server(tmp_path: Path, operation: str) -> None:
    faults = tmp_path / "faults.json"
    write_faults(faults)
    settings = SETTINGS | {VARIABLE: str(faults)}
    filler = Filler("a")
    with started(tmp_path, "file-durable", settings=settings, module=FAULTY) as server:
        base = f"{server.url}/v1/stream"
        assert call("PUT", f"{base}/a", TEXT).status == 201
        assert call("PUT", f"{base}/b", TEXT, b"b").status == 201
        for _ in range(5):
            assert filler.append(server, 100).status == 200
        assert call("GET", f"{server.url}/readyz").status == 200
        write_faults(faults, Fault(operation, ".journal$", partial=0.5))
        check_problem(filler.append(server, 100), 503)
        check_problem(filler.append(server, 100), 503)
        assert call("GET", f"{server.url}/readyz").status == 503
        assert call("GET", f"{server.url}/healthz").status == 200
        filler.check(server)
        tail = call("HEAD", f"{base}/a").headers["Stream-Next-Offset"]
        assert int(tail.rpartition("_")[2]) == sum(map(len, filler.sent))
        assert "Traceback" not in server.stderr
        write_faults(faults)  # the disk works again, but the server cannot know what it holds
        check_problem(filler.append(server, 100), 503)
        assert server.stop() == 0
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        answer = filler.append(server, 100)
        assert answer.status in (200, 204)
        filler.check(server)
        assert call("GET", f"{server.url}/v1/stream/b").body == b"b"


@pytest.fixture
def broken_server(tmp_path: Path) -> Iterator[Server]:
    """A server with streams `a` (bytes `kept,`) and `b`, whose journal can no longer be synced."""
    faults = tmp_path / "faults.json"
    write_faults(faults)
    settings = SETTINGS | {VARIABLE: str(faults), "DS_STORAGE__CHECKPOINT_SECS": "3600"}
    with started(tmp_path, "file-durable", settings=settings, module=FAULTY) as server:
        base = f"{server.url}/v1/stream"
        assert call("PUT", f"{base}/a", TEXT).status == 201
        assert call("POST", f"{base}/a", producer(0), b"kept,").status == 200
        assert call("PUT", f"{base}/b", TEXT).status == 201
        write_faults(faults, Fault("write_at", ".journal$", partial=0.5))
        yield server


def test_retry_of_a_failed_append_is_no_duplicate(broken_server: Server) -> None:
    """The state that judged the first try includes what was lost: it must not say `known`."""
    url = f"{broken_server.url}/v1/stream/a"
    for _ in range(3):
        check_problem(call("POST", url, producer(1), b"lost,"), 503)
    check_problem(call("POST", url, producer(2), b"next,"), 503)
    assert call("GET", url).body == b"kept,"


def test_retry_of_a_failed_close_is_no_success(broken_server: Server) -> None:
    url = f"{broken_server.url}/v1/stream/a"
    for _ in range(3):
        check_problem(call("POST", url, {"Stream-Closed": "true"}), 503)
    assert "Stream-Closed" not in call("HEAD", url).headers


def test_retry_of_a_failed_create_is_no_success(broken_server: Server) -> None:
    url = f"{broken_server.url}/v1/stream/new"
    for _ in range(3):
        check_problem(call("PUT", url, TEXT), 503)
    assert call("GET", url).status == 404


def test_retry_of_a_failed_delete_is_no_success(broken_server: Server) -> None:
    """404 would tell the client that the stream is gone; after a restart it is there."""
    url = f"{broken_server.url}/v1/stream/b"
    for _ in range(3):
        check_problem(call("DELETE", url), 503)
    assert call("GET", url).status == 200
    check_problem(call("PUT", url, TEXT), 503)


def test_snapshot_without_space_is_507_and_leaves_nothing(tmp_path: Path) -> None:
    faults = tmp_path / "faults.json"
    write_faults(faults)
    settings = SETTINGS | {VARIABLE: str(faults)}
    with started(tmp_path, "file-durable", settings=settings, module=FAULTY) as server:
        url = f"{server.url}/v1/stream/a"
        assert call("PUT", url, TEXT, b"kept,").status == 201
        tail = call("HEAD", url).headers["Stream-Next-Offset"]
        target, snapshot = f"{url}/snapshot/{tail}", b"s" * 700_000
        write_faults(faults, Fault("write_at", "snapshots/", errno.ENOSPC, after=3, partial=0.5))
        for _ in range(3):
            check_problem(call("PUT", target, TEXT, snapshot), 507)
            assert not blob_names(tmp_path / "data")
        assert call("GET", url).body == b"kept,"
        assert call("POST", url, TEXT, b"more,").status == 204
        assert call("GET", f"{server.url}/readyz").status == 200
        assert "Traceback" not in server.stderr
        write_faults(faults)
        assert call("PUT", target, TEXT, snapshot).status == 204
        server.kill()
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        url = f"{server.url}/v1/stream/a"
        assert call("GET", f"{url}/snapshot/{tail}").body == snapshot
        assert call("GET", f"{url}?offset={tail}").body == b"more,"
        assert call("GET", url).status == 410


def test_broken_checkpoints_of_the_real_server(tmp_path: Path) -> None:
    """Segments and catalog cannot be written for a while: appends go on, nothing is lost."""
    faults = tmp_path / "faults.json"
    write_faults(faults)
    settings = SETTINGS | {VARIABLE: str(faults), "DS_STORAGE__JOURNAL_FILES": "8"}
    filler = Filler("a")
    with started(tmp_path, "file-durable", settings=settings, module=FAULTY) as server:
        assert call("PUT", f"{server.url}/v1/stream/a", TEXT).status == 201
        for fault in (Fault("sync", "segments"), Fault("write_at", "catalog", partial=0.5)):
            write_faults(faults, fault)
            for _ in range(10):
                assert filler.append(server, 3000).status == 200
                time.sleep(0.05)
            assert call("GET", f"{server.url}/readyz").status == 200
            filler.check(server)
        killed = tmp_path / "killed"
        shutil.copytree(tmp_path / "data", killed / "data")
        write_faults(faults)
        assert filler.append(server, 3000).status == 200
        assert server.stop() == 0
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        filler.check(server)
    filler.sent.pop()
    with started(killed, "file-durable", settings=SETTINGS) as server:
        filler.check(server)


def test_full_journal_of_the_real_server_is_507(tmp_path: Path) -> None:
    """Checkpoints fail until the journal is full: every append is answered, and room comes back."""
    faults = tmp_path / "faults.json"
    write_faults(faults, Fault("sync", "segments"))
    settings = SETTINGS | {VARIABLE: str(faults), "DS_STORAGE__JOURNAL_FILES": "2"}
    filler = Filler("a")
    with started(tmp_path, "file-durable", settings=settings, module=FAULTY) as server:
        assert call("PUT", f"{server.url}/v1/stream/a", TEXT).status == 201
        check_problem(filler.fill(server), 507)
        check_problem(filler.append(server), 507)
        filler.check(server)
        write_faults(faults)
        append_again(server, filler)
        assert server.stop() == 0
    with started(tmp_path, "file-durable", settings=SETTINGS) as server:
        filler.check(server)
