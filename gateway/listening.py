"""The port that clients reach: from a door to a server, and to its drained end."""

from aiohttp import web

from gateway.config import GatewayConfig
from gateway.door import Door
from gateway.handlers import Handlers
from wire.front import FrontServer
from wire.http import Refusals, Stamp
from wire.settings import SettingsError
from wire.tls import server_context

BACKLOG = 4096


class Listener:
    def __init__(self, config: GatewayConfig, door: Door) -> None:
        serving, rename = config.gateway, config.http.rename
        certificate = serving.tls_cert_path, serving.tls_key_path
        self._serving = serving
        self._server = FrontServer(
            Handlers(serving, door, rename).handle,
            door,
            serving,
            Refusals(Stamp(config.cors_origins)),
            rename,
            tls=server_context("gateway.tls_cert_path", *certificate),
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=serving.drain_secs / 2)

    @property
    def open_connections(self) -> int:
        return self._server.open_connections

    async def start(self) -> int:
        """Returns the port."""
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self._serving.host,
            self._serving.port,
            backlog=BACKLOG,
            reuse_port=self._serving.workers > 1,
        )
        try:
            await site.start()
        except OSError as error:
            raise SettingsError("gateway.port", str(error)) from error
        return int(self._runner.addresses[0][1])

    def drain(self) -> None:
        """Who has a connection is answered once more, and told to close it."""
        self._server.drain()

    async def refuse(self) -> None:
        """No new connections."""
        for site in list(self._runner.sites):
            await site.stop()

    async def stop(self) -> None:
        await self._runner.cleanup()
