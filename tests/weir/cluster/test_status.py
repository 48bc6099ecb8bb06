"""One status from the answers of several nodes."""

from collections.abc import Sequence

from tests.helpers.clusters import Entry, node_entry, shard_entry
from weir.cluster.status import Answer, merge_answers, ownerless, render_status, troubled, unserved

NODES = [node_entry("n1", lease_age_secs=0.5), node_entry("n2", lease_age_secs=1.0)]


def answer(
    node: str, shards: Sequence[Entry], version: int = 1, nodes: Sequence[Entry] = NODES
) -> Answer:
    return Answer("weir", node, list(shards), list(nodes), version)


def test_owners_tell_the_details_of_their_shards() -> None:
    as_n1 = [shard_entry(0, "n1", journal_bytes=5), shard_entry(1, "n2", state="elsewhere")]
    as_n2 = [shard_entry(0, "n1", state="elsewhere"), shard_entry(1, "n2", journal_bytes=7)]
    status = merge_answers([answer("n1", as_n1), answer("n2", as_n2)], [])
    assert [shard["journal_bytes"] for shard in status["shards"]] == [5, 7]
    first, second = status["nodes"]
    assert (first["shards"], first["journal_bytes"]) == ([0], 5)
    assert (second["shards"], second["journal_bytes"]) == ([1], 7)
    assert troubled(status) == []
    assert (first["alive"], second["alive"], first["lease_age_secs"]) == (True, True, 0.5)


def test_a_nodes_journals_add_up_and_its_slowest_flush_counts() -> None:
    shards = [
        shard_entry(0, "n1", journal_bytes=5, flush_backlog_secs=0.5),
        shard_entry(1, "n1", journal_bytes=6, flush_backlog_secs=2.0),
    ]
    (node,) = merge_answers([answer("n1", shards, nodes=NODES[:1])], [])["nodes"]
    assert (node["journal_bytes"], node["flush_backlog_secs"]) == (11, 2.0)


def test_the_newest_map_decides_who_owns_a_shard() -> None:
    late = answer("n1", [shard_entry(0, "n1", journal_bytes=5)], version=1)
    new = answer("n2", [shard_entry(0, "n2", journal_bytes=6)], version=2)
    status = merge_answers([late, new], [])
    assert status["version"] == 2
    assert [node["shards"] for node in status["nodes"]] == [[], [0]]
    assert status["shards"][0]["journal_bytes"] == 6


def test_who_does_not_answer_is_not_alive_and_keeps_its_address() -> None:
    known: list[Entry] = [
        {"id": "n2", "url": "http://n2", "pid": None},
        {"id": "n3", "url": "u", "pid": 5},
    ]
    status = merge_answers([answer("n1", [shard_entry(0, "n1")])], known)
    assert [(n["id"], n["alive"], n["pid"]) for n in status["nodes"]] == [
        ("n1", True, 1),
        ("n2", False, None),  # its parent knows that there is no process
        ("n3", False, 5),
    ]


def test_a_restarted_node_knows_its_process_better_than_a_file() -> None:
    nodes = [node_entry("n1", pid=8)]
    known = [{"id": "n1", "url": "http://n1", "pid": 7}]
    assert merge_answers([answer("n1", [], nodes=nodes)], known)["nodes"][0]["pid"] == 8


def test_what_a_node_adds_is_passed_on() -> None:
    nodes = [node_entry("n1", version="2.0")]
    status = merge_answers([answer("n1", [shard_entry(0, "n1", replayed=4)], nodes=nodes)], [])
    assert status["nodes"][0]["version"] == "2.0" and status["shards"][0]["replayed"] == 4


def test_troubled_shards() -> None:
    shards = [
        shard_entry(0, "n1"),
        shard_entry(1, None),
        shard_entry(2, "n2", state="elsewhere"),
        shard_entry(3, "n1", state="opening"),
        shard_entry(4, "n1", state="offline", reason="batch 7 is damaged"),
        shard_entry(5, "n1", backpressure="journal full"),
        shard_entry(6, "n3", state="no owner"),
    ]
    status = merge_answers([answer("n1", shards)], [])  # n2 does not answer
    assert ownerless(status) == [1, 6]
    assert unserved(status) == [1, 2, 3, 4, 6]
    assert {shard["shard"]: shard["problem"] for shard in troubled(status)} == {
        1: "no owner",
        2: "its owner does not answer",
        3: "opening",
        4: "batch 7 is damaged",
        5: "writes wait: journal full",
        6: "no owner",
    }


def test_a_table_for_people() -> None:
    shards = [shard_entry(0, "n1", journal_bytes=3 << 20, flush_backlog_secs=0.2, streams=4)]
    nodes = [node_entry("n1", lease_age_secs=0.5, streams=4)]
    status = merge_answers([answer("n1", shards, nodes=nodes)], [])
    assert list(render_status(status, all_shards=False)) == [
        "cluster weir: 1 of 1 nodes answer, 1 shards, map version 1",
        "every shard has an owner",
        "",
        "NODE  URL        PID  ALIVE  SHARDS  STREAMS  LEASE AGE  JOURNAL  BACKLOG",
        "n1    http://n1  1    yes    1       4        0.5 s      3.0 MiB  0.2 s",
    ]
    assert list(render_status(status, all_shards=True))[-2:] == [
        "SHARD  OWNER  EPOCH  STATE  STREAMS  JOURNAL  BACKLOG  PROBLEM",
        "0      n1     3      open   4        3.0 MiB  0.2 s    -",
    ]


def test_a_table_says_what_is_wrong() -> None:
    shards = [shard_entry(0, "n1"), shard_entry(1, None, epoch=None, state=None)]
    status = merge_answers([answer("n1", shards, nodes=NODES[:1])], [])
    lines = list(render_status(status, all_shards=False))
    assert lines[1] == "1 shard without an owner: its streams answer 503"
    assert lines[-1].split() == ["1", "-", "-", "-", "-", "-", "-", "no", "owner"]


def test_texts_of_nodes_cannot_steer_a_terminal() -> None:
    nodes = [node_entry("n1", url="\x1b[2J")]
    status = merge_answers([answer("n1", [], nodes=nodes)], [])
    assert "\x1b" not in "\n".join(render_status(status, all_shards=True))
