"""The pages of a node: map, status, readiness, and questions of other nodes."""

import json

import msgspec
import pytest

from protocol.clustermap import ClusterMap
from tests.extension.conftest import problem
from tests.helpers.cluster import SHARDS, LocalCluster
from tests.helpers.rawhttp import Response
from tests.origin.cluster.conftest import StartCluster

ASK = "/cluster/internal/ask"
QUESTION = json.dumps({"type": "WhereIs", "name": "s"}).encode()


def get(
    cluster: LocalCluster, path: str, node_id: str = "a", method: str = "GET", body: bytes = b""
) -> Response:
    with cluster.origins[node_id].connect() as connection:
        return connection.request(method, path, {"Host": "localhost"}, body)


def test_every_node_has_the_map(cluster: LocalCluster) -> None:
    for node_id in "abc":
        reply = get(cluster, "/cluster/map", node_id)
        assert (reply.status, reply["Cache-Control"]) == (200, "no-store")
        found = msgspec.json.decode(reply.body, type=ClusterMap)
        assert found == cluster.map
        assert found.url_for("s") == cluster.urls[cluster.owner_of("s")]


def test_a_status_is_the_nodes_own(cluster: LocalCluster) -> None:
    assert get(cluster, "/cluster/status", "b").json()["node"] == "b"
    assert get(cluster, "/cluster/status", method="HEAD").body == b""


def test_a_node_is_ready_when_its_shards_are_open(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    for path in ("/readyz", "/readyz/local", "/readyz/cluster"):
        assert (get(cluster, path).status, get(cluster, path).body) == (200, b"ready")
    cluster.nodes["a"].reason = "shard 3 is being opened"
    for path in ("/readyz", "/readyz/local", "/readyz/cluster"):
        reply = get(cluster, path)
        assert problem(reply) == (503, "not-ready") and "shard 3" in reply.json()["detail"]
    assert get(cluster, "/healthz").status == 200


@pytest.mark.parametrize("owner", [None, "dead"])
def test_a_cluster_is_ready_when_all_shards_have_live_owners(
    start_cluster: StartCluster, owner: str | None
) -> None:
    cluster = start_cluster()
    cluster.owners[5] = owner
    assert get(cluster, "/readyz/local").status == 200
    reply = get(cluster, "/readyz/cluster")
    assert problem(reply) == (503, "not-ready") and "[5]" in reply.json()["detail"]


def test_other_methods_and_pages_are_refused(cluster: LocalCluster) -> None:
    assert get(cluster, "/cluster/map", method="POST").status == 405
    assert get(cluster, ASK).status == 405
    for path in ("/cluster", "/cluster/", "/cluster/internal/other", "/readyz/other"):
        assert get(cluster, path).status == 404
    assert get(cluster, ASK, method="POST", body=b"{}").status == 400
    question = json.dumps({"type": "Permit", "shard": 10**9, "name": "s"}).encode()
    assert get(cluster, ASK, method="POST", body=question).status == 503


def test_questions_need_the_key_and_pages_do_not(start_cluster: StartCluster) -> None:
    cluster = start_cluster(server={"access_key": "k" * 32})
    for path in ("/cluster/map", "/cluster/status", "/readyz/local", "/readyz/cluster"):
        assert get(cluster, path).status == 200
    assert get(cluster, ASK, method="POST", body=QUESTION).status == 401


def test_a_node_answers_for_its_own_shards_only(cluster: LocalCluster) -> None:
    for node_id in "abc":
        reply = get(cluster, ASK, node_id, "POST", QUESTION)
        assert reply.status == (200 if node_id == cluster.owner_of("s") else 503)


def test_buckets_at_the_root_do_not_hide_the_pages(start_cluster: StartCluster) -> None:
    cluster = start_cluster(http={"root_buckets": True})
    assert get(cluster, "/cluster/map").json()["owners"] == [*cluster.owners]
    assert get(cluster, "/bucket", method="PUT").status == 201
    assert get(cluster, "/bucket/s", "b", "PUT").status == 201
    assert get(cluster, "/bucket", "c").json()["streams"] == 1


def test_metrics_count_what_was_passed_on(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    names = [cluster.name_in(number) for number in range(SHARDS)]
    for name in names:
        assert get(cluster, f"/v1/stream/{name}", method="PUT").status == 201
    lines = get(cluster, "/metrics").body.decode().splitlines()
    passed = sum(owner != "a" for owner in cluster.owners)
    assert f"weir_origin_forwarded_total {float(passed)}" in lines
    assert f"weir_origin_streams {float(SHARDS - passed)}" in lines
