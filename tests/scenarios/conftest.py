"""Gateways, origins and crowds for scenarios, all gone after the test."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.redis import RedisServer, running_redis
from tests.helpers.scripted_origin import ScriptedOrigin
from tests.scenarios.crowd import Caller, close_all, connect

StartGateway = Callable[..., LocalGateway]
Gather = Callable[..., Awaitable[list[Caller]]]


@pytest.fixture
def scripted() -> Iterator[ScriptedOrigin]:
    with ScriptedOrigin() as origin:
        yield origin


@pytest.fixture
def start_gateway(scripted: ScriptedOrigin) -> Iterator[StartGateway]:
    """Start gateways by config sections, in front of the scripted origin unless told otherwise."""
    with ExitStack() as stack:

        def start(
            origin_url: str | None = None,
            *,
            worker: int = 0,
            run_dir: Path | None = None,
            **more: Any,
        ) -> LocalGateway:
            config = make_gateway_config(origin_url or scripted.url, **more)
            return stack.enter_context(LocalGateway(config, worker=worker, run_dir=run_dir))

        yield start


@pytest.fixture
def gateway(start_gateway: StartGateway) -> LocalGateway:
    return start_gateway()


@pytest.fixture
async def gather(start_gateway: StartGateway) -> AsyncIterator[Gather]:
    """Open connections, closed before gateways stop: `callers = await gather(gateway, 100)`."""
    opened: list[Caller] = []

    async def make(gateway: LocalGateway, count: int = 1) -> list[Caller]:
        callers = await connect(gateway.port, count)
        opened.extend(callers)
        return callers

    yield make
    await close_all(opened)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server
