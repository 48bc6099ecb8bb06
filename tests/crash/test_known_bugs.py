"""Crash bugs that other servers of this protocol had, one test for each: we must not have them."""

import asyncio
import copy
import errno
import shutil
import socket
import time
from pathlib import Path

import pytest

from tests.crash.http import call
from tests.helpers.faulty_files import VARIABLE, Fault, FaultyFiles, write_faults
from tests.helpers.server import started
from tests.origin.storage.driver import copy_as_killed, has_batches, opened, until

SETTINGS = {
    "DS_STORAGE__JOURNAL_BYTES": "262144",
    "DS_LIMITS__MAX_BODY_BYTES": "65536",
    "DS_SERVER__LONG_POLL_TIMEOUT_SECS": "0.5",
}
TEXT = {"Content-Type": "text/plain"}
MODES = ["file-durable", "acid"]


async def test_boot_keeps_a_full_journal_file(tmp_path: Path) -> None:
    """Preparing journal files at boot must not touch one that holds acknowledged batches."""
    live = tmp_path / "live"
    files = FaultyFiles()
    async with opened("file-durable", live, journal_bytes=8192, files=files) as driver:
        with files.hold_syncs("segments"):  # no checkpoint ends: all of it is in journal files
            await driver.begin("a")
            for number in range(20):
                await driver.append_when_admitted("a", f"{number:04d}".encode() * 250)
            expected = await driver.contents()
            killed = copy_as_killed(live, tmp_path / "killed")
    for boot in range(4):  # each with another size of journal files, to invite re-allocation
        size = (8192, 4096, 65536, 8192)[boot]
        async with opened("file-durable", killed, journal_bytes=size) as driver:
            assert await driver.contents() == expected
            killed = copy_as_killed(killed, tmp_path / f"killed-{boot}")


@pytest.mark.parametrize("mode", MODES)
async def test_second_and_later_boots(mode: str, tmp_path: Path) -> None:
    """What one boot assumed about its files must hold for the next, with and without work."""
    folder = tmp_path / "data-0"
    expected: dict[str, bytes] = {}
    for boot in range(8):
        async with opened(mode, folder, checkpoint_secs=0.02) as driver:
            assert await driver.contents() == expected
            if boot % 3 != 2:
                await driver.begin(f"s{boot}", b"bytes")
                await driver.append("s0", f"boot {boot}\n".encode())
            expected = await driver.contents()
            states = copy.deepcopy(driver.states)
            if boot % 2:
                folder = copy_as_killed(folder, tmp_path / f"data-{boot}")
    async with opened(mode, folder) as driver:
        assert (driver.states, await driver.contents()) == (states, expected)


async def test_restarts_do_not_pile_up_journal_files(tmp_path: Path) -> None:
    async with opened("file-durable", tmp_path) as driver:
        await driver.begin("a", b"bytes")
    for _ in range(12):
        async with opened("file-durable", tmp_path) as driver:
            assert await driver.read("a") == b"bytes"
    assert len(list((tmp_path / "journal").glob("*.journal"))) <= 4


async def test_crash_loop_does_not_pile_up_journal_files(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    async with opened("file-durable", folder) as driver:
        await driver.begin("a", b"bytes")
    for number in range(1, 12):
        async with opened("file-durable", folder):
            folder = copy_as_killed(folder, tmp_path / str(number))
    assert len(list((folder / "journal").glob("*.journal"))) <= 4


async def test_staged_bytes_are_invisible_until_they_are_durable(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with opened("file-durable", tmp_path / "live", files=files) as driver:
        await driver.begin("a", b"old,")
        stream_id = driver.states["a"].id
        with files.hold_syncs(".journal$"):
            landed = driver.append("a", b"new,")
            assert await asyncio.to_thread(files.arrived.wait, 60)
            assert driver.storage.read_now(stream_id, 0, 4) == b"old,"
            assert not landed.done()
        await landed
        assert await driver.read("a") == b"old,new,"


def test_reader_of_the_real_server_waits_for_the_sync(tmp_path: Path) -> None:
    """The journal cannot be synced for a while: nobody sees the append, whatever they ask."""
    faults = tmp_path / "faults.json"
    write_faults(faults)
    settings = SETTINGS | {VARIABLE: str(faults)}
    module = "tests.helpers.faulty_files"
    with started(tmp_path, "file-durable", settings=settings, module=module) as server:
        url = f"{server.url}/v1/stream/a"
        assert call("PUT", url, TEXT, b"old,").status == 201
        write_faults(faults, Fault("sync", "journal", delay_s=2.0))
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as writer:
            head = "POST /v1/stream/a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
            writer.sendall(f"{head}Stream-Closed: true\r\nContent-Length: 4\r\n\r\nnew,".encode())
            for query in ("", "?offset=-1&live=long-poll", "?offset=now&live=long-poll"):
                answer = call("GET", url + query)
                assert answer.body in (b"old,", b""), query
                assert answer.headers["Stream-Next-Offset"].endswith("0004")
                assert "Stream-Closed" not in answer.headers
            assert call("HEAD", url).headers["Stream-Next-Offset"].endswith("0004")
            assert b" 204 " in writer.recv(1000).splitlines()[0]
        answer = call("GET", url)
        assert (answer.body, answer.headers["Stream-Closed"]) == (b"old,new,", "true")


async def test_torn_tail_of_a_stream_with_no_surviving_record(tmp_path: Path) -> None:
    """Only a torn batch names the stream: after recovery there is no such stream, and no bytes."""
    live = tmp_path / "live"
    fault = Fault("write_at", ".journal$", after=10_000, partial=0.7)
    files = FaultyFiles([fault])
    async with opened("file-durable", live, files=files) as driver:
        await driver.begin("kept", b"kept")
        fault.after, fault.times = 0, 1
        with pytest.raises(Exception, match="Input/output"):
            await driver.begin("torn", b"t" * 5000)
        killed = copy_as_killed(live, tmp_path / "killed")
    async with opened("file-durable", killed, checkpoint_secs=0.02) as driver:
        assert await driver.contents() == {"kept": b"kept"}
        await driver.begin("torn", b"new")
        await driver.flushed("kept", "torn")
        again = copy_as_killed(killed, tmp_path / "again")
    async with opened("file-durable", again) as driver:
        assert await driver.contents() == {"kept": b"kept", "torn": b"new"}


async def test_torn_segment_of_an_unfinished_checkpoint(tmp_path: Path) -> None:
    """Bytes beyond what the catalog counts are nobody's, also after they were written over."""
    live = tmp_path / "live"
    fault = Fault("write_at", "segments/", after=1, times=1, partial=0.6)
    async with opened(
        "file-durable", live, checkpoint_secs=0.02, files=FaultyFiles([fault])
    ) as driver:
        await driver.begin("a", b"first,")
        await driver.flushed("a")
        await driver.append("a", b"second," * 100)
        await until(lambda: fault.times < 1)
        killed = copy_as_killed(live, tmp_path / "killed")
    async with opened("file-durable", killed, checkpoint_secs=0.02) as driver:
        await driver.append("a", b"third,")
        assert await driver.read("a") == b"first," + b"second," * 100 + b"third,"
        await driver.flushed("a")
        assert await driver.read("a") == b"first," + b"second," * 100 + b"third,"


@pytest.mark.parametrize("mode", MODES)
def test_acknowledged_delete_is_durable(mode: str, tmp_path: Path) -> None:
    with started(tmp_path, mode, settings=SETTINGS) as server:
        for name in ("a", "b"):
            assert call("PUT", f"{server.url}/v1/stream/{name}", TEXT, b"bytes").status == 201
        assert call("DELETE", f"{server.url}/v1/stream/a").status == 204
        server.kill()
    for _ in range(2):
        with started(tmp_path, mode, settings=SETTINGS) as server:
            assert call("GET", f"{server.url}/v1/stream/a").status == 404
            assert call("GET", f"{server.url}/v1/stream/b").body == b"bytes"


@pytest.mark.parametrize("mode", MODES)
def test_recreated_stream_has_nothing_of_the_old_one(mode: str, tmp_path: Path) -> None:
    with started(tmp_path, mode, settings=SETTINGS) as server:
        url = f"{server.url}/v1/stream/a"
        producer = {"Producer-Id": "p", "Producer-Epoch": "5", "Producer-Seq": "0"}
        assert call("PUT", url, TEXT).status == 201
        assert call("POST", url, TEXT | producer | {"Stream-Seq": "z"}, b"old").status == 200
        assert call("DELETE", url).status == 204
        assert call("PUT", url, TEXT, b"new").status == 201
        server.kill()
    with started(tmp_path, mode, settings=SETTINGS) as server:
        url = f"{server.url}/v1/stream/a"
        assert call("GET", url).body == b"new"
        fresh = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
        assert call("POST", url, TEXT | fresh | {"Stream-Seq": "a"}, b"er").status == 200
        assert call("GET", url).body == b"newer"


@pytest.mark.parametrize("mode", MODES)
def test_append_of_a_client_that_left_becomes_visible_by_itself(mode: str, tmp_path: Path) -> None:
    """Sent whole, then gone: its bytes show up without another append, and survive a kill."""
    with started(tmp_path, mode, settings=SETTINGS) as server:
        url = f"{server.url}/v1/stream/a"
        assert call("PUT", url, TEXT).status == 201
        port = int(server.url.rpartition(":")[2])
        for number in range(20):
            with socket.create_connection(("127.0.0.1", port)) as client:
                head = "POST /v1/stream/a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                client.sendall(f"{head}Content-Length: 3\r\n\r\n{number:02d}\n".encode())
                if number % 2:  # reset instead of a polite end
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        last, is_quiet, deadline = b"", False, time.monotonic() + 60
        while not is_quiet and time.monotonic() < deadline:
            body = call("GET", url).body
            assert body.startswith(last)
            is_quiet, last = body == last and len(body.splitlines()) >= 10, body
            time.sleep(0.2)
        tail = int(call("HEAD", url).headers["Stream-Next-Offset"].rpartition("_")[2])
        assert len(last) == tail
        lines = last.splitlines()
        assert len(lines) == len(set(lines)) >= 10
        server.kill()
    with started(tmp_path, mode, settings=SETTINGS) as server:
        assert call("GET", f"{server.url}/v1/stream/a").body == last


@pytest.mark.parametrize("mode", MODES)
def test_half_sent_append_leaves_nothing(mode: str, tmp_path: Path) -> None:
    with started(tmp_path, mode, settings=SETTINGS) as server:
        url = f"{server.url}/v1/stream/a"
        assert call("PUT", url, TEXT).status == 201
        port = int(server.url.rpartition(":")[2])
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port)) as client:
                head = "POST /v1/stream/a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                client.sendall(f"{head}Content-Length: 300\r\n\r\nonly a part".encode())
        assert call("POST", url, TEXT, b"whole").status == 204
        assert call("GET", url).body == b"whole"
        server.kill()
    with started(tmp_path, mode, settings=SETTINGS) as server:
        assert call("GET", f"{server.url}/v1/stream/a").body == b"whole"


async def test_unlinked_catalog_is_never_written_to(tmp_path: Path) -> None:
    """The name moved, then the folder's sync failed: later checkpoints must reach the new file."""
    live = tmp_path / "live"
    files = FaultyFiles()
    async with opened("file-durable", live, checkpoint_secs=0.02, files=files) as driver:
        await driver.begin("a", b"1,")
        await driver.flushed("a")
        driver.storage.folder.catalog._rewritten_at = -(4 << 20)  # type: ignore[attr-defined]
        fault = Fault("sync_dir", f"{live}$", errno.EIO, times=1)
        files.faults = [fault]
        await driver.append("a", b"2,")
        await until(lambda: fault.times < 1)
        await driver.flushed("a")
        await driver.append("a", b"3,")
        await until(lambda: not has_batches(live))
        killed = copy_as_killed(live, tmp_path / "killed")
    async with opened("file-durable", killed) as driver:
        assert await driver.contents() == {"a": b"1,2,3,"}
    shutil.rmtree(killed)
