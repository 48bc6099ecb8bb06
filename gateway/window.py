"""The newest data of a followed stream, for live readers who are a little late."""

from collections import OrderedDict

from gateway.entries import Entry
from gateway.rules.routes import is_replaced


class Window:
    """Entries by where they begin, the oldest first; each counts with all that it takes up, so
    that tiny ones are few as well."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[str, tuple[Entry, int]] = OrderedDict()  # and as it was counted
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def at(self, offset: str) -> Entry | None:
        kept = self._entries.get(offset)
        return None if kept is None else kept[0]

    def add(self, entry: Entry) -> None:
        self._remove(entry.offset)
        self._count(entry)

    def recount(self, entry: Entry) -> None:
        """A form was added to it; if it was dropped meanwhile, it stays dropped."""
        kept = self._entries.get(entry.offset)
        if kept is not None and kept[0] is entry and kept[1] != entry.size:
            self.bytes -= kept[1]
            self._count(entry)

    def trim(self, earliest: str) -> None:
        """A snapshot stands for what was before."""
        while self._entries and is_replaced(next(iter(self._entries)), earliest):
            self._drop_oldest()

    def clear(self) -> None:
        self._entries.clear()
        self.bytes = 0

    def _count(self, entry: Entry) -> None:
        size = entry.size
        self._entries[entry.offset] = (entry, size)
        self.bytes += size
        while self.bytes > self._most:  # a large one does not stay, either
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, size) = self._entries.popitem(last=False)
        self.bytes -= size

    def _remove(self, offset: str) -> None:
        kept = self._entries.pop(offset, None)
        if kept is not None:
            self.bytes -= kept[1]
