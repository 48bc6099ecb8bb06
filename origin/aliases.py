"""Aliases: which shard has a stream that is not in its home shard, because it is a fork.

An alias is stored like an empty stream whose name no stream can have, in the home shard of the name
it stands for. So the same records create, recover and remove it. It is in no bucket, no listing and
no count. `origin.cluster.placing` decides when there is one.
"""

from collections.abc import Callable, Iterable

from origin.staging import Staging
from origin.streams import Stream
from protocol.stream import Created, Removed, Renewed, StreamState, apply, begin

PREFIX = "\x01"  # names have no control characters
TYPE = "weir/shard-"


def is_alias(name: str) -> bool:
    return name.startswith(PREFIX)


class Aliases:
    """`shards` has the committed ones. Changes of one name must not overlap."""

    def __init__(
        self, staging: Staging, clock_ms: Callable[[], int], new_id: Callable[[], int]
    ) -> None:
        self._staging = staging
        self._clock_ms = clock_ms
        self._new_id = new_id
        self._streams: dict[str, Stream] = {}
        self.shards: dict[str, int] = {}

    def load(self, states: Iterable[StreamState]) -> None:
        for state in states:
            name = state.name.removeprefix(PREFIX)
            self._streams[name] = Stream(state, committed=True)
            self.shards[name] = int(state.content_type.removeprefix(TYPE))

    async def find(self, name: str) -> int | None:
        """The shard that the alias names. A change whose request has ended is awaited."""
        stream = self._streams.get(name)
        if stream is not None and (stream.removing or not stream.visible):
            await self._staging.settled()
        return self.shards.get(name)

    async def point(self, name: str, shard: int) -> None:
        """Commit that the stream is in this shard, or may be. An alias that is there already is
        committed once more: this fails if the home shard has another owner now."""
        await self._staging.admitted(0)
        now = self._clock_ms()
        if (stream := self._streams.get(name)) is not None:
            assert self.shards[name] == shard, "an alias is removed before it points elsewhere"
            renewed = Renewed(stream.state.id, now)
            apply(stream.state, renewed)
            await self._staging.commit(stream, (renewed,), lambda: None)
            return
        kind = f"{TYPE}{shard}"
        created = Created(self._new_id(), PREFIX + name, kind, now, None, None, None, False)
        stream = self._streams[name] = Stream(begin(created), committed=False)

        def landed() -> None:
            stream.visible = True
            self.shards[name] = shard

        await self._staging.commit(stream, (created,), landed)

    async def remove(self, name: str) -> None:
        await self._staging.admitted(0)
        stream = self._streams[name]
        removed = Removed(stream.state.id)
        stream.removing = True
        apply(stream.state, removed)

        def landed() -> None:
            del self._streams[name], self.shards[name]

        await self._staging.commit(stream, (removed,), landed)
