"""Live reads that are passed on: how many there are, and when they end.

They wait long at an owner, which may have stopped: then it never says that their shard has moved.
So they end when this node's map names another owner, or when it stops, and the client asks again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from origin.cluster.view import ClusterView, url_of
from origin.live import too_many_readers
from origin.shards import Elsewhere


class Following:
    def __init__(self, view: ClusterView, max_reads: int) -> None:
        self._view = view
        self._max_reads = max_reads
        self._reads = 0
        self._waits: dict[tuple[int, str], set[asyncio.Timeout]] = {}

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Each holds a connection. Raises ProtocolError at once if there are too many."""
        if self._reads >= self._max_reads:
            raise too_many_readers()
        self._reads += 1
        try:
            yield
        finally:
            self._reads -= 1

    @contextmanager
    def watched(self, to: Elsewhere, wait: asyncio.Timeout) -> Iterator[None]:
        """The wait times out when the shard moves."""
        assert to.url is not None
        key = to.shard, to.url
        waits = self._waits.setdefault(key, set())
        waits.add(wait)
        try:
            yield
        finally:
            waits.discard(wait)
            if not waits and self._waits.get(key) is waits:
                del self._waits[key]

    def look(self) -> None:
        """End the waits at former owners. While nobody else owns a shard, they may go on."""
        for shard, url in list(self._waits):
            if url_of(self._view.map, shard) not in (url, None):
                self._end((shard, url))

    def end_all(self) -> None:
        for key in list(self._waits):
            self._end(key)

    def _end(self, key: tuple[int, str]) -> None:
        now = asyncio.get_running_loop().time()
        for wait in self._waits.pop(key):
            if not wait.expired():
                wait.reschedule(now)
