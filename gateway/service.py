"""Pages unrelated to streams: health, readiness, the console."""

from gateway.admission import Admissions
from gateway.answers import Answers
from gateway.calls import Call
from gateway.console.service import Console
from gateway.guard import Guard
from gateway.upstream import Upstream
from protocol.replies import NO_STORE, Reply, problem

_TEXT = ("Content-Type", "text/plain; charset=utf-8")


class ServicePages:
    max_body_bytes = Console.max_body_bytes

    def __init__(
        self,
        guard: Guard,
        upstream: Upstream,
        admissions: Admissions,
        answers: Answers,
        console: Console | None,
    ) -> None:
        self._guard = guard
        self._upstream = upstream
        self._admissions = admissions
        self._answers = answers
        self._console = console
        self.is_open = False  # from the start to the beginning of the stop

    @property
    def ready(self) -> bool:
        """Whether balancers may send us requests."""
        return self.is_open and self._guard.ready and self._upstream.is_known

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def covers(self, path: str) -> bool:
        """Whether a body may be sent to this path."""
        return self._console is not None and self._console.covers(path)

    def begin(self, call: Call) -> None:
        if self._console is not None and self._console.covers(call.head.path):
            self._answers.spawn(call, self._answer_console(call, self._console))
        else:
            self._answers.send_reply(call, self._page(call))

    async def _answer_console(self, call: Call, console: Console) -> None:
        head = call.head
        if console.needs_token(head):
            repeated = call.repeated_authorization
            call.principal = await self._guard.identify(head, repeated=repeated)
            self._admissions.take_rate(call.principal.subject)
            reply = await console.tell(head.path, call.principal.scopes)
        else:
            reply = await console.answer(head, call.body, call.exchange.peer)
        self._answers.send_reply(call, reply)

    def _page(self, call: Call) -> Reply:
        path = call.head.path if call.head.method in ("GET", "HEAD") else ""
        if path == "/healthz":
            return Reply(200, (_TEXT, NO_STORE), b"ok")
        if path == "/readyz":
            if self.ready:
                return Reply(200, (_TEXT, NO_STORE), b"ready")
            text = "The gateway is starting, stopping, or has no keys or no map of its cluster."
            return problem(503, "not-ready", text)
        return problem(404, "not-found", "Nothing exists at this path.")
