"""A cluster of real origins in this process, as the load program finds one."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.peers.clusters import ACCESS_KEY, CLUSTER_FILE
from loadtest.peers.process import Server
from tests.helpers.cluster import LocalCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path, server={"access_key": ACCESS_KEY})
    cluster.start()
    nodes = [{"id": node, "url": url, "pid": os.getpid()} for node, url in cluster.urls.items()]
    (tmp_path / CLUSTER_FILE).write_text(json.dumps({"nodes": nodes}))
    yield cluster
    cluster.stop()


@pytest.fixture
def server(cluster: LocalCluster, tmp_path: Path) -> Server:
    return Server(os.getpid(), cluster.origins["a"].port, 0.0, data_dir=tmp_path)
