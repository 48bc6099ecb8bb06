"""Every stream that a shard holds: by name, by id and by bucket, with their number and size."""

from collections.abc import Iterable
from dataclasses import dataclass

from origin.buckets import Buckets
from origin.config import LimitsConfig
from origin.streams import Stream
from protocol.errors import ProtocolError
from protocol.paths import bucket_of
from protocol.stream import Record, StreamState, apply


@dataclass(slots=True)
class Totals:
    """What the limits of a server count: all shards of this process, and what others report."""

    streams: int = 0
    stored_bytes: int = 0
    others_streams: int = 0
    others_bytes: int = 0


class Registry:
    def __init__(self, limits: LimitsConfig, totals: Totals, *, max_total_bytes: int) -> None:
        self._limits = limits
        self._totals = totals
        self._max_total_bytes = max_total_bytes
        self.by_name: dict[str, Stream] = {}
        self.by_id: dict[int, Stream] = {}  # buckets included: they are kept as streams
        self.buckets = Buckets()
        self.stored_bytes = 0

    def load(self, states: Iterable[StreamState]) -> None:
        """Load the recovered streams, all committed."""
        for state in states:
            self._enter(Stream(state, committed=True))
        streams = self.by_id.values()
        shown = (s.state.name for s in streams if not s.state.gone)
        self.buckets.load([name for name in shown if bucket_of(name)])
        for stream in streams:
            if stream.state.fork is not None:
                self.by_id[stream.state.fork.source_id].forks += 1

    def add(self, stream: Stream) -> None:
        """Its name is taken from now on; readers see it once its creation is committed."""
        self._enter(stream)
        if stream.state.fork is not None:
            self.by_id[stream.state.fork.source_id].forks += 1

    def _enter(self, stream: Stream) -> None:
        state = stream.state
        self.by_id[state.id] = self.by_name[state.name] = stream
        self.buckets.hold(state.name)
        self._totals.streams += 1
        self.grow(state.stored_bytes)

    def remove(self, stream: Stream) -> None:
        state = stream.state
        del self.by_id[state.id]
        if self.by_name.get(state.name) is stream:
            del self.by_name[state.name]
        self.buckets.release(state.name)
        self._totals.streams -= 1
        self.grow(-state.stored_bytes)

    def apply(self, stream: Stream, record: Record) -> None:
        """Change the staged state of a stream; the size of all streams follows."""
        state = stream.state
        before = state.stored_bytes
        apply(state, record)
        self.grow(state.stored_bytes - before)

    def grow(self, more_bytes: int) -> None:
        """Like `apply`, for an append that was already applied."""
        self.stored_bytes += more_bytes
        self._totals.stored_bytes += more_bytes

    def leave_totals(self) -> None:
        """The shard is no longer of this process."""
        self._totals.streams -= len(self.by_id)
        self._totals.stored_bytes -= self.stored_bytes
        self._totals = Totals()

    def check_count(self) -> None:
        totals = self._totals
        if totals.streams + totals.others_streams >= self._limits.max_streams:
            raise ProtocolError(413, "too-many-streams", "The server's stream limit is reached.")

    def check_size(self, stream_bytes: int, more_bytes: int) -> None:
        """Refuse growth beyond the limits."""
        if stream_bytes + more_bytes > self._limits.max_stream_bytes:
            raise ProtocolError(413, "stream-too-large", "The stream would exceed its size limit.")
        totals = self._totals
        if totals.stored_bytes + totals.others_bytes + more_bytes > self._max_total_bytes:
            raise ProtocolError(413, "server-full", "The server's size limit is reached.")
