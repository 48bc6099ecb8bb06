"""One entry on its way to many live readers: what they have in common is made once."""

import asyncio
import time
from typing import Protocol

from gateway.answers import JOIN_BYTES, Answers
from gateway.entries import Entry

SHARED_BYTES = 4 * 1024  # an event for one reader is not copied for him if it is larger


class Answered(Protocol):
    def settle(self, size: int, finished: float) -> None:
        """What is left to do after the answer: the timer, the log line."""


class Delivery:
    """Everyone is written to before the first log line is: the last reader waits for the first
    one's answer, but not for his paperwork."""

    def __init__(self, entry: Entry, answers: Answers, *, interval: int = 0) -> None:
        self.entry = entry
        self.interval = interval  # of the cursors; 0 = none shall be later than it is
        self.join_bytes = JOIN_BYTES if interval else SHARED_BYTES  # a frame of a crowd is shared
        self.now = time.time()
        self.at = asyncio.get_running_loop().time()
        self.whole = not entry.ends_within_character
        self.heads: dict[int, bytes] = {}
        self.frames: dict[int, bytes] = {}
        self._answers = answers
        self._answered: list[Answered] = []

    def head(self, cursor: int) -> bytes:
        """Of a long-poll's answer, up to the request id."""
        head = self.heads.get(cursor)
        if head is None:
            head = self.heads[cursor] = self._answers.heads.of_crowd(self.entry, cursor)
        return head

    def answered(self, poll: Answered) -> None:
        self._answered.append(poll)

    def settle_soon(self) -> None:
        """When the last answer is out."""
        if self._answered:
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        size, finished = len(self.entry.body), time.monotonic()
        for poll in self._answered:
            poll.settle(size, finished)
