"""The fast path: reads of stored parts by known callers, where every microsecond counts.

Parsed request lines and header lines are remembered, so a hit takes a few lookups and one write.
Anything unusual is left to the door, which gives the same response.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.admission import Admissions
from gateway.answers import JOIN_BYTES, Answers
from gateway.cache import Cache
from gateway.config import GatewayConfig
from gateway.encodings import Forms
from gateway.entries import Entry, Form, Kept
from gateway.records import CallerLog
from gateway.rules.access import ANYONE, Principal, Scopes
from gateway.rules.routes import Route, parse_route
from gateway.tokens import Remembered, Tokens
from protocol.errors import ProtocolError
from wire.heads import Head, Target


@dataclass(slots=True)
class Line:
    """What a request line asks for, if a hit can serve it, and the entry that served it last."""

    route: Route | None
    kept: Kept | None = None
    allowed: Scopes | None = None  # the last scopes found to allow it


@dataclass(slots=True)
class Caller:
    """The meaning of a request's header lines, independent of the request line."""

    is_simple: bool
    token: str = field(repr=False)
    principal: Principal | None
    encoding: str
    client: str
    user_agent: str
    remembered: Remembered | None = field(default=None, repr=False)
    peer: str = ""
    log: CallerLog | None = None  # for that peer


class Hits:
    def __init__(
        self,
        config: GatewayConfig,
        tokens: Tokens | None,
        admissions: Admissions,
        cache: Cache,
        forms: Forms,
        answers: Answers,
        next_id: Callable[[], str],
    ) -> None:
        self._tokens = tokens
        self._admissions = admissions
        self._rates = admissions.rates
        self._has_rates = admissions.has_rates
        self._cache = cache
        self._forms = forms
        self._heads = answers.heads
        self._records = answers.records
        self._next_id = next_id
        self._max_path_bytes = config.gateway.max_path_bytes
        self._trusts_hops = config.gateway.trusted_hops > 0
        self._takes_plain_tokens = not config.auth.cookie and not config.auth.query_parameter

    def answer(self, head: Head, peer: str) -> bytes | None:
        """A complete response, or None to leave the request to the door."""
        line = head.target.parsed
        if type(line) is not Line:
            line = head.target.parsed = self._read_line(head.target)
        caller = head.fields.parsed
        if type(caller) is not Caller:
            caller = head.fields.parsed = self._read_caller(head.fields.headers)
        route = line.route
        if route is None or not caller.is_simple:
            return None
        now = time.time()
        principal = caller.principal
        token = caller.remembered
        if token is not None and self._tokens is not None:
            if now >= token.good_until or not self._tokens.stands(token, now):
                caller.remembered = None
                return None
            principal = token.principal
        elif principal is None:  # may be known next time
            if self._tokens is not None and caller.token:
                caller.remembered = self._tokens.recall(caller.token)
            return None
        entry = None if line.kept is None else line.kept.entry
        if entry is None or not entry.is_fresh(now):
            entry = self._cache.fresh(route.stream, route.part)
            line.kept = None if entry is None else entry.kept
            if entry is None:
                return None
        encoded = caller.encoding and self._forms.squeezes(entry)
        form = entry.forms.get(caller.encoding if encoded else "")
        if form is None or len(form.body) > JOIN_BYTES:
            return None
        if line.allowed is not principal.scopes:  # tokens of one issuer share theirs
            if not principal.scopes.allows("read", route.stream):
                return None
            line.allowed = principal.scopes
        if self._has_rates and self._rates.take(principal.subject, now):
            return None
        if form.second != int(now):
            self._cache.touch(entry)
            self._renew(entry, form, int(now))
        if caller.log is None or caller.peer != peer:
            caller.peer = peer
            client = caller.client or peer
            caller.log = self._records.of_caller(principal.subject, client, caller.user_agent)
        request_id = head.request_id or self._next_id()
        self._records.write_hit(form, caller.log, request_id, now)
        return form.head_second + request_id.encode() + b"\r\n\r\n" + form.body

    def _renew(self, entry: Entry, form: Form, second: int) -> None:
        """Once a second: the parts that all responses within it share."""
        form.log = form.log or self._records.of_form(entry, form)
        form.head_second = self._heads.of_hit(entry, form)
        form.second = second

    def _read_line(self, target: Target) -> Line:
        if target.method != "GET":
            return Line(None)
        try:
            route = parse_route("GET", target.path, target.query, self._max_path_bytes)
        except ProtocolError:
            return Line(None)
        if route is None or not route.cacheable or route.mode != "catch-up":
            return Line(None)
        return Line(route)

    def _read_caller(self, headers: dict[str, str]) -> Caller:
        authorization = headers.get("authorization", "")
        return Caller(
            is_simple=self._is_simple(headers),
            token=authorization[7:] if authorization.startswith("Bearer ") else "",
            principal=ANYONE if self._tokens is None else None,
            encoding=self._forms.chosen(headers.get("accept-encoding")),
            client=self._admissions.client(headers, "") if self._trusts_hops else "",
            user_agent=headers.get("user-agent", ""),
        )

    def _is_simple(self, headers: dict[str, str]) -> bool:
        if "if-none-match" in headers or not self._takes_plain_tokens:
            return False
        return self._heads.any_origin or "origin" not in headers
