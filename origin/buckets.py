"""The streams of each bucket: sorted names, so that the cost of a page depends only on its size.

A bucket is stored like an empty stream, under a name that no stream can have (`/ds/{bucket}`). So
the same records create, recover and remove it, in every storage mode. This module is only the
index, rebuilt at each start.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter

from protocol.paths import bucket_of
from protocol.requests import Listing


class Buckets:
    """Streams are `held` from the moment their creation is staged until they are fully removed, and
    `shown` while readers can see them."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._shown: dict[str, list[str]] = {}

    def hold(self, name: str) -> None:
        if bucket := bucket_of(name):
            self._held[bucket] += 1

    def release(self, name: str) -> None:
        if bucket := bucket_of(name):
            self._held[bucket] -= 1
            if not self._held[bucket]:
                del self._held[bucket]

    def show(self, name: str) -> None:
        if bucket := bucket_of(name):
            insort(self._shown.setdefault(bucket, []), local_name(name))

    def hide(self, name: str) -> None:
        bucket, local = bucket_of(name), local_name(name)
        names = self._shown.get(bucket, [])
        at = bisect_left(names, local)
        if at < len(names) and names[at] == local:
            del names[at]
            if not names:
                del self._shown[bucket]

    def load(self, names: list[str]) -> None:
        """All names at once, at startup."""
        for name in names:
            self._shown.setdefault(bucket_of(name), []).append(local_name(name))
        for found in self._shown.values():
            found.sort()

    def is_empty(self, bucket: str) -> bool:
        return bucket not in self._held

    def count(self, bucket: str) -> int:
        return len(self._shown.get(bucket, ()))

    def page(self, bucket: str, wanted: Listing) -> tuple[list[str], bool]:
        """Local names in order, and whether more follow."""
        names = self._shown.get(bucket, [])
        first = bisect_left(names, wanted.prefix)
        if wanted.after:
            first = max(first, bisect_right(names, wanted.after))
        found: list[str] = []
        for at in range(first, min(first + wanted.limit + 1, len(names))):
            if not names[at].startswith(wanted.prefix):
                break
            found.append(names[at])
        return found[: wanted.limit], len(found) > wanted.limit


def local_name(name: str) -> str:
    """The name of a bucket, or of a stream within its bucket."""
    return name.rpartition("/")[2]
