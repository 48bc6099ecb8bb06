"""The way out: responses as bytes, the log line and the counters of each.

Everything that leaves the gateway on a stream's URL leaves here, whichever path it came by, so that
both paths give the same answer. Heads are composed of what an entry says (kept with it), what the
second says (Age, Date), and what the request says (its id).
"""

import time
from collections.abc import Callable
from itertools import count

from gateway.accesslog import AccessLog
from gateway.calls import Call
from gateway.cdn import cdn_headers
from gateway.config import GatewayConfig
from gateway.encodings import compressible
from gateway.entries import Entry, Form
from gateway.metrics import Metrics
from gateway.outgoing import Unsent, send_large
from gateway.rules import downstream
from protocol.accesslog import AccessRecord, cut_line, join_line
from protocol.etags import matches
from protocol.replies import Headers, Reply
from wire.encoding import DateLine, encode_head, encode_lines
from wire.http import Stamp

JOIN_BYTES = 64 * 1024
LARGE_BYTES = 256 * 1024  # of a body that a slow reader may not keep in memory as he likes
CallerLog = tuple[bytes, bytes, bytes]  # parts of a log line: gateway, who, agent
_NO_FORM = Form("", b"", "")
CLIENT_LEFT = 499  # in the log only: nobody was there to be answered


class Answers:
    def __init__(
        self,
        config: GatewayConfig,
        log: AccessLog,
        metrics: Metrics,
        *,
        name: str,
        worker: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = config.cache
        self._cdn = config.cdn
        self._live_control = downstream.live_control(config.cdn.cache_control)
        self._log = log
        self._metrics = metrics
        self._name = name
        self._worker = worker
        self._clock = clock
        self._lines = count(1)
        self._hits = 0
        metrics.before_collect = self._count_hits
        self._date = DateLine()
        self._stamp = Stamp(config.cors_origins)
        self._stamp_line = encode_lines(self._stamp.headers(None))
        self.any_origin = self._stamp.any_origin
        serving, most = config.gateway, config.gateway.max_unsent_bytes
        self.unsent = Unsent(most, config.per_subject(serving.max_unsent_bytes_per_subject, most))
        # Gives an answer, its head and its body, that must not wait in memory.
        self.give_aside: Callable[[Call, bytes, list[bytes]], None] = lambda call, head, body: None

    # -- replies -------------------------------------------------------------------------------

    def send_reply(self, call: Call, reply: Reply, *, error: str = "") -> None:
        """A reply that is not a stored chunk."""
        if call.done:
            return
        is_head = call.head.method == "HEAD"  # whose length would be that of a GET's body
        length = None if is_head else len(reply.body)
        head = self._encode(call, reply.status, reply.headers, length)
        body = b"" if is_head else reply.body
        self._send(call, head, body)
        self.finish(call, reply.status, len(body), error=error)

    def begin(self, call: Call, reply: Reply) -> bytes:
        """The head of a response whose body follows piece by piece; it may be known already."""
        if reply.body:
            return self._encode(call, reply.status, reply.headers, len(reply.body))
        framing: Headers = (("Transfer-Encoding", "chunked"),) if call.knows_chunks else ()
        return self._encode(call, reply.status, reply.headers + framing, None)

    def _encode(self, call: Call, status: int, headers: Headers, length: int | None) -> bytes:
        if call.cache_status:
            headers += (("Cache-Status", call.cache_status),)
        if call.last_of_connection:
            headers += (("Connection", "close"),)
        stamp = self._stamp_of(call)
        head = encode_head(status, headers, stamp, length)
        return head + b"X-Request-Id: %b\r\n" % call.request_id.encode() + self._date()

    def _stamp_of(self, call: Call) -> str:
        if self.any_origin:
            return self._stamp_line
        return encode_lines(self._stamp.headers(call.head.headers.get("origin")))

    def _send(self, call: Call, head: bytes, body: bytes) -> None:
        if len(body) <= JOIN_BYTES:
            call.exchange.send((head + body,))
        else:
            call.exchange.send((head, body))

    def _send_form(self, call: Call, head: bytes, form: Form) -> None:
        """Bytes that others have as well: only who takes them slowly needs room for them."""
        size = len(form.body)
        if size <= LARGE_BYTES:
            self._send(call, head, form.body)
        elif not self._send_large(call, head, form):
            call.on_revoked = None  # its answer has begun
            self.give_aside(call, head, [form.body])
            return
        self.finish(call, 200, size)

    def _send_large(self, call: Call, head: bytes, form: Form) -> bool:
        subject = call.principal.subject
        return send_large(call.exchange, self.unsent, subject, head, form.shared())

    # -- stored chunks -------------------------------------------------------------------------

    def send_chunk(self, call: Call, entry: Entry, form: Form) -> None:
        if call.done:
            return
        call.encoding = form.encoding
        condition = call.head.headers.get("if-none-match")
        headers = self._chunk_headers(entry, form) + self._age(entry)
        if condition is not None and matches(condition, form.etag):
            headers = downstream.not_modified_headers(headers)
            self._send(call, self._encode(call, 304, headers, None), b"")
            self.finish(call, 304, 0)
            return
        self._send_form(call, self._encode(call, 200, headers, len(form.body)), form)

    def _chunk_headers(self, entry: Entry, form: Form) -> Headers:
        cache = self._cache
        squeezes = cache.compress and compressible(entry.content_type)
        return downstream.chunk_headers(
            entry,
            form,
            control=downstream.cache_control(entry),
            varies=downstream.vary(entry, squeezes),
            cdn=cdn_headers(
                self._cdn,
                entry.stream,
                self._cdn.cache_control if entry.public and entry.immutable else "",
            ),
        )

    def _age(self, entry: Entry) -> Headers:
        age = max(0, int(self._clock() - entry.stored_at))
        return (("Age", str(age)),)

    # -- live answers --------------------------------------------------------------------------

    def live_head(
        self, entry: Entry, cursor: int | None, *, up_to_date: bool, may_keep: bool
    ) -> bytes:
        """Of a long-poll answer, up to what differs from reader to reader."""
        headers = downstream.live_headers(
            entry,
            entry.etag_of(""),
            cursor=cursor,
            up_to_date=up_to_date,
            may_keep=may_keep,
            cdn=cdn_headers(self._cdn, entry.stream, self._live_control if entry.public else ""),
        )
        return encode_head(200, headers, "", len(entry.body))

    def is_usual(self, call: Call) -> bool:
        """Whether its answer differs from others' in the request id only."""
        return self.any_origin and not call.last_of_connection

    def crowd_head(self, entry: Entry, cursor: int, cache_status: str) -> bytes:
        """Of a long-poll answer to usual calls, up to the request id."""
        head = self.live_head(
            entry, cursor, up_to_date=entry.up_to_date, may_keep=not entry.no_store
        )
        lines = f"{self._stamp_line}Cache-Status: {cache_status}\r\n".encode()
        return head + lines + self._date()[:-2] + b"X-Request-Id: "

    def send_live(self, call: Call, head: bytes, entry: Entry) -> None:
        if call.done:
            return
        lines = f"{self._stamp_of(call)}Cache-Status: {call.cache_status}\r\n"
        if call.last_of_connection:
            lines += "Connection: close\r\n"
        whole = head + f"{lines}X-Request-Id: {call.request_id}\r\n".encode() + self._date()
        form = entry.form()
        assert form is not None
        self._send_form(call, whole, form)

    # -- the end of every request --------------------------------------------------------------

    def finish(
        self, call: Call, status: int, sent: int, *, error: str = "", ended: str = ""
    ) -> None:
        if not call.done:
            call.done = True
            self.log(call, status, sent, time.monotonic(), error=error, ended=ended)

    def log(
        self,
        call: Call,
        status: int,
        sent: int,
        finished: float,
        *,
        error: str = "",
        ended: str = "",
    ) -> None:
        """The line of a request that is done."""
        if call.on_finish is not None:
            call.on_finish()
        mode = call.route.mode
        taken = finished - call.started
        self._metrics.count_request(mode, call.verdict, status)
        self._metrics.observe(mode, taken)
        self._log.write(
            AccessRecord(
                time_ms=call.time_ms,
                gateway=self._name,
                worker=self._worker,
                seq=next(self._lines),
                request_id=call.request_id,
                flight_id=call.flight_id,
                role=call.role,
                client=call.client,
                subject=call.principal.subject,
                method=call.head.method,
                stream=call.stream,
                mode=mode,
                offset=call.route.offset,
                status=status,
                verdict=call.verdict,
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

    def caller_log(self, subject: str, client: str, user_agent: str) -> CallerLog:
        """What the lines of one caller have in common."""
        parts = cut_line(self._hit_record("", "", _NO_FORM, subject, client, user_agent))
        return (parts.gateway, parts.who, parts.agent)

    def hit_bytes(
        self, entry: Entry, form: Form, caller: CallerLog, request_id: str, now: float
    ) -> bytes:
        """A whole 200 from the cache, logged, for a client that asks for nothing special."""
        second = int(now)
        if form.second != second:
            self._prepare(entry, form, second)
        time_ms = int(now * 1000)
        gateway, who, agent = caller
        line = join_line(time_ms, next(self._lines), request_id, gateway, who, form.log, agent)
        self._log.write_line(time_ms, line)
        self._hits += 1
        return form.head_second + request_id.encode() + b"\r\n\r\n" + form.body

    def _prepare(self, entry: Entry, form: Form, second: int) -> None:
        """Everything up to the request id, for this second."""
        if not form.head:
            headers = self._chunk_headers(entry, form)
            form.head = encode_head(200, headers, self._stamp_line, len(form.body))
            record = self._hit_record(entry.stream, entry.offset, form, "", "", "")
            form.log = cut_line(record).what
        lines = encode_lines((*self._age(entry), ("Cache-Status", "weir; hit")))
        form.head_second = form.head + lines.encode() + self._date()[:-2] + b"X-Request-Id: "
        form.second = second

    def _hit_record(
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
            verdict="hit",
            bytes_sent=len(form.body),
            encoding=form.encoding,
            user_agent=user_agent,
        )

    def _count_hits(self) -> None:
        hits, self._hits = self._hits, 0
        self._metrics.count_hits(hits)
