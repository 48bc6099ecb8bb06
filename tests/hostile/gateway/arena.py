"""A gateway under attack: what was sent to it and what it let out, everywhere, is kept and judged.

Tokens made here are secrets. At the end nothing that left the gateway may hold one: no answer, no
request to the origin, no log of any kind.
"""

import logging
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from protocol.accesslog import AccessRecord
from tests.helpers.accesslog import read_records
from tests.helpers.gateway import KEY, LocalGateway, bearer, make_gateway_config
from tests.helpers.keys import Key, make_token
from tests.helpers.rawhttp import (
    PREFIX,
    Closed,
    Connection,
    EventStream,
    Response,
    encode_request,
    wait_until,
)
from tests.helpers.scripted_origin import Recorded, ScriptedOrigin

# Sent where an error answer could echo it.
CANARY = "cAnArY7"
CHANGING = ("date", "x-request-id")  # from one answer to the next
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends RST


class Arena:
    """A gateway in front of `origin`, which is a scripted one of its own or somebody's URL."""

    def __init__(self, folder: Path, origin_url: str = "", **sections: dict[str, Any]) -> None:
        self.origin = ScriptedOrigin()
        self._origin_url = origin_url
        self._folder = folder / "access"
        self._sections = sections
        self._secrets: set[str] = set()
        self._heard: list[bytes] = []
        self._said = _Said()

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self._said)
        self.origin.__enter__()
        serving = {"access_log": str(self._folder), **self._sections.get("gateway", {})}
        sections: Any = {**self._sections, "gateway": serving}
        config = make_gateway_config(self._origin_url or self.origin.url, **sections)
        self.gateway = LocalGateway(config)
        self.gateway.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gateway.__exit__(kind, error, trace)
        self.origin.__exit__(kind, error, trace)
        logging.getLogger().removeHandler(self._said)
        if kind is None:
            self.check_secrets()

    # -- what attackers do -----------------------------------------------------------------------

    def token(self, key: Key = KEY, **claims: Any) -> str:
        """A good token unless `claims` say otherwise; it must never be seen again."""
        return self.keep_secret(make_token(key, **claims))

    def keep_secret(self, token: str) -> str:
        """Its payload and signature, that is; all headers look alike."""
        self._secrets.update(part for part in token.split(".")[1:] if len(part) > 20)
        return token

    @property
    def port(self) -> int:
        """That the attackers know."""
        return self.gateway.port

    def readers_of(self, name: str) -> tuple[int, int]:
        """SSE readers and long-polls that wait for news of a stream."""
        tail = self.gateway.gateway.hubs.tails.get(name)
        return (0, 0) if tail is None else (len(tail.readers), len(tail.polls))

    def wait_for_polls(self, name: str, count: int) -> None:
        wait_until(lambda: self.readers_of(name)[1] == count, what=f"{count} long-polls")

    def connect(self) -> "Recording":
        return Recording(self.port, self._heard)

    def ask(
        self,
        name: str,
        query: str = "",
        *,
        token: str | None = "",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """One request on a connection of its own; the token may do everything unless given."""
        found = bearer(self.token() if token == "" else token)
        target = PREFIX + name + (f"?{query}" if query else "")
        with self.connect() as connection:
            return connection.request(method, target, {**found, **(headers or {})}, body)

    def send(self, data: bytes, count: int = 100) -> list[Response]:
        """Raw bytes on a connection of their own; the answers until it ends or rests."""
        replies: list[Response] = []
        with self.connect() as connection:
            quiet_s = 0.7
            try:
                connection.send(data)
            except ConnectionError:
                pass  # refused already: the answer may still be read
            try:
                while len(replies) < count and not connection.rests(quiet_s, self.pulse):
                    replies.append(connection.read_response(data[:4].decode("latin-1").strip()))
                    if replies[-1].get("Connection") == "close":  # a proxy may linger before it is
                        quiet_s = 0.1
            except (Closed, ConnectionError):
                pass
        return replies

    def pulse(self) -> None:
        self.gateway.call(lambda: None)

    def events(
        self, name: str, offset: str = "-1", *, token: str | None = "", query: str = ""
    ) -> EventStream:
        headers = bearer(self.token() if token == "" else token)
        return EventStream(self.port, name, offset, query, headers)

    def poll(
        self, name: str, offset: str, *, token: str | None = "", cursor: str = ""
    ) -> "Recording":
        """A long-poll whose answer is still to be read."""
        query = f"offset={offset}&live=long-poll" + (f"&cursor={cursor}" if cursor else "")
        connection = self.connect()
        headers = bearer(self.token() if token == "" else token)
        connection.send(encode_request("GET", f"{PREFIX}{name}?{query}", headers))
        return connection

    # -- what they may not reach -----------------------------------------------------------------

    def lines(self, count: int = 0) -> list[AccessRecord]:
        """The access log, once everything that is answered is in it."""
        wait_until(lambda: len(self._lines()) >= count, what=f"{count} lines")
        log = self.gateway.gateway.backends.log
        wait_until(lambda: log.waiting == 0, what="the access log")
        return self._lines()

    def line_of(self, request_id: str) -> AccessRecord:
        wait_until(lambda: any(line.request_id == request_id for line in self._lines()))
        (found,) = [line for line in self._lines() if line.request_id == request_id]
        return found

    def _lines(self) -> list[AccessRecord]:
        return read_records(self._folder)

    def check_secrets(self) -> None:
        """No token in anything that left the gateway."""
        files = b"".join(path.read_bytes() for path in self.log_files())
        upstream = "\n".join(map(_as_text, self.origin.requests)).encode()
        places = {
            "an answer": b"".join(self._heard),
            "the access log": files,
            "the log": "\n".join(self._said.lines).encode(errors="replace"),
            "an upstream request": upstream,
        }
        for secret in self._secrets:
            for place, data in places.items():
                assert secret.encode() not in data, f"a token is in {place}"

    def log_files(self) -> list[Path]:
        """Whatever was logged about requests."""
        return sorted(self._folder.glob("*"))

    def check_alive(self) -> None:
        """Whatever happened, the gateway serves and has not complained."""
        with self.connect() as connection:
            assert connection.request("GET", "/healthz").status == 200
        errors, self.gateway.errors.found = self.gateway.errors.found, []
        assert errors == []


def _as_text(request: Recorded) -> str:
    fields = "\n".join(f"{name}: {value}" for name, value in request.fields)
    return f"{request.method} {request.target}\n{fields}\n{request.body!r}"


class Recording(Connection):
    """A connection that keeps all it hears."""

    def __init__(self, port: int, heard: list[bytes]) -> None:
        super().__init__(port)
        self._heard = heard

    def _fill(self) -> None:
        before = len(self._buffer)
        super()._fill()
        self._heard.append(self._buffer[before:])

    def read_to_end(self) -> bytes:
        data = super().read_to_end()
        self._heard.append(data)
        return data

    def reset(self) -> None:
        """End it as a crashed client does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close()


class _Said(logging.Handler):
    """Every log record of every logger, with its traceback if it has one."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def lasting(reply: Response) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    """An answer without what changes from one to the next."""
    return reply.status, tuple(f for f in reply.fields if f[0] not in CHANGING), reply.body


def check_refusal(reply: Response, *statuses: int) -> None:
    """An error that tells nothing: no echo, no traceback, nothing that a browser would run."""
    assert reply.status in statuses, reply
    text = reply.body.decode("latin-1") + repr(reply.fields)
    assert CANARY not in text and "Traceback" not in text, reply
    assert reply["X-Content-Type-Options"] == "nosniff", reply
    assert reply["Content-Type"] == "application/problem+json", reply
    assert reply["Cache-Control"] == "no-store", reply
    assert "ETag" not in reply and "Age" not in reply and "Set-Cookie" not in reply, reply


def soon(seconds: float) -> float:
    """An `exp` that a test can wait for."""
    return time.time() + seconds
