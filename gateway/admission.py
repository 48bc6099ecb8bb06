"""Limits on what clients send: requests per second, and room for bodies.

Room is reserved before a body is read, and released once the body is no longer needed. Bodies of
requests without a token have a separate room with a share for each address, because addresses are
free.
"""

import time

from gateway.config import GatewayConfig
from gateway.limits import RateLimits, Shares, Short
from gateway.rules.access import ANYONE, Principal
from gateway.rules.routes import is_open, parse_route
from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER
from wire.heads import Head

OPEN_BODY_BYTES = 64 * 1024  # for requests without a token, or that need no body
STRANGERS_PART = 16  # requests without a token get 1/16 of the room on top
STRANGER = "\0"  # no subject begins like this

_NO_ROOM = {
    Short.FOR_ALL: (503, "too-many-bodies", "Too many request bodies are in transit."),
    Short.FOR_SUBJECT: (
        429,
        "too-many-bodies-of-subject",
        "You have too many request bodies in transit.",
    ),
}


def takes_much(head: Head) -> bool:
    """Whether the request may need a large body."""
    return head.method in ("POST", "PUT") and not is_open(head.method, head.path)


class Admission:
    """Bytes reserved for a subject. Its creator releases it; tasks using the body hold it."""

    __slots__ = ("_holders", "_room", "_size", "_subject")

    def __init__(self, room: Shares, subject: str, size: int) -> None:
        """Raises ProtocolError when there is no room."""
        self._room = room
        self._subject = subject
        self._size = 0
        self._holders = 1
        if size:
            self.grow(size)

    def grow(self, size: int) -> None:
        """For a body of unknown length. Raises ProtocolError."""
        short = self._room.take(self._subject, size)
        if short is not None:
            raise ProtocolError(*_NO_ROOM[short], RETRY_AFTER)
        self._size += size

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if not self._holders and self._size:
            self._room.release(self._subject, self._size)


class Admissions:
    def __init__(self, config: GatewayConfig) -> None:
        serving, most = config.gateway, config.gateway.max_bodies_bytes
        self._has_tokens = config.auth.mode != "off"
        self._serving = serving
        self._hops = serving.trusted_hops
        rate = serving.requests_per_second if self._has_tokens else 0.0  # else all are one subject
        self.has_rates = rate > 0
        self.rates = RateLimits(rate, serving.request_burst)
        of_subject = config.per_subject(serving.max_bodies_bytes_per_subject, most)
        self.room = Shares(most, of_subject)
        of_strangers = max(OPEN_BODY_BYTES, most // STRANGERS_PART)
        self._strangers_room = Shares(of_strangers, max(OPEN_BODY_BYTES, of_strangers // 4))

    @property
    def body_bytes(self) -> int:
        return self.room.total + self._strangers_room.total

    def max_body_bytes(self, head: Head) -> int:
        """Only a snapshot may be larger than an append."""
        most = self._serving.max_body_bytes
        if not takes_much(head):
            return min(OPEN_BODY_BYTES, most)
        return self._serving.max_snapshot_bytes if self._publishes(head) else most

    def _publishes(self, head: Head) -> bool:
        if head.method != "PUT":
            return False
        try:
            route = parse_route("PUT", head.path, "", self._serving.max_path_bytes)
        except ProtocolError:
            return False  # refused once it has arrived
        return route is not None and route.mode == "publish"

    def admit(self, head: Head, subject: str, size: int) -> Admission:
        """Count a subject's request and its body. A body of unknown length grows as it arrives.
        Raises ProtocolError."""
        room = self._strangers_room if subject.startswith(STRANGER) else self.room
        admission = Admission(room, subject, size)
        try:
            self.take_rate(subject)
        except ProtocolError:
            admission.release()
            raise
        head.admission = admission
        return admission

    def take_rate(self, subject: str) -> None:
        """Raises ProtocolError."""
        wait = self.rates.take(subject, time.time())
        if wait:
            seconds = (("Retry-After", str(max(1, int(wait + 0.999)))),)
            raise ProtocolError(429, "too-many-requests", "Slow down.", seconds)

    def payer(self, principal: Principal, headers: dict[str, str], peer: str) -> str:
        """Whose share a request uses; without a token, each address has its own."""
        if principal is ANYONE and self._has_tokens:
            return self.stranger(headers, peer)
        return principal.subject

    def stranger(self, headers: dict[str, str], peer: str) -> str:
        return STRANGER + self.client(headers, peer)

    def client(self, headers: dict[str, str], peer: str) -> str:
        """The address that the outermost trusted proxy saw, or our peer if it bypassed them."""
        if not self._hops or "x-forwarded-for" not in headers:
            return peer
        addresses = headers["x-forwarded-for"].split(",")
        return addresses[-self._hops].strip()[:45] if len(addresses) >= self._hops else peer
