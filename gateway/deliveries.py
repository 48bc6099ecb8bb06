"""One entry on its way to many live readers: what they have in common is made once. `Frames` makes
the events of one SSE reader of it, in whole characters (`protocol.sse.HeldText`)."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from gateway.answers import JOIN_BYTES, LARGE_BYTES, Answers
from gateway.entries import Entry, EventLines
from gateway.outgoing import Part, Slices
from protocol.sse import DATA_END, DATA_START, HeldText, control_event, data_event
from wire.encoding import frame_chunk

NO_CURSOR = -1
SHARED_BYTES = 4 * 1024  # larger events are not copied for a single reader


class Answered(Protocol):
    def settle(self, size: int, finished: float) -> None:
        """Finish up after the response: the timer, the log line."""


class Delivery:
    """All readers are written to before the first log line: the last reader waits for the other
    writes, but not for their log lines."""

    def __init__(self, entry: Entry, answers: Answers, *, interval: int = 0) -> None:
        self.entry = entry
        self.interval = interval  # of the cursors; 0 = do not advance any cursor
        self.join_bytes = JOIN_BYTES if interval else SHARED_BYTES  # many readers share a frame
        self.now = time.time()
        self.at = asyncio.get_running_loop().time()
        self.whole = not entry.ends_within_character
        self.heads: dict[int, bytes] = {}
        self.frames: dict[int, bytes] = {}
        self._answers = answers
        # Long-poll responses differ only in their request id.
        self.shares_head = answers.heads.any_origin and len(entry.body) <= LARGE_BYTES
        self.answered: list[Answered] = []

    def head(self, cursor: int) -> bytes:
        """The head of a long-poll response, up to the request id."""
        head = self.heads.get(cursor)
        if head is None:
            head = self.heads[cursor] = self._answers.heads.of_crowd(self.entry, cursor)
        return head

    def settle_soon(self) -> None:
        """Once the last response is sent."""
        if self.answered:
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        size, finished = len(self.entry.body), time.monotonic()
        for poll in self.answered:
            poll.settle(size, finished)


class Frames:
    """`framed` if the client supports chunks; `count` is called with the size of each part."""

    __slots__ = ("_count", "_framed", "_text", "cursor")

    def __init__(self, framed: bool, count: Callable[[int], None]) -> None:
        self.cursor = NO_CURSOR
        self._framed = framed
        self._count = count
        self._text = HeldText()

    def frame(self, data: bytes) -> bytes:
        return frame_chunk(data) if self._framed else data

    def whole(self, delivery: Delivery) -> bytes:
        """All events of an entry, shared with other readers where possible."""
        if self._text.held or not delivery.whole:
            return self.frame(self._own_events(delivery.entry))
        key = self.cursor if self._framed else ~self.cursor
        frame = delivery.frames.get(key)
        if frame is None:
            entry = delivery.entry
            data = b"" if entry.is_empty else entry.event()
            frame = delivery.frames[key] = self.frame(data + self._control(entry))
        return frame

    def parts(self, entry: Entry, lines: EventLines) -> list[Part]:
        """The events of a large entry: in one frame if its lines are its body, else in one for each
        piece."""
        held, whole = b"", len(entry.body)
        if entry.is_text:
            held, whole = self._text.take_large(entry.body, is_last=_is_last(entry))
        start = DATA_START + held if held else entry.event_start()
        end = DATA_END + self._control(entry)
        if entry.is_plain_text:
            return self._framed_together(start, memoryview(entry.body)[:whole], end)
        self._count(len(start) + len(end))
        slices = Slices(lines, whole, framed=self._framed, made=self._count)
        return [self.frame(start), slices, self.frame(end)]

    def _framed_together(self, *parts: bytes | memoryview) -> list[Part]:
        size = sum(map(len, parts))
        self._count(size)
        return [b"%x\r\n" % size, *parts, b"\r\n"] if self._framed else [*parts]

    def _own_events(self, entry: Entry) -> bytes:
        """The events of a text that begins or ends within a character."""
        body = self._text.take(entry.body, is_last=_is_last(entry))
        return (data_event(body) if body else b"") + self._control(entry)

    def _control(self, entry: Entry) -> bytes:
        told, shown = self._text.told(entry.next_offset), None if entry.closed else self.cursor
        return control_event(told, shown, entry.up_to_date, entry.closed)


def _is_last(entry: Entry) -> bool:
    """Whether all of a text must be shown: at the end of a stream, or from another origin, whose
    offsets cannot express that some of it was held back."""
    return entry.closed or not entry.incarnation
