"""Both ways to the state of a stream, against a real origin that is its own gateway."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.analytics.changes import History
from loadtest.errors import RunFailedError
from loadtest.load import state
from loadtest.load.client import ROOT, Client, RefusedError, WrongAnswerError
from loadtest.load.connection import Target
from loadtest.load.contest import Launch, Plan
from loadtest.load.replies import Reply
from loadtest.load.state import (
    PATH,
    allocated_bytes,
    await_reclaimed,
    bootstrap_messages,
    measure_reads,
    measure_way,
    try_compacted,
    write_changes,
)
from loadtest.peers.names import OURS, REPLAY
from loadtest.peers.process import Server
from loadtest.peers.servers import run_weir
from protocol.state import parse_message, snapshot_messages
from tests.helpers.origin import LocalOrigin
from tests.helpers.scripted_origin import Answer, ScriptedOrigin

HISTORY = History(entities=50, rounds=40)
CHANGE = b'{"type":"item","key":"late","value":1,"headers":{"operation":"insert"}}'
MULTIPART = 'multipart/mixed; boundary="b"'


@pytest.fixture
def server(start_origin: Callable[..., LocalOrigin], tmp_path: Path) -> Server:
    """An origin that is its own gateway."""
    origin = start_origin("file-durable")
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("token\n")
    data_dir = Path(origin.config.storage.data_dir)
    return Server(os.getpid(), origin.port, 0.0, tokens=tokens, data_dir=data_dir)


def launch_of(server: Server) -> Launch:
    @contextmanager
    def launch() -> Iterator[Server]:
        yield server

    return launch


async def write(server: Server, history: History) -> None:
    async with Client(Target.local(server.port)) as client:
        await write_changes(client, history)


async def test_both_sides_are_measured_in_the_same_measures(server: Server) -> None:
    sides = await try_compacted(launch_of(server), Plan(crowd_rounds=1), HISTORY)
    names = {measure.name for measure in state.SCENARIOS[0].measures}
    figures = {
        side: {name: value for sample in samples for name, value in sample.figures.items()}
        for side, samples in sides.items()
    }
    assert set(figures[OURS]) == names
    assert set(figures[REPLAY]) == names - {"weir compact"}
    assert all(value > 0 for value in [*figures[OURS].values(), *figures[REPLAY].values()])
    assert figures[OURS]["received"] < figures[REPLAY]["received"] / 10


async def test_another_state_is_a_failure(server: Server) -> None:
    await write(server, HISTORY)
    longer = replace(HISTORY, rounds=41)
    with pytest.raises(WrongAnswerError, match="replay came to another state"):
        await measure_way("replay", server, 1, longer)


async def test_a_bootstrap_is_the_snapshot_and_what_came_after_it(
    server: Server, origin: LocalOrigin
) -> None:
    target, expected = Target.local(origin.port), HISTORY.final_state()
    async with Client(target, ["token"]) as client:
        await write_changes(client, HISTORY)
        for way, times in (("replay", 1), ("bootstrap", 3)):
            figures = await measure_reads(client, way, times, expected)
            assert figures["received"] * 1000 > len(b"".join(HISTORY.batches())) - 10
            assert 0 < figures["bytes only"] < 30_000 and 0 < figures["materialised"] < 30_000
    with origin.client() as raw:
        tail = raw("HEAD", PATH).next_offset
        json_type = {"Content-Type": "application/json"}
        snapshot = snapshot_messages(expected, tail)
        assert raw("PUT", f"{PATH}/snapshot/{tail}", json_type, snapshot).status == 204
        raw.append(PATH, CHANGE, "application/json")
    expected.apply(parse_message(CHANGE))
    async with Client(target, ["token"]) as client:
        await measure_reads(client, "bootstrap", 2, expected)
        with pytest.raises(RefusedError, match="410"):
            await measure_reads(client, "replay", 1, expected)


async def test_a_bootstrap_that_ends_before_the_tail_is_refused() -> None:
    with ScriptedOrigin() as server:
        server.on("GET", f"/v1/stream/{PATH}/bootstrap", Answer(200, {}, b""))
        async with Client(Target.parse(server.url)) as client:
            with pytest.raises(WrongAnswerError, match="tail"):
                await measure_reads(client, "bootstrap", 1, HISTORY.final_state())


def multipart(body: bytes, content_type: str = MULTIPART) -> Reply:
    return Reply(200, {"content-type": content_type}, len(body), bytearray(body))


def test_messages_of_a_bootstrap_are_in_order() -> None:
    head = b"\r\nContent-Type: application/json\r\n\r\n"
    body = b"--b" + head + b"[1,2]\r\n--b" + head + b"3\r\n--b" + head + b"4\r\n--b--\r\n"
    assert bootstrap_messages(multipart(body)) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"[]"),
        (MULTIPART, b""),
        (MULTIPART, b"--b\r\nA: b\r\n\r\n1\r\n--b\r\nA: b\r\n\r\n2"),
        (MULTIPART, b"--b--\r\n"),
    ],
    ids=["not multipart", "empty", "cut short", "no parts"],
)
def test_what_is_no_whole_multipart_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        bootstrap_messages(multipart(body, content_type))


def test_a_compaction_that_fails_says_why(server: Server) -> None:
    with pytest.raises(RunFailedError, match="404"):
        run_weir("compact", f"http://127.0.0.1:{server.port}{ROOT}{PATH}")


def test_holes_take_no_room_on_the_disk(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as sink:
        sink.truncate(10_000_000)
        sink.write(b"x" * 100_000)
        sink.flush()
        os.fsync(sink.fileno())
    assert 100_000 <= allocated_bytes(tmp_path) < 1_000_000
    assert allocated_bytes(tmp_path / "none") == 0


def test_room_that_is_not_given_back_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "RECLAIM_TIMEOUT_SECS", 0.0)
    (tmp_path / "segments").mkdir()
    await_reclaimed(tmp_path)
    (tmp_path / "segments/one.seg").write_bytes(os.urandom(500_000))
    with pytest.raises(RunFailedError, match="not given back"):
        await_reclaimed(tmp_path)
