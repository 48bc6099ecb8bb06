"""`weir` as a process that kills itself and Java at a certain step of a report.

    python -m tests.spark.dying "state: linked" 1 0 report --logs ...

The number says which time of that step it is; a phase that has fewer ends at its last. The seconds
are those that go by until the process is dead.
"""

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The phases of a run by the function of `spark.run` that does them.
PHASES = {
    "apply_batch": "batch",
    "refresh": "tables",
    "update_state": "state",
    "make_report": "report",
}
CHANGES = ("writing", "wrote", "staged", "named", "linked")
STEPS = (
    *(f"{phase}: {step}" for phase in ("batch", "tables", "state") for step in CHANGES),
    *("report: written", "report: named"),
)


class Teller:
    """Says which step is done, by standing around what makes files."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._phase = ""

    def listen(self) -> None:
        from pyspark.sql import DataFrameWriter

        import spark.run

        for function, phase in PHASES.items():
            setattr(spark.run, function, self._in_phase(phase, getattr(spark.run, function)))
        DataFrameWriter.parquet = self._around(  # type: ignore[method-assign]
            DataFrameWriter.parquet, lambda *_: ("writing", "wrote")
        )
        Path.rename = self._around(Path.rename, _steps_of_rename)  # type: ignore[method-assign]

    def _say(self, step: str) -> None:
        if self._phase and step:
            self._tell(f"{self._phase}: {step}")

    def _in_phase(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def told(*arguments: Any, **named: Any) -> Any:
            self._phase = phase
            try:
                return function(*arguments, **named)
            finally:
                self._say("end")
                self._phase = ""

        return told

    def _around(
        self, function: Callable[..., Any], steps: Callable[..., tuple[str, str]]
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def told(*arguments: Any, **named: Any) -> Any:
            before, after = steps(*arguments)
            self._say(before)
            result = function(*arguments, **named)
            self._say(after)
            return result

        return told


def _steps_of_rename(source: Path, target: Path) -> tuple[str, str]:
    if target.name == "report.html":
        return "written", "named"
    if target.parent.name == "generations":
        return "staged", "named"
    return "", "linked" if target.name == "tables" else ""


class Death:
    def __init__(self, step: str, number: int, seconds: float) -> None:
        self._step = step
        self._phase = step.partition(":")[0]
        self._left = number
        self._seconds = seconds

    def hear(self, step: str) -> None:
        self._left -= step == self._step
        if self._left == 0 or step == f"{self._phase}: end":
            self._left = -1
            if self._seconds:
                threading.Timer(self._seconds, kill).start()
            else:
                kill()


def kill() -> None:
    """All of the process group at once, as when a machine goes down."""
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    from weir.cli import main as weir

    step, number, seconds = sys.argv[1:4]
    Teller(Death(step, int(number), float(seconds)).hear).listen()
    weir(sys.argv[4:])


if __name__ == "__main__":
    main()
