"""What tests of Spark share: one session for all of them, a writer of streams, and both servers
that streams can be read from."""

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.http import Address, Client
from spark.planning import Partitions
from spark.reading import read_ranges
from spark.session import start
from spark.streams import Streams
from tests.helpers.gateway import KEY, LocalGateway, make_gateway_config
from tests.helpers.keys import make_token
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.require import need
from tests.helpers.scripted_origin import ScriptedOrigin
from tests.spark.world import World
from tests.spark.writer import Writer

TEXT = "text/plain"
KILLS = int(os.environ.get("WEIR_REPORT_KILLS", "2"))
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}  # compiling well would not pay
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Short lives: compiling well and collecting in parallel would not pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

# Each starts several sessions of its own: minutes, and targets of their own (see the Makefile).
LONG = {"test_kill.py", "test_cluster.py", "test_watch.py"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("WEIR_SPARK"):
        return
    left_out = [item for item in items if item.path.name in LONG]
    items[:] = [item for item in items if item.path.name not in LONG]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """In this process, with two cores; the only one, because a process can have no second."""
    need(shutil.which("java"), "Spark needs a Java runtime")
    folder = tmp_path_factory.mktemp("spark")
    session = start("local[2]", SETTINGS | {"spark.sql.warehouse.dir": str(folder)})
    # Tests provoke errors, and look at them themselves.
    session.sparkContext.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    yield session
    session.stop()


@pytest.fixture
def writer(origin: LocalOrigin) -> Writer:
    return Writer(origin.port)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """It grows once more than runs are killed."""
    folder = tmp_path_factory.mktemp("world")
    origin = LocalOrigin(make_config(folder / "data"))
    origin.start()
    yield World(folder, origin.port, steps=KILLS + 1, lines=1000 * (KILLS + 1))
    origin.stop()
    assert origin.errors.found == []


@pytest.fixture
def server() -> Iterator[ScriptedOrigin]:
    """A server that says what a test tells it to."""
    with ScriptedOrigin() as server:
        yield server


@dataclass(frozen=True, slots=True)
class Door:
    """A server to read from, with the options that lead there."""

    url: str
    token: str = ""

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url} | ({"token": self.token} if self.token else {})

    @property
    def address(self) -> Address:
        return Address(self.url, self.token, timeout_s=10, retries=1)


@pytest.fixture
def front(origin: LocalOrigin) -> Door:
    return Door(f"http://127.0.0.1:{origin.port}")


@pytest.fixture
def gateway(front: Door) -> Iterator[Door]:
    """In front of the origin; its token may read and nothing else."""
    with LocalGateway(make_gateway_config(front.url)) as gateway:
        yield Door(gateway.url, make_token(KEY, scope="read:*"))


@pytest.fixture(params=["origin", "gateway"])
def door(request: pytest.FixtureRequest, front: Door) -> Door:
    """Tests that use it run on the origin, and again through a gateway."""
    found: Door = front if request.param == "origin" else request.getfixturevalue("gateway")
    return found


def read_all(door: Door, planned: Partitions, *, fail: bool = True) -> list[dict[str, Any]]:
    """What tasks would read, one after another in this process."""
    with Client(door.address) as client:
        streams = Streams(client)
        return [
            row
            for ranges in planned
            for batch in read_ranges(streams, ranges, fail_on_data_loss=fail)
            for row in batch.to_pylist()
        ]


def messages(rows: list[dict[str, Any]]) -> list[str]:
    return [row["message"] for row in rows]
