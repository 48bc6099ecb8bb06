"""One open stream: the staged state for judging writers, and the state visible to readers.

`state` runs ahead of the disk; `tail`, `closed`, `snapshot` and `ended` move only when a commit
lands. So a reader, and every cache behind it, never sees a byte that a crash could take back.
"""

from collections.abc import Callable

from protocol.stream import StreamState, deadline_ms

Wake = Callable[[], None]


class Stream:
    __slots__ = (
        "closed",
        "deadline_ms",
        "ended",
        "forks",
        "inflight",
        "is_json",
        "live_readers",
        "renewal_kept_ms",
        "removing",
        "snapshot",
        "state",
        "tail",
        "visible",
        "waiters",
    )

    def __init__(self, state: StreamState, *, committed: bool) -> None:
        self.state = state
        self.is_json = state.is_json
        self.visible = committed  # its creation can no longer be lost
        self.removing = False  # its removal is staged
        self.ended = committed and state.gone  # deleted or expired, for readers too
        self.tail = state.tail if committed else state.base
        self.closed = committed and state.closed
        self.snapshot = state.snapshot if committed else None
        self.deadline_ms = deadline_ms(state)
        self.renewal_kept_ms = state.renewed_at_ms
        self.inflight = 0
        self.forks = 0
        self.live_readers = 0
        self.waiters: set[Wake] | None = None

    @property
    def earliest(self) -> int:
        """First position that can be read."""
        return 0 if self.snapshot is None else self.snapshot.offset

    def wait(self, wake: Wake) -> None:
        """Call `wake` at the next visible change."""
        if self.waiters is None:
            self.waiters = set()
        self.waiters.add(wake)

    def stop_waiting(self, wake: Wake) -> None:
        if self.waiters is not None:
            self.waiters.discard(wake)

    def publish(self, tail: int, *, closed: bool) -> None:
        """An append was committed: readers see it from now on."""
        self.tail = tail
        self.closed = self.closed or closed
        self.wake_all()

    def wake_all(self) -> None:
        waiters, self.waiters = self.waiters, None
        for wake in waiters or ():
            wake()
