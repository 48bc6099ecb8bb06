"""Tests of one machine that need no more than requests, each request at another node."""

import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.extension import (
    test_1_buckets,
    test_2_snapshots,
    test_3_bootstrap,
    test_conditional_writes,
    test_create_as_append,
    test_max_bytes,
    test_state_strict,
)
from tests.extension.conftest import BUCKETED, FLAT
from tests.origin import test_appends, test_forks, test_lifetimes, test_offsets

MODULES = (
    test_1_buckets,
    test_2_snapshots,
    test_3_bootstrap,
    test_conditional_writes,
    test_create_as_append,
    test_max_bytes,
    test_state_strict,
    test_appends,
    test_forks,
    test_lifetimes,
    test_offsets,
)
FIXTURES = {"api", "client", "path"}
LEFT_OUT: frozenset[str] = frozenset()


@pytest.fixture(params=[FLAT, BUCKETED], ids=["flat", "bucketed"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def wanted(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name, test in vars(module).items():
        if not name.startswith("test_") or name in LEFT_OUT:
            continue
        marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
        given = {each for mark in marks for each in _names(mark.args[0])}
        asked = set(inspect.signature(test).parameters)
        if asked - given <= FIXTURES and asked & FIXTURES:
            yield f"{name}__{module.__name__.rpartition('.')[2]}", test


def _names(argument: object) -> list[str]:
    parts = argument.split(",") if isinstance(argument, str) else argument
    assert isinstance(parts, list | tuple)
    return [part.strip() for part in parts]


globals().update({name: test for module in MODULES for name, test in wanted(module)})


def test_many_were_found() -> None:
    assert sum(name.startswith("test_") for name in globals()) > 100
