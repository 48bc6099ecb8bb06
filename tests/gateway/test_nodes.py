"""Which maps of a cluster, and which of its nodes, the gateway believes."""

import pytest

from gateway.rules.nodes import (
    MAX_NODES,
    UNSEEN_SECS,
    Verdict,
    is_node_url,
    judge_map,
    parse_version,
    usable_nodes,
)
from protocol.clustermap import ClusterMap

KNOWN = ClusterMap("weir", 5, ("n1", "n2"), {"n1": "http://a:1", "n2": "http://b:1"})


def told(cluster: str = "weir", version: int = 5, shards: int = 2) -> ClusterMap:
    return ClusterMap(cluster, version, (None,) * shards, {})


@pytest.mark.parametrize(
    "url", ["http://a", "https://a.b:8443", "http://127.0.0.1:4437", "http://[::1]:4437"]
)
def test_a_node_has_a_plain_address(url: str) -> None:
    assert is_node_url(url)


@pytest.mark.parametrize(
    "url",
    ["", "a:1", "ftp://a", "file:///etc/passwd", "http://", "http://:80", "http://a:0"]
    + ["http://a:65536", "http://a/", "http://a/path", "http://a?x=1", "http://a#b", "http://a\n"]
    + ["http://user:word@a", "http://a b", "http://a\\b", "http://é", "unix:/x", "HTTP://a:x"],
)
def test_nothing_else_is_one(url: str) -> None:
    assert not is_node_url(url)


@pytest.mark.parametrize(
    ("text", "version"), [("7", 7), ("", 0), ("-1", 0), ("x", 0), ("٣", 0), ("9" * 5000, 0)]
)
def test_versions_in_headers(text: str, version: int) -> None:
    assert parse_version(text) == version


def test_unusable_nodes_of_a_map_are_left_out() -> None:
    nodes = {"n1": "http://a:1", "n2": "http://b:1/", "n3": "http://c/path", "n4": "gopher://d"}
    found = usable_nodes(ClusterMap("weir", 1, ("n1",), nodes))
    assert found == {"n1": "http://a:1", "n2": "http://b:1"}


def test_the_number_of_nodes_is_limited() -> None:
    nodes = {f"n{number}": f"http://n{number}:1" for number in range(MAX_NODES + 10)}
    assert len(usable_nodes(ClusterMap("weir", 1, ("n1",), nodes))) == MAX_NODES


@pytest.mark.parametrize(
    ("known", "other", "unseen_s", "verdict"),
    [
        (None, told(version=1), 0.0, Verdict.NEW),
        (None, told(shards=0), 0.0, Verdict.FOREIGN),
        (KNOWN, told(version=6), 0.0, Verdict.NEW),
        (KNOWN, told(version=5), 0.0, Verdict.SAME),
        (KNOWN, told(version=4), UNSEEN_SECS, Verdict.OLD),
        (KNOWN, told(version=4), UNSEEN_SECS + 1, Verdict.NEW),
        (KNOWN, told("other", version=6), 99.0, Verdict.FOREIGN),
        (KNOWN, told(version=6, shards=3), 99.0, Verdict.FOREIGN),
    ],
)
def test_which_map_counts(
    known: ClusterMap | None, other: ClusterMap, unseen_s: float, verdict: Verdict
) -> None:
    assert judge_map(known, other, unseen_s) is verdict
