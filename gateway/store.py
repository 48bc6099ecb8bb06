"""The first level: entries by stream and part, bounded by bytes; the least recently used leave
first. `Holdings` has everything that this process holds of streams."""

from collections.abc import Callable

from cachetools import LRUCache

from gateway.config import CacheConfig
from gateway.entries import Entry, Kept
from gateway.flights import Flights
from gateway.reads import Fetched
from gateway.streams import Streams

Key = tuple[str, str]  # stream, part (`rules.routes` names them)


class _Sized(LRUCache[Key, Entry]):
    """Reports every entry that leaves."""

    def __init__(self, max_bytes: int, left: Callable[[Key], None]) -> None:
        super().__init__(max_bytes, getsizeof=lambda entry: entry.size)
        self._left = left

    def popitem(self) -> tuple[Key, Entry]:
        key, entry = super().popitem()
        _release(entry)
        self._left(key)
        return key, entry


class Store:
    def __init__(self, max_bytes: int, max_object_bytes: int) -> None:
        self._entries = _Sized(max_bytes, self._forget)
        self._max_object_bytes = min(max_object_bytes, max_bytes)
        self._parts: dict[str, set[str]] = {}
        self._tails: dict[str, set[str]] = {}  # parts that a write makes obsolete
        self.evicted = 0

    @property
    def bytes(self) -> int:
        return int(self._entries.currsize)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, stream: str, part: str) -> Entry | None:
        return self._entries.get((stream, part))

    def holds(self, stream: str) -> bool:
        return stream in self._parts

    def put(self, entry: Entry) -> bool:
        """Also called when an entry got a new form, to update its size."""
        key = (entry.stream, entry.part)
        if entry.size > self._max_object_bytes:
            self.drop(*key)
            return False
        before = self._entries.pop(key, None)
        if before is not None:
            _release(before)
        self._entries[key] = entry
        entry.kept = Kept(entry)
        self._parts.setdefault(entry.stream, set()).add(entry.part)
        if entry.immutable:
            _discard(self._tails, key)
        else:
            self._tails.setdefault(entry.stream, set()).add(entry.part)
        return True

    def recount(self, entry: Entry) -> None:
        """The entry has grown; if it was dropped meanwhile, it stays dropped."""
        if self._entries.get((entry.stream, entry.part)) is entry:
            self.put(entry)

    def drop(self, stream: str, part: str) -> None:
        entry = self._entries.pop((stream, part), None)
        if entry is not None:
            _release(entry)
            self._unlist((stream, part))

    def drop_tails(self, stream: str) -> None:
        """Drop everything that a write makes obsolete."""
        for part in list(self._tails.get(stream, ())):
            self.drop(stream, part)

    def drop_some(self, stream: str, leaves: Callable[[str], bool]) -> None:
        """Drop the parts for which `leaves` is true."""
        for part in [part for part in self._parts.get(stream, ()) if leaves(part)]:
            self.drop(stream, part)

    def drop_others(self, stream: str, incarnation: str) -> None:
        """Drop parts of other or unknown incarnations."""
        for part in list(self._parts.get(stream, ())):
            if self._entries[stream, part].incarnation != incarnation:
                self.drop(stream, part)

    def purge(self, stream: str) -> int:
        """Drop everything of a stream; returns the number of entries."""
        parts = self._parts.pop(stream, set())
        self._tails.pop(stream, None)
        for part in parts:
            entry = self._entries.pop((stream, part), None)
            if entry is not None:
                _release(entry)
        return len(parts)

    def clear(self) -> None:
        for stream in list(self._parts):
            self.purge(stream)

    def _forget(self, key: Key) -> None:
        self.evicted += 1
        self._unlist(key)

    def _unlist(self, key: Key) -> None:
        _discard(self._parts, key)
        _discard(self._tails, key)


def _discard(lists: dict[str, set[str]], key: Key) -> None:
    stream, part = key
    parts = lists.get(stream)
    if parts is not None:
        parts.discard(part)
        if not parts:
            del lists[stream]


def _release(entry: Entry) -> None:
    if entry.kept is not None:
        entry.kept.entry = None
        entry.kept = None


class Holdings:
    """Stored parts, fetches in progress, and what is known of each stream."""

    def __init__(self, config: CacheConfig) -> None:
        self.store = Store(config.max_bytes, config.max_object_bytes)
        self.streams = Streams()
        self.flights: Flights[Fetched] = Flights(
            lambda fetched: fetched.settles, self.streams.stamps
        )
