"""The access log of a gateway that is still writing it."""

from pathlib import Path

from protocol.accesslog import AccessRecord, decode_line


def read_records(folder: Path) -> list[AccessRecord]:
    return [decode_line(line) for line in whole_lines(folder)]


def whole_lines(folder: Path) -> list[bytes]:
    """Of all its files; what follows the last line end of one is half a line."""
    texts = (path.read_bytes() for path in sorted(folder.glob("*.jsonl")))
    return [line for text in texts for line in text.split(b"\n")[:-1]]
