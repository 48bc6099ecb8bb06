"""The front door: every request, from either path, goes through the same checks in order.

Limits, path, token, scope, rate, room for its body; then the cache, the hub or the origin. Work
that does not wait is done in the same step, the rest in a task. A body that has not arrived yet is
read only after all checks have passed.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from gateway.admission import OPEN_BODY_BYTES, Admissions, takes_much
from gateway.answers import Answers
from gateway.calls import Call
from gateway.catchup import CatchUp
from gateway.guard import Guard
from gateway.hubs import Hubs
from gateway.passes import Passes
from gateway.rules.routes import PREFIXES, is_open
from gateway.service import ServicePages
from protocol.errors import ProtocolError
from wire.exchange import Exchange
from wire.heads import Head
from wire.http import preflight

log = logging.getLogger("weir.gateway")


class Door:
    def __init__(
        self,
        guard: Guard,
        admissions: Admissions,
        pages: ServicePages,
        hit: Callable[[Head, str], bytes | None],
        catchup: CatchUp,
        hubs: Hubs,
        passes: Passes,
        answers: Answers,
        next_id: Callable[[], str],
    ) -> None:
        self.hit = hit  # the fast path, tried before everything here
        self._guard = guard
        self._admissions = admissions
        self._pages = pages
        self._catchup = catchup
        self._hubs = hubs
        self._passes = passes
        self._answers = answers
        self._next_id = next_id

    @property
    def is_open(self) -> bool:
        """Whether connections stay open after a response."""
        return self._pages.is_open

    # -- bodies that have not arrived yet (see wire.front) -----------------------------------------

    def wants(self, head: Head, here: int) -> bool:
        """A complete body is checked with its request. The rest of another is read only for a known
        client that may send it; `screen` refuses the others."""
        if head.content_length > OPEN_BODY_BYTES and not takes_much(head):
            return False
        return here >= head.content_length or self._admit_known(head)

    def _admit_known(self, head: Head) -> bool:
        if not head.path.startswith(PREFIXES) or is_open(head.method, head.path):
            return False
        with suppress(ProtocolError):
            token, route = self._guard.read_head(head, repeated=False)
            principal = self._guard.recognise(head, token)
            if principal is not None:
                self._guard.authorise(head, route, principal)
                self._admissions.admit(head, principal.subject, head.content_length)
                return True
        return False

    def max_body_bytes(self, head: Head) -> int:
        if self._pages.covers(head.path):
            return self._pages.max_body_bytes
        return self._admissions.max_body_bytes(head)

    async def screen(self, head: Head, peer: str, *, repeated: bool) -> None:
        """Before a body is read: refuse clients that may not send it, or send too much at once.
        The caller releases the admission granted to the head. Raises ProtocolError."""
        if self._pages.covers(head.path):
            stranger = self._admissions.stranger(head.headers, peer)
            self._admissions.admit(head, stranger, head.content_length)
            return
        if not head.path.startswith(PREFIXES):
            raise ProtocolError(404, "not-found", "Nothing exists at this path.")
        token, route = self._guard.read_head(head, repeated=repeated)
        principal = await self._guard.verify(head, token)
        self._guard.authorise(head, route, principal)
        payer = self._admissions.payer(principal, head.headers, peer)
        self._admissions.admit(head, payer, head.content_length)

    # -- every request -------------------------------------------------------------------------

    def answer(self, head: Head, body: bytes, exchange: Exchange) -> bool:
        self.begin(self.call(head, body, exchange))
        return True

    def call(self, head: Head, body: bytes, exchange: Exchange) -> Call:
        return Call(
            head,
            exchange,
            head.request_id or self._next_id(),
            time.monotonic(),
            int(time.time() * 1000),
            self._admissions.client(head.headers, exchange.peer),
            body,
        )

    def begin(self, call: Call) -> None:
        """Respond now, or start a task that will."""
        try:
            self._begin(call)
        except ProtocolError as error:
            self._answers.refuse(call, error)
        except Exception:
            log.exception("request failed")
            self._answers.fail(call)

    def refuse(self, call: Call, error: ProtocolError) -> None:
        self._answers.refuse(call, error)

    def _begin(self, call: Call) -> None:
        head = call.head
        if not head.path.startswith(PREFIXES):
            call.route = replace(call.route, mode="service")
            self._pages.begin(call)
            return
        if head.method == "OPTIONS":
            call.route = replace(call.route, mode="preflight")
            self._answers.send_reply(call, preflight())
            return
        token, call.route = self._guard.read_head(head, repeated=call.repeated_authorization)
        if head.content_length and head.method in ("GET", "HEAD"):
            raise ProtocolError(400, "unexpected-body", "This method does not accept a body.")
        principal = self._guard.recognise(head, token)
        if principal is None:
            self._answers.spawn(call, self._verify(call, token))
            return
        call.principal = principal
        self._enter(call, token)

    async def _verify(self, call: Call, token: str | None) -> None:
        call.principal = await self._guard.verify(call.head, token)
        self._enter(call, token)

    def _enter(self, call: Call, token: str | None) -> None:
        """The client is known: check its permission, then serve the request."""
        head, principal = call.head, call.principal
        call.token = self._guard.forwarded(head, token)
        call.fork_source = self._guard.authorise(head, call.route, principal)
        if head.admission is not None:
            self._begin_work(call)
            return
        payer = self._admissions.payer(principal, head.headers, call.exchange.peer)
        if not call.body:
            self._admissions.take_rate(payer)
            self._begin_work(call)
            return
        admission = self._admissions.admit(head, payer, len(call.body))
        try:
            self._begin_work(call)
        finally:
            admission.release()

    def _begin_work(self, call: Call) -> None:
        if call.route.cacheable:
            self._catchup.begin(call)
            return
        match call.route.mode:
            case "long-poll":
                self._hubs.long_poll(call)
            case "sse":
                self._hubs.sse(call)
            case "other":
                self._answers.spawn(call, self._passes.look(call))
            case _ if call.head.method in ("GET", "HEAD"):
                self._answers.spawn(call, self._passes.look(call))
            case _:
                self._answers.spawn(call, self._passes.write(call), carry_through=True)
