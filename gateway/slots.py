"""Connections to the origin, dealt out: so many in all, and at most a share to each subject.

A request is on the account of somebody who waits for its answer. Where several do (a flight, a
hub), any of them will do, and who joins later as well: so nobody waits because of whom he shares
with. Who finds nothing free stands in the line of his subject. Lines take turns, so that another's
next request is served soon, however many one subject has waiting.

Whenever something is free, everyone who waits has all of his share.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

OURS = "\0gateway"  # what no client has asked for; no subject looks like this


class Payers:
    """The subjects that wait for one request: one who is known, and perhaps others, who are looked
    for when he has not enough."""

    __slots__ = ("_join", "_others", "subjects")

    def __init__(self, subject: str = OURS, others: Callable[[], Iterable[str]] = tuple) -> None:
        self.subjects = {subject: None}
        self._others = others
        self._join: Callable[[str], None] | None = None  # while the request stands in line

    def add(self, subject: str) -> None:
        if subject not in self.subjects:
            self.subjects[subject] = None
            if self._join is not None:
                self._join(subject)

    @contextmanager
    def in_line(self, join: Callable[[str], None]) -> Iterator[None]:
        """`join` is called for each subject, those included who come meanwhile."""
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
        self._lines: OrderedDict[str, dict[Waiting, None]] = OrderedDict()  # the next turn first

    def take_now(self, payers: Payers) -> str | None:
        """The subject that pays, and for whom `release` is due; None if one must wait."""
        if self._free:
            for subject in payers.subjects:
                if self._has_share(subject):
                    return self._give(subject)
        return None

    async def take(self, payers: Payers) -> str:
        """The same, when it is free."""
        waiting: Waiting = asyncio.get_running_loop().create_future()

        def line_up(subject: str) -> None:
            self._lines.setdefault(subject, {})[waiting] = None
            self._serve()

        try:
            with payers.in_line(line_up):
                return await waiting
        except BaseException:
            if waiting.done() and not waiting.cancelled():  # it came as we left
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
        """Whether it is their own share that keeps them waiting."""
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
            if not waiting.done():  # else it was served in another line, or has left
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
