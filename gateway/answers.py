"""Every response on a stream's URL is sent here, whichever path the request took.

Heads come from `heads`, log lines go to `records`. Work that takes time runs in a task owned here,
and its errors become responses. Large bodies never wait in memory for a slow client: shared bytes
are a view of the cache, everything else goes to a spool.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, cast

from gateway.accesslog import AccessLog
from gateway.admission import Admission
from gateway.asking import UpstreamError
from gateway.calls import Call
from gateway.config import GatewayConfig
from gateway.entries import Entry, Form
from gateway.heads import Heads
from gateway.metrics import Metrics
from gateway.outgoing import Unsent, send_large
from gateway.records import CLIENT_LEFT, Records
from gateway.spool import Outlet, Overflow, Spools
from gateway.tasks import Tasks
from protocol.errors import ProtocolError
from protocol.etags import matches
from protocol.replies import Reply, problem, problem_of

_log = logging.getLogger("weir.gateway")

JOIN_BYTES = 64 * 1024
LARGE_BYTES = 256 * 1024  # of a body that must not wait in memory for a slow reader
INTERNAL_ERROR = problem(500, "internal-error", "Internal gateway error; see its log.")


class Answers:
    def __init__(
        self,
        config: GatewayConfig,
        log: AccessLog,
        metrics: Metrics,
        spools: Spools,
        name: str,
        worker: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.heads = Heads(config, clock)
        self.records = Records(log, metrics, name=name, worker=worker)
        self._spools = spools
        self._tasks = Tasks()
        serving, most = config.gateway, config.gateway.max_unsent_bytes
        self.unsent = Unsent(most, config.per_subject(serving.max_unsent_bytes_per_subject, most))

    # -- replies -------------------------------------------------------------------------------

    def send_reply(self, call: Call, reply: Reply, *, error: str = "") -> None:
        """A reply that is not a stored part."""
        if call.done:
            return
        is_head = call.head.method == "HEAD"  # its length would describe the body of a GET
        length = None if is_head else len(reply.body)
        body = b"" if is_head else reply.body
        self._send(call, self.heads.of(call, reply.status, reply.headers, length), body)
        self.records.finish(call, reply.status, len(body), error=error)

    def refuse(self, call: Call, error: ProtocolError) -> None:
        call.settle(call.outcome.refused())
        self.records.count_refusal(error)
        self.send_reply(call, problem_of(error), error=error.code)

    def fail(
        self, call: Call, reply: Reply = INTERNAL_ERROR, error: str = "internal-error"
    ) -> None:
        call.settle(call.outcome.failed())
        self.send_reply(call, reply, error=error)

    def abandon(self, call: Call) -> None:
        """The client disconnected."""
        self.records.finish(call, CLIENT_LEFT, 0, ended="client-left")

    # -- stored parts --------------------------------------------------------------------------

    def send_part(self, call: Call, entry: Entry, form: Form) -> None:
        if call.done:
            return
        call.encoding = form.encoding
        condition = call.head.headers.get("if-none-match")
        if condition is not None and matches(condition, form.etag):
            self._send(call, self.heads.not_modified(call, entry, form), b"")
            self.records.finish(call, 304, 0)
        else:
            self._send_form(call, self.heads.of_part(call, entry, form), form)

    def send_live(
        self, call: Call, entry: Entry, cursor: int, *, up_to_date: bool, may_keep: bool
    ) -> None:
        """Data for a long-poll."""
        if call.done:
            return
        form = entry.form()
        assert form is not None
        head = self.heads.of_live(call, entry, cursor, up_to_date=up_to_date, may_keep=may_keep)
        self._send_form(call, head, form)

    def _send(self, call: Call, head: bytes, body: bytes) -> None:
        if len(body) <= JOIN_BYTES:
            call.exchange.send((head + body,))
        else:
            call.exchange.send((head, body))

    def _send_form(self, call: Call, head: bytes, form: Form) -> None:
        """The bytes are shared, so only slow clients need room for them."""
        size = len(form.body)
        if size <= LARGE_BYTES:
            self._send(call, head, form.body)
        elif not send_large(
            call.exchange, self.unsent, call.principal.subject, head, form.shared()
        ):
            call.when_revoked(None)  # the response has started
            self.spawn(call, self.give(call, head, [form.body]))
            return
        self.records.finish(call, 200, size)

    # -- bodies at the client's pace -------------------------------------------------------------

    async def give(
        self, call: Call, head: bytes, body: list[bytes], status: int = 200, *, error: str = ""
    ) -> None:
        """A complete body that must not stay in memory for a slow reader, so it is removed from
        its list."""
        with self._spools.open(call.principal.subject) as spool:
            spool.reserve(len(body[0]))
            outlet = Outlet(call.exchange, spool, bytes)
            call.exchange.write(head)
            with self.honest_end(call, status, outlet):
                await outlet.take(body.pop())
                await outlet.empty()
        self.end(call, status, outlet, error=error)

    @contextmanager
    def honest_end(self, call: Call, status: int, outlet: Outlet) -> Iterator[None]:
        """Cut a response that cannot be completed: a clean end would make it look complete."""
        try:
            yield
        except BaseException as error:
            call.exchange.abort()
            self.records.finish(call, status, outlet.sent, error="cut-short")
            if not isinstance(error, (UpstreamError, ConnectionError, Overflow)):
                raise

    def end(
        self, call: Call, status: int, outlet: Outlet, last: bytes = b"", *, error: str = ""
    ) -> None:
        if not call.done:  # otherwise it was cut
            call.exchange.finish(last)
            self.records.finish(call, status, outlet.sent, error=error)

    # -- work that takes time --------------------------------------------------------------------

    def spawn(
        self, call: Call, work: Coroutine[Any, Any, None], *, carry_through: bool = False
    ) -> None:
        """`carry_through`: even if the client disconnects."""
        task = self._tasks.start(self.guard(call, work), f"{call.route.mode} request")
        task.add_done_callback(lambda _: work.close())  # in case it never started
        if (admission := cast(Admission | None, call.head.admission)) is not None:
            admission.hold()
            task.add_done_callback(lambda _: admission.release())

        def leave() -> None:
            if not carry_through:
                task.cancel()
            self.abandon(call)

        call.exchange.when_gone(leave)

    async def guard(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        """Turn errors into responses."""
        try:
            await work
        except UpstreamError as error:
            self.fail(call, problem_of(error), error.code)
        except ProtocolError as error:
            self.refuse(call, error)
        except ConnectionError:
            self.abandon(call)
        except Exception:
            _log.exception("request failed")
            self.fail(call)

    async def settle(self, seconds: float) -> None:
        """Let running work finish; cut the rest."""
        await self._tasks.wait(seconds)
        await self._tasks.cancel()
