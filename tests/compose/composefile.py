"""A compose file as compose reads it: variables put in, merges done, services in their order."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:-|:\?)([^}]*))?\}|(\w+))")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def read_compose(path: Path, variables: Mapping[str, str] | None = None) -> Json:
    """Raises KeyError for a variable that must be set."""
    parsed: Json = interpolate(yaml.safe_load(path.read_text()), variables or {})
    return parsed


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: interpolate(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolate(inner, variables) for inner in value]
    if not isinstance(value, str):
        return value

    def put_in(found: re.Match[str]) -> str:
        dollar, name, kind, word, plain = found.groups()
        if dollar:
            return "$"
        given = variables.get(name or plain, "")
        if not given and kind == ":?":
            raise KeyError(name)
        return given or (word if kind == ":-" else "")

    return _VARIABLE.sub(put_in, value)


def merge(base: Json, over: Json) -> Json:
    """One file on top of another: mappings are merged, commands replaced, other lists joined."""
    merged = dict(base)
    for key, value in over.items():
        before = base.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = merge(before, value)
        elif isinstance(before, list) and key not in ("command", "entrypoint", "test"):
            merged[key] = before + value
        else:
            merged[key] = value
    return merged


def select(compose: Json, profiles: Iterable[str] = ()) -> dict[str, Json]:
    """The services that `docker compose --profile … up` starts, what they depend on first."""
    chosen = {
        name: service
        for name, service in compose["services"].items()
        if not service.get("profiles") or set(service["profiles"]) & set(profiles)
    }
    ordered: dict[str, Json] = {}

    def add(name: str) -> None:
        if name not in ordered:
            for other in chosen[name].get("depends_on", ()):
                add(other)
            ordered[name] = chosen[name]

    for name in chosen:
        add(name)
    return ordered


def seconds(duration: str) -> float:
    return sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"([\d.]+)([smh])", duration))


def mounts(service: Json) -> list[tuple[str, str, bool]]:
    """(volume or path, place in the container, whether it can be written to)"""
    parts = [mount.split(":") for mount in service.get("volumes", ())]
    return [(source, target, "ro" not in rest) for source, target, *rest in parts]
