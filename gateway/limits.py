"""Limits per subject: requests per second, and shares of common resources. No clock, no I/O.

Memory is bounded, and the bound must not be a way around the limit: a client with many subjects
could otherwise evict a limited one, which would then start afresh. So only subjects with a full
bucket are forgotten, which makes no difference to them. If there are none, newcomers share one
bucket, and a newcomer's own bucket never starts fuller than the shared one.
"""

from collections import OrderedDict
from enum import Enum
from itertools import islice

MAX_SUBJECTS = 100_000
LOOKS = 8  # subjects checked per call for one that can be forgotten
WHOLE = 1 - 1e-6  # one request's worth of tokens, allowing for rounding


class _Bucket:
    __slots__ = ("at", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens = tokens
        self.at = at


class RateLimits:
    """A token bucket for each subject; a rate of 0 means no limit."""

    def __init__(
        self, requests_per_second: float, burst: int, *, max_subjects: int = MAX_SUBJECTS
    ) -> None:
        self._rate = requests_per_second
        self._burst = float(max(1, burst))
        self._max_subjects = max_subjects
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()  # the longest unused first
        self._shared = _Bucket(self._burst, 0.0)

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, subject: str, now: float) -> float:
        """0.0 if another request is allowed, else the seconds to wait."""
        if not self._rate:
            return 0.0
        bucket = self._buckets.get(subject)
        if bucket is None:
            bucket = self._admit(subject, now)
        else:
            self._buckets.move_to_end(subject)
        self._fill(bucket, now)
        if bucket.tokens < WHOLE:
            return (1 - bucket.tokens) / self._rate
        bucket.tokens -= 1
        return 0.0

    def _fill(self, bucket: _Bucket, now: float) -> None:
        if now > bucket.at:  # a clock that was set back changes nothing
            tokens = bucket.tokens + (now - bucket.at) * self._rate
            bucket.tokens = tokens if tokens < self._burst else self._burst
        bucket.at = now

    def _admit(self, subject: str, now: float) -> _Bucket:
        self._fill(self._shared, now)
        if len(self._buckets) >= self._max_subjects and not self._forget_one(now):
            return self._shared
        bucket = self._buckets[subject] = _Bucket(self._shared.tokens, now)
        return bucket

    def _forget_one(self, now: float) -> bool:
        for subject in list(islice(self._buckets, LOOKS)):
            bucket = self._buckets[subject]
            self._fill(bucket, now)
            if bucket.tokens >= self._burst:
                del self._buckets[subject]
                return True
            self._buckets.move_to_end(subject)  # so that the next call checks others
        return False


class Short(Enum):
    """What is exhausted: the whole resource, or the subject's share."""

    FOR_ALL = "for-all"
    FOR_SUBJECT = "for-subject"


class Shares:
    """A limited resource with a smaller limit per subject. Every `take` that is not refused needs
    one `release`."""

    def __init__(self, max_total: int, max_per_subject: int) -> None:
        self._max_total = max_total
        self._max_per_subject = max_per_subject
        self._held: dict[str, int] = {}
        self.total = 0

    @property
    def holders(self) -> int:
        return len(self._held)

    def take(self, subject: str, amount: int = 1) -> Short | None:
        """None, or why not."""
        held = self._held.get(subject, 0)
        if self.total + amount > self._max_total:
            return Short.FOR_ALL
        if held + amount > self._max_per_subject:
            return Short.FOR_SUBJECT
        self._held[subject] = held + amount
        self.total += amount
        return None

    def release(self, subject: str, amount: int = 1) -> None:
        left = self._held[subject] - amount
        self.total -= amount
        if left:
            self._held[subject] = left
        else:
            del self._held[subject]
