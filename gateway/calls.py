"""One client's request on its way through the gateway, and what its log line will say."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.cache import Asker, Got
from gateway.rules.access import ANYONE, Principal
from gateway.rules.routes import Read, Route
from wire.front import Exchange
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
    role: str = ""
    flight_id: str = ""
    verdict: str = "pass"
    cache_status: str = ""
    encoding: str = ""
    wait_s: float = 0.0
    upstream_s: float = 0.0
    upstream_requests: int = 0
    done: bool = False
    on_finish: Callable[[], None] | None = None
    on_revoked: Callable[[], None] | None = None  # its token, while it is being answered

    @property
    def read(self) -> Read:
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

    def note(self, got: Got) -> None:
        """Remember how the bytes came about."""
        answer = got.answer
        self.verdict = answer.verdict
        self.cache_status = cache_status(got)
        if got.flight:
            self.flight_id = str(got.flight)
            self.role = "leader" if got.leads else "follower"
        self.wait_s += got.waited_s
        if got.leads:
            self.upstream_s += answer.upstream_s
            self.upstream_requests += answer.status != 0


def cache_status(got: Got) -> str:
    """RFC 9211; the reason for going to the origin follows from the verdict."""
    answer = got.answer
    collapsed = "; collapsed; detail=collapsed" if got.collapsed else ""
    match answer.verdict:
        case "hit":
            return "weir; hit" + collapsed
        case "hub":
            return WINDOW_STATUS
        case "pass":
            return PASS_STATUS
        case "stale":
            return "weir; hit; detail=stale"
        case "revalidated":
            return f"weir; fwd=stale; fwd-status=304{collapsed}"
    stored = "; stored" if answer.stored else ""
    return f"weir; fwd=uri-miss; fwd-status={answer.status}{stored}{collapsed}"


HUB_STATUS = "weir; fwd=uri-miss; collapsed; detail=hub"
WINDOW_STATUS = "weir; hit; detail=hub"
PASS_STATUS = "weir; fwd=bypass"
WRITE_STATUS = "weir; fwd=method"
