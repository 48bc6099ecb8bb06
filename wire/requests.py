"""Headers and bodies of requests, within the limits of a service: gathered for the fast path, or
read where aiohttp has parsed the head."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import HttpVersion11, web

from protocol.errors import ProtocolError
from wire.heads import Head

PROGRESS_BYTES = 4096  # minimum progress of a body in each `body_timeout_secs`

_SINGLE = frozenset({"content-type", "content-encoding", "host"})


class Limits(Protocol):
    """What a client may send, and how long it may take."""

    @property
    def max_header_bytes(self) -> int: ...
    @property
    def max_body_bytes(self) -> int: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def header_timeout_secs(self) -> float: ...
    @property
    def body_timeout_secs(self) -> float: ...
    @property
    def idle_timeout_secs(self) -> float: ...


@dataclass(slots=True)
class Gathering:
    """A request for the fast path whose body comes in pieces."""

    head: Head
    raw: bytes
    body: bytearray = field(default_factory=bytearray)  # far smaller than a list of pieces
    _mark: int = 0

    def take(self, data: bytes, at: int) -> int:
        """Take its part of `data` at `at`; returns where the next request may start."""
        end = min(len(data), at + self.head.content_length - len(self.body))
        self.body += data[at:end]
        return end

    @property
    def is_whole(self) -> bool:
        return len(self.body) == self.head.content_length

    def has_progressed(self) -> bool:
        """Whether it progressed enough since the last call."""
        came, self._mark = len(self.body) - self._mark, len(self.body)
        return came >= PROGRESS_BYTES

    def release(self) -> None:
        if self.head.admission is not None:
            self.head.admission.release()


def unique_headers(request: web.BaseRequest) -> dict[str, str]:
    """Lower-case names; a repeated header that must be unique is an error."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        if key not in found:
            found[key] = value
        elif key.startswith(("stream-", "producer-")) or key in _SINGLE:
            raise ProtocolError(400, "repeated-header", f"{name} is repeated.")
        else:
            found[key] += ("; " if key == "cookie" else ", ") + value
    return found


def check_body(
    request: web.BaseRequest,
    headers: Mapping[str, str],
    limits: Limits,
    *,
    max_bytes: int | None = None,
) -> None:
    """Check a body before it arrives; raises ProtocolError."""
    most = limits.max_body_bytes if max_bytes is None else max_bytes
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ProtocolError(415, "encoded-body", "Send the body without Content-Encoding.")
    if (request.content_length or 0) > most:
        raise _too_large(most)


def _too_large(most: int) -> ProtocolError:
    return ProtocolError(413, "body-too-large", f"A body may have at most {most} bytes.")


async def _ask_for_body(request: web.BaseRequest) -> None:
    try:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    except ConnectionError:  # the client misses the refusal, but it is logged and counted
        raise ProtocolError(400, "malformed-body", "The client disconnected.") from None
    finally:
        request.writer.output_size = 0  # the response has not started


async def read_body(
    request: web.BaseRequest,
    headers: Mapping[str, str],
    limits: Limits,
    *,
    max_bytes: int | None = None,
    grow: Callable[[int], None] | None = None,
) -> bytes:
    """The complete body; `max_bytes` overrides the usual limit. `grow` is called for each piece,
    and may refuse it."""
    most = limits.max_body_bytes if max_bytes is None else max_bytes
    check_body(request, headers, limits, max_bytes=most)
    expects = headers.get("expect", "").lower() == "100-continue"
    if expects and request.version >= HttpVersion11:  # earlier versions do not know 100 Continue
        await _ask_for_body(request)
    parts: list[bytes] = []
    size = mark = 0
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(limits.body_timeout_secs) as clock:
            while part := await request.content.readany():
                parts.append(part)
                size += len(part)
                if size > most:
                    raise _too_large(most)
                if grow is not None:
                    grow(len(part))
                if size - mark >= PROGRESS_BYTES:
                    mark = size
                    clock.reschedule(now() + limits.body_timeout_secs)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise ProtocolError(408, "timeout", "The body took too long to arrive.") from None
    except web.RequestPayloadError:
        raise ProtocolError(400, "malformed-body", "The body is malformed.") from None
