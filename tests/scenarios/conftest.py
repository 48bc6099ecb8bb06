"""Gateways, origins and crowds for scenarios, all gone after the test."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.origin import LocalOrigin
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


@pytest.fixture
def real(start_origin: StartOrigin) -> LocalOrigin:
    """An origin of ours whose chunks are small."""
    return start_origin(storage={"chunk_bytes": 4})


@pytest.fixture(params=["alone", "redis", "workers"])
def fleet(
    request: pytest.FixtureRequest,
    real: LocalOrigin,
    start_gateway: StartGateway,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[LocalGateway]]:
    """The gateway that writes and the one that reads: one and the same, two with Redis between
    them, two workers of one machine."""
    url = f"http://127.0.0.1:{real.port}"
    if request.param == "alone":
        yield [start_gateway(url)] * 2
    elif request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis")
        yield [start_gateway(url, cache={"redis_url": redis.url}) for _ in range(2)]
    else:
        folder = tmp_path_factory.mktemp("run")
        serving = {"workers": 2}
        yield [start_gateway(url, worker=n, run_dir=folder, gateway=serving) for n in range(2)]
