"""A broken promise, and what the checks have in common to find one. Pure."""

from dataclasses import dataclass

from loadtest.verify.history import ReadResult
from loadtest.verify.messages import generation_of
from loadtest.verify.timeline import Life, Timeline

START, NOW = "-1", "now"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: its name, where and when, and what was seen."""

    name: str
    stream: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.stream} at {self.at:.3f} s: {self.text}"


def audited_lives(line: Timeline) -> list[Life]:
    """A run that was cut short leaves others: they are `Findings.missing`."""
    return [life for life in line.lives.values() if life.is_audited]


def seen_by(name: str, read: ReadResult, text: str) -> Violation:
    return Violation(
        name, read.stream, read.ended, f"{read.who} by {read.door}, {read.mode}: {text}"
    )


def life_of(line: Timeline, read: ReadResult) -> Life | None:
    """The incarnation that an answer is of; None where it cannot be told, or was never audited."""
    if read.ids:
        own = [id_ for id_ in read.ids if "/" not in id_]
        life = line.lives.get((read.stream, generation_of(own[0]))) if own else None
    elif read.snapshot_of >= 0:
        life = line.lives.get((read.stream, read.snapshot_of))
    else:
        life = line.certain_life(read.stream, read.began, read.ended)
    return life if life is not None and life.is_audited else None
