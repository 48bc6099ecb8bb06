"""TCP proxies between the processes of a cluster: a link from one of them to a server can be cut,
frozen or made slow, and mended again.

A cut link resets its connections and refuses new ones. A frozen one accepts and forwards nothing;
what was sent meanwhile arrives when it thaws, even if its sender has given up: as packets do that
were on their way.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from loadtest.peers.process import free_port
from loadtest.verify.cluster.sources import find_source

PIECE_BYTES = 64 * 1024
SLOW_SECS = 0.15  # that each piece is late


class Mode(Enum):
    PASS = "pass"
    CUT = "cut"
    FROZEN = "frozen"
    SLOW = "slow"


@dataclass(eq=False, slots=True)
class _Connection:
    port: int  # of the client
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    source: str | None = None  # unknown until it matters

    def reset(self) -> None:
        for side in (self.client, self.server):
            if side is not None:
                side.transport.abort()


@dataclass(eq=False, slots=True)
class _Gate:
    """How one source is treated."""

    mode: Mode = Mode.PASS
    thawed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.thawed.set()

    def set(self, mode: Mode) -> None:
        self.mode = mode
        if mode is Mode.FROZEN:
            self.thawed.clear()
        else:
            self.thawed.set()

    async def passed(self) -> None:
        """Raises ConnectionError while it is cut."""
        await self.thawed.wait()
        if self.mode is Mode.CUT:
            raise ConnectionResetError
        if self.mode is Mode.SLOW:
            await asyncio.sleep(SLOW_SECS)


class Link:
    """All ways to one server; `pids` are the processes that are told apart.

    Who is at the other end of a connection takes long to find out, so it is asked only while one of
    them is treated differently.
    """

    def __init__(self, target_port: int, pids: Callable[[], Mapping[str, int]]) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._pids = pids
        self._gates: dict[str, _Gate] = {}
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._is_closed = False

    async def start(self) -> None:
        """An `asyncio.Server` would leak what it is accepting when it is closed."""
        if self._listener is None:
            self._listener = listener = socket.create_server(("127.0.0.1", self.port))
            listener.setblocking(False)
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def shut(self) -> None:
        """Its server is dead: refuse connections as a machine does where nobody listens."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def close(self) -> None:
        self.shut()
        for gate in self._gates.values():
            gate.set(Mode.CUT)
        self._is_closed = True
        for connection in list(self._connections):
            connection.reset()
        if self._tasks:  # they are over in a moment
            await asyncio.wait(self._tasks)

    def set(self, source: str, mode: Mode) -> None:
        """For connections of this process, those that are open as well."""
        self._gates.setdefault(source, _Gate()).set(mode)
        if mode is Mode.PASS:
            return
        for connection in list(self._connections):
            if self._source_of(connection) == source and mode is Mode.CUT:
                connection.reset()

    @property
    def _is_whole(self) -> bool:
        return all(gate.mode is Mode.PASS for gate in self._gates.values())

    def _source_of(self, connection: _Connection) -> str | None:
        if connection.source is None:
            connection.source = find_source(connection.port, self.port, self._pids())
        return connection.source

    async def _pass(self, connection: _Connection) -> None:
        """Wait until this connection may go on."""
        if self._is_closed:
            raise ConnectionResetError
        if not self._is_whole:
            source = self._source_of(connection)
            gate = None if source is None else self._gates.get(source)
            if gate is not None:
                await gate.passed()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # it has left already
            accepted, (_, port) = listener.accept()
            task = asyncio.create_task(self._pass_on(accepted, port), name="link")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, accepted: socket.socket, port: int) -> None:
        accepted.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=accepted)
        connection = _Connection(port, writer)
        if not self._is_whole:
            self._source_of(connection)  # now: it may be gone soon
        self._connections.add(connection)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(connection, reader)
        finally:
            connection.reset()
            self._connections.discard(connection)

    async def _serve(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        await self._pass(connection)
        answers, writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        connection.server = writer
        back = asyncio.create_task(
            self._pump(connection, answers, connection.client), name="link back"
        )
        try:
            await self._pump(connection, reader, writer)
            await back
        finally:
            back.cancel()

    async def _pump(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until one side ends; the other is told in the same way."""
        try:
            while data := await reader.read(PIECE_BYTES):
                await self._pass(connection)
                writer.write(data)
                await writer.drain()
            await self._pass(connection)
            if writer.can_write_eof():
                writer.write_eof()
        except (OSError, RuntimeError):  # the second: it was reset meanwhile
            writer.transport.abort()
