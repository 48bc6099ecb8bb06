"""What tests of a cluster share: three nodes in this process, and clients that use all of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extension.conftest import Api
from tests.helpers.cluster import AnyNodeClient, LocalCluster
from tests.helpers.rawhttp import Client

StartCluster = Callable[..., LocalCluster]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    yield cluster
    cluster.stop()
    assert cluster.errors == []


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """One for all tests of a file that need no other."""
    yield shared_cluster
    shared_cluster.wipe()


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """Start one of one's own, whose shards may move."""
    started: list[LocalCluster] = []

    def start(**sections: Any) -> LocalCluster:
        cluster = LocalCluster(tmp_path / str(len(started)), **sections)
        started.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        cluster.stop()
    assert [error for cluster in started for error in cluster.errors] == []


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with AnyNodeClient(cluster) as client:
        yield client


@pytest.fixture
def api(cluster: LocalCluster) -> Iterator[Api]:
    """With a bucket made."""
    with cluster.connect() as connection:
        api = Api(connection)
        api.make_bucket()
        yield api
