"""What a real node tells on /metrics: a NATS server, a folder as object storage."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from origin.cluster.nodemetrics import STATES
from origin.storage.cluster.clusterstore import BACKPRESSURES
from origin.storage.cluster.objects import OPERATIONS
from tests.helpers.nats import Nats, nats_servers
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import wait_until
from tests.origin.test_metrics import metrics

SHARDS = 4
FLUSH_SECS = 0.2
MIB = 1024 * 1024
JOURNAL_BYTES = 8 * MIB
TEXT = {"Content-Type": "text/plain"}

StartNode = Callable[[str], LocalOrigin]


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    with nats_servers(tmp_path) as servers:
        yield servers


@pytest.fixture
def start_node(nats: Nats, tmp_path: Path) -> Iterator[StartNode]:
    started: list[LocalOrigin] = []

    def start(node_id: str) -> LocalOrigin:
        cluster = {
            "nats_urls": tuple(nats.urls),
            "nats_monitor_urls": tuple(nats.monitor_urls),
            "replicas": 1,
            "shards": SHARDS,
            "lease_secs": 3.0,
            "renew_secs": 0.2,
            "journal_bytes": JOURNAL_BYTES,
            "flush_bytes": MIB,
            "flush_secs": FLUSH_SECS,
            "answer_secs": 0.5,
        }
        node = LocalOrigin(
            make_config(
                tmp_path / node_id,
                "cluster",
                server={"node_id": node_id},
                cluster=cluster,
                cold={"backend": "fs", "fs_path": str(tmp_path / "objects")},
            )
        )
        started.append(node)
        node.start()
        wait_for(node, "shards open", lambda value: value > 0)
        return node

    yield start
    for node in reversed(started):
        node.stop()


def told(node: LocalOrigin, name: str) -> float:
    return metrics(node)[f"weir_origin_{name}"]


def wait_for(node: LocalOrigin, name: str, holds: Callable[[float], bool]) -> None:
    wait_until(lambda: holds(told(node, name)), what=name)


def test_a_healthy_node(start_node: StartNode) -> None:
    node = start_node("n1")
    wait_for(node, "shards open", lambda value: value == SHARDS)
    with node.client() as client:
        client.create("s", body=b"12345")
    wait_for(node, "flushes_total", lambda value: value > 0)
    found = metrics(node)
    assert {state: found[f"weir_origin_shards {state}"] for state in STATES} == {
        "open": SHARDS,
        "opening": 0,
        "offline": 0,
        "closed": 0,
    }
    assert [found[f"weir_origin_backpressure {reason}"] for reason in BACKPRESSURES] == [0] * 4
    assert [found[f"weir_origin_object_errors_total {name}"] for name in OPERATIONS] == [0] * 4
    assert found["weir_origin_object_operations_total put"] >= 3  # probe, pack, checkpoint
    assert found["weir_origin_lease_held"] == found["weir_origin_nats_connected"] == 1
    assert found["weir_origin_lease_age_seconds"] < 3
    assert found["weir_origin_map_version"] > 0
    assert found["weir_origin_cluster_nodes"] == 1
    assert found["weir_origin_cluster_shards"] == found["weir_origin_shards_opened_total"] == SHARDS
    assert found["weir_origin_shards_taken_over_total"] == 0
    assert found["weir_origin_shards_ownerless"] == 0
    assert found["weir_origin_journal_limit_bytes"] == JOURNAL_BYTES
    assert found["weir_origin_opening_seconds"] > 0
    assert found["weir_origin_flushed_bytes_total"] > 0


def test_shards_that_move_are_counted_on_both_sides(start_node: StartNode) -> None:
    first = start_node("n1")
    second = start_node("n2")
    wait_for(first, "shards_handed_over_total", lambda value: value == SHARDS / 2)
    wait_for(second, "shards open", lambda value: value == SHARDS / 2)
    second.stop()
    wait_for(first, "shards_taken_over_total", lambda value: value == SHARDS / 2)
    wait_for(first, "shards open", lambda value: value == SHARDS)


def test_object_storage_that_is_away(start_node: StartNode, tmp_path: Path) -> None:
    node, folder = start_node("n1"), tmp_path / "objects"
    folder.rename(tmp_path / "elsewhere")
    folder.write_bytes(b"not a folder")
    with node.client() as client:
        client.create("s", body=b"12345")
    wait_for(node, "flush_errors_total", lambda value: value > 0)
    wait_for(node, "flushes_failing", lambda value: value == 1)
    assert told(node, "object_errors_total put") > 0
    wait_for(node, "flush_backlog_seconds", lambda value: value > 2 * FLUSH_SECS)
    with node.client() as client:  # until an append does not fit
        replies = (client("POST", "s", TEXT, b"x" * MIB) for _ in range(JOURNAL_BYTES // MIB))
        assert next(reply.status for reply in replies if reply.status != 204) == 507
    assert told(node, "backpressure objects-away") == 1
    assert told(node, "journal_bytes") > 0.8 * JOURNAL_BYTES
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    wait_for(node, "flushes_failing", lambda value: value == 0)
    wait_for(node, "backpressure objects-away", lambda value: value == 0)
    wait_for(node, "journal_bytes", lambda value: value == 0)


def test_a_journal_that_does_not_answer(start_node: StartNode, nats: Nats) -> None:
    node = start_node("n1")
    with node.client() as client:
        client.create("s")
        nats.nodes[0].send(signal.SIGSTOP)
        try:
            reply = client("POST", "s", TEXT, b"1")
            assert (reply.status, reply["Retry-After"]) == (503, "1")
            wait_for(node, "journal_silent_seconds", lambda value: value > 0.5)
            assert told(node, "backpressure journal-silent") == 1
            wait_for(node, "lease_held", lambda value: value == 0)
        finally:
            nats.nodes[0].send(signal.SIGCONT)
    wait_for(node, "lease_held", lambda value: value == 1)
    wait_for(node, "backpressure journal-silent", lambda value: value == 0)
    wait_for(node, "journal_bytes", lambda value: value == 0)  # flushed without another append
