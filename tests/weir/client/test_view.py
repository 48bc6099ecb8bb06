"""State and changes as lines for people and for programs."""

import json

import pytest

from protocol.state import Change, Control, Materialised, Message, materialise
from weir.client.view import MAX_COLUMN, message_json, message_line, state_json, state_table

STATE = materialise(
    [
        Change("user", "2", "insert", b'{"name":\n\t"Bob"}'),
        Change("user", "10", "update", b"1.50"),
        Change("chat room", "\x1b[2J", "insert", '"\x9b2J"'.encode()),
    ]
)


def test_a_table_is_sorted_and_aligned() -> None:
    assert list(state_table(STATE)) == [
        "TYPE         KEY          VALUE",
        r'"chat room"  "\u001b[2J"  "\u009b2J"',
        "user         10           1.50",
        'user         2            {"name":  "Bob"}',
    ]


def test_a_long_key_moves_only_its_own_line() -> None:
    state = materialise(Change("a", key, "insert", b"1") for key in ("k", "x" * 99))
    header, first, second = state_table(state)
    assert header == "TYPE  " + "KEY".ljust(MAX_COLUMN) + "  VALUE"
    assert first == "a     " + "k".ljust(MAX_COLUMN) + "  1"
    assert second == "a     " + "x" * 99 + "  1"


def test_json_is_one_line_by_type_and_key() -> None:
    text = "".join(state_json(STATE))
    assert "\n" not in text and text.isprintable()
    assert json.loads(text) == {
        "chat room": {"\x1b[2J": "\x9b2J"},
        "user": {"10": 1.5, "2": {"name": "Bob"}},
    }
    assert "1.50" in text


def test_nothing_is_shown_as_nothing() -> None:
    assert list(state_table(Materialised())) == ["TYPE  KEY   VALUE"]
    assert "".join(state_json(Materialised())) == "{}"


@pytest.mark.parametrize(
    ("message", "line", "members"),
    [
        (
            Change("user", "1", "insert", b"[1]"),
            "insert  user  1  [1]",
            {"operation": "insert", "type": "user", "key": "1", "value": [1]},
        ),
        (
            Change("user", "a b", "update", b"null", b"1", "t", "2025-01-15T10:30:00Z"),
            'update  user  "a b"  null',
            {"operation": "update", "type": "user", "key": "a b", "value": None},
        ),
        (
            Change("user", "\x07", "delete", b"null"),
            'delete  user  "\\u0007"',
            {"operation": "delete", "type": "user", "key": "\x07"},
        ),
        (Control("reset"), "reset", {"control": "reset"}),
        (
            Control("snapshot-start", "7_7"),
            "snapshot-start  7_7",
            {"control": "snapshot-start", "offset": "7_7"},
        ),
    ],
)
def test_messages(message: Message, line: str, members: dict[str, object]) -> None:
    assert message_line(message) == line
    assert json.loads(message_json(message)) == members
    assert message_json(message).isprintable()
