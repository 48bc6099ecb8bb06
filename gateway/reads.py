"""A read of a part of a stream: who asks for it, and where the bytes came from."""

from dataclasses import dataclass

from gateway.entries import Entry
from gateway.slots import OURS
from protocol.replies import Reply


@dataclass(frozen=True, slots=True)
class Asker:
    """On whose behalf the origin is asked, if necessary."""

    request_id: str
    token: str | None = None  # only if tokens are forwarded; then nothing is shared
    subject: str = OURS  # who pays for the connection


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a flight: an entry, or the origin's refusal."""

    outcome: Entry | Reply
    verdict: str  # hit, stale, revalidated, miss, pass, hub
    status: int  # of the origin, 0 if it was not asked
    stored: bool = False
    upstream_s: float = 0.0

    @property
    def settles(self) -> bool:
        """Whether late riders of its flight may take it too, because it never changes."""
        return isinstance(self.outcome, Entry) and self.outcome.immutable


@dataclass(frozen=True, slots=True)
class Got:
    """The result, and how this caller got it."""

    fetched: Fetched
    flight: int = 0
    leads: bool = False
    waited_s: float = 0.0

    @property
    def outcome(self) -> Entry | Reply:
        return self.fetched.outcome
