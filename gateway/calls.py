"""One client's request on its way through the gateway, and what its log line will say."""

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
    last_of_connection: bool = False  # the client closes, or speaks HTTP/1.0
    knows_chunks: bool = True  # HTTP/1.1
    repeated_authorization: bool = False
    fork_source: str = ""  # its canonical URL
    route: Route = NO_ROUTE
    principal: Principal = ANYONE
    token: str | None = field(default=None, repr=False)  # to be forwarded; empty if there is none
    outcome: Outcome = UNDECIDED
    flight_id: str = ""
    encoding: str = ""
    wait_s: float = 0.0
    upstream_s: float = 0.0
    upstream_requests: int = 0
    done: bool = False
    on_finish: Callable[[], None] | None = None
    on_revoked: Callable[[], None] | None = None  # its token, while it is being answered

    @property
    def read(self) -> ReadQuery:
        assert self.route.read is not None
        return self.route.read

    @property
    def stream(self) -> str:
        return self.route.stream

    @property
    def hub_key(self) -> str:
        """Who shares a hub: all readers of a stream, unless the origin judges their tokens. No
        name of a stream holds a NUL."""
        return self.stream if self.token is None else f"{self.stream}\0{self.token}"

    @property
    def asker(self) -> Asker:
        return Asker(self.request_id, self.token, self.principal.subject)

    def when_finished(self, act: Callable[[], None]) -> None:
        """Once, after its log line is written."""
        self.on_finish = act

    def when_revoked(self, act: Callable[[], None] | None) -> None:
        """If its token is withdrawn before its answer begins, or while it is a live reader."""
        self.on_revoked = act

    def settle(self, outcome: Outcome) -> None:
        self.outcome = outcome.after(self.outcome)

    def note(self, got: Got) -> None:
        """Remember how the bytes came about."""
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
