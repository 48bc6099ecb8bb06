"""When to stop asking an origin that is not there.

Closed lets everything pass. After `failures` in a row it opens: for `open_s` nothing passes, so
nobody waits for timeouts and a struggling origin is left alone. Then it is half-open: one request
at a time goes as a probe. A success, whoever had it, closes it; a failed probe opens it anew.

What a failure is, the caller decides: no connection, or no answer in time. An answer of any
status is a success, or a full disk behind writes (507) would stop the reads as well.
"""

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Permit:
    """`wait_s` 0: go ahead, and tell the breaker how it went. Else: not before that time."""

    wait_s: float = 0.0
    probe: bool = False


_GO = Permit()


class Breaker:
    def __init__(self, failures: int, open_s: float) -> None:
        self._limit = failures
        self._open_s = open_s
        self._failed = 0  # in a row
        self._until: float | None = None  # None: closed
        self._probe: Permit | None = None  # the one that is out
        self.opened = 0  # times

    def state(self, now: float) -> State:
        if self._until is None:
            return State.CLOSED
        return State.OPEN if now < self._until else State.HALF_OPEN

    def admit(self, now: float) -> Permit:
        if self._until is None:
            return _GO
        if now < self._until:
            return Permit(self._until - now)
        if self._probe is not None:
            return Permit(self._open_s)
        self._probe = Permit(probe=True)
        return self._probe

    def succeed(self) -> None:
        self._failed = 0
        self._until = None
        self._probe = None

    def fail(self, permit: Permit, now: float) -> None:
        self._failed += 1
        failed_probe = permit is self._probe
        if failed_probe or (self._until is None and self._failed >= self._limit):
            self._until = now + self._open_s
            self.opened += 1
        self.abandon(permit)

    def abandon(self, permit: Permit) -> None:
        """The request ended without telling anything about the origin."""
        if permit is self._probe:
            self._probe = None
