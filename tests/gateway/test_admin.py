"""The admin port over real sockets, with a stand-in for the gateway behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest

from gateway import admin
from gateway.admin import Admin, ask, socket_path
from gateway.config import ServingConfig
from gateway.console.figures import Figures, count_up
from wire.metrics import ServiceMetrics
from wire.settings import SettingsError
from wire.workers import reserve_port

CONFIG = ServingConfig(admin_port=0)


class Exposition(ServiceMetrics):
    content_type = ("Content-Type", "text/plain; version=0.0.4")

    def __init__(self) -> None:
        pass

    def render(self) -> bytes:
        return b"# HELP hubs Hubs.\n# TYPE hubs gauge\nhubs 2.0\n"


class Overview(admin.Overview):
    def __init__(self) -> None:
        pass

    def recent_streams(self) -> list[str]:
        return ["a"]

    def figures(self) -> Figures:
        return count_up(())


@dataclass
class Served:
    ready: bool = True
    metrics: Exposition = field(default_factory=Exposition)
    overview: Overview = field(default_factory=Overview)


@asynccontextmanager
async def running(served: Served, config: ServingConfig = CONFIG) -> AsyncIterator[Admin]:
    one = Admin(served, config)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@asynccontextmanager
async def several(folder: Path, *served: Served, count: int = 0) -> AsyncIterator[Admin]:
    """Workers on one admin port, of which the first is yielded."""
    held, port = reserve_port("gateway.admin_port", "127.0.0.1", 0)
    config = replace(CONFIG, admin_port=port, workers=count or len(served))
    async with AsyncExitStack() as stack:
        workers = [Admin(each, config, worker=n, run_dir=folder) for n, each in enumerate(served)]
        for worker in workers:
            await worker.start()
            stack.push_async_callback(worker.stop)
        stack.callback(held[0].close)
        yield workers[0]


async def get(one: Admin, path: str, method: str = "GET") -> tuple[int, str]:
    url = f"http://127.0.0.1:{one.port}{path}"
    async with aiohttp.request(method, url) as response:
        return response.status, await response.text()


async def test_metrics_of_one_worker_carry_no_worker() -> None:
    async with running(Served()) as one:
        status, text = await get(one, "/metrics?x=1")
        assert status == 200
        assert "\nhubs 2.0\n" in text
        assert "\nweir_gateway_workers_up 1.0\n" in text


async def test_metrics_have_the_type_of_the_format() -> None:
    async with (
        running(Served()) as one,
        aiohttp.request("GET", f"http://127.0.0.1:{one.port}/metrics") as response,
    ):
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4"
        assert response.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_ready_follows_the_gateway_and_health_does_not() -> None:
    served = Served()
    async with running(served) as one:
        assert await get(one, "/readyz") == (200, "ready")
        served.ready = False
        assert (await get(one, "/readyz"))[0] == 503
        assert await get(one, "/healthz") == (200, "ok")


async def test_the_index_names_the_pages() -> None:
    async with running(Served()) as one:
        status, text = await get(one, "/")
        assert status == 200
        assert all(path in text for path in ("/metrics", "/healthz", "/readyz"))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/stream/x", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/", 405),
        ("HEAD", "/metrics", 200),
    ],
)
async def test_other_paths_and_methods(method: str, path: str, status: int) -> None:
    async with running(Served()) as one:
        assert (await get(one, path, method))[0] == status


async def test_a_taken_port_is_a_configuration_error() -> None:
    async with running(Served()) as one:
        with pytest.raises(SettingsError, match=r"^gateway\.admin_port: .*address already in use"):
            await Admin(Served(), replace(CONFIG, admin_port=one.port)).start()


async def test_metrics_of_several_workers_are_merged(tmp_path: Path) -> None:
    async with several(tmp_path, Served(), Served(), Served()) as one:
        _, text = await get(one, "/metrics")
        assert [line for line in text.splitlines() if line.startswith("hubs")] == [
            'hubs{worker="0"} 2.0',
            'hubs{worker="1"} 2.0',
            'hubs{worker="2"} 2.0',
        ]
        assert text.count("# HELP hubs ") == 1
        assert "\nweir_gateway_workers 3.0\n" in text
        assert "\nweir_gateway_workers_up 3.0\n" in text


async def test_a_worker_that_is_gone_is_left_out(tmp_path: Path) -> None:
    async with several(tmp_path, Served(), count=2) as one:
        _, text = await get(one, "/metrics")
        assert "\nweir_gateway_workers 2.0\n" in text
        assert "\nweir_gateway_workers_up 1.0\n" in text
        assert await get(one, "/readyz") == (200, "ready")


async def test_one_worker_that_is_not_ready_counts_for_all(tmp_path: Path) -> None:
    async with several(tmp_path, Served(), Served(ready=False)) as one:
        assert (await get(one, "/readyz"))[0] == 503


@asynccontextmanager
async def answering(path: Path, answer: bytes | None) -> AsyncIterator[None]:
    """A worker that says what it should not, or nothing."""

    left = asyncio.Event()

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await reader.read()  # ends when the other side gives up
        else:
            writer.write(answer)
        writer.close()
        left.set()

    server = await asyncio.start_unix_server(tell, path)
    yield
    await left.wait()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("answer", [None, b"", b"nonsense", b"\x92\xc3", b"x" * 5000])
async def test_a_worker_that_answers_badly_is_left_out(
    tmp_path: Path, answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "ASK_SECS", 0.1)
    monkeypatch.setattr(admin, "MAX_STATUS_BYTES", 1000)
    async with answering(socket_path(tmp_path, 1), answer):
        assert await ask(socket_path(tmp_path, 1), admin.WITH_METRICS) is None


async def test_a_question_that_never_comes_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "ASK_SECS", 0.05)
    async with several(tmp_path, Served()):
        reader, writer = await asyncio.open_unix_connection(socket_path(tmp_path, 0))
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_the_socket_of_a_killed_worker_is_taken_over(tmp_path: Path) -> None:
    async with several(tmp_path, Served()):
        pass
    assert socket_path(tmp_path, 0).exists()  # as a killed process leaves it
    async with several(tmp_path, Served(), Served()) as one:
        assert "weir_gateway_workers_up 2.0" in (await get(one, "/metrics"))[1]
