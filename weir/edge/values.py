"""How Envoy spells things: typed extensions, addresses, durations, matchers."""

from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]


def extension(name: str, kind: str, config: Json) -> Json:
    return {"name": f"envoy.{name}", "typed_config": {"@type": type_url(kind), **config}}


def type_url(kind: str) -> str:
    return f"type.googleapis.com/envoy.extensions.{kind}"


def http_manager(config: Json) -> Json:
    """The network filter that speaks HTTP. The router comes last and tells clients nothing about
    the inside: neither the upstream's time nor the number of attempts."""
    router = extension(
        "filters.http.router", "filters.http.router.v3.Router", {"suppress_envoy_headers": True}
    )
    return extension(
        "filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        {**config, "http_filters": [*config.get("http_filters", []), router]},
    )


def address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host, "port_value": port}}


def method_match(*names: str) -> Json:
    if len(names) == 1:
        return {"name": ":method", "string_match": {"exact": names[0]}}
    return {"name": ":method", "string_match": {"safe_regex": {"regex": "|".join(names)}}}


def duration(secs: float) -> str:
    return f"{secs:.3f}".rstrip("0").rstrip(".") + "s"


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "//" in url else f"//{url}")
    default = 443 if parts.scheme == "https" else 80
    return parts.hostname or "", parts.port or default
