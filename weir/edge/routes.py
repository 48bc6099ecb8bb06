"""Which requests reach a gateway, which gateway, and what is tried again.

All requests of a stream, its snapshots and bootstraps included, reach the same gateway while that
one is healthy, so that a fleet collapses reads as a single gateway does.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.console.service import ROOT
from protocol.names import BUCKET_PREFIX, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ, STREAM_PREFIX
from weir.edge.clusters import GATEWAYS
from weir.edge.values import Json, extension, method_match

CONSOLE = ROOT.rstrip("/")

# The stream of a path: without the query and without sub-resources (see protocol.paths). A stream
# spelled in two ways may reach two gateways, which costs a fetch.
_OWNER = rf"(?:{STREAM_PREFIX}|{BUCKET_PREFIX}[^/?]+/)[^?]+?|[^?]+?"
STREAM_OF_PATH = rf"^({_OWNER})(?:/bootstrap|/snapshot(?:/[^/?]+)?)?(?:\?.*)?$"
PLAIN_HOST = r"[\w.-]+(?::\d+)?|\[[\da-fA-F:.]+\](?::\d+)?"


def stream_path(prefixes: Sequence[str]) -> str:
    """A pattern of all stream paths; `prefixes` are the configured ones besides our own."""
    known = (STREAM_PREFIX, BUCKET_PREFIX, *map(re.escape, prefixes))
    return f"(?:{'|'.join(known)}).+"


def virtual_host(prefixes: Sequence[str]) -> Json:
    return {
        "name": "weir",
        "domains": ["*"],
        "retry_policy": _retries(),
        "routes": list(_routes(prefixes)),
    }


def _routes(prefixes: Sequence[str]) -> Iterator[Json]:
    """Everything else is a 404."""
    reads = method_match("GET", "HEAD")
    # Envoy joins two Host lines with a comma and accepts the result.
    strange = {"name": ":authority", "string_match": {"safe_regex": {"regex": PLAIN_HOST}}}
    match = {"prefix": "/", "headers": [{**strange, "invert_match": True}]}
    yield {"name": "strange-host", "match": match, "direct_response": {"status": 400}}
    yield _route("health", {"path": "/healthz"})
    yield _route("console", {"path": CONSOLE, "headers": [reads]})
    yield _route("console", {"prefix": f"{CONSOLE}/", "headers": [reads]})
    stream: Json = {"safe_regex": {"regex": stream_path(prefixes)}}
    # Requests that are safe to repeat are sent again after a reset, as the gateway does.
    yield _stream_route("read", stream | {"headers": [reads]}, "reset")
    names = (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ)
    produced = [{"name": name, "present_match": True} for name in names]
    posts = method_match("POST")
    yield _stream_route("produce", stream | {"headers": [posts, *produced]}, "reset")
    yield _stream_route("write", stream)


def _route(name: str, match: Json, **more: Any) -> Json:
    """No timeout: the gateway decides when a live read ends."""
    return {"name": name, "match": match, "route": {"cluster": GATEWAYS, "timeout": "0s", **more}}


def _stream_route(name: str, match: Json, *retried: str) -> Json:
    rewrite = {"pattern": {"regex": STREAM_OF_PATH}, "substitution": r"\1"}
    policy = {"header": {"header_name": ":path", "regex_rewrite": rewrite}}
    more = {"retry_policy": _retries(*retried)} if retried else {}
    return _route(name, match, hash_policy=[policy], **more)


def _retries(*more: str) -> Json:
    """At another gateway, for requests that certainly reached none; `more` conditions if repeating
    is safe."""
    previous = extension(
        "retry_host_predicates.previous_hosts",
        "retry.host.previous_hosts.v3.PreviousHostsPredicate",
        {},
    )
    reasons = ("connect-failure", "refused-stream", "reset-before-request", *more)
    return {
        "retry_on": ",".join(reasons),
        "num_retries": 2,
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        "retry_host_predicate": [previous],
        # Each attempt is one step on the ring, on which a host has thousands of entries.
        "host_selection_retry_max_attempts": 32,
    }
