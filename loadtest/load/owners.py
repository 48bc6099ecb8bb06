"""Requests that go straight to the owner of each stream; a server that is no cluster owns all."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Self

from loadtest.errors import RunFailedError
from loadtest.load.client import Client
from loadtest.load.connection import Target
from loadtest.load.wrk import Lane, Load
from loadtest.peers.clusters import ACCESS_KEY, NODES, find_cluster, port_of
from loadtest.peers.process import Server


class Owners:
    """By the map as it was when this was made."""

    def __init__(self, server: Server) -> None:
        cluster = find_cluster(server)
        self._map = None if cluster is None else cluster.map
        self._port = server.port
        self._clients: dict[int, Client] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def port_of(self, path: str) -> int:
        if self._map is None:
            return self._port
        url = self._map.url_for(path)
        if url is None:
            raise RunFailedError(f"the shard of {path} has no owner")
        return port_of(url)

    def client_of(self, path: str) -> Client:
        return self.client_at(self.port_of(path))

    def client_at(self, port: int) -> Client:
        if port not in self._clients:
            self._clients[port] = Client(Target.local(port), access_key=ACCESS_KEY)
        return self._clients[port]

    # -- for wrk -----------------------------------------------------------------------------------

    def lanes(self, paths: Sequence[str]) -> tuple[Lane, ...]:
        """One for each owner; a server alone has as many."""
        if self._map is None:
            parts = [tuple(paths[number::NODES]) for number in range(NODES)]
            return tuple(Lane(self._port, part) for part in parts if part)
        return tuple(Lane(port, tuple(part)) for port, part in self._by_port(paths).items())

    def load(
        self, method: str, paths: Sequence[str], connections: int, body_bytes: int = 0
    ) -> Load:
        lanes = self.lanes(paths)
        return Load(method, "-", 0, connections, body_bytes, lanes=lanes, access_key=ACCESS_KEY)

    def _by_port(self, paths: Iterable[str]) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for path in paths:
            found.setdefault(self.port_of(path), []).append(path)
        return found

    # -- what clients do ---------------------------------------------------------------------------

    async def create_all(self, paths: Iterable[str], body: bytes = b"") -> None:
        parts = self._by_port(paths).items()
        await asyncio.gather(*(self.client_at(port).create_all(part, body) for port, part in parts))

    async def fill_all(self, paths: Iterable[str], body: bytes) -> None:
        """Each owner one stream after the other: of more than a hundred at a time, the reference
        server answers that some do not exist."""

        async def fill(client: Client, part: Sequence[str]) -> None:
            for path in part:
                await client.fill(path, [body])

        parts = self._by_port(paths).items()
        await asyncio.gather(*(fill(self.client_at(port), part) for port, part in parts))

    async def tails(self, paths: Iterable[str]) -> list[int]:
        """In no order."""
        parts = self._by_port(paths).items()
        found = await asyncio.gather(*(self.client_at(port).tails(part) for port, part in parts))
        return [tail for part in found for tail in part]
