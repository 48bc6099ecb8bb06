"""The end of a stream, deleted or expired: removed, or only released while forks still read it.

A released stream is gone for clients but kept for its forks. When the last fork is removed, so is
the source, and so on up the chain. A source that was not deleted then frees the data covered by
its snapshot.
"""

from origin.registry import Registry
from origin.snapshotblobs import SnapshotBlobs
from origin.staging import Staging, ignore
from origin.storage.base import Done
from origin.streams import Stream
from protocol.stream import Released, Removed, Trimmed, apply


class Removals:
    def __init__(self, registry: Registry, staging: Staging, blobs: SnapshotBlobs) -> None:
        self._registry = registry
        self._staging = staging
        self._blobs = blobs
        self._postponed: list[Stream] = []  # no room for the record

    def finish(self) -> None:
        """At startup: a crash may have come between the removal of a fork and of its source."""
        for stream in list(self._registry.by_id.values()):
            if not stream.forks:
                self._give_back(stream)

    def retry(self, count: int) -> None:
        """Retry some postponed removals."""
        streams, self._postponed = self._postponed[:count], self._postponed[count:]
        for stream in streams:
            if not stream.forks:
                self._give_back(stream)

    def remove(self, stream: Stream, done: Done) -> None:
        state = stream.state
        record = Released(state.id) if stream.forks else Removed(state.id)
        removed = stream.removing = type(record) is Removed
        apply(state, record)

        def landed(error: Exception | None) -> None:
            if error is None:
                stream.ended = True
                self._registry.buckets.hide(state.name)
                if removed:
                    self._forget(stream)
                stream.wake_all()
            done(error)

        self._staging.stage(stream, (record,), landed)

    def _forget(self, stream: Stream) -> None:
        state = stream.state
        self._registry.remove(stream)
        if state.snapshot is not None:
            self._blobs.retire(state.snapshot)
        if state.fork is not None:
            self.release(self._registry.by_id[state.fork.source_id])

    def release(self, source: Stream) -> None:
        """One fork fewer needs it."""
        source.forks -= 1
        if not source.forks:
            self._give_back(source)

    def _give_back(self, source: Stream) -> None:
        """No forks are left: free the data kept only for them."""
        state = source.state
        if source.removing or (not state.gone and state.earliest <= state.floor):
            return
        if not self._staging.admits_quietly(urgent=True):
            self._postponed.append(source)
        elif state.gone:
            self.remove(source, ignore)
        else:
            self._staging.stage_quietly(source, self.trim(source))

    def trim(self, stream: Stream) -> Trimmed:
        """Keep nothing below the snapshot; the caller stages the record."""
        record = Trimmed(stream.state.id, stream.state.earliest)
        self._registry.apply(stream, record)
        return record
