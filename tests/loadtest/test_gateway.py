"""The rows of the gateway's suite, small, with an origin that is its own gateway."""

import os
from pathlib import Path

import pytest

from loadtest.load import gateway
from loadtest.load.client import Client, WrongAnswerError
from loadtest.load.connection import Target
from loadtest.load.contest import Plan
from loadtest.load.gateway import (
    count_origin_reads,
    measure_misses,
    measure_polls,
    measure_readers,
    new_path,
    read_once,
    run_fanout,
)
from loadtest.load.origin import CONTENT
from loadtest.peers.process import Server
from tests.helpers.origin import LocalOrigin

READERS = 20


@pytest.fixture
def server(origin: LocalOrigin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name, value in {"POLLS": READERS, "SSE_READERS": READERS, "MISS_CONNECTIONS": 5}.items():
        monkeypatch.setattr(gateway, name, value)
    monkeypatch.setattr(gateway, "ARRIVAL_SECS", 0.1)
    monkeypatch.setattr(gateway, "IDLE_LIMIT_SECS", 0.5)
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("one\ntwo\n")
    return Server(os.getpid(), origin.port, 0.0, origin_port=origin.port, tokens=tokens)


async def write(server: Server, path: str, content: bytes) -> None:
    async with Client(Target.local(server.write_port)) as client:
        await client.create(path, content, closed=True)


async def test_long_polls_end_with_the_append(server: Server) -> None:
    sample = await measure_polls(server, Plan())
    assert 0 < sample.figures["last answer"] < 5000
    assert sample.figures["at origin"] == READERS  # nobody shares anything here
    assert sample.client_cpu is not None and sample.client_cpu > 0


async def test_messages_reach_every_event_stream(server: Server) -> None:
    figures = (await run_fanout(server, 0.2)).figures
    assert READERS < figures["events"] <= figures["messages"]
    assert figures["window"] in (1, 2)


async def test_idle_readers_are_alive(server: Server) -> None:
    assert (await measure_readers(server, READERS)).figures["before"] > 0


async def test_misses_are_measured_both_ways_at_their_rate(server: Server) -> None:
    sample = await measure_misses(server, 0.1)
    figures = sample.figures
    assert 0 < figures["p50"] <= figures["p99"] and figures["direct p50"] > 0
    assert figures["added p50"] == figures["p50"] - figures["direct p50"]


async def test_another_body_is_no_miss(server: Server) -> None:
    await write(server, "a", b"short")
    async with Client(Target.local(server.port)) as client:
        with pytest.raises(WrongAnswerError, match="5 bytes read"):
            await gateway._miss(client, "a", [])


async def test_reads_since_the_last_look(server: Server) -> None:
    before = await count_origin_reads(server)
    assert await count_origin_reads(server, before) == 0
    await write(server, "a", CONTENT)
    before = await count_origin_reads(server)
    await read_once(server, ["a", "a"])
    assert await count_origin_reads(server, before) == 2


async def test_a_server_without_an_origin_sends_nothing_there() -> None:
    assert await count_origin_reads(Server(1, 1, 0.0)) == 0


async def test_wrong_bytes_are_noticed(server: Server) -> None:
    await write(server, "a", CONTENT[:-1] + b"?")
    with pytest.raises(WrongAnswerError):
        await read_once(server, ["a"])


def test_no_path_comes_twice() -> None:
    assert len({new_path("x") for _ in range(10)}) == 10
