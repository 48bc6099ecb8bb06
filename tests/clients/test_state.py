"""The official State Protocol package and our materialiser read the same state from one stream.

Its `MaterializedState` is fed by the official client. Its `StreamDB` cannot take part: it refuses
values that are no objects, and a `reset` at the beginning of a batch makes it fail.
"""

import asyncio
import json
from random import Random
from typing import Any

import httpx
import pytest

from protocol.state import Materialised
from tests.clients.conftest import Scenario
from tests.conformance.stacks import Gateway
from weir.cli import main
from weir.client.replay import Replay
from weir.client.stream import open_stream

JSON = "application/json"
COUNT, COMPACTED = 15_000, 12_000
BATCH = 200
RESETS = {700, 701, 5_000, 13_500}
TYPES = ["user", "message", "a b", "é", "__proto__", "constructor", "\x00", "😀"]
KEYS = [*map(str, range(300)), "__proto__", "toString", " ", "\u2028", "\x1b[0m", "ключ", "👩‍👩‍👧"]
TEXTS = [
    "",
    "a",
    "\\",
    '"',
    "\x00\x1f\x7f\x9b",
    "é",
    "e\u0301",
    "\ufeff",
    "😀",
    "</script>",
    "\u2029",
]
NUMBERS = [0, -1, 2**53 - 1, 1.5, 1e-9, 1e300, -0.0, 0.1]


def random_value(random: Random, depth: int = 3) -> Any:
    kind = random.randrange(6 if depth else 4)
    if kind == 4:
        return [random_value(random, depth - 1) for _ in range(random.randrange(4))]
    if kind == 5:
        size = random.randrange(4)
        return {random.choice(TEXTS): random_value(random, depth - 1) for _ in range(size)}
    return random.choice([TEXTS, NUMBERS, [True, False, None], TYPES][kind])  # type: ignore[arg-type]


def random_message(random: Random, number: int) -> dict[str, Any]:
    if number in RESETS:
        return {"headers": {"control": "reset"}}
    if random.random() < 0.01:
        mark = random.choice(["snapshot-start", "snapshot-end"])
        return {"headers": {"control": mark, "offset": str(number)}}
    operation = random.choice(["insert", "update", "upsert", "delete"])
    message: dict[str, Any] = {"type": random.choice(TYPES), "key": random.choice(KEYS)}
    message["headers"] = {"operation": operation, "txid": str(number)}
    if operation != "delete" or random.random() < 0.5:
        message["value"] = random_value(random)
    if random.random() < 0.2:
        message["old_value"] = random_value(random)
    return message


def encode(random: Random, messages: list[dict[str, Any]]) -> bytes:
    indent, ascii_only = random.choice([None, None, 1]), random.random() < 0.5
    return json.dumps(messages, indent=indent, ensure_ascii=ascii_only).encode()


def rows_of(state: Materialised) -> dict[tuple[str, str], Any]:
    return {
        (kind, key): json.loads(value)
        for kind, entities in state.entities.items()
        for key, value in entities.items()
    }


async def read_state(url: str, token: str) -> Materialised:
    refused: list[str] = []
    replay = Replay(refused.append)
    async with open_stream(url, token, refused.append) as stream:
        async for event in stream.events(follow=False):
            replay.take(event)
    assert refused == []
    return replay.state


def test_both_read_the_same_state_before_and_after_a_compaction(
    run: Scenario, gateway: Gateway, url: str
) -> None:
    random, token = Random(7), gateway.token()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": JSON}
    messages = [random_message(random, number) for number in range(COUNT)]

    def append(http: httpx.Client, first: int, end: int) -> None:
        for at in range(first, end, BATCH):
            reply = http.post(url, content=encode(random, messages[at : at + BATCH]))
            assert reply.status_code == 204, reply.text

    def compare() -> tuple[Materialised, list[int]]:
        """Our state; how many messages they read from the snapshot and from the stream."""
        ours = asyncio.run(read_state(url, token))
        theirs = run("materialise", token=token)
        assert {(kind, key): value for kind, key, value in theirs["rows"]} == rows_of(ours)
        return ours, theirs["counts"]

    with httpx.Client(headers=headers) as http:
        assert http.put(url).status_code == 201
        append(http, 0, COMPACTED)
        state, counts = compare()
        assert len(state) > 1000 and counts == [0, COMPACTED]
        with pytest.raises(SystemExit, match="^0$"):
            main(["compact", url, "--token", token])
        snapshot = len(state) + (1 if state.snapshot_open else 2)
        assert compare() == (state, [snapshot, 0])
        append(http, COMPACTED, COUNT)
        state, counts = compare()
        assert len(state) > 500 and counts == [snapshot, COUNT - COMPACTED]
