"""The circuit breaker: when to stop asking an origin that does not respond.

While closed, it lets everything pass. After `failures` in a row it opens: for `open_s` nothing
passes, so that no request waits for a timeout and the origin can recover. Then it is half-open and
lets one probe through at a time. Any success closes it; a failed probe opens it again.

The caller decides what a failure is: no connection, or no response in time. A response of any
status is a success; otherwise a full disk (507 on writes) would stop reads as well.

`wait_s` only asks and reserves nothing. Permission is granted by entering `attempt` and ends with
its block, however that ends, so the one probe cannot be lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class State(Enum):
    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


class Shut(Exception):
    """Nothing passes for `wait_s`."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class Breaker:
    def __init__(self, failures: int, open_s: float) -> None:
        self._limit = failures
        self._open_s = open_s
        self._failed = 0  # in a row
        self._until: float | None = None  # None: closed
        self._probe: Attempt | None = None  # the one that is out
        self.opened = 0  # times

    @property
    def is_closed(self) -> bool:
        return self._until is None

    def state(self, now: float) -> State:
        if self._until is None:
            return State.CLOSED
        return State.OPEN if now < self._until else State.HALF_OPEN

    def wait_s(self, now: float) -> float:
        """0.0 if an attempt may start now, else the time to wait."""
        if self._until is None:
            return 0.0
        if now < self._until:
            return self._until - now
        return 0.0 if self._probe is None else self._open_s

    @contextmanager
    def attempt(self, now: float) -> Iterator["Attempt"]:
        """Wraps one request to the origin. Raises Shut."""
        wait_s = self.wait_s(now)
        if wait_s:
            raise Shut(wait_s)
        attempt = Attempt(self)
        if not self.is_closed:
            self._probe = attempt
        try:
            yield attempt
        finally:
            if self._probe is attempt:
                self._probe = None

    def succeed(self) -> None:
        """The origin responded."""
        self._failed = 0
        self._until = None
        self._probe = None

    def _fail(self, attempt: "Attempt", now: float) -> None:
        self._failed += 1
        failed_probe = attempt is self._probe
        if failed_probe or (self.is_closed and self._failed >= self._limit):
            self._until = now + self._open_s
            self.opened += 1


class Attempt:
    """An attempt that neither fails nor succeeds does not change the breaker."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker

    def fail(self, now: float) -> None:
        """Call this inside the block."""
        self._breaker._fail(self, now)
