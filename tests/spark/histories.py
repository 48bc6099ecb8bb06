"""Random histories of State streams with all that they may hold, and what protocol.state makes of
them."""

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from protocol.state import Materialised, StateError, parse_message
from protocol.state import snapshot_messages as encode_snapshot
from tests.helpers.offsets import nameless

KEYS = ("1", "a b", "ü", "😀", "\x00", "null", "{}", '"', "\\", "1 ")
TIMES = (
    *("2026-06-02T01:10:%02dZ", "2026-11-16T12:00:%02dZ", "2026-11-17T00:30:%02d+01:00"),
    "1500-01-01T00:00:%02dZ",
)
VALUES: tuple[Any, ...] = (None, 1.50, "x", {"n": 1e-7}, [], "")
WRONG = '{"type":"t","headers":{"operation":"insert"},"value":1}'

# As the source has them: stream, offset, position, kind, message, data.
Row = tuple[Any, ...]


def change(chance: Random) -> dict[str, Any]:
    operation = chance.choices(("insert", "update", "upsert", "delete"), (3, 2, 2, 3))[0]
    headers = {"operation": operation}
    if chance.random() < 0.5:
        headers["timestamp"] = chance.choice(TIMES) % chance.randrange(60)
    message: dict[str, Any] = {
        "type": chance.choice("tuv"),
        "key": chance.choice(KEYS),
        "headers": headers,
    }
    if operation != "delete" or chance.random() < 0.3:
        message["value"] = chance.choice((*VALUES, chance.random()))
    return message


def message(chance: Random, resets: float = 0.01) -> str:
    kind = chance.random()
    if kind < resets:
        return '{"headers":{"control":"reset"}}'
    if kind < resets + 0.02:
        return '{"headers":{"control":"snapshot-start"}}'
    if kind < resets + 0.05:
        return WRONG
    return json.dumps(change(chance), ensure_ascii=chance.random() < 0.5)


def history(
    chance: Random, stream: str, length: int, *, resets: float = 0.01, snapshots: float = 0.02
) -> list[Row]:
    """Now and then a snapshot stands for all before it. Some streams have offsets of other servers,
    of which messages share one."""
    is_ours = chance.random() < 0.7
    rows: list[Row] = []
    for at in range(length):
        offset = nameless(at) if is_ours else ("-1" if at < 9 else f"{at // 9:06}")
        if chance.random() < snapshots and (is_ours or (at >= 9 and at % 9 == 0)):
            rows += snapshot_rows(stream, offset, list(snapshot(chance, rows, offset)))
        text = message(chance, resets)
        rows.append((stream, offset, 0 if is_ours else at % 9, "message", text, None))
    return rows


def snapshot_rows(stream: str, offset: str, texts: Sequence[str]) -> list[Row]:
    """An empty snapshot is a row without a message."""
    return [
        (stream, offset, n - len(texts or " "), "snapshot", text, None if text else b"[]")
        for n, text in enumerate(texts or [None])
    ]


def snapshot(chance: Random, rows: Sequence[Row], offset: str) -> Iterator[str]:
    """Of what was before, or of what nobody has seen, or of nothing."""
    told = chance.random()
    if told < 0.6:
        elements = json.loads(encode_snapshot(replay(rows), offset))
        yield from (json.dumps(element) for element in elements)
    elif told < 0.9:
        yield from (message(chance) for _ in range(5))


def replay(rows: Sequence[Row]) -> Materialised:
    """What protocol.state makes of the rows of one stream, read in order."""
    state, snapshot_offset = Materialised(), None
    for _, offset, _, kind, text, _ in rows:
        if kind == "snapshot" and offset != snapshot_offset:
            state, snapshot_offset = Materialised(), offset
        if (parsed := parse(text)) is not None:
            state.apply(parsed)
    return state


def parse(text: str | None) -> Any:
    try:
        return None if text is None else parse_message(text.encode())
    except StateError:
        return None


def expected(histories: dict[str, list[Row]]) -> dict[tuple[str, str, str], str]:
    return {
        (stream, type_, key): value.decode()
        for stream, rows in histories.items()
        for type_, entities in replay(rows).entities.items()
        for key, value in entities.items()
    }


def places(rows: Sequence[Row]) -> list[int]:
    """Where a run may end: between any two rows, but not within a snapshot, which one task reads
    as a whole."""
    return [n for n in range(len(rows)) if rows[n][3] == "message"] + [len(rows)]
