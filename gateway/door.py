"""The front door: every request, from either path, in the one order of checks.

Limits, path, token, scope, rate, room for its body; then the cache, the hub or the origin. What
needs no waiting is done in the same step, a cache hit even before a `Call` exists; the rest goes on
as a task that is owned here. A body that is still to come is taken in only when all this is good.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

from gateway.answers import JOIN_BYTES, Answers, CallerLog
from gateway.bodies import Admission
from gateway.cache import Cache, Got
from gateway.calls import Call
from gateway.config import GatewayConfig
from gateway.console.service import Console
from gateway.encodings import choose, compress, compressible
from gateway.entries import Entry, Form, Kept
from gateway.hubs import Hubs
from gateway.limits import RateLimits, Shares
from gateway.metrics import Metrics
from gateway.passes import Passes
from gateway.rules.access import ANYONE, Action, Principal, Scopes, listing_name
from gateway.rules.challenges import AuthError, missing_scope, missing_token
from gateway.rules.credentials import Found, find_token, without_token
from gateway.rules.routes import OWN_TOKEN, PREFIXES, PUBLIC_KEYS, Route, parse_route, resume
from gateway.tasks import Tasks
from gateway.tokens import Remembered, Tokens
from gateway.upstream import TooLarge, UpstreamError
from protocol import replies
from protocol.errors import ProtocolError
from protocol.paths import Kind, parse_path, stream_url
from protocol.replies import NO_STORE, Reply, problem
from protocol.requests import is_true
from wire.front import Exchange
from wire.heads import Head, Target
from wire.http import preflight

log = logging.getLogger("weir.gateway")

INLINE_COMPRESS_BYTES = 16 * 1024
OPEN_BODY_BYTES = 64 * 1024  # where anybody may send one, or none is of any use
STRANGERS_PART = 16  # of the room for bodies, they have as much again
STRANGER = "\0"  # no subject begins like this

_TEXT: tuple[str, str] = ("Content-Type", "text/plain; charset=utf-8")


def _is_open(head: Head) -> bool:
    """What the origin guards by itself, or shows to everybody."""
    if head.method == "POST":
        return OWN_TOKEN.fullmatch(head.path) is not None
    return head.path == PUBLIC_KEYS and head.method in ("GET", "HEAD")


def _takes_much(head: Head) -> bool:
    """Whether a large body has any use there."""
    return head.method in ("POST", "PUT") and not _is_open(head)


def _check_scope(scopes: Scopes, route: Route) -> None:
    """Raises ProtocolError. What belongs to a stream needs the rights to the stream."""
    action, name = cast(Action, route.action), route.stream
    if route.lists:
        if not scopes.allows_listing(name):
            raise missing_scope("read", listing_name(name))
    elif not scopes.allows(action, name):
        raise missing_scope(action, name)


def _bearer(head: Head) -> str | None:
    """A token of whatever form, for those who need not understand it."""
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else None


@dataclass(slots=True)
class Place:
    """What a request line asks for, if a hit can answer it, and what answered it last."""

    route: Route | None
    offset: str = ""
    kept: Kept | None = None
    allowed: Scopes | None = None  # that were last found to allow it


@dataclass(slots=True)
class Caller:
    """What the header lines of a request say. None of it depends on the request line."""

    is_simple: bool
    token: str = field(repr=False)
    principal: Principal | None
    encoding: str
    client: str
    user_agent: str
    remembered: Remembered | None = field(default=None, repr=False)
    peer: str = ""
    log: CallerLog | None = None  # for that peer


class Door:
    def __init__(
        self,
        config: GatewayConfig,
        tokens: Tokens | None,
        cache: Cache,
        hubs: Hubs,
        passes: Passes,
        answers: Answers,
        metrics: Metrics,
        *,
        id_prefix: str,
        console: Console | None = None,
    ) -> None:
        self._config = config
        self._serving = config.gateway
        self._tokens = tokens
        self._cache = cache
        self._hubs = hubs
        self._passes = passes
        self._answers = answers
        self._metrics = metrics
        self._console = console
        self._id_prefix = id_prefix
        self._ids = count(1)
        rate = 0.0 if tokens is None else self._serving.requests_per_second  # else all are one
        self._rates = RateLimits(rate, self._serving.request_burst)
        self._has_rates = rate > 0
        self.room = self._make_room()
        self._strangers_room = self._make_strangers_room()
        self._tasks = Tasks()
        self._compressing: dict[tuple[int, str], asyncio.Task[None]] = {}
        auth = config.auth
        self._plain_tokens_only = not auth.cookie and not auth.query_parameter
        self.ready = False
        hubs.too_large = lambda call, offset: self._spawn(call, passes.stream(call, offset))
        answers.give_aside = lambda call, head, body: self._spawn(
            call, passes.give(call, head, body)
        )

    def _make_room(self) -> Shares:
        serving = self._serving
        most, of_subject = serving.max_bodies_bytes, serving.max_bodies_bytes_per_subject
        return Shares(most, self._config.per_subject(of_subject, most))

    def _make_strangers_room(self) -> Shares:
        """For bodies that need no token, apart: addresses cost nothing."""
        most = max(OPEN_BODY_BYTES, self._serving.max_bodies_bytes // STRANGERS_PART)
        return Shares(most, max(OPEN_BODY_BYTES, most // 4))

    @property
    def body_bytes(self) -> int:
        return self.room.total + self._strangers_room.total

    # -- the fast path (see wire.front) --------------------------------------------------------

    def hit(self, head: Head, peer: str) -> bytes | None:
        """A read of a stored chunk by someone known: the case that must cost nothing.

        What the request line and the header lines mean is remembered with each of them.
        """
        place = head.target.parsed
        if type(place) is not Place:
            place = head.target.parsed = self._place(head.target)
        caller = head.fields.parsed
        if type(caller) is not Caller:
            caller = head.fields.parsed = self._caller(head.fields.headers)
        route = place.route
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
        elif principal is None:  # from the next time on it may be known
            if self._tokens is not None and caller.token:
                caller.remembered = self._tokens.recall(caller.token)
            return None
        entry = None if place.kept is None else place.kept.entry
        if entry is None or now >= entry.fresh_until:
            entry = self._cache.fresh(route.stream, place.offset)
            place.kept = None if entry is None else entry.kept
            if entry is None:
                return None
        form = entry.forms.get(caller.encoding if caller.encoding and self._squeezes(entry) else "")
        if form is None or len(form.body) > JOIN_BYTES:
            return None
        if place.allowed is not principal.scopes:  # tokens of one issuer share theirs
            if not principal.scopes.allows("read", route.stream):
                return None
            place.allowed = principal.scopes
        if self._has_rates and self._rates.take(principal.subject, now):
            return None
        if form.second != int(now):
            self._cache.touch(entry)
        if caller.log is None or caller.peer != peer:
            caller.peer = peer
            client = caller.client or peer
            caller.log = self._answers.caller_log(principal.subject, client, caller.user_agent)
        request_id = head.request_id or self._next_id()
        return self._answers.hit_bytes(entry, form, caller.log, request_id, now)

    def _place(self, target: Target) -> "Place":
        if target.method != "GET":
            return Place(None)
        try:
            route = parse_route("GET", target.path, target.query, self._serving.max_path_bytes)
        except ProtocolError:
            return Place(None)
        if route is None or not route.cacheable or route.mode != "catch-up":
            return Place(None)
        return Place(route, route.part)

    def _caller(self, headers: dict[str, str]) -> "Caller":
        authorization = headers.get("authorization", "")
        return Caller(
            is_simple=self._is_simple(headers),
            token=authorization[7:] if authorization.startswith("Bearer ") else "",
            principal=ANYONE if self._tokens is None else None,
            encoding=choose(headers.get("accept-encoding")) if self._config.cache.compress else "",
            client="" if not self._serving.trusted_hops else self._client(headers, ""),
            user_agent=headers.get("user-agent", ""),
        )

    def wants(self, head: Head, here: int) -> bool:
        """What has come whole is judged as it is. Of the rest more is taken in only for someone
        known who may send it; who may not is told so by way of `screen`."""
        if head.content_length > OPEN_BODY_BYTES and not _takes_much(head):
            return False
        return here >= head.content_length or self._admit_known(head)

    def _admit_known(self, head: Head) -> bool:
        if not head.path.startswith(PREFIXES) or _is_open(head):
            return False
        try:
            found, route = self._read_head(head, repeated=False)
            principal: Principal | None = ANYONE
            if self._tokens is not None:
                principal = self._tokens.known(found.token or "", time.time())
            if principal is not None:
                self._authorise(head, route, principal)
                self._admit(head, principal.subject, head.content_length)
            return principal is not None
        except ProtocolError:
            return False

    def max_body_bytes(self, head: Head) -> int:
        """Only a snapshot may be larger than an append."""
        if self._shows_console(head):
            return Console.max_body_bytes
        if not _takes_much(head):
            return min(OPEN_BODY_BYTES, self._serving.max_body_bytes)
        is_large = self._publishes(head)
        return self._serving.max_snapshot_bytes if is_large else self._serving.max_body_bytes

    async def screen(self, head: Head, peer: str, *, repeated: bool) -> None:
        """Before a body is taken in: refuse whoever may not send it, or too much at once. Whom the
        head is given admission for lets it go. Raises ProtocolError."""
        if self._shows_console(head):
            self._admit(head, self._stranger(head.headers, peer), head.content_length)
            return
        if not head.path.startswith(PREFIXES):
            raise ProtocolError(404, "not-found", "There is nothing at this path.")
        found, route = self._read_head(head, repeated=repeated)
        principal = ANYONE
        if self._tokens is not None and not _is_open(head):
            if found.token is None:
                raise missing_token()
            principal = await self._tokens.verify(found.token, time.time())
        self._authorise(head, route, principal)
        self._admit(head, self._payer(principal, head.headers, peer), head.content_length)

    def _publishes(self, head: Head) -> bool:
        if head.method != "PUT":
            return False
        try:
            route = parse_route("PUT", head.path, "", self._serving.max_path_bytes)
        except ProtocolError:
            return False  # it is refused when it has come
        return route is not None and route.mode == "publish"

    def _admit(self, head: Head, subject: str, size: int) -> None:
        """Count one more request of a subject, and the body that belongs to it. A body without a
        length grows as it comes. Raises ProtocolError."""
        room = self._strangers_room if subject.startswith(STRANGER) else self.room
        admission = Admission(room, subject, size)
        try:
            self._take_rate(subject)
        except ProtocolError:
            admission.release()
            raise
        head.admission = admission

    def _payer(self, principal: Principal, headers: dict[str, str], peer: str) -> str:
        """Whose share it is of what all share; of those without a token each address has one."""
        if principal is ANYONE and self._tokens is not None:
            return self._stranger(headers, peer)
        return principal.subject

    def _stranger(self, headers: dict[str, str], peer: str) -> str:
        return STRANGER + self._client(headers, peer)

    def answer(self, head: Head, body: bytes, exchange: Exchange) -> bool:
        self.begin(self.call(head, body, exchange))
        return True

    def _is_simple(self, headers: dict[str, str]) -> bool:
        if "if-none-match" in headers or not self._plain_tokens_only:
            return False
        return self._answers.any_origin or "origin" not in headers

    # -- every request -------------------------------------------------------------------------

    def call(self, head: Head, body: bytes, exchange: Exchange) -> Call:
        return Call(
            head,
            exchange,
            head.request_id or self._next_id(),
            time.monotonic(),
            int(time.time() * 1000),
            self._client(head.headers, exchange.peer),
            body,
        )

    def begin(self, call: Call) -> None:
        """Answer now, or see to it that somebody will."""
        try:
            self._begin(call)
        except ProtocolError as error:
            self.refuse(call, error)
        except Exception:
            self._fail(call)

    def _begin(self, call: Call) -> None:
        head = call.head
        if not head.path.startswith(PREFIXES):
            self._begin_page(call)
            return
        if head.method == "OPTIONS":
            call.route = replace(call.route, mode="preflight")
            self._answers.send_reply(call, preflight())
            return
        found, route = self._read_head(head, repeated=call.repeated_authorization)
        call.route = self._with_mode(route, call)
        if head.content_length and head.method in ("GET", "HEAD"):
            raise ProtocolError(400, "unexpected-body", "This method takes no body.")
        if self._tokens is None or _is_open(head):
            self._enter(call, ANYONE, found.token)
            return
        if found.token is None:
            raise missing_token()
        principal = self._tokens.known(found.token, time.time())
        if principal is not None:
            self._enter(call, principal, found.token)
        else:
            self._spawn(call, self._verify(call, self._tokens, found.token))

    def _read_head(self, head: Head, *, repeated: bool) -> tuple[Found, Route]:
        """Its token, and what it is about. Raises ProtocolError."""
        found = Found(_bearer(head), without_token(head.query, self._config.auth))
        if self._tokens is not None and not _is_open(head):  # else its token is none of ours
            found = find_token(head.headers, head.query, self._config.auth, repeated=repeated)
        route = parse_route(head.method, head.path, found.query, self._serving.max_path_bytes)
        assert route is not None
        if route.mode == "sse" and "last-event-id" in head.headers:
            route = resume(route, head.headers["last-event-id"])
        return found, route

    async def _verify(self, call: Call, tokens: Tokens, token: str) -> None:
        self._enter(call, await tokens.verify(token, time.time()), token)

    def _enter(self, call: Call, principal: Principal, token: str | None) -> None:
        """Who it is, is known; whether they may, and then do it."""
        call.principal = principal
        head, route = call.head, call.route
        if _is_open(head):
            call.token = token if head.method == "POST" else None
        elif self._config.upstream.forward_token:
            call.token = token or ""
        call.fork_source = self._authorise(head, route, principal)
        if head.admission is not None:
            self._begin_work(call)
            return
        payer = self._payer(principal, head.headers, call.exchange.peer)
        if not call.body:
            self._take_rate(payer)
            self._begin_work(call)
            return
        self._admit(head, payer, len(call.body))
        try:
            self._begin_work(call)
        finally:
            cast(Admission, head.admission).release()

    def _begin_work(self, call: Call) -> None:
        if call.route.cacheable:
            self._read_stored(call)
            return
        match call.route.mode:
            case "long-poll":
                self._hubs.long_poll(call)
            case "sse":
                self._hubs.sse(call)
            case "other":
                self._spawn(call, self._passes.look(call))
            case _ if call.head.method in ("GET", "HEAD"):
                self._spawn(call, self._passes.look(call))
            case _:
                self._spawn(call, self._passes.write(call), carry_through=True)

    def _take_rate(self, subject: str) -> None:
        wait = self._rates.take(subject, time.time())
        if wait:
            seconds = (("Retry-After", str(max(1, int(wait + 0.999)))),)
            raise ProtocolError(429, "too-many-requests", "Slow down.", seconds)

    def _authorise(self, head: Head, route: Route, principal: Principal) -> str:
        """The source of a fork, as it is spelled upstream. Raises ProtocolError."""
        if _is_open(head):
            return ""
        _check_scope(principal.scopes, route)
        source = head.headers.get("stream-forked-from")
        if route.mode != "create" or source is None:
            return ""
        name = self._fork_source(source)
        if not principal.scopes.allows("read", name):
            raise missing_scope("read", name)
        return stream_url(name)

    def _fork_source(self, source: str) -> str:
        """A fork copies its source: only who may read that may make one (DS 4.2)."""
        source = self._config.http.rename(source)
        place = parse_path(source, self._serving.max_path_bytes)
        if place is None or place.kind is not Kind.STREAM:
            text = "Stream-Forked-From is a stream's path."
            raise ProtocolError(400, "invalid-fork-source", text)
        return place.name

    @staticmethod
    def _with_mode(route: Route, call: Call) -> Route:
        if route.mode == "append" and not call.body:
            if is_true(call.head.headers.get("stream-closed")):
                return replace(route, mode="close")
        return route

    # -- chunks, snapshots, bootstraps ---------------------------------------------------------

    def _read_stored(self, call: Call) -> None:
        entry = self._cache.fresh(call.stream, call.route.part)
        if entry is not None:
            form = self._ready_form(entry, call.head.headers.get("accept-encoding"))
            if form is not None:
                call.verdict, call.cache_status = "hit", "weir; hit"
                self._answers.send_chunk(call, entry, form)
                return
        self._spawn(call, self._read(call))

    async def _read(self, call: Call) -> None:
        got: Got | None = None
        with suppress(TooLarge):
            got = await self._cache.get(call.stream, call.route.path, call.route.part, call.asker)
        if got is None:
            await self._passes.stream(call)
            return
        call.note(got)
        entry = got.outcome
        if isinstance(entry, Reply):
            self._answers.send_reply(call, entry, error="upstream-refused")
            return
        encoding = self._encoding_for(entry, call.head.headers.get("accept-encoding"))
        if encoding and entry.form(encoding) is None:
            await self._compress(entry, encoding)
        form = entry.form(encoding) or entry.form()
        assert form is not None
        self._answers.send_chunk(call, entry, form)

    def _ready_form(self, entry: Entry, accept: str | None) -> Form | None:
        return entry.form(self._encoding_for(entry, accept))

    def _encoding_for(self, entry: Entry, accept: str | None) -> str:
        if accept is None or not self._config.cache.compress or not self._squeezes(entry):
            return ""
        return choose(accept)

    def _squeezes(self, entry: Entry) -> bool:
        large = len(entry.body) >= self._config.cache.compress_min_bytes
        return large and compressible(entry.content_type)

    async def _compress(self, entry: Entry, encoding: str) -> None:
        """Once per entry and encoding; large bodies off the loop."""
        if len(entry.body) <= INLINE_COMPRESS_BYTES:
            self._add_form(entry, encoding, compress(entry.body, encoding))
            return
        key = (id(entry), encoding)
        task = self._compressing.get(key)
        if task is None:
            task = asyncio.create_task(self._compress_aside(entry, encoding), name="compress")
            self._compressing[key] = task
            task.add_done_callback(lambda _: self._compressing.pop(key, None))
        await asyncio.shield(task)

    async def _compress_aside(self, entry: Entry, encoding: str) -> None:
        body = await asyncio.to_thread(compress, entry.body, encoding)
        self._add_form(entry, encoding, body)

    def _add_form(self, entry: Entry, encoding: str, body: bytes) -> None:
        plain = entry.form()
        assert plain is not None
        if len(body) < len(entry.body):
            entry.forms[encoding] = Form(encoding, body, entry.etag_of(encoding))
        else:
            entry.forms[encoding] = plain
        self._cache.recount(entry)

    # -- pages ---------------------------------------------------------------------------------

    def _begin_page(self, call: Call) -> None:
        call.route = replace(call.route, mode="service")
        if self._console is not None and self._console.covers(call.head.path):
            self._spawn(call, self._answer_console(call, self._console))
        else:
            self._answers.send_reply(call, self._service_page(call))

    def _shows_console(self, head: Head) -> bool:
        return self._console is not None and self._console.covers(head.path)

    async def _answer_console(self, call: Call, console: Console) -> None:
        if console.needs_token(call.head):
            await self._identify(call)
            reply = await console.tell(call.head.path, call.principal.scopes)
        else:
            reply = await console.answer(call.head, call.body, call.exchange.peer)
        self._answers.send_reply(call, reply)

    async def _identify(self, call: Call) -> None:
        """Whose call it is. Raises ProtocolError."""
        if self._tokens is not None:
            head, repeated = call.head, call.repeated_authorization
            found = find_token(head.headers, head.query, self._config.auth, repeated=repeated)
            if found.token is None:
                raise missing_token()
            call.principal = await self._tokens.verify(found.token, time.time())
        self._take_rate(call.principal.subject)

    def _service_page(self, call: Call) -> Reply:
        page = (call.head.method, call.head.path)
        if page in (("GET", "/healthz"), ("HEAD", "/healthz")):
            return Reply(200, (_TEXT, NO_STORE), b"ok")
        if page in (("GET", "/readyz"), ("HEAD", "/readyz")):
            if self.ready and (self._tokens is None or self._tokens.ready):
                return Reply(200, (_TEXT, NO_STORE), b"ready")
            return problem(503, "not-ready", "The gateway is starting, stopping or without keys.")
        return problem(404, "not-found", "There is nothing at this path.")

    # -- pieces --------------------------------------------------------------------------------

    def _next_id(self) -> str:
        return f"{self._id_prefix}{next(self._ids):x}"

    def _client(self, headers: dict[str, str], peer: str) -> str:
        """The address that the outermost trusted proxy saw; who came past them is our peer."""
        hops = self._serving.trusted_hops
        if not hops or "x-forwarded-for" not in headers:
            return peer
        addresses = headers["x-forwarded-for"].split(",")
        return addresses[-hops].strip()[:45] if len(addresses) >= hops else peer

    def refuse(self, call: Call, error: ProtocolError) -> None:
        call.verdict = "refused"
        if isinstance(error, AuthError):
            self._metrics.count("token_failures", reason=error.reason)
        self._answers.send_reply(call, replies.problem_of(error), error=error.code)

    def _spawn(
        self, call: Call, work: Coroutine[Any, Any, None], *, carry_through: bool = False
    ) -> None:
        task = self._tasks.start(self._guarded(call, work), f"{call.route.mode} request")
        task.add_done_callback(lambda _: work.close())  # in case it never began
        if (admission := cast(Admission | None, call.head.admission)) is not None:
            admission.hold()
            task.add_done_callback(lambda _: admission.release())
        if carry_through:
            call.exchange.when_gone(lambda: self._passes.abandoned(call))
        else:
            call.exchange.when_gone(lambda: self._abandon(call, task))

    def _abandon(self, call: Call, task: "asyncio.Task[None]") -> None:
        task.cancel()
        self._passes.abandoned(call)

    async def _guarded(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except UpstreamError as error:
            call.verdict = "error"
            self._answers.send_reply(call, replies.problem_of(error), error=error.code)
        except ProtocolError as error:
            self.refuse(call, error)
        except ConnectionError:
            self._passes.abandoned(call)
        except Exception:
            self._fail(call)

    def _fail(self, call: Call) -> None:
        log.exception("a request failed")
        call.verdict = "error"
        reply = problem(500, "internal-error", "The gateway made a mistake; see its log.")
        self._answers.send_reply(call, reply, error="internal-error")

    async def settle(self, seconds: float) -> None:
        """Let what has begun come to its end; cut the rest."""
        await self._tasks.wait(seconds)
        await self._tasks.cancel()
