"""Fixtures of all tests that need a running origin, and how property tests choose examples."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import Client

# A busy machine is no failure. Continuous integration tries the same examples each time, so that a
# change is judged by what it changed; whoever works here explores.
settings.register_profile("explore", deadline=None)
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady" if os.environ.get("CI") else "explore")

StartOrigin = Callable[..., LocalOrigin]


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
