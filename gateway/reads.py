"""A read of a part of a stream: who asks for it, and how the bytes came about."""

from dataclasses import dataclass

from gateway.entries import Entry
from gateway.slots import OURS
from protocol.replies import Reply


@dataclass(frozen=True, slots=True)
class Asker:
    """On whose behalf the origin is asked, should it come to that."""

    request_id: str
    token: str | None = None  # only where the configuration forwards it: then nothing is shared
    subject: str = OURS  # on whose account


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a flight brings: an entry, or the origin's refusal as it is."""

    outcome: Entry | Reply
    verdict: str  # hit, stale, revalidated, miss, pass, hub
    status: int  # of the origin, 0 if it was not asked
    stored: bool = False
    upstream_s: float = 0.0

    @property
    def settles(self) -> bool:
        """Whether it answers late riders of its flight as well: it never changes."""
        return isinstance(self.outcome, Entry) and self.outcome.immutable


@dataclass(frozen=True, slots=True)
class Got:
    """What was fetched, and how this asker came by it."""

    fetched: Fetched
    flight: int = 0
    leads: bool = False
    waited_s: float = 0.0

    @property
    def outcome(self) -> Entry | Reply:
        return self.fetched.outcome
