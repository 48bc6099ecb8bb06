"""Connections to the origin: limited in total, and to a share for each subject.

A request is charged to a subject that waits for its response. If several do (a flight, a hub), any
of them can pay, including later ones, so sharing never makes a reader wait longer. A request that
finds no free connection joins its subject's queue. Queues take turns, so one subject with many
requests does not delay the others.

While a connection is free, every waiting subject has used up its share.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

OURS = "\0gateway"  # for requests without a client; no subject looks like this


class Payers:
    """The subjects that wait for one request: the first, and perhaps others, which are looked up
    if its share is used up."""

    __slots__ = ("_join", "_others", "subjects")

    def __init__(self, subject: str = OURS, others: Callable[[], Iterable[str]] = tuple) -> None:
        self.subjects = {subject: None}
        self._others = others
        self._join: Callable[[str], None] | None = None  # while the request is queued

    def add(self, subject: str) -> None:
        if subject not in self.subjects:
            self.subjects[subject] = None
            if self._join is not None:
                self._join(subject)

    @contextmanager
    def in_line(self, join: Callable[[str], None]) -> Iterator[None]:
        """`join` is called for each subject, including those that arrive meanwhile."""
        self.subjects |= dict.fromkeys(self._others())
        for subject in self.subjects:
            join(subject)
        self._join = join
        try:
            yield
        finally:
            self._join = None


Waiting = asyncio.Future[str]  # for the subject that pays


class Slots:
    def __init__(self, most: int, most_of_subject: int) -> None:
        self._most = self._free = most
        self._share = most_of_subject
        self._held: dict[str, int] = {}
        self._lines: OrderedDict[str, dict[Waiting, None]] = OrderedDict()  # next turn first

    @classmethod
    def shared(cls, most: int, share: float) -> Self:
        """`share` is the part that one subject may hold."""
        return cls(most, max(1, int(most * share)))

    def take_now(self, payers: Payers) -> str | None:
        """The subject that pays, to be passed to `release`; None if the request must wait."""
        if self._free:
            for subject in payers.subjects:
                if self._has_share(subject):
                    return self._give(subject)
        return None

    async def take(self, payers: Payers) -> str:
        """The same, once a connection is free."""
        waiting: Waiting = asyncio.get_running_loop().create_future()

        def line_up(subject: str) -> None:
            self._lines.setdefault(subject, {})[waiting] = None
            self._serve()

        try:
            with payers.in_line(line_up):
                return await waiting
        except BaseException:
            if waiting.done() and not waiting.cancelled():  # granted while we were cancelled
                self.release(waiting.result())
            raise
        finally:
            self._leave(waiting, payers.subjects)

    def release(self, subject: str) -> None:
        left = self._held[subject] - 1
        self._free += 1
        if left:
            self._held[subject] = left
        else:
            del self._held[subject]
        self._serve()

    def are_used_up_by(self, payers: Payers) -> bool:
        """Whether they wait because of their own share."""
        return self._share < self._most and not any(map(self._has_share, payers.subjects))

    def _has_share(self, subject: str) -> bool:
        return self._held.get(subject, 0) < self._share

    def _give(self, subject: str) -> str:
        self._free -= 1
        self._held[subject] = self._held.get(subject, 0) + 1
        return subject

    def _serve(self) -> None:
        while self._free and (subject := self._next_turn()) is not None:
            line = self._lines[subject]
            waiting = next(iter(line))
            self._leave(waiting, [subject])
            if not waiting.done():  # otherwise served from another queue, or cancelled
                waiting.set_result(self._give(subject))
                if subject in self._lines:
                    self._lines.move_to_end(subject)

    def _next_turn(self) -> str | None:
        return next(filter(self._has_share, self._lines), None)

    def _leave(self, waiting: Waiting, subjects: Iterable[str]) -> None:
        for subject in subjects:
            line = self._lines.get(subject)
            if line is not None:
                line.pop(waiting, None)
                if not line:
                    del self._lines[subject]


class Held(NamedTuple):
    """A slot that is to be released."""

    slots: Slots
    subject: str

    def release(self) -> None:
        self.slots.release(self.subject)
