"""What is kept of a run: a file of JSON lines, from which every view and chart is made.

The first line says what ran, then come the seconds, the last says how it ended. A run that broke
off has no last line, and is still good for what it has.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from loadtest.load.histogram import Histogram, total


class Started(msgspec.Struct, tag="started", tag_field="kind"):
    scenario: str
    peer: str
    """Who was measured, in a word."""
    target: str
    at: float
    """Seconds since 1970."""
    knobs: dict[str, float]
    machine: dict[str, str]


class Second(msgspec.Struct, tag="second", tag_field="kind", omit_defaults=True):
    """What was done of one kind in one second of the run."""

    second: int
    what: str
    done: int = 0
    bytes: int = 0
    failed: dict[str, int] = {}
    verdicts: dict[str, int] = {}
    """Of the cache, as `Cache-Status` tells them."""
    times: dict[int, int] = {}
    """A histogram, from when each was due to when it was done."""


class Gauges(msgspec.Struct, tag="gauges", tag_field="kind"):
    """What was so at the end of a second: requests upstream, memory, our own share of a core."""

    second: int
    values: dict[str, float]


class Ended(msgspec.Struct, tag="ended", tag_field="kind"):
    seconds: float
    generator_cores: float
    late_ms: float
    """How late requests left us, of which 99 % were no later."""
    lag_ms: float = 0.0
    """How long our own loop kept what arrived waiting, 99 % of the time no longer."""
    notes: list[str] = []


Record = Started | Second | Gauges | Ended

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    return _encoder.encode(record) + b"\n"


def decode(lines: Iterable[bytes]) -> Iterator[Record]:
    """A torn last line is left out: its run was killed."""
    for line in lines:
        if line.endswith(b"\n"):
            yield _decoder.decode(line)


class Run:
    """A run as it was kept."""

    def __init__(self, records: Iterable[Record]) -> None:
        first, *rest = records
        if not isinstance(first, Started):
            raise ValueError("this is no run of a scenario: it does not say which")
        self.started = first
        self.seconds = [record for record in rest if isinstance(record, Second)]
        self.gauges = [record for record in rest if isinstance(record, Gauges)]
        self.ended = next((record for record in rest if isinstance(record, Ended)), None)

    @property
    def length(self) -> int:
        numbers = [one.second for one in self.seconds] + [one.second for one in self.gauges]
        return 1 + max(numbers, default=0)

    @property
    def kinds(self) -> list[str]:
        """Of what was done, in order of appearance."""
        return list(dict.fromkeys(record.what for record in self.seconds))

    def of(self, what: str) -> list[Second]:
        return [record for record in self.seconds if record.what == what]

    def times(self, what: str) -> Histogram:
        return total(record.times for record in self.of(what))

    def done(self, what: str) -> int:
        return sum(record.done for record in self.of(what))

    def failures(self) -> dict[str, int]:
        failed: dict[str, int] = {}
        for record in self.seconds:
            for reason, count in record.failed.items():
                name = f"{record.what}: {reason}"
                failed[name] = failed.get(name, 0) + count
        return failed

    def gauge(self, name: str) -> list[tuple[int, float]]:
        return [(one.second, one.values[name]) for one in self.gauges if name in one.values]


def read_run(path: Path) -> Run:
    with path.open("rb") as file:
        return Run(decode(file))
