"""Messages to the operator: a line for each finished step and, on a terminal, the current step,
which the next line replaces.
"""

import time
from collections.abc import Callable, Sequence
from typing import TextIO

CLEAR_LINE = "\r\x1b[K"
NAMED = 10  # items that a note lists by name


def some(names: Sequence[str]) -> str:
    """The number of items, and the first of them."""
    return f"({len(names):,}): {', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}"


class Progress:
    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._started = clock()
        self._is_terminal = out.isatty()
        self._noted: set[str] = set()

    def doing(self, what: str) -> None:
        if self._is_terminal:
            self._write(f"{CLEAR_LINE}{self._time()}  {what} …")

    def done(self, what: str) -> None:
        start = CLEAR_LINE if self._is_terminal else ""
        self._write(f"{start}{self._time()}  {what}\n")

    def note(self, what: str) -> None:
        """Each note is printed only once."""
        if what not in self._noted:
            self._noted.add(what)
            self.done(f"note: {what}")

    def _time(self) -> str:
        return f"{self._clock() - self._started:7.1f} s"

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
