"""The tails of followed streams: who waits where, and what to do about it.

A tail has a position. While anyone waits, one long-poll is open at the origin at that position.
Data moves the position and goes to every reader at the offset where it begins. A response without
data (204) or a failure goes to the waiting long-polls only; SSE readers stay through both. A tail
without readers rests, and soon ends.

Readers elsewhere are not turned away. Behind the position, a catch-up read has the data. Ahead of
it (the reader has just written, or has read past us), the reader waits until the tail gets there.
If the position is beyond the end of the stream (a made-up offset), the tail makes way for a reader
at the actual end.

Each method is an event. It changes the state in one step and returns actions: what the caller must
do, and for which readers. A reader in an action has left the tail, except that SSE readers stay
when they are shown data. A tail that ends is forgotten at once; its readers get another.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from typing import Generic, TypeVar

from gateway.entries import Entry
from gateway.rules.routes import is_ahead, is_replaced
from gateway.rules.window import Window, Windows
from protocol import replies
from protocol.errors import ProtocolError
from protocol.offsets import are_ordered
from protocol.replies import Reply

TRANSIT_SECS = 0.1  # how long a response may have been in transit

P = TypeVar("P")  # a long-poll: it waits for one answer
R = TypeVar("R")  # an SSE reader: it stays
M = TypeVar("M")


class State(Enum):
    RESTING = auto()  # no readers; the next one sets the position
    ASKING = auto()  # a request is about to be sent
    LISTENING = auto()  # the origin has the request, and will respond with news
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    reply: Reply
    code: str  # for the log


@dataclass(frozen=True, slots=True)
class Deliver(Generic[P, R]):
    """To readers at the offset where the entry begins."""

    entry: Entry
    polls: list[P]
    readers: list[R]


@dataclass(frozen=True, slots=True)
class Tell(Generic[P]):
    """Nothing new. Without an `offset`, each long-poll keeps its own."""

    polls: list[P]
    offset: str | None
    closed: bool


@dataclass(frozen=True, slots=True)
class Refuse(Generic[P]):
    polls: list[P]
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class PassBy(Generic[P]):
    """The data is too large to store: each long-poll gets it from the origin itself."""

    polls: list[P]


@dataclass(frozen=True, slots=True)
class End(Generic[R]):
    readers: list[R]
    reason: str


@dataclass(frozen=True, slots=True)
class CatchUp(Generic[P, R]):
    """The data passed these readers without beginning at their offset."""

    polls: list[P]
    readers: list[R]


@dataclass(frozen=True, slots=True)
class BeginAnew(Generic[P, R]):
    """The tail has ended; its readers start over as if they had just arrived."""

    polls: list[P]
    readers: list[R]


Action = Deliver[P, R] | Tell[P] | Refuse[P] | PassBy[P] | End[R] | CatchUp[P, R] | BeginAnew[P, R]


Came = tuple[int, float]  # number of requests sent by then, and the time


class Seats(Generic[M]):
    """Readers of one kind by offset, in order of arrival."""

    def __init__(self) -> None:
        self._at: dict[str, dict[M, Came]] = {}  # no offset without readers

    def __len__(self) -> int:
        return sum(map(len, self._at.values()))

    def __iter__(self) -> Iterator[M]:
        return chain.from_iterable(self._at.values())

    @property
    def offsets(self) -> list[str]:
        return list(self._at)

    def at(self, offset: str) -> Mapping[M, Came]:
        return self._at.get(offset, {})

    def add(self, reader: M, offset: str, came: Came) -> None:
        self._at.setdefault(offset, {})[reader] = came

    def remove(self, reader: M) -> bool:
        offset = next((offset for offset, seated in self._at.items() if reader in seated), None)
        if offset is not None:
            del self._at[offset][reader]
            if not self._at[offset]:
                del self._at[offset]
        return offset is not None

    def take(self, which: Callable[[str], bool] = lambda offset: True) -> list[M]:
        """Remove all readers at these offsets, and return them."""
        offsets = [offset for offset in self._at if which(offset)]
        return [reader for offset in offsets for reader in self._at.pop(offset)]

    def move(self, before: str, after: str) -> list[M]:
        moved = self._at.pop(before, {})
        if moved:
            self._at[after] = moved | self._at.pop(after, {})
        return list(moved)


class Tail(Generic[P, R]):
    def __init__(
        self, key: str, stream: str, window: Window, on_end: Callable[["Tail[P, R]"], None]
    ) -> None:
        self.key = key
        self.stream = stream
        self.window = window  # the newest data, for readers that are slightly behind
        self.position = ""
        self.state = State.RESTING
        self.polls: Seats[P] = Seats()
        self.readers: Seats[R] = Seats()
        self._asks = 0
        self._on_end = on_end

    @property
    def is_wanted(self) -> bool:
        return len(self.readers) > 0 or len(self.polls) > 0

    # -- readers -------------------------------------------------------------------------------

    def wait(self, poll: P, offset: str, now: float, *, at_end: bool) -> bool:
        """Whether the long-poll waits here now. `at_end` says that the origin has no data at its
        offset yet: then the tail may still be behind it."""
        if not self._reaches(offset, may_be_ahead=at_end):
            return False
        self.polls.add(poll, offset, (self._asks, now))
        return True

    def attach(self, reader: R, offset: str) -> bool:
        """The same for an SSE reader, which has been shown everything up to its offset."""
        if not self._reaches(offset, may_be_ahead=True):
            return False
        self.readers.add(reader, offset, (self._asks, 0.0))
        return True

    def leave(self, poll: P) -> bool:
        """Whether it was here."""
        return self.polls.remove(poll)

    def detach(self, reader: R) -> bool:
        return self.readers.remove(reader)

    def _reaches(self, offset: str, *, may_be_ahead: bool) -> bool:
        if self.state is State.RESTING:
            if self.position != offset:
                self.position = offset
                self.window.clear()
            self.state = State.ASKING
            return True
        return offset == self.position or (may_be_ahead and is_ahead(offset, self.position))

    def make_way(self, offset: str, *, insists: bool) -> list[Action[P, R]]:
        """For a reader at the end of the stream. It `insists` if it was turned away before: then
        our position is beyond the end, and the readers there are told so. Otherwise the tail ends
        only if the two offsets cannot be compared: ours names no stream, an ancestor or another
        stream."""
        if insists:
            polls = self.polls.take(lambda at: is_ahead(at, offset))
            readers = self.readers.take(lambda at: is_ahead(at, offset))
            return [Refuse(polls, BEYOND), End(readers, "upstream-error"), self._begin_anew()]
        if self.state is State.RESTING or are_ordered(self.position, offset):
            return []
        return [self._begin_anew()]

    # -- asking the origin ---------------------------------------------------------------------

    def next_ask(self) -> str | None:
        """The offset to poll now; None if there are no readers."""
        if self.state is State.ENDED:
            return None
        if not self.is_wanted:
            self.state = State.RESTING
            return None
        self._asks += 1
        return self.position

    def departed(self) -> None:
        if self.state is State.ASKING:
            self.state = State.LISTENING

    def answered(self) -> None:
        """The request was answered, or failed."""
        if self.state is State.LISTENING:
            self.state = State.ASKING

    # -- the origin's responses ----------------------------------------------------------------

    def took(self, entry: Entry, earliest: str) -> list[Action[P, R]]:
        """Data. It is not kept if a snapshot at `earliest` has replaced it meanwhile."""
        before, self.position = self.position, entry.next_offset
        polls = self.polls.take(lambda at: at == before)
        deliver = Deliver(entry, polls, self.readers.move(before, entry.next_offset))
        if entry.closed:
            return [deliver, *self._finish()]
        if not entry.is_empty and not (earliest and is_replaced(entry.part, earliest)):
            self.window.add(entry)
        return [
            deliver,
            CatchUp(self.polls.take(self._is_behind), self.readers.take(self._is_behind)),
        ]

    def nothing_new(self, offset: str, now: float) -> list[Action[P, R]]:
        """For long-polls that arrived before the request, or before this response can have been
        sent. The others wait for the next response: this one may be older than their request."""

        here = self.polls.at(self.position).items()
        told = [
            poll
            for poll, (asks, came_at) in here
            if asks < self._asks or now - came_at >= TRANSIT_SECS
        ]
        for poll in told:
            self.polls.remove(poll)
        return [Tell(told, offset, closed=False)]

    def closed(self, end: Entry) -> list[Action[P, R]]:
        """The stream was closed without more data. `end` says so to SSE readers."""
        before, self.position = self.position, end.next_offset
        polls = self.polls.take(lambda at: at == before)
        readers = self.readers.move(before, end.next_offset)
        tell: Tell[P] = Tell(polls, end.next_offset, closed=True)
        return [tell, Deliver(end, [], readers), *self._finish()]

    def _finish(self) -> list[Action[P, R]]:
        """The stream is closed and everything is sent."""
        here = self._is_here
        tell: Tell[P] = Tell(self.polls.take(here), self.position, closed=True)
        end: End[R] = End(self.readers.take(here), "closed")
        others = self._begin_anew()
        return [tell, end, CatchUp(others.polls, others.readers)]

    def refused(self, refusal: Refusal, reason: str) -> list[Action[P, R]]:
        """The origin refused our position."""
        polls, readers = self.polls.take(self._is_here), self.readers.take(self._is_here)
        return [Refuse(polls, refusal), End(readers, reason), self._begin_anew()]

    def too_large(self) -> list[Action[P, R]]:
        polls, readers = self.polls.take(self._is_here), self.readers.take(self._is_here)
        return [PassBy(polls), End(readers, "upstream-error"), self._begin_anew()]

    def _is_here(self, offset: str) -> bool:
        return offset == self.position

    def _is_behind(self, offset: str) -> bool:
        return offset != self.position and not is_ahead(offset, self.position)

    def failed(self, refusal: Refusal) -> list[Action[P, R]]:
        """The origin is unavailable; SSE readers stay for a while."""
        return [Refuse(self.polls.take(), refusal)]

    def given_up(self) -> list[Action[P, R]]:
        return [End(self.readers.take(), "upstream-error")]

    # -- the end -------------------------------------------------------------------------------

    def gone(self, refusal: Refusal, reason: str) -> list[Action[P, R]]:
        """Refuse all long-polls and end all SSE readers."""
        actions: list[Action[P, R]] = [
            Refuse(self.polls.take(), refusal),
            End(self.readers.take(), reason),
        ]
        self._end()
        return actions

    def purged(self) -> list[Action[P, R]]:
        """The stream was deleted or re-created, now or a while ago: long-polls ask again."""
        return [End(self.readers.take(), "deleted"), self._begin_anew()]

    def stop(self) -> list[Action[P, R]]:
        """End all readers cleanly."""
        tell: Tell[P] = Tell(self.polls.take(), None, closed=False)
        end: End[R] = End(self.readers.take(), "drained")
        self._end()
        return [tell, end]

    def rested(self) -> None:
        """No reader has come for a while."""
        if not self.is_wanted:
            self._end()

    def _begin_anew(self) -> BeginAnew[P, R]:
        self._end()
        return BeginAnew(self.polls.take(), self.readers.take())

    def _end(self) -> None:
        self.state = State.ENDED
        self.window.clear()
        self._on_end(self)


class Tails(Generic[P, R]):
    """All tails of a process. Readers of a stream share one, unless tokens are forwarded: then the
    `key` separates them."""

    def __init__(self, windows: Windows, *, by_token: bool) -> None:
        self.windows = windows
        self._by_token = by_token
        self._tails: dict[str, Tail[P, R]] = {}

    def __len__(self) -> int:
        return len(self._tails)

    def __iter__(self) -> Iterator[Tail[P, R]]:
        return iter(list(self._tails.values()))

    def get(self, key: str) -> Tail[P, R] | None:
        return self._tails.get(key)

    def of(self, stream: str) -> list[Tail[P, R]]:
        if self._by_token:
            return [tail for tail in self if tail.stream == stream]
        tail = self.get(stream)
        return [] if tail is None else [tail]

    def followed_to(self, stream: str) -> str | None:
        """The stream's end, as known to a waiting tail."""
        tail = self.get(stream)
        return tail.position if tail is not None and tail.state is State.LISTENING else None

    def open(self, key: str, stream: str) -> Tail[P, R]:
        """The tail with this key. A new tail accepts any reader."""
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = Tail(key, stream, self.windows.make(), self._forget)
        return tail

    def _forget(self, tail: Tail[P, R]) -> None:
        if self._tails.get(tail.key) is tail:
            del self._tails[tail.key]


_BEYOND = ProtocolError(400, "invalid-offset", "The offset is beyond the stream's tail.")
BEYOND = Refusal(replies.problem_of(_BEYOND), _BEYOND.code)
