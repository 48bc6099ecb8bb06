"""The log line and the counters of every request, written when it is done."""

import time
from itertools import count

from gateway.accesslog import AccessLog
from gateway.calls import Call
from gateway.entries import Entry, Form
from gateway.metrics import Metrics
from gateway.outcomes import HIT
from gateway.rules.challenges import AuthError
from protocol.accesslog import AccessRecord, cut_line, join_line
from protocol.errors import ProtocolError

CallerLog = tuple[bytes, bytes, bytes]  # parts of a log line: gateway, who, agent
CLIENT_LEFT = 499  # in the log only: the client disconnected before its answer
_NO_FORM = Form("", b"", "")


class Records:
    def __init__(self, log: AccessLog, metrics: Metrics, *, name: str, worker: int) -> None:
        self._log = log
        self._metrics = metrics
        self._name = name
        self._worker = worker
        self._numbers = count(1)
        metrics.count_hits()  # none yet: the series begins at 0

    def finish(
        self, call: Call, status: int, sent: int, *, error: str = "", ended: str = ""
    ) -> None:
        if not call.done:
            call.done = True
            self.write(call, status, sent, time.monotonic(), error=error, ended=ended)

    def write(
        self, call: Call, status: int, sent: int, now: float, *, error: str = "", ended: str = ""
    ) -> None:
        """Write the line of a finished request."""
        if call.on_finish is not None:
            call.on_finish()
        mode, outcome = call.route.mode, call.outcome
        taken = now - call.started
        self._metrics.count_request(mode, outcome.verdict, status)
        self._metrics.observe(mode, taken)
        self._log.write(
            AccessRecord(
                time_ms=call.time_ms,
                gateway=self._name,
                worker=self._worker,
                seq=next(self._numbers),
                request_id=call.request_id,
                flight_id=call.flight_id,
                role=outcome.role,
                client=call.client,
                subject=call.principal.subject,
                method=call.head.method,
                stream=call.stream,
                mode=mode,
                offset=call.route.offset,
                status=status,
                verdict=outcome.verdict,
                bytes_sent=sent,
                bytes_received=len(call.body),
                duration_ms=round(taken * 1000, 3),
                wait_ms=round(call.wait_s * 1000, 3),
                upstream_ms=round(call.upstream_s * 1000, 3),
                upstream_requests=call.upstream_requests,
                encoding=call.encoding,
                ended=ended,
                error=error,
                user_agent=call.head.headers.get("user-agent", ""),
            )
        )

    def count_refusal(self, error: ProtocolError) -> None:
        if isinstance(error, AuthError):
            self._metrics.count("token_failures", reason=error.reason)

    # -- hits: lines assembled from known parts ----------------------------------------------------

    def write_hit(self, form: Form, caller: CallerLog, request_id: str, now: float) -> None:
        time_ms = int(now * 1000)
        gateway, who, agent = caller
        line = join_line(time_ms, next(self._numbers), request_id, gateway, who, form.log, agent)
        self._log.write_line(time_ms, line)
        self._metrics.hits += 1

    def of_caller(self, subject: str, client: str, user_agent: str) -> CallerLog:
        """The common part of one caller's lines."""
        parts = cut_line(self._hit("", "", _NO_FORM, subject, client, user_agent))
        return (parts.gateway, parts.who, parts.agent)

    def of_form(self, entry: Entry, form: Form) -> bytes:
        """The common part of all lines about one form."""
        return cut_line(self._hit(entry.stream, entry.part, form, "", "", "")).what

    def _hit(
        self, stream: str, offset: str, form: Form, subject: str, client: str, user_agent: str
    ) -> AccessRecord:
        return AccessRecord(
            time_ms=0,
            gateway=self._name,
            worker=self._worker,
            seq=0,
            request_id="",
            client=client,
            subject=subject,
            method="GET",
            stream=stream,
            mode="catch-up",
            offset=offset,
            status=200,
            verdict=HIT.verdict,
            bytes_sent=len(form.body),
            encoding=form.encoding,
            user_agent=user_agent,
        )
