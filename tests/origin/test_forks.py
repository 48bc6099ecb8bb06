"""What a fork inherits, and how forks and their sources end."""

import asyncio
import errno
from pathlib import Path

import pytest

from origin.storage import filestore
from protocol.replies import Reply
from tests.conftest import StartOrigin
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.helpers.origin import MODES, ONE_SHARD_MODES, STOP_S, LocalOrigin, make_config
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    wait_until,
)
from tests.origin.conftest import code


@pytest.mark.parametrize(
    ("again", "status"),
    [
        ({}, 200),
        ({"Content-Type": "TEXT/plain; charset=utf-8"}, 200),
        ({"Stream-TTL": "60"}, 200),
        ({"Stream-Fork-Sub-Offset": "0"}, 200),
        ({"Content-Type": "image/png"}, 409),
        ({"Stream-TTL": "61"}, 409),
        ({"Stream-Expires-At": "2099-01-01T00:00:00Z"}, 409),
        ({"Stream-Closed": "true"}, 409),
        ({"Stream-Fork-Offset": "0000000000000000_0000000000000001"}, 409),
        ({"Stream-Forked-From": PREFIX + "other"}, 409),
    ],
)
def test_a_repeated_fork_takes_what_it_omits_from_its_source(
    client: Client, again: dict[str, str], status: int
) -> None:
    client.create("source", stream_ttl="60", body=b"abc")
    client.create("other", body=b"abc")
    first = {"Stream-Forked-From": PREFIX + "source"}
    created = client("PUT", "fork", first)
    assert (created.status, created["Content-Type"]) == (201, "text/plain")
    client.append("source", b"later")
    assert client("PUT", "fork", first | again).status == status
    assert client("HEAD", "fork")["Stream-TTL"] == "60"


def test_a_repeated_fork_is_the_same_after_its_source_is_gone(client: Client) -> None:
    client.create("source", body=b"abc")
    headers = {"Stream-Forked-From": PREFIX + "source"}
    assert client("PUT", "fork", headers).status == 201
    assert client("DELETE", "source").status == 204
    assert client("PUT", "fork", headers).status == 200
    assert client("PUT", "second", headers).status == 409


@pytest.mark.parametrize(
    "wrong", [{"Content-Type": "image/png"}, {"Stream-Fork-Offset": "9" * 16 + "_" + "9" * 16}]
)
def test_a_refused_fork_does_not_hold_its_source(client: Client, wrong: dict[str, str]) -> None:
    client.create("source", body=b"abc")
    assert client("PUT", "fork", {"Stream-Forked-From": PREFIX + "source", **wrong}).status >= 400
    assert client("DELETE", "source").status == 204
    assert client("HEAD", "source").status == 404


@pytest.mark.parametrize("names", [("fork", "source"), ("source", "fork")])
@pytest.mark.parametrize("mode", ONE_SHARD_MODES)
def test_a_fork_and_its_source_are_deleted_at_the_same_time(
    start_origin: StartOrigin, mode: str, names: tuple[str, str]
) -> None:
    origin = start_origin(mode)
    shard = origin.origin.shard

    async def delete_both() -> list[Reply]:
        return await asyncio.gather(*(shard.lifetimes.delete(name) for name in names))

    with origin.client() as client:
        client.create("source", body=b"x")
        client.create("fork", stream_forked_from=PREFIX + "source")
        deletes = asyncio.run_coroutine_threadsafe(delete_both(), origin._loop)
        assert [reply.status for reply in deletes.result(STOP_S)] == [204, 204]
        wait_until(lambda: origin.call(lambda: len(shard.registry.by_id)) == 0)
        assert [client("HEAD", name).status for name in names] == [404, 404]


def test_a_gone_source_leaves_when_a_full_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash came between the removal of the last fork and that of its source."""
    files = FaultyFiles()
    monkeypatch.setattr(filestore, "Files", lambda: files)
    monkeypatch.setattr(filestore, "RETRY_SECS", 0.05)
    origin = LocalOrigin(make_config(tmp_path, "file-durable"))
    origin.start()
    with origin.client() as client:
        client.create("source", body=b"x")
        client.create("fork", stream_forked_from=PREFIX + "source")
        assert client("DELETE", "source").status == 204
        monkeypatch.setattr(origin.origin.shard.removals, "release", lambda source: None)
        assert client("DELETE", "fork").status == 204
    origin.stop()
    files.faults = [Fault("create", ".journal", errno.ENOSPC)]
    origin.start()
    origin.restart()  # a stop does not wait for room
    with origin.client() as client:
        assert client("PUT", "new").status == 507
        files.faults = []
        wait_until(lambda: client("HEAD", "source").status == 404)
    origin.stop()


def test_fork_of_itself_is_not_there(client: Client) -> None:
    assert client("PUT", "s", {"Stream-Forked-From": PREFIX + "s"}).status == 404


@pytest.mark.parametrize("mode", MODES)
def test_forks_of_forks_have_an_end(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("origin.forks.MAX_FORK_DEPTH", 3)
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("0", body=b"0")
        forks = [
            client("PUT", str(n), {"Stream-Forked-From": f"{PREFIX}{n - 1}"}, str(n).encode())
            for n in range(1, 6)
        ]
        assert [reply.status for reply in forks] == [201, 201, 201, 413, 404]
        assert code(forks[3]) == (413, "fork-too-deep")
        again = client("PUT", "3", {"Stream-Forked-From": PREFIX + "2"})
        assert again.status == 200
        monkeypatch.setattr("origin.forks.MAX_FORK_DEPTH", 2)  # what is deeper stays readable
        assert client.read("3").body == b"0123"
        client("DELETE", "2")
        assert client("PUT", "beside", {"Stream-Forked-From": PREFIX + "1"}).status == 201


@pytest.mark.parametrize("mode", MODES)
def test_a_fork_starts_open_and_without_producers(start_origin: StartOrigin, mode: str) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    kind = {"Content-Type": "text/plain"}
    with start_origin(mode).client() as client:
        client.create("source")
        assert client("POST", "source", kind | producer | {"Stream-Seq": "9"}, b"a").status == 200
        client.append("source", b"", stream_closed="true")
        client.create("fork", stream_forked_from=PREFIX + "source")
        assert client("POST", "fork", kind | producer | {"Stream-Seq": "1"}, b"b").status == 200
        assert client.read("fork").body == b"ab"
