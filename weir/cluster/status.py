"""The answers of several nodes as one status, and as tables. Pure.

Each node knows who owns what, and only the owner of a shard knows how full its journal is. So the
newest map decides who owns a shard, and its owner's answer has the details. What a node tells
besides the names used here is passed on in the JSON.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from weir.client.escapes import shown, shown_word

HEALTHY = "open"  # the state of a shard whose owner serves it
NO_OWNER = "no owner"  # that of a shard whose owner has no lease any more
KIB = 1024.0

Entry = dict[str, Any]


class Answer(Struct, frozen=True):
    """What a node answers at /cluster/status; `node` is the one that answered. There is no version
    while it does not know the map."""

    cluster: str
    node: str
    shards: list[Entry]
    nodes: list[Entry]
    version: int = 0


def merge_answers(answers: Sequence[Answer], known: Iterable[Entry]) -> Entry:
    """`known` are the nodes of cluster.json. Nodes that did not answer are not alive."""
    newest = max(answers, key=lambda answer: answer.version)
    own = {answer.node: answer for answer in answers}
    shards = [_with_details(shard, own) for shard in newest.shards]
    nodes: dict[str, Entry] = {}
    # Of a node that does not answer, its parent knows better whether there is a process.
    for told in (*newest.nodes, *known, *(_self_of(answer) for answer in answers)):
        nodes[told["id"]] = nodes.get(told["id"], {}) | told
    return {
        "cluster": newest.cluster,
        "version": newest.version,
        "nodes": [_node_entry(node, own, shards) for _, node in sorted(nodes.items())],
        "shards": shards,
    }


def _with_details(shard: Entry, own: Mapping[str, Answer]) -> Entry:
    """As its owner tells it, if it is still the same term."""
    answer = own.get(shard["owner"] or "")
    told = next((s for s in answer.shards if s["shard"] == shard["shard"]), {}) if answer else {}
    return shard | told if told.get("owner") == shard["owner"] else shard


def _self_of(answer: Answer) -> Entry:
    own: Entry = {"id": answer.node}
    return next((node for node in answer.nodes if node["id"] == answer.node), own)


def _node_entry(node: Entry, own: Mapping[str, Answer], shards: Sequence[Entry]) -> Entry:
    owned = [shard for shard in shards if shard["owner"] == node["id"]]
    about: Entry = {"url": None, "pid": None}
    for key, over_all in (("journal_bytes", sum), ("flush_backlog_secs", max)):
        told = [shard[key] for shard in owned if shard.get(key) is not None]
        about |= {key: over_all(told)} if told else {}
    about |= node
    return about | {"alive": node["id"] in own, "shards": [shard["shard"] for shard in owned]}


def ownerless(status: Entry) -> list[int]:
    return [shard["shard"] for shard in status["shards"] if _has_no_owner(shard)]


def unserved(status: Entry) -> list[int]:
    """Shards whose streams answer 503."""
    alive = _alive(status)
    return [shard["shard"] for shard in status["shards"] if not _is_served(shard, alive)]


def _is_served(shard: Entry, alive: set[str]) -> bool:
    return shard["owner"] in alive and shard.get("state", HEALTHY) == HEALTHY


def _alive(status: Entry) -> set[str]:
    return {node["id"] for node in status["nodes"] if node["alive"]}


def _has_no_owner(shard: Entry) -> bool:
    return shard["owner"] is None or shard.get("state") == NO_OWNER


def troubled(status: Entry) -> list[Entry]:
    """Shards that are not served as usual, each with its `problem`."""
    alive = _alive(status)
    told = (shard | {"problem": _problem(shard, alive)} for shard in status["shards"])
    return [shard for shard in told if shard["problem"] is not None]


def _problem(shard: Entry, alive: set[str]) -> str | None:
    if _has_no_owner(shard):
        return NO_OWNER
    if shard["owner"] not in alive:
        return "its owner does not answer"
    if shard.get("state", HEALTHY) != HEALTHY:
        return str(shard.get("reason") or shard["state"])
    return None if shard.get("backpressure") is None else f"writes wait: {shard['backpressure']}"


# -- tables ------------------------------------------------------------------------------------


def render_status(status: Entry, *, all_shards: bool) -> Iterator[str]:
    yield from _summary(status)
    yield ""
    yield from _table(
        ("NODE", "URL", "PID", "ALIVE", "SHARDS", "STREAMS", "LEASE AGE", "JOURNAL", "BACKLOG"),
        map(_node_row, status["nodes"]),
    )
    servers = [[_text(s, key) for key in ("name", "url", "pid")] for s in _servers(status)]
    if servers:
        yield ""
        yield from _table(("SERVER", "URL", "PID"), servers)
    trouble = {shard["shard"]: shard for shard in troubled(status)}
    listed = [
        trouble.get(s["shard"], s) for s in status["shards"] if all_shards or s["shard"] in trouble
    ]
    if listed:
        yield ""
        heading = ("SHARD", "OWNER", "EPOCH", "STATE", "STREAMS", "JOURNAL", "BACKLOG", "PROBLEM")
        yield from _table(heading, map(_shard_row, listed))


def _node_row(node: Entry) -> list[str]:
    return [
        *(_text(node, key) for key in ("id", "url", "pid")),
        "yes" if node["alive"] else "no",
        str(len(node["shards"])),
        _text(node, "streams"),
        _seconds(node.get("lease_age_secs")),
        _size(node.get("journal_bytes")),
        _seconds(node.get("flush_backlog_secs")),
    ]


def _shard_row(shard: Entry) -> list[str]:
    return [
        *(_text(shard, key) for key in ("shard", "owner", "epoch", "state", "streams")),
        _size(shard.get("journal_bytes")),
        _seconds(shard.get("flush_backlog_secs")),
        shown(str(shard.get("problem") or "-")),
    ]


def _summary(status: Entry) -> Iterator[str]:
    alive = sum(node["alive"] for node in status["nodes"])
    yield (
        f"cluster {shown_word(status['cluster'])}: {alive} of {len(status['nodes'])} nodes answer, "
        f"{len(status['shards'])} shards, map version {status['version']}"
    )
    without, trouble = len(ownerless(status)), len(troubled(status))
    if not status["shards"]:
        yield "no shard has an owner yet"
    elif without:
        whose = "its" if without == 1 else "their"
        yield f"{without} {_shards(without)} without an owner: {whose} streams answer 503"
    elif trouble:
        yield f"every shard has an owner; {trouble} {_shards(trouble)} with a problem"
    else:
        yield "every shard has an owner"


def _shards(count: int) -> str:
    return "shard" if count == 1 else "shards"


def _servers(status: Entry) -> Iterator[Entry]:
    """The other processes of a cluster on this machine."""
    yield from status.get("nats", ())
    if s3 := status.get("s3"):
        yield s3 | {"url": s3["endpoint"]}
    yield from status.get("gateways", ())


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    table = [heading, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _text(entry: Entry, key: str) -> str:
    value = entry.get(key)
    return "-" if value is None else shown_word(str(value))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _size(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if value < KIB:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= KIB
    return f"{value:.1f} GiB"
