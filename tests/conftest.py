"""Fixtures of all tests that need a running origin, how property tests choose examples, how
processes share the work, and what is said while they do."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.helpers.failures import Failures
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import Client

# A busy machine is no failure. Continuous integration tries the same examples each time, so that a
# change is judged by what it changed; whoever works here explores.
settings.register_profile("explore", deadline=None)
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady" if os.environ.get("CI") else "explore")

# How `make test` shares the work among processes: tests that take long and have nothing in common
# go out one by one, those of Spark all to one process (a session takes long to start), any other
# file as a whole, because its tests often share a server.
ONE_BY_ONE = ("crash/", "model/")
ALL_TO_ONE = "spark/"
MOST_WORKERS = 8

StartOrigin = Callable[..., LocalOrigin]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that prints
        config.pluginmanager.register(Failures(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that all processes have work until the end."""
    items.sort(key=lambda item: (not _asks_spark(item), not item.get_closest_marker("slow")))
    for item in filter(_asks_spark, items):
        if not item.get_closest_marker("timeout"):  # a call cut off halfway spoils the session
            item.add_marker(pytest.mark.timeout(600))


def _asks_spark(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "spark" in item.fixturenames


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, because much of what tests do is waiting."""
    return min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # else what is many comes first, not what takes long
    return Shares(config, log)


class Shares(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        """What goes to the same process has the same name."""
        path = nodeid.removeprefix("tests/")
        if path.startswith(ONE_BY_ONE):
            return path
        return ALL_TO_ONE if path.startswith(ALL_TO_ONE) else path.partition("::")[0]


@pytest.fixture
def start_origin(tmp_path: Path) -> Iterator[StartOrigin]:
    """Start origins by storage mode and config sections; none may log an error until the end."""
    started: list[LocalOrigin] = []

    def start(mode: str = "memory", **sections: Any) -> LocalOrigin:
        origin = LocalOrigin(make_config(tmp_path / f"data-{len(started)}", mode, **sections))
        origin.start()
        started.append(origin)
        return origin

    yield start
    for origin in started:
        origin.stop()
    assert [error for origin in started for error in origin.errors.found] == []


@pytest.fixture
def origin(start_origin: StartOrigin) -> LocalOrigin:
    return start_origin()


@pytest.fixture
def client(origin: LocalOrigin) -> Iterator[Client]:
    with origin.client() as client:
        yield client
