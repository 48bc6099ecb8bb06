"""HTTP/2 by hand over one TLS connection: any number of requests at a time, seen frame by frame."""

import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes

from tests.helpers.rawhttp import TIMEOUT_S, Response


@dataclass(slots=True)
class Exchange:
    """One request and what has come back of it so far."""

    number: int
    status: int = 0
    fields: tuple[tuple[str, str], ...] = ()
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None  # the error code

    @property
    def response(self) -> Response:
        return Response(self.status, self.fields, bytes(self.body))


class Http2(AbstractContextManager["Http2"]):
    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        bare = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = tls.wrap_socket(bare, server_hostname="localhost")
        assert self._socket.selected_alpn_protocol() == "h2"
        config = H2Configuration(
            header_encoding="utf-8",
            validate_outbound_headers=False,  # what is good is for the server to say
            normalize_outbound_headers=False,
        )
        self._h2 = H2Connection(config)
        self._h2.initiate_connection()
        self._exchanges: dict[int, Exchange] = {}
        self.goaway: int | None = None  # the error code
        self.flush()

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def max_streams(self) -> int:
        return int(self._h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS])

    def forget_limits(self) -> None:
        """From now on any number of streams is opened, whatever the server has said."""
        self._h2.remote_settings.max_concurrent_streams = 1 << 30
        self._h2.remote_settings.acknowledge()

    def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Exchange:
        named = [(":method", method), (":scheme", "https"), (":path", path)]
        named += [(":authority", "localhost")]
        named += [(name.lower(), value) for name, value in (headers or {}).items()]
        return self.send_fields(named, body)

    def send_fields(self, fields: Sequence[tuple[str, str]], body: bytes = b"") -> Exchange:
        """Just these, as they are."""
        number = self._h2.get_next_available_stream_id()
        self._h2.send_headers(number, fields, end_stream=not body)
        if body:
            self._h2.send_data(number, body, end_stream=True)
        self.flush()
        exchange = self._exchanges[number] = Exchange(number)
        return exchange

    def reset(self, exchange: Exchange) -> None:
        self._h2.reset_stream(exchange.number)
        self.flush()

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        exchange = self.send(method, path, headers, body)
        self.wait_for(lambda: exchange.ended, f"{method} {path}")
        return exchange.response

    def wait_for(self, condition: Callable[[], bool], what: str = "condition") -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                raise AssertionError(f"{what}: not within {TIMEOUT_S} s") from None
            if not data:
                raise ConnectionError(f"{what}: the connection has ended")
            for event in self._h2.receive_data(data):
                self._note(event)
            self.flush()

    def flush(self) -> None:
        self._socket.settimeout(TIMEOUT_S)
        self._socket.sendall(self._h2.data_to_send())

    def _note(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.goaway = int(event.error_code or 0)
            return
        number = getattr(event, "stream_id", None)
        exchange = None if number is None else self._exchanges.get(number)
        if exchange is None:
            return
        match event:
            case ResponseReceived():
                fields = [(str(name), str(value)) for name, value in event.headers or ()]
                exchange.status = int(dict(fields)[":status"])
                exchange.fields = tuple(f for f in fields if not f[0].startswith(":"))
            case DataReceived():
                exchange.body += event.data or b""
                self._h2.acknowledge_received_data(
                    event.flow_controlled_length or 0, exchange.number
                )
            case StreamEnded():
                exchange.ended = True
            case StreamReset():
                exchange.ended, exchange.reset = True, int(event.error_code or 0)
