"""Response heads: the one place where they are composed.

A head has four parts: the response's own headers, those the gateway adds to every response (CORS,
`Cache-Status`, `Connection`), the request id, and the time (`Age`, `Date`). Parts that do not
change between requests are encoded once and kept with the entry or the delivery.
"""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from gateway.calls import Call
from gateway.cdn import cdn_headers, is_public
from gateway.config import GatewayConfig
from gateway.encodings import compressible
from gateway.entries import Entry, Form
from gateway.outcomes import FROM_HUB, HIT
from gateway.rules import downstream
from gateway.rules.forwarding import public_location
from protocol.replies import Headers, Reply
from wire.encoding import encode_head, encode_lines
from wire.http import DateLine, Stamp, base_url

_SHOWN = ("catch-up", "long-poll", "snapshot", "bootstrap")  # a CDN may have cached these


class Heads:
    def __init__(self, config: GatewayConfig, clock: Callable[[], float] = time.time) -> None:
        self._cdn = config.cdn
        self._compresses = config.cache.compress
        self._live_control = downstream.live_control(config.cdn.cache_control)
        self._http = config.http
        self._scheme = "https" if config.gateway.tls_cert_path else "http"
        self._hops = config.gateway.trusted_hops
        self._clock = clock
        self._date = DateLine()
        self._stamp = Stamp(config.cors_origins)
        self._stamp_line = encode_lines(self._stamp.headers(None))
        self.any_origin = self._stamp.any_origin

    # -- one request ---------------------------------------------------------------------------

    def of(self, call: Call, status: int, headers: Headers, length: int | None) -> bytes:
        """A complete head. Without a length, the body's end is marked in another way."""
        if call.outcome.cache_status:
            headers += (("Cache-Status", call.outcome.cache_status),)
        if call.last_of_connection:
            headers += (("Connection", "close"),)
        head = encode_head(status, headers, self._stamp_of(call), length)
        return head + b"X-Request-Id: %b\r\n" % call.request_id.encode() + self._date()

    def of_pieces(self, call: Call, reply: Reply) -> bytes:
        """The head of a body that is sent in pieces; the body may be known already."""
        if reply.body:
            return self.of(call, reply.status, reply.headers, len(reply.body))
        framing: Headers = (("Transfer-Encoding", "chunked"),) if call.knows_chunks else ()
        return self.of(call, reply.status, reply.headers + framing, None)

    def of_part(self, call: Call, entry: Entry, form: Form) -> bytes:
        headers = self._part_headers(entry, form) + self._age(entry)
        return self.of(call, 200, headers, len(form.body))

    def not_modified(self, call: Call, entry: Entry, form: Form) -> bytes:
        headers = self._part_headers(entry, form) + self._age(entry)
        return self.of(call, 304, downstream.not_modified_headers(headers), None)

    def of_live(
        self, call: Call, entry: Entry, cursor: int, *, up_to_date: bool, may_keep: bool
    ) -> bytes:
        """The head of a long-poll response with data."""
        headers = self._live_headers(entry, cursor, up_to_date, may_keep)
        return self.of(call, 200, headers, len(entry.body))

    def _stamp_of(self, call: Call) -> str:
        if self.any_origin:
            return self._stamp_line
        return encode_lines(self._stamp.headers(call.head.headers.get("origin")))

    # -- all usual requests: everything up to the request id, for this second --------------------

    def of_hit(self, entry: Entry, form: Form) -> bytes:
        if not form.head:
            headers = self._part_headers(entry, form)
            form.head = encode_head(200, headers, self._stamp_line, len(form.body))
        lines = encode_lines((*self._age(entry), ("Cache-Status", HIT.cache_status)))
        return form.head + lines.encode() + self._date()[:-2] + b"X-Request-Id: "

    def of_crowd(self, entry: Entry, cursor: int) -> bytes:
        """The head for long-polls that waited at a hub."""
        headers = self._live_headers(entry, cursor, entry.up_to_date, not entry.no_store)
        headers += (("Cache-Status", FROM_HUB.cache_status),)
        head = encode_head(200, headers, self._stamp_line, len(entry.body))
        return head + self._date()[:-2] + b"X-Request-Id: "

    # -- headers -------------------------------------------------------------------------------

    def passed(self, call: Call, status: int, headers: Mapping[str, str]) -> Headers:
        """The headers of a response forwarded from the origin."""
        shown = tuple((shown_name(name), value) for name, value in headers.items())
        if "location" in headers:
            base = base_url(self._http, call.head.headers.get("host", ""), self._scheme_of(call))
            location = ("Location", public_location(headers["location"], base))
            shown = tuple(location if name == "Location" else (name, v) for name, v in shown)
        public = is_public(self._cdn.public, call.stream)
        found = downstream.passed_headers(status, shown, public=public)
        if status == 200 and call.route.mode in _SHOWN:
            found += cdn_headers(self._cdn, call.stream, "")
        return found

    def _scheme_of(self, call: Call) -> str:
        """The client's scheme; a proxy that terminates TLS reports it."""
        told = call.head.headers.get("x-forwarded-proto")
        return told if self._hops and told in ("http", "https") else self._scheme

    def _part_headers(self, entry: Entry, form: Form) -> Headers:
        kept = entry.public and entry.immutable
        return downstream.chunk_headers(
            entry,
            form,
            control=downstream.cache_control(entry),
            varies=downstream.vary(entry, self._compresses and compressible(entry.content_type)),
            cdn=cdn_headers(self._cdn, entry.stream, self._cdn.cache_control if kept else ""),
        )

    def _live_headers(self, entry: Entry, cursor: int, up_to_date: bool, may_keep: bool) -> Headers:
        control = self._live_control if entry.public else ""
        return downstream.live_headers(
            entry,
            entry.etag_of(""),
            cursor=cursor,
            up_to_date=up_to_date,
            may_keep=may_keep,
            cdn=cdn_headers(self._cdn, entry.stream, control),
        )

    def _age(self, entry: Entry) -> Headers:
        return (("Age", str(max(0, int(self._clock() - entry.stored_at)))),)


@lru_cache(maxsize=256)
def shown_name(name: str) -> str:
    """Lower case is valid too, but these are easier to read."""
    special = {"etag": "ETag", "stream-ttl": "Stream-TTL"}
    special["stream-sse-data-encoding"] = "Stream-SSE-Data-Encoding"
    return special.get(name) or "-".join(part.capitalize() for part in name.split("-"))
