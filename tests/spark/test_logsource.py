"""Which files of a folder are read, and what is said about the others."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.accesslog import HOUR_MS, file_name
from spark.logsource import Folder
from tests.spark.logs import OLD_S, START_MS

GROWING, SETTLED, PACKED = (file_name("edge", worker, START_MS) for worker in range(3))
NAMES = {GROWING: 4, SETTLED: 4, f"{PACKED}.gz": 24, "deep/" + GROWING: 4}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    for name in NAMES:
        text = b"one\n"
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    os.utime(tmp_path / SETTLED, (OLD_S, OLD_S))
    (tmp_path / "notes.txt").write_text("none of ours")
    return tmp_path


def test_what_cannot_be_read_is_named_and_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Folder({"path": str(folder)})
    really_scan = os.scandir

    def scan(path: Any) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", str(path))
        return really_scan(path)

    with monkeypatch.context() as patch:  # tests may run as root, who may read everything
        patch.setattr(os, "access", lambda path, mode: False)
        patch.setattr(os, "scandir", scan)
        first = source.advance({}, None)
        assert first == {"notes.txt": 0}
        assert source.unreadable() == sorted([GROWING, SETTLED, f"{PACKED}.gz", "deep"])
    assert source.advance(first, None) == first | NAMES
    assert source.unreadable() == []


def test_a_link_to_nowhere_is_no_file(folder: Path) -> None:
    (folder / file_name("edge", 0, START_MS + HOUR_MS)).symlink_to("none")
    source = Folder({"path": str(folder)})
    assert source.advance({}, None) == NAMES | {"notes.txt": 0}
    assert source.unreadable() == []
