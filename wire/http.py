"""Headers of every response, and how replies become responses."""

import re
import time
from dataclasses import dataclass
from email.utils import formatdate

from aiohttp import web

from protocol.names import CORS_EXPOSED_HEADERS, CORS_REQUEST_HEADERS, METHODS
from protocol.replies import RETRY_AFTER, Headers, Reply, problem
from wire.encoding import encode_head, encode_lines
from wire.sections import HttpConfig

_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")
_SECURITY: Headers = (("Server", "weir"), ("X-Content-Type-Options", "nosniff"))
_ANY_ORIGIN: Headers = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Expose-Headers", "*"),
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Headers added to every response, by the browser's Origin; pages of `origins` may read it. Any
    page may embed it if `is_shown`, which is safe where tokens are required."""

    origins: tuple[str, ...]
    is_shown: bool = True

    @property
    def any_origin(self) -> bool:
        return "*" in self.origins

    def headers(self, origin: str | None) -> Headers:
        policy = "cross-origin" if self.is_shown else "same-origin"
        always = (*_SECURITY, ("Cross-Origin-Resource-Policy", policy))
        if self.any_origin:
            return (*always, *_ANY_ORIGIN)
        expose = ("Access-Control-Expose-Headers", ", ".join(CORS_EXPOSED_HEADERS))
        vary = ("Vary", "Origin")
        if origin is None or origin not in self.origins:
            return (*always, vary)
        return (*always, vary, ("Access-Control-Allow-Origin", origin), expose)


def base_url(http: HttpConfig, host: str, scheme: str) -> str:
    """Base of Location: configured, or the client's Host if it is a plain host."""
    if http.public_url:
        return http.public_url
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else ""


def preflight() -> Reply:
    return Reply(
        204,
        (
            ("Access-Control-Allow-Methods", METHODS),
            ("Access-Control-Allow-Headers", ", ".join(CORS_REQUEST_HEADERS)),
            ("Access-Control-Max-Age", "86400"),
            ("Allow", METHODS),
        ),
    )


def to_response(reply: Reply, stamp: Headers) -> web.Response:
    response = web.Response(status=reply.status, body=reply.body or None)
    fill_headers(response, reply, stamp)
    return response


def fill_headers(response: web.StreamResponse, reply: Reply, stamp: Headers) -> None:
    """Exactly our headers: `web.Response` begins with a content type of its own."""
    response.headers.clear()
    for name, value in (*reply.headers, *stamp):
        response.headers[name] = value


class DateLine:
    """The Date line and the empty line that ends a head, formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def __call__(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = f"Date: {formatdate(second, usegmt=True)}\r\n\r\n".encode()
        return self._line


class Refusals:
    """Responses to input that never became a request (see wire.front)."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp
        self._date = DateLine()

    def encode(self, status: int, code: str, detail: str) -> bytes:
        headers: Headers = (("Connection", "close"),)
        if status == 503:
            headers += RETRY_AFTER
        reply = problem(status, code, detail, headers)
        stamp = encode_lines(self._stamp.headers(None))
        head = encode_head(status, reply.headers, stamp, len(reply.body))
        return head + self._date() + reply.body

    def response(self, status: int) -> web.StreamResponse:
        code, detail = _REFUSED.get(status, _REFUSED[500])
        response = to_response(problem(status, code, detail), self._stamp.headers(None))
        response.force_close()
        return response


_REFUSED = {
    400: ("malformed-request", "The request is not valid HTTP."),
    500: ("internal-error", "Internal server error; see its log."),
    504: ("timeout", "The request took too long."),
}
