"""JSON values as YAML for people: what fits on a line stands on one, quotes only where needed."""

import json
import re
from collections.abc import Iterator
from typing import Any

WIDTH = 100

# A word that YAML reads as nothing but text, whatever its version.
_PLAIN = re.compile(r"[A-Za-z/][\w/.@+-]*", re.ASCII)
_MEANING = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def to_yaml(value: Any) -> str:
    return "".join(f"{line}\n" for line in _block(value, WIDTH))


def _block(value: Any, width: int) -> Iterator[str]:
    """`width` is what the lines may have."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _member(f"{_flow(key)}:", member, width)
    elif isinstance(value, list) and value:
        for item in value:
            first, *rest = _item(item, width - 2)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _flow(value)


def _member(name: str, value: Any, width: int) -> Iterator[str]:
    line = f"{name} {_flow(value)}"
    if len(line) <= width or not isinstance(value, dict | list):
        yield line
    else:
        yield name
        yield from (f"  {line}" for line in _block(value, width - 2))


def _item(value: Any, width: int) -> Iterator[str]:
    line = _flow(value)
    return iter((line,)) if len(line) <= width else _block(value, width)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _MEANING:
        return value
    return json.dumps(value)
