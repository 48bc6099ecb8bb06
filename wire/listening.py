"""The port that clients reach: from a server to its drained end."""

from aiohttp import web

from wire.front import FrontServer
from wire.settings import SettingsError

BACKLOG = 4096


class Listener:
    def __init__(self, server: FrontServer, drain_secs: float) -> None:
        self.server = server
        # aiohttp waits for this time twice: for the handlers, and then for their tasks.
        self._runner = web.ServerRunner(server, shutdown_timeout=drain_secs / 2)

    async def start(self, key: str, host: str, port: int, *, shared: bool = False) -> int:
        """Returns the port; `key` is the setting to blame if it is in use. A shared one is for
        several processes."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=BACKLOG, reuse_port=shared)
        try:
            await site.start()
        except OSError as error:
            raise SettingsError(key, str(error)) from error
        return int(self._runner.addresses[0][1])

    async def refuse(self) -> None:
        """No new connections."""
        for site in list(self._runner.sites):
            await site.stop()

    async def stop(self) -> None:
        await self._runner.cleanup()
