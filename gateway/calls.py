"""One client request on its way through the gateway, and the data for its log line."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.outcomes import UNDECIDED, Outcome, read_outcome
from gateway.reads import Asker, Got
from gateway.rules.access import ANYONE, Principal
from gateway.rules.routes import ReadQuery, Route
from wire.exchange import Exchange
from wire.heads import Head

NO_ROUTE = Route("other", "read", "", "")


@dataclass(slots=True)
class Call:
    head: Head
    exchange: Exchange
    request_id: str
    started: float  # of the loop's clock
    time_ms: int
    client: str
    body: bytes = b""
    last_of_connection: bool = False  # the client closes, or uses HTTP/1.0
    knows_chunks: bool = True  # HTTP/1.1
    repeated_authorization: bool = False
    fork_source: str = ""  # its canonical URL
    route: Route = NO_ROUTE
    principal: Principal = ANYONE
    token: str | None = field(default=None, repr=False)  # to forward; empty if there is none
    outcome: Outcome = UNDECIDED
    flight_id: str = ""
    encoding: str = ""
    wait_s: float = 0.0
    upstream_s: float = 0.0
    upstream_requests: int = 0
    done: bool = False
    on_finish: Callable[[], None] | None = None
    on_revoked: Callable[[], None] | None = None  # called if its token is revoked meanwhile

    @property
    def read(self) -> ReadQuery:
        assert self.route.read is not None
        return self.route.read

    @property
    def stream(self) -> str:
        return self.route.stream

    @property
    def hub_key(self) -> str:
        """All readers of a stream share a hub, unless their tokens are forwarded to the origin.
        Stream names contain no NUL."""
        return self.stream if self.token is None else f"{self.stream}\0{self.token}"

    @property
    def asker(self) -> Asker:
        return Asker(self.request_id, self.token, self.principal.subject)

    def when_finished(self, act: Callable[[], None]) -> None:
        """Once, just before its log line is written."""
        self.on_finish = act

    def when_revoked(self, act: Callable[[], None] | None) -> None:
        """If the token is withdrawn before the response starts, or during a live read."""
        self.on_revoked = act

    def settle(self, outcome: Outcome) -> None:
        self.outcome = outcome.after(self.outcome)

    def note(self, got: Got) -> None:
        """Record where the bytes came from."""
        fetched, status = got.fetched, got.fetched.status
        role = ""
        if got.flight:
            self.flight_id = str(got.flight)
            role = "leader" if got.leads else "follower"
        self.settle(read_outcome(fetched.verdict, role, status=status, stored=fetched.stored))
        self.wait_s += got.waited_s
        if got.leads:
            self.upstream_s += fetched.upstream_s
            self.upstream_requests += status != 0
