"""From answers to rows."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.jsonmode import framed, stored_form
from protocol.offsets import START
from spark.http import SourceError
from spark.rows import (
    BATCH_ROWS,
    chunk_rows,
    message_rows,
    messages_of,
    snapshot_rows,
    split_array,
)
from spark.streams import Chunk, Snapshot
from tests.helpers.offsets import nameless

AT = nameless
JSON = "application/json"
finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def json_chunk(body: bytes, offset: str, next_offset: str) -> Chunk:
    return Chunk(offset, next_offset, JSON, body, "i1")


def rows_of(chunk: Chunk) -> list[dict[str, Any]]:
    return rows(message_rows("a", "i1", chunk, messages_of(chunk, "a")))


@settings(max_examples=40)
@given(st.lists(values), st.booleans(), st.sampled_from([None, 1]))
def test_an_array_is_split_into_the_texts_it_was_made_of(
    messages: list[Any], ascii_only: bool, indent: int | None
) -> None:
    texts = [json.dumps(message, ensure_ascii=ascii_only, indent=indent) for message in messages]
    for separator in (",", " ,\n"):
        assert split_array(f"[{separator.join(texts)}]".encode()) == texts


@pytest.mark.parametrize(
    "text",
    [
        '{"b":1,"a":1.0,"a":-0E+5}',
        "1" * 5000,
        '"\\u00e9 \\" ] \\\\"',
        "[" * 500 + "]" * 500,
        '"\N{GRINNING FACE}é\\u00e9"',
        "1e999",
    ],
    ids=["form", "long number", "escapes", "deep", "unicode", "large"],
)
def test_a_message_is_the_text_that_was_stored(text: str) -> None:
    stored = stored_form(f"[{text}, {text}]".encode())
    assert split_array(framed(stored)) == [text, text]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[", b"]", b"[1", b"[1]]", b"[[1]", b"[1,]", b"[,1]", b"[1 2]", b'["]', b"\xff[]"]
    + [b"[" * 100_000 + b"]" * 100_000],
)
def test_what_is_no_array_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        split_array(body)
    with pytest.raises(SourceError, match="stream 'a' at 7: not a JSON array"):
        messages_of(json_chunk(body, "7", "8"), "a")


@settings(max_examples=40)
@given(st.lists(values, min_size=1), st.integers(0, 10**12))
def test_each_message_has_its_own_offset_where_offsets_count_bytes(
    messages: list[Any], position: int
) -> None:
    stored = stored_form(json.dumps(messages, ensure_ascii=False).encode("utf-8", "replace"))
    chunk = json_chunk(framed(stored), AT(position), AT(position + len(stored)))
    found = rows_of(chunk)
    for row in found:
        start, end = (int(row[name][17:]) - position for name in ("offset", "next_offset"))
        assert stored[start:end] == row["message"].encode() + b","
    assert [row["offset"] for row in found[1:]] == [row["next_offset"] for row in found[:-1]]
    assert (found[0]["offset"], found[-1]["next_offset"]) == (chunk.offset, chunk.next_offset)
    assert {row["position"] for row in found} == {0}


def test_the_first_offset_is_the_same_from_the_beginning_and_from_zero() -> None:
    for start in (START, AT(0)):
        assert rows_of(json_chunk(b"[1,2]", start, AT(4)))[0]["offset"] == AT(0)


@pytest.mark.parametrize(
    ("offset", "next_offset"),
    [(START, AT(9)), (AT(0), AT(5)), ("x1", "x2"), (AT(0), "0000000000000001_0000000000000004")],
)
def test_elsewhere_messages_share_the_offset_of_their_answer(offset: str, next_offset: str) -> None:
    found = rows_of(json_chunk(b"[1,2]", offset, next_offset))
    assert [(row["offset"], row["position"]) for row in found] == [(offset, 0), (offset, 1)]
    assert {row["next_offset"] for row in found} == {next_offset}


def test_a_chunk_is_one_row_with_its_bytes() -> None:
    chunk = Chunk(START, AT(3), "text/plain", b"\x00\xff]", "i1")
    assert rows(chunk_rows("a", "i1", chunk)) == [
        {
            "stream": "a",
            "incarnation": "i1",
            "offset": AT(0),
            "position": 0,
            "next_offset": AT(3),
            "kind": "chunk",
            "content_type": "text/plain",
            "message": None,
            "data": b"\x00\xff]",
        }
    ]


def test_two_bytes_that_look_like_an_empty_array_are_bytes() -> None:
    chunk = Chunk("0000000000000000_0000000000000005", AT(7), "text/plain", b"[]", "")
    assert [(row["offset"], row["data"]) for row in rows(chunk_rows("a", "", chunk))] == [
        (AT(5), b"[]")
    ]


def test_nothing_is_no_row() -> None:
    assert rows(chunk_rows("a", "", Chunk(START, AT(0), "text/plain", b"", ""))) == []
    assert rows_of(json_chunk(b"[]", START, AT(0))) == []


def test_messages_of_a_snapshot_stand_before_those_at_its_offset() -> None:
    found = rows(snapshot_rows("a", "i1", Snapshot(AT(9), JSON, b'[{"k":1}, {"k":2}]')))
    assert [(row["offset"], row["position"], row["message"]) for row in found] == [
        (AT(9), -2, '{"k":1}'),
        (AT(9), -1, '{"k":2}'),
    ]
    assert {(row["kind"], row["next_offset"]) for row in found} == {("snapshot", AT(9))}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("application/octet-stream", b"[1]"), (JSON, b'{"a":1}'), (JSON, b"[1"), (JSON, b"[]")],
)
def test_a_snapshot_without_messages_is_one_row(content_type: str, body: bytes) -> None:
    (row,) = rows(snapshot_rows("a", "", Snapshot(AT(9), content_type, body)))
    assert (row["position"], row["message"], row["data"]) == (-1, None, body)
    assert row["incarnation"] is None


def test_batches_are_bounded() -> None:
    chunk = json_chunk(b"[" + b",".join([b"1"] * (BATCH_ROWS + 1)) + b"]", "x1", "x2")
    batches = list(message_rows("a", "", chunk, messages_of(chunk, "a")))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, 1]
    assert batches[1].to_pylist()[0]["position"] == BATCH_ROWS
