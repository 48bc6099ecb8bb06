"""`weir cluster status` against nodes that answer as told."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadtest.peers.process import free_port
from tests.helpers.clusters import Entry, make_file, shard_entry
from tests.helpers.scripted_origin import Answer, ScriptedOrigin
from tests.weir.conftest import Weir
from weir.cluster.clusterfile import write_file
from weir.commands.cluster import PATH


@pytest.fixture
def nodes() -> Iterator[list[ScriptedOrigin]]:
    with ExitStack() as opened:
        yield [opened.enter_context(ScriptedOrigin()) for _ in range(2)]


def script(nodes: list[ScriptedOrigin], shards: list[Entry]) -> None:
    """Each answers for itself, and names all of them."""
    entries = [
        {"id": f"n{number}", "url": node.url, "pid": 100 + number, "shards": []}
        for number, node in enumerate(nodes, 1)
    ]
    for entry, node in zip(entries, nodes, strict=True):
        told = {"cluster": "weir", "node": entry["id"], "version": 4, "nodes": entries}
        node.on("GET", PATH, Answer(200, {}, json.dumps(told | {"shards": shards}).encode()))


def test_one_url_leads_to_all_nodes(weir: Weir, nodes: list[ScriptedOrigin]) -> None:
    script(nodes, [shard_entry(0, "n1"), shard_entry(1, "n2")])
    done = weir("cluster", "status", "--json", "--url", f"{nodes[0].url}/")
    told = json.loads(done.out[0])
    assert (done.code, done.err) == (0, [])
    assert [(n["id"], n["pid"], n["alive"], n["shards"]) for n in told["nodes"]] == [
        ("n1", 101, True, [0]),
        ("n2", 102, True, [1]),
    ]
    assert (told["cluster"], told["version"]) == ("weir", 4)


def test_a_data_directory_names_nodes_and_servers(
    weir: Weir, nodes: list[ScriptedOrigin], tmp_path: Path
) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    write_file(tmp_path, make_file((*(node.url for node in nodes), gone)).with_pid("nats-2", 9))
    script(nodes, [shard_entry(0, "n1"), shard_entry(1, "n2")])
    told = json.loads(weir("cluster", "status", "--json", "--data-dir", str(tmp_path)).out[0])
    assert [node["alive"] for node in told["nodes"]] == [True, True, False]
    assert (told["nats"][1]["pid"], told["s3"]["endpoint"]) == (9, "http://127.0.0.1:60")
    done = weir("cluster", "status", "--data-dir", str(tmp_path))
    assert (done.code, done.out[1]) == (0, "every shard has an owner")
    assert any(line.startswith("n3 ") and " no " in line for line in done.out)
    assert any(line.startswith("nats-2  ") and line.endswith(" 9") for line in done.out)


def test_a_shard_without_an_owner_is_an_error(weir: Weir, nodes: list[ScriptedOrigin]) -> None:
    script(nodes, [shard_entry(0, "n1"), shard_entry(1, None)])
    done = weir("cluster", "status", "--url", nodes[0].url)
    assert (done.code, done.out[-1].split()[:2]) == (1, ["1", "-"])


def test_a_node_that_knows_no_map_yet(weir: Weir, scripted: ScriptedOrigin) -> None:
    told = {"cluster": "weir", "node": "n1", "nodes": [], "shards": []}
    scripted.on("GET", PATH, Answer(200, {}, json.dumps(told).encode()))
    done = weir("cluster", "status", "--url", scripted.url)
    assert (done.code, done.out[1]) == (1, "no shard has an owner yet")


def test_all_shards_on_request(weir: Weir, nodes: list[ScriptedOrigin]) -> None:
    script(nodes, [shard_entry(number, "n1") for number in range(3)])
    done = weir("cluster", "status", "--shards", "--url", nodes[0].url)
    assert [line.split()[0] for line in done.out[-4:]] == ["SHARD", "0", "1", "2"]


@pytest.mark.parametrize("answer", [None, Answer(503), Answer(200, {}, b"[]")])
def test_no_node_answers(weir: Weir, scripted: ScriptedOrigin, answer: Answer | None) -> None:
    if answer is not None:
        scripted.on("GET", PATH, answer)
    done = weir("cluster", "status", "--json", "--url", scripted.url)
    assert (done.code, done.out) == (2, [])
    assert done.err == [f"weir: no node answers at {scripted.url}"]


def test_no_cluster_there(weir: Weir, tmp_path: Path) -> None:
    done = weir("cluster", "status", "--data-dir", str(tmp_path))
    assert (done.code, done.out) == (2, [])
    assert "cluster.json" in done.err[0] and "--url" in done.err[0]
