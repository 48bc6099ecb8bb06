"""Which shards this process serves, and how a request finds the one of its stream.

One machine has one shard. In a cluster a process owns some shards, and a stream of any other is
`Elsewhere`.
"""

from collections.abc import Iterable
from typing import Protocol

from origin.shard import Shard


class Elsewhere(Exception):
    """Another node owns the shard, or none: `url` is the owner's, None while there is no owner.

    `by_alias` if this process owns the home of the stream, whose alias names that shard."""

    def __init__(self, shard: int, url: str | None, *, by_alias: bool = False) -> None:
        super().__init__(shard, url)
        self.shard = shard
        self.url = url
        self.by_alias = by_alias


class Shards(Protocol):
    def of(self, name: str) -> Shard:
        """The shard of a stream or bucket; raises Elsewhere. Never a lost one."""

    def home(self, name: str) -> Shard:
        """The shard that decides where a stream is created; raises Elsewhere."""

    def at(self, number: int) -> Shard:
        """The shard of this number; raises Elsewhere."""

    def all(self) -> Iterable[Shard]:
        """Those open here, as they are now."""


class OneShard:
    """The only shard there is."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def of(self, name: str) -> Shard:
        shard = self._shard
        if shard.is_lost:
            raise Elsewhere(shard.number, None)
        return shard

    def home(self, name: str) -> Shard:
        return self.of(name)

    def at(self, number: int) -> Shard:
        return self.of("")

    def all(self) -> Iterable[Shard]:
        return (self._shard,)
