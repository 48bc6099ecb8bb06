"""Damage to files."""

import os
from pathlib import Path


def flip(path: Path, position: int, mask: int = 0xFF) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def cut(path: Path, size_bytes: int) -> None:
    os.truncate(path, size_bytes)
