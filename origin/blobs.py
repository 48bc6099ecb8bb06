"""Who still reads a snapshot's blob: one that was replaced goes when its last reader has."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from origin.storage.base import Storage


class BlobHolds:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._readers: Counter[int] = Counter()
        self._retired: set[int] = set()

    @contextmanager
    def held(self, blob: int) -> Iterator[None]:
        self._readers[blob] += 1
        try:
            yield
        finally:
            self._readers[blob] -= 1
            if not self._readers[blob]:
                del self._readers[blob]
                if blob in self._retired:
                    self._retired.discard(blob)
                    self._storage.drop_blob(blob)

    def retire(self, blob: int) -> None:
        """No state names it any more."""
        if blob in self._readers:
            self._retired.add(blob)
        else:
            self._storage.drop_blob(blob)
