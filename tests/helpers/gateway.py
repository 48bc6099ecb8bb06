"""A gateway in a thread of this process, for tests that talk to it over sockets.

    with ScriptedOrigin() as origin, LocalGateway(make_gateway_config(origin.url)) as gateway:
        with gateway.client() as client:  # with a token that may do everything
            assert client.read("a").status == 200

Leaving the `with` stops it as SIGTERM would, and fails the test when it logged an error or left a
task behind.
"""

import asyncio
import atexit
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from gateway.app import Gateway
from gateway.config import (
    AuthConfig,
    CacheConfig,
    CdnConfig,
    GatewayConfig,
    ServingConfig,
    UpstreamConfig,
)
from gateway.console.minting import MintKey
from tests.helpers.keys import AUDIENCE, ISSUER, make_key, make_token, write_jwks
from tests.helpers.origin import STOP_S, LoggedErrors
from tests.helpers.rawhttp import Client, Connection, EventStream, Response
from wire.sections import HttpConfig, LogConfig

KEY = make_key("EdDSA", "test-key")
LINGER_S = 20.0  # in which the last tasks of a stopped gateway must end

T = TypeVar("T")


def make_gateway_config(
    origin_url: str, *, jwks_path: Path | str | None = None, **sections: Mapping[str, Any]
) -> GatewayConfig:
    """Short times; tokens signed by KEY unless `jwks_path` (file or URL) or `auth` says otherwise.

    make_gateway_config(url, cache={"fresh_secs": 0.1}, auth={"mode": "off"})
    """
    gateway: dict[str, Any] = {
        "port": 0,
        "origin_url": origin_url,
        "name": "test",
        "long_poll_timeout_secs": 20.0,
        "drain_secs": 3.0,
    }
    upstream: dict[str, Any] = {
        "connect_timeout_secs": 5.0,
        "first_byte_timeout_secs": 10.0,
        "idle_timeout_secs": 2.0,
        "live_timeout_secs": 30.0,
        "breaker_secs": 0.3,
    }
    auth: dict[str, Any] = {
        "jwks": str(jwks_path or key_set()),
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "leeway_secs": 0.0,
        "jwks_cooldown_secs": 0.2,
    }
    return GatewayConfig(
        gateway=ServingConfig(**(gateway | dict(sections.get("gateway", {})))),
        upstream=UpstreamConfig(**(upstream | dict(sections.get("upstream", {})))),
        auth=AuthConfig(**(auth | dict(sections.get("auth", {})))),
        cache=CacheConfig(**sections.get("cache", {})),
        cdn=CdnConfig(**sections.get("cdn", {})),
        http=HttpConfig(**sections.get("http", {})),
        log=LogConfig(**sections.get("log", {})),
    )


@cache
def key_set() -> Path:
    """A file with the public half of KEY, made once."""
    folder = TemporaryDirectory(prefix="weir-jwks-")
    atexit.register(folder.cleanup)
    return write_jwks(Path(folder.name) / "jwks.json", KEY)


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class TokenClient(Client):
    """A client that sends its token with every request."""

    def __init__(self, port: int, token: str | None) -> None:
        super().__init__(port)
        self._token = bearer(token)

    def __call__(
        self,
        method: str,
        name: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        query: str = "",
    ) -> Response:
        return super().__call__(method, name, {**self._token, **(headers or {})}, body, query)


class LocalGateway:
    """One gateway worker with an event loop of its own."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        worker: int = 0,
        run_dir: Path | None = None,
        mint_key: MintKey | None = None,
    ) -> None:
        self.config = config
        self.errors = LoggedErrors()
        self.leftovers: list[str] = []  # tasks that outlived a stop
        self._worker = worker
        self._run_dir = run_dir
        self.mint_key = mint_key
        self._running = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if kind is None:
            assert self.errors.found == []
            assert self.leftovers == []

    @property
    def port(self) -> int:
        return self.gateway.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        logging.getLogger().addHandler(self.errors)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._thread.start()
        self._running = True
        try:
            self.wait(self._make())
            self.wait(self.gateway.start())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """As SIGTERM does it; harmless when it is stopped already."""
        if self._running:
            try:
                self.wait(self.gateway.stop())
                self.wait(self._note_leftovers())
            finally:
                self._end_loop()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the gateway's loop."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return result.result(STOP_S)

    def wait(self, work: Awaitable[T]) -> T:
        """Run a coroutine on the gateway's loop to its end."""

        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(STOP_S)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; `name` without `weir_gateway_`."""
        families = self.call(lambda: list(self.gateway.metrics.collect()))
        samples = [sample for family in families for sample in family.samples]
        return sum(
            sample.value
            for sample in samples
            if sample.name in (f"weir_gateway_{name}", f"weir_gateway_{name}_total")
            and labels.items() <= sample.labels.items()
        )

    def client(self, token: str | None = "") -> TokenClient:
        """With a token that may do everything, unless one is given; None = none at all."""
        return TokenClient(self.port, make_token(KEY) if token == "" else token)

    def connect(self) -> Connection:
        return Connection(self.port)

    def events(
        self, name: str, offset: str = "-1", *, token: str | None = "", query: str = ""
    ) -> EventStream:
        headers = bearer(make_token(KEY) if token == "" else token)
        return EventStream(self.port, name, offset, query, headers)

    async def _make(self) -> None:
        self.gateway = Gateway(
            self.config, worker=self._worker, run_dir=self._run_dir, mint_key=self.mint_key
        )

    async def _note_leftovers(self) -> None:
        ours = asyncio.current_task()
        deadline = self._loop.time() + LINGER_S
        while others := [task for task in asyncio.all_tasks() if task is not ours]:
            if self._loop.time() > deadline:
                self.leftovers += [repr(task) for task in others]
                return
            await asyncio.sleep(0.005)

    def _end_loop(self) -> None:
        self._running = False
        self.wait(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()
        logging.getLogger().removeHandler(self.errors)
