"""Validates entities against a JSON Schema per entity type (State 7).

Types without a schema are not checked. A schema must be self-contained: nothing is ever fetched.
Importing jsonschema is slow, so import this module only if schemas are given.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from protocol.state import DELETE, Change

MAX_REASON = 300  # characters; validators repeat the value


class InvalidSchema(Exception):
    """An invalid schema, with its type."""


class Schemas:
    def __init__(self, by_type: Mapping[str, Any]) -> None:
        self._validators = {name: _make_validator(name, of) for name, of in by_type.items()}

    def check(self, change: Change) -> str | None:
        """Why the change's value does not fit its type's schema; None if it does."""
        validator = self._validators.get(change.type)
        if validator is None or change.operation == DELETE:
            return None
        try:
            error = best_match(validator.iter_errors(_read_value(change.value or b"")))
        except (ValueError, RecursionError) as unreadable:
            return f"value cannot be checked: {unreadable}"[:MAX_REASON]
        except Unresolvable as unresolvable:
            return f"the schema refers to {unresolvable.ref}, which is not in it"[:MAX_REASON]
        if error is None:
            return None
        return f"value{error.json_path[1:]}: {error.message}"[:MAX_REASON]


def _read_value(value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:  # a lone surrogate, which Python's json accepts
        return json.loads(value, parse_float=_read_finite)


def _read_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("number out of range")
    return number


def parse_schemas(text: bytes) -> Schemas:
    """From a JSON object of entity types and their schemas."""
    try:
        by_type = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSchema(f"is not a JSON object of types and schemas: {error}") from None
    return Schemas(by_type)


def _make_validator(name: str, schema: Any) -> Validator:
    try:
        kind = _draft_of(schema)
        kind.check_schema(schema)
    except SchemaError as error:
        raise InvalidSchema(f"type {name!r}: {error.message}") from None
    return kind(schema, registry=Registry())


def _draft_of(schema: Any) -> type[Validator]:
    """The draft that `$schema` names, by default the newest."""
    if isinstance(schema, bool):
        return Draft202012Validator
    if not isinstance(schema, dict):
        raise SchemaError("a schema must be an object, true or false")
    if "$schema" not in schema:
        return Draft202012Validator
    named = schema["$schema"]
    # The stubs do not say that this default is returned for an unknown draft.
    known = validator_for(schema, None) if isinstance(named, str) else None  # type: ignore[arg-type]
    if known is None:
        raise SchemaError(f"$schema names an unknown draft: {named!r}")
    return known
