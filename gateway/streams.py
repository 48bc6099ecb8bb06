"""Facts about a stream besides its chunks: its incarnation, whether it can expire, and where its
data begins.

A response with another incarnation is news only if its request was sent after the current
incarnation was learned: a slow old response must not bring an old stream back. If both requests
overlapped, it is unknown which is older, so neither is trusted.
"""

from dataclasses import dataclass
from enum import Enum, auto
from itertools import count, islice

from cachetools import Cache, LRUCache

from gateway.rules.freshness import Expiry
from protocol.heads import ReplyHead
from protocol.offsets import are_ordered

MAX_STREAMS = 100_000


class News(Enum):
    NOTHING = auto()
    FIRST = auto()  # an incarnation, where none was known
    REPLACED = auto()  # a new incarnation: everything stored belongs to the old one
    CONTESTED = auto()  # this response or the stored parts are outdated


@dataclass(slots=True)
class StreamFacts:
    incarnation: str = ""
    told_at: int = 0  # stamp of when the incarnation was learned
    expiry: Expiry = Expiry.UNKNOWN
    ttl_s: float | None = None
    touched_at: float = 0.0  # when the origin last saw a read
    earliest: str = ""  # everything before it is in a snapshot
    introduced: int = 0  # the era in which the origin confirmed the stream
    large_bootstrap: bool = False  # the last one was too large to store


class Streams:
    def __init__(self) -> None:
        self.stamps = count(1)  # orders all requests and responses
        self._known: LRUCache[str, StreamFacts] = LRUCache(MAX_STREAMS)
        self._era = 1  # incremented when notices may have been missed

    def get(self, stream: str) -> StreamFacts:
        known = self._known.get(stream)
        if known is None:
            known = self._known[stream] = StreamFacts()
        return known

    def peek(self, stream: str) -> StreamFacts | None:
        return self._known.get(stream)

    def forget(self, stream: str) -> None:
        self._known.pop(stream, None)

    def recent(self, most: int) -> list[str]:
        """Names of known streams, newest first. Listing them does not count as a use: it reads
        through the base class."""
        told = (name for name in reversed(list(self._known)) if self._is_told(name))
        return list(islice(told, most))

    def _is_told(self, name: str) -> bool:
        known = Cache.__getitem__(self._known, name)
        return known.incarnation != "" or known.expiry is not Expiry.UNKNOWN

    def introduce(self, stream: str) -> None:
        """The origin has confirmed the stream's incarnation and beginning."""
        self.get(stream).introduced = self._era

    def is_introduced(self, known: StreamFacts) -> bool:
        return known.introduced == self._era

    def doubt_all(self) -> None:
        self._era += 1

    def learn_incarnation(self, stream: str, incarnation: str, departure: int) -> News:
        """From a response that just arrived, to a request sent at the stamp `departure`."""
        known = self.get(stream)
        if not incarnation or incarnation == known.incarnation:
            return News.NOTHING
        first = known.incarnation == ""
        if not first and departure < known.told_at:
            known.incarnation = ""
            return News.CONTESTED
        known.incarnation, known.told_at = incarnation, next(self.stamps)
        return News.FIRST if first else News.REPLACED

    def learn_expiry(self, stream: str, head: ReplyHead) -> None:
        """From the response to a HEAD, or a successful PUT request, which has the same headers."""
        known = self.get(stream)
        known.ttl_s = head.ttl_s
        known.expiry = Expiry.POSSIBLE if head.can_expire else Expiry.NEVER

    def learn_earliest(self, stream: str, earliest: str) -> bool:
        """Whether it is new. Within an incarnation it only grows."""
        known = self.get(stream)
        if earliest <= known.earliest and are_ordered(earliest, known.earliest):
            return False
        known.earliest = earliest
        return True

    def needs_touch(self, stream: str, now: float) -> bool:
        """Reads renew a sliding expiry, so live readers that share a hub must renew it too."""
        known = self._known.get(stream)
        if known is None or known.ttl_s is None:
            return False
        return now - known.touched_at > known.ttl_s / 4
