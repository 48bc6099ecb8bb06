"""HTTP/1.1 by hand over a socket: tests see exactly what was sent and what came back."""

import json
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from protocol.sse import Decoder, Event

TIMEOUT_S = 60.0  # ends a hang; a busy machine is none
PREFIX = "/v1/stream/"


class Closed(Exception):
    """The server ended the connection before the response was complete."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    fields: tuple[tuple[str, str], ...]  # in order, names in lower case
    body: bytes

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        assert value is not None, f"no {name} in {self}"
        return value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> str | None:
        found = [value for key, value in self.fields if key == name.lower()]
        assert len(found) < 2, f"{name} is repeated in {self}"
        return found[0] if found else None

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def next_offset(self) -> str:
        return self["Stream-Next-Offset"]

    @property
    def up_to_date(self) -> bool:
        return self.get("Stream-Up-To-Date") == "true"

    @property
    def closed(self) -> bool:
        return self.get("Stream-Closed") == "true"


def encode_request(
    method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [
        f"{name}: {value}" for name, value in ({"Host": "weir.test"} | dict(headers or {})).items()
    ]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class _Closing:
    """Closed at the end of a `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Connection(_Closing):
    """One connection; responses are read one at a time, in order."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, source: str = "") -> None:
        """`source` is the address that it comes from, where the server's own will not do."""
        self.socket: socket.socket = socket.create_connection(
            ("127.0.0.1", port), TIMEOUT_S, (source, 0)
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._buffer = b""

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        self.send(encode_request(method, target, headers, body))
        return self.read_response(method)

    def read_response(self, method: str = "GET") -> Response:
        status, fields = self.read_head()
        named = dict(fields)
        if status == 204:  # RFC 9110 8.6: a length here is what smugglers look for
            assert not {"content-length", "transfer-encoding"} & set(named), fields
        if method == "HEAD" or status in (204, 304) or status < 200:
            body = b""
        elif named.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        elif "content-length" in named:
            body = self.take(int(named["content-length"]))
        else:
            body = self.read_to_end()
        return Response(status, fields, body)

    def read_head(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        head = self._take_until(b"\r\n\r\n").decode("latin-1")
        first, *lines = head.split("\r\n")
        pairs = [line.partition(":") for line in lines]
        version, status, *_ = first.split(" ")
        assert version in ("HTTP/1.1", "HTTP/1.0"), head
        return int(status), tuple((name.lower(), value.strip()) for name, _, value in pairs)

    def chunks(self) -> Iterator[bytes]:
        """The pieces of a chunked body; ends only at its terminator."""
        while size := int(self._take_until(b"\r\n"), 16):
            yield self.take(size)
            assert self.take(2) == b"\r\n"
        assert self.take(2) == b"\r\n"

    def read_to_end(self) -> bytes:
        """Whatever comes until the server closes."""
        data, self._buffer = self._buffer, b""
        with suppress(ConnectionError):
            while piece := self.socket.recv(65536):
                data += piece
        return data

    def wait_closed(self, seconds: float = TIMEOUT_S) -> bytes:
        """Bytes up to the end of the connection, which must come in time."""
        self.socket.settimeout(seconds)
        return self.read_to_end()

    def has_come(self, seconds: float) -> bool:
        """Whether there is something to read, be it the end, within this time."""
        waiting = select.poll()
        waiting.register(self.socket, select.POLLIN)
        return bool(self._buffer or waiting.poll(seconds * 1000))

    def rests(self, seconds: float, pulse: Callable[[], object]) -> bool:
        """Whether nothing comes for so long, and for longer on a machine that is slow.

        `pulse` has the server do next to nothing, which tells how slow.
        """
        if self.has_come(seconds):
            return False
        began = time.monotonic()
        pulse()
        return not self.has_come(20 * (time.monotonic() - began))

    def take(self, size: int) -> bytes:
        """Exactly so many bytes of a body."""
        parts, found = [self._buffer], len(self._buffer)
        while found < size:
            self._buffer = b""
            self._fill()
            parts.append(self._buffer)
            found += len(self._buffer)
        data = b"".join(parts)
        self._buffer = data[size:]
        return data[:size]

    def _take_until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._fill()
        data, _, self._buffer = self._buffer.partition(end)
        return data

    def _fill(self) -> None:
        try:
            piece = self.socket.recv(65536)
        except ConnectionError as error:
            raise Closed(repr(error)) from error
        if not piece:
            raise Closed(f"after {self._buffer[:200]!r}")
        self._buffer += piece


class Client(_Closing):
    """Requests to the streams of one server over one connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port)

    def close(self) -> None:
        self._connection.close()

    def __call__(
        self,
        method: str,
        name: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        query: str = "",
    ) -> Response:
        target = PREFIX + name + (f"?{query}" if query else "")
        return self._connection.request(method, target, headers, body)

    def create(self, name: str, kind: str = "text/plain", body: bytes = b"", **more: str) -> str:
        """Create a stream that must be new; its offset."""
        reply = self("PUT", name, {"Content-Type": kind, **header_names(more)}, body)
        assert reply.status == 201, reply
        return reply.next_offset

    def append(self, name: str, body: bytes, kind: str = "text/plain", **more: str) -> str:
        """Append what must be accepted; the new offset."""
        reply = self("POST", name, {"Content-Type": kind, **header_names(more)}, body)
        assert reply.status in (200, 204), reply
        return reply.next_offset

    def read(self, name: str, offset: str = "-1", **headers: str) -> Response:
        return self("GET", name, header_names(headers), query=f"offset={offset}")


def header_names(named: Mapping[str, str]) -> dict[str, str]:
    """stream_ttl="1" as Stream-Ttl: 1."""
    return {name.replace("_", "-").title(): value for name, value in named.items()}


class EventStream(_Closing):
    """An SSE reader: events as they come, grouped by the write that carried them.

    `name` is a stream's, or a whole path.
    """

    def __init__(
        self,
        port: int,
        name: str,
        offset: str = "-1",
        query: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.connection = Connection(port)
        path = name if name.startswith("/") else PREFIX + name
        target = f"{path}?offset={offset}&live=sse{query}"
        self.connection.send(encode_request("GET", target, headers))
        self.status, self.fields = self.connection.read_head()
        assert self.status == 200, self.fields
        self.writes = self.connection.chunks()
        self._decoder = Decoder()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()

    def next_write(self) -> list[Event]:
        """Events of the next write that completes any; comments are passed over."""
        for piece in self.writes:
            if events := self._decoder.feed(piece):
                return events
        raise Closed("the event stream ended")

    def rest(self) -> list[Event]:
        """Everything up to a clean end."""
        return [event for piece in self.writes for event in self._decoder.feed(piece)]


def control(event: Event) -> dict[str, Any]:
    assert event.kind == "control", event
    found: dict[str, Any] = json.loads(event.data)
    return found


def wait_until(
    condition: Callable[[], bool], seconds: float = TIMEOUT_S, what: str = "condition"
) -> None:
    """Poll for what only shows from outside."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.005)
