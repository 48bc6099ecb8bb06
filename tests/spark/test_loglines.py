"""Lines of pieces of files, whatever is in them."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.http import SourceError
from spark.loglines import MAX_LINE_BYTES, foreign_file, read_lines

NAME = "access-edge-0-20260601T22.jsonl"


def rows(folder: Path, *cuts: int, name: str = NAME, block: int = 64) -> list[dict[str, Any]]:
    return [
        row
        for start, end in zip(cuts, cuts[1:], strict=False)
        for batch in read_lines(folder, name, start, end, block)
        for row in batch.to_pylist()
    ]


def lines(found: list[dict[str, Any]]) -> list[str]:
    return [row["line"] for row in found]


@given(
    st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), min_size=1),
    st.lists(st.integers(0, 500)),
    st.integers(1, 100),
)
def test_wherever_pieces_begin_every_line_is_read_once_with_its_position(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cuts: list[int], block: int
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    data = "".join(text + "\n" for text in texts).encode()
    (folder / NAME).write_bytes(data)
    inner = sorted(cut for cut in set(cuts) if 0 < cut < len(data))
    found = rows(folder, 0, *inner, len(data), block=block)
    assert lines(found) == texts
    for row in found:
        assert data[row["position"] :].startswith(row["line"].encode() + b"\n")
    assert not any(row["problem"] for row in found)


def test_bytes_that_are_not_utf_8_spoil_their_own_line_only(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"one\n\xff\xfe\ntwo\n")
    found = rows(tmp_path, 0, 11)
    assert [row["problem"] for row in found] == [None, "not-utf-8", None]
    assert lines(found) == ["one", "\ufffd\ufffd", "two"]


def test_a_line_that_is_too_long_is_told_and_passed_over(tmp_path: Path) -> None:
    data = b"one\n" + b"x" * (MAX_LINE_BYTES * 3) + b"\ntwo\n"
    (tmp_path / NAME).write_bytes(data)
    for cuts in ((0, len(data)), (0, 2_000_000, len(data))):
        found = rows(tmp_path, *cuts, block=256 * 1024)
        assert [row["problem"] for row in found] == [None, "too-long", None]
        assert [row["position"] for row in found] == [0, 4, len(data) - 4]


def test_a_line_without_its_newline_is_truncated(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"one\ntw")
    assert [row["problem"] for row in rows(tmp_path, 0, 6)] == [None, "truncated"]


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    assert [(row["position"], row["problem"]) for row in rows(tmp_path, 7, 100)] == [(7, "gone")]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="none does not exist on .*: all executors must be able"):
        rows(tmp_path / "none", 0, 100)


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to(NAME)
    with pytest.raises(SourceError, match=f"{NAME} on .*: Too many levels"):
        rows(tmp_path, 0, 100)


def test_a_file_that_is_compressed_while_it_is_opened_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).write_bytes(b"one\ntwo\n")
    (tmp_path / f"{NAME}.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    really_open = Path.open

    def remove_first(self: Path, mode: str) -> Any:
        self.unlink()
        return really_open(self, mode)

    monkeypatch.setattr(Path, "open", remove_first)
    assert lines(rows(tmp_path, 0, 8)) == ["one", "two"]


def test_a_file_that_was_compressed_meanwhile_gives_the_same_piece(tmp_path: Path) -> None:
    data = b"".join(b"line %d\n" % number for number in range(100))
    (tmp_path / NAME).write_bytes(data)
    plain = rows(tmp_path, 100, 400)
    (tmp_path / f"{NAME}.gz").write_bytes(gzip.compress(data))
    (tmp_path / NAME).unlink()
    assert rows(tmp_path, 100, 400) == plain != []


def test_a_damaged_archive_gives_the_lines_before_the_damage(tmp_path: Path) -> None:
    data = b"".join(b"line %d %x\n" % (number, hash(str(number))) for number in range(20_000))
    packed = gzip.compress(data)
    (tmp_path / f"{NAME}.gz").write_bytes(packed[: len(packed) // 2])
    found = rows(tmp_path, 0, 0, name=f"{NAME}.gz", block=4096)
    assert found[-1]["problem"] == "damaged-gzip"
    assert len(found) > 5000
    assert lines(found[:-1]) == data.decode().splitlines()[: len(found) - 1]


def test_a_foreign_file_is_one_row() -> None:
    assert foreign_file("notes.txt").to_pylist() == [
        {"file": "notes.txt", "position": 0, "line": "", "problem": "foreign-file"}
    ]
