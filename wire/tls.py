"""TLS of a server: its context, and connections from the moment they are accepted. Asyncio's
servers report them only after the handshake: so here they are counted, and end in time if nothing
arrives."""

import asyncio
import logging
import ssl
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar, cast

from wire.settings import SettingsError

log = logging.getLogger("weir.tls")

Result = TypeVar("Result")


def server_context(key: str, cert_path: str, key_path: str) -> ssl.SSLContext | None:
    """None without a certificate; `key` is the setting to blame for errors."""
    if not cert_path:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_path, key_path)
    except OSError as error:  # includes SSLError; neither names a file
        raise SettingsError(key, f"cannot use {cert_path} with {key_path}: {error}") from error
    return context


class Doorway(Protocol):
    """The server's view of connections during the handshake."""

    handshakes: "set[asyncio.Task[None]]"

    def enter(self, transport: asyncio.BaseTransport) -> bool:
        """Whether there is room for one more; it counts until `leave` in any case."""

    def leave(self) -> None: ...


class Handshake(asyncio.Protocol):
    """Takes the place of the connection's protocol, made by `make`, during the handshake."""

    def __init__(
        self,
        doorway: Doorway,
        context: ssl.SSLContext,
        seconds: float,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        self._doorway = doorway
        self._context = context
        self._seconds = seconds
        self._make = make
        self._early = b""
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        if not self._doorway.enter(raw):
            raw.abort()  # an error response would cost a handshake
            return
        task = asyncio.create_task(self._shake_hands(raw), name="TLS handshake")
        self._doorway.handshakes.add(task)
        task.add_done_callback(self._doorway.handshakes.discard)

    def connection_lost(self, error: Exception | None) -> None:
        self._let_go()

    def data_received(self, data: bytes) -> None:
        self._early += data

    async def _shake_hands(self, raw: asyncio.Transport) -> None:
        if self._ended:
            return
        try:
            secured = await self._start_tls(raw)
        except BaseException as error:
            raw.abort()
            self._let_go()
            if not isinstance(error, OSError):  # includes SSLError
                raise
            log.debug("no TLS: %r", error)
            return
        if secured is None or self._ended:
            self._let_go()
            return
        self._hand_over(secured)

    async def _start_tls(self, raw: asyncio.Transport) -> asyncio.Transport | None:
        loop = asyncio.get_running_loop()
        starting = loop.start_tls(
            raw, self, self._context, server_side=True, ssl_handshake_timeout=self._seconds
        )
        # It connects the parts by `call_soon`; bytes received earlier are fed right after that.
        return await _begin(starting, lambda: loop.call_soon(self._feed, raw))

    def _feed(self, raw: asyncio.Transport) -> None:
        early, self._early = self._early, b""
        tls = cast(asyncio.BufferedProtocol, raw.get_protocol())
        while early and not raw.is_closing():
            room = memoryview(tls.get_buffer(len(early)))
            size = min(len(room), len(early))
            room[:size] = early[:size]
            tls.buffer_updated(size)
            early = early[size:]

    def _let_go(self) -> None:
        if not self._ended:
            self._ended = True
            self._doorway.leave()

    def _hand_over(self, secured: asyncio.Transport) -> None:
        protocol = self._make()
        self._doorway.leave()  # the protocol counts itself from now on
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        if self._early:
            protocol.data_received(self._early)


@types.coroutine
def _begin(
    work: Coroutine[Any, Any, Result], then: Callable[[], object]
) -> Generator[Any, Any, Result]:
    """Run it up to its first wait, call `then`, and continue."""
    try:
        waits_for = work.send(None)
        then()
        while True:
            try:
                came = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(came)
    except StopIteration as end:
        return cast(Result, end.value)
