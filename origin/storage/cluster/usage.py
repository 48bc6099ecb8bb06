"""How much of each pack is still in use. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

from origin.storage.cluster.packs import Block

SPARSE = 0.5  # a pack with less than this share in use is written again


class PackUsage:
    def __init__(self) -> None:
        self._used_bytes: Counter[int] = Counter()
        self._unused: set[int] = set()

    def use(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._used_bytes[block.pack] += block.size_bytes
            self._unused.discard(block.pack)

    def release(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._used_bytes[block.pack] -= block.size_bytes
            if not self._used_bytes[block.pack]:
                del self._used_bytes[block.pack]
                self._unused.add(block.pack)

    def take_unused(self) -> list[int]:
        """Packs that nothing uses any more, each told once."""
        unused, self._unused = self._unused, set()
        return list(unused)

    def packs(self) -> set[int]:
        return set(self._used_bytes)

    def sparse(self, sizes: Mapping[int, int]) -> set[int]:
        """Packs that are mostly garbage."""
        used = self._used_bytes
        return {pack for pack, size in sizes.items() if used[pack] < SPARSE * size}
