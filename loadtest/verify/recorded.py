"""A history in the folder of its run."""

from pathlib import Path

from loadtest.verify.history import Record, parse_lines

FILE = "history.jsonl"


def read_history(folder: Path) -> list[Record]:
    with (folder / FILE).open("rb") as file:
        return list(parse_lines(file))
