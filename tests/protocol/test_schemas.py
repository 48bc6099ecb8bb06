"""Schema validation of values (State 7 and 9)."""

import json
import socket
from typing import Any

import pytest

from protocol.schemas import MAX_REASON, InvalidSchema, Schemas, parse_schemas
from protocol.state import Change

USER = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "tags": {"items": {"type": "string"}}},
}


def change(value: Any, kind: str = "user", operation: str = "insert") -> Change:
    return Change(kind, "1", operation, json.dumps(value).encode())


def reason(schema: Any, value: Any) -> str:
    found = Schemas({"user": schema}).check(change(value))
    assert found is not None
    return found


def test_7_values_are_held_to_the_schema_of_their_type() -> None:
    schemas = parse_schemas(json.dumps({"user": USER, "flag": {"type": "boolean"}}).encode())
    for good in (change({"name": "Alice"}), change(True, "flag")):
        assert schemas.check(good) is None
    for bad in (change({}), change(True), change({"name": "Alice"}, "flag")):
        assert schemas.check(bad) is not None


@pytest.mark.parametrize("operation", ["insert", "update", "upsert"])
def test_7_whatever_stores_a_value_is_validated(operation: str) -> None:
    assert Schemas({"user": USER}).check(change(1, operation=operation)) is not None


def test_7_a_delete_stores_none() -> None:
    schemas = Schemas({"user": USER})
    assert schemas.check(change(None, operation="delete")) is None
    assert schemas.check(Change("user", "1", "delete")) is None


def test_7_other_types_are_not_held_up() -> None:
    assert Schemas({"user": False}).check(change(1, "other")) is None


def test_7_the_reason_names_the_place() -> None:
    assert reason(USER, {}) == "value: 'name' is a required property"
    assert (
        reason(USER, {"name": "a", "tags": ["b", 7]}) == "value.tags[1]: 7 is not of type 'string'"
    )
    assert reason(False, 1) == "value: False schema does not allow 1"


def test_7_half_a_surrogate_pair_is_a_string() -> None:
    assert Schemas({"user": USER}).check(change({"name": "\ud83d"})) is None
    assert "is too short" in reason({"minLength": 2}, "\ud83d")


def test_7_no_schema_is_needed() -> None:
    assert Schemas({}).check(change(1)) is None


def test_drafts_are_told_apart() -> None:
    """`dependentRequired` came with 2019-09: draft 7 passes over it."""
    schema = {"dependentRequired": {"a": ["b"]}}
    assert reason(schema, {"a": 1}) == "value: 'b' is a dependency of 'a'"
    older = schema | {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert Schemas({"user": older}).check(change({"a": 1})) is None


def test_9_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("a schema reached for the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for ref in ("http://127.0.0.1:1/user.json", "file:///etc/hostname", "#/$defs/missing"):
        assert "which is not in it" in reason({"$ref": ref}, 1)
    assert "is not of type" in reason({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1)


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5000, b"[" * 600 + b"]" * 600])
def test_9_values_that_cannot_be_checked_are_no_valid_ones(value: bytes) -> None:
    schemas = Schemas({"user": {"items": {"$ref": "#"}}})
    found = schemas.check(Change("user", "1", "insert", value))
    assert found is not None and found.startswith("value cannot be checked")


def test_9_a_long_value_does_not_make_a_long_reason() -> None:
    assert len(reason({"type": "null"}, "x" * 10_000)) == MAX_REASON


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"[]", "not a JSON object of types and schemas"),
        (b"{", "not a JSON object of types and schemas"),
        (b'{"a": "\xff"}', "not a JSON object of types and schemas"),
        (b'{"a": 1}', "type 'a': a schema must be an object, true or false"),
        (b'{"a": {"type": "text"}}', "type 'a': 'text' is not valid"),
        (b'{"a": {"pattern": "("}}', "type 'a': '(' is not a 'regex'"),
        (b'{"a": {"$schema": "urn:mine"}}', "type 'a': $schema names an unknown draft"),
        (b'{"a": {"$schema": 7}}', "type 'a': $schema names an unknown draft"),
    ],
)
def test_what_is_no_schema_is_refused_at_once(text: bytes, names: str) -> None:
    with pytest.raises(InvalidSchema) as error:
        parse_schemas(text)
    assert names in str(error.value)
