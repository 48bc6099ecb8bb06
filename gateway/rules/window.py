"""The newest data of followed streams, for live readers that are slightly behind.

All windows of a worker share one limit, however many streams are followed. Dropped data is
available from catch-up reads.
"""

from collections import OrderedDict

from gateway.entries import Entry
from gateway.rules.routes import is_replaced


class Windows:
    """The shared limit of all windows. When it is exceeded, the least recently grown shrinks."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._by_age: OrderedDict[Window, None] = OrderedDict()  # those with entries
        self.bytes = 0

    def make(self) -> "Window":
        return Window(self, self._most_of_one)

    def count(self, window: "Window", more: int) -> None:
        self.bytes += more
        if more > 0:
            self._by_age[window] = None
            self._by_age.move_to_end(window)
        elif not len(window):
            self._by_age.pop(window, None)

    def make_fit(self) -> None:
        while self.bytes > self._most:
            next(iter(self._by_age)).drop_oldest()


class Window:
    """Entries by starting offset, oldest first; each counts with its overhead, so that the number
    of tiny entries is bounded too."""

    def __init__(self, windows: Windows, most: int) -> None:
        self._windows = windows
        self._most = most
        self._entries: OrderedDict[str, tuple[Entry, int]] = OrderedDict()  # with counted size
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def at(self, offset: str) -> Entry | None:
        kept = self._entries.get(offset)
        return None if kept is None else kept[0]

    def add(self, entry: Entry) -> None:
        self._remove(entry.part)
        self._keep(entry)

    def recount(self, entry: Entry) -> None:
        """The entry has grown; if it was dropped meanwhile, it stays dropped."""
        kept = self._entries.get(entry.part)
        if kept is not None and kept[0] is entry and kept[1] != entry.size:
            self._count(-kept[1])
            self._keep(entry)

    def trim(self, earliest: str) -> None:
        """A snapshot replaced everything before `earliest`."""
        while self._entries and is_replaced(next(iter(self._entries)), earliest):
            self.drop_oldest()

    def clear(self) -> None:
        self._entries.clear()
        self._count(-self.bytes)

    def drop_oldest(self) -> None:
        _, (_, size) = self._entries.popitem(last=False)
        self._count(-size)

    def _keep(self, entry: Entry) -> None:
        size = entry.size
        self._entries[entry.part] = (entry, size)
        self._count(size)
        while self.bytes > self._most:  # may drop a large new entry too
            self.drop_oldest()
        self._windows.make_fit()

    def _count(self, more: int) -> None:
        self.bytes += more
        self._windows.count(self, more)

    def _remove(self, offset: str) -> None:
        kept = self._entries.pop(offset, None)
        if kept is not None:
            self._count(-kept[1])
