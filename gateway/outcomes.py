"""How a request was served: one value for its log line, its metric and its `Cache-Status`.

    verdict       Cache-Status (RFC 9211)                       what happened
    hit           hit [collapsed]                               a stored part, still fresh
    stale         hit; detail=stale                             a stored part, past its time
    revalidated   fwd=stale; fwd-status=304 [collapsed]         the origin confirmed a stored part
    miss          fwd=uri-miss; fwd-status=N [stored, collapsed]   the origin answered
    hub           hit; detail=hub                               from the window of a hub
    hub           fwd=uri-miss; collapsed; detail=hub           waited for news at a hub
    pass          fwd=bypass, fwd=method, or no header          nothing stored could have answered
    refused       as it was until then                          the gateway refused it
    error         as it was until then                          the origin or the gateway failed

The role says who paid for a shared request: the `leader` of a flight, a `follower`, or a `hub`.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: str
    cache_status: str = ""  # empty: no header
    role: str = ""

    def refused(self) -> "Outcome":
        return replace(self, verdict="refused")

    def failed(self) -> "Outcome":
        return replace(self, verdict="error")

    def at_hub(self) -> "Outcome":
        return replace(self, role="hub")

    def after(self, before: "Outcome") -> "Outcome":
        """The next outcome of the same request. A role stays until another one replaces it."""
        return self if self.role or not before.role else replace(self, role=before.role)


UNDECIDED = Outcome("pass")
HIT = Outcome("hit", "weir; hit")
PASSED = Outcome("pass", "weir; fwd=bypass")
WRITTEN = Outcome("pass", "weir; fwd=method")
FROM_HUB = Outcome("hub", "weir; fwd=uri-miss; collapsed; detail=hub", "hub")
FROM_WINDOW = Outcome("hub", "weir; hit; detail=hub", "hub")

_STORED = {
    "hit": "weir; hit{collapsed}",
    "stale": "weir; hit; detail=stale",
    "revalidated": "weir; fwd=stale; fwd-status=304{collapsed}",
    "miss": "weir; fwd=uri-miss; fwd-status={status}{stored}{collapsed}",
    "hub": FROM_WINDOW.cache_status,
    "pass": PASSED.cache_status,
}


def read_outcome(verdict: str, role: str, *, status: int, stored: bool) -> Outcome:
    """The outcome of a read through the cache; `status` is the origin's."""
    text = _STORED[verdict].format(
        status=status,
        stored="; stored" if stored else "",
        collapsed="; collapsed; detail=collapsed" if role == "follower" else "",
    )
    return Outcome(verdict, text, role)
