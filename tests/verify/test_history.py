"""The history as a file, and the verdict in words."""

import io
from pathlib import Path

from loadtest.verify.availability import measure
from loadtest.verify.check import check_history
from loadtest.verify.history import MODES, Recorder, Run, parse_lines
from loadtest.verify.run import FILE, read_history
from loadtest.verify.timeline import sort_history
from loadtest.verify.verdict import describe
from tests.helpers.server import run_weir
from tests.verify.honest import Honest


def a_history(*, lost: bool = False) -> Honest:
    stream = Honest()
    stream.records.append(Run(7, 60, "2026-01-01T00:00:00+00:00", ["origin"]))
    stream.create()
    stream.append()
    stream.append()
    for mode in MODES:
        stream.read(mode=mode)
    if lost:
        stream.ids.pop()
    stream.look_last()
    return stream


def write(folder: Path, history: Honest) -> bytes:
    with (folder / FILE).open("wb") as file:
        recorder = Recorder(file)
        for record in history.records:
            recorder.add(record)
    return (folder / FILE).read_bytes()


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = a_history()
    write(tmp_path, history)
    assert read_history(tmp_path / FILE) == history.records


def test_half_a_line_at_the_end_is_left_out(tmp_path: Path) -> None:
    history = a_history()
    lines = io.BytesIO(write(tmp_path, history)[:-5])
    assert list(parse_lines(lines)) == history.records[:-1]


def words(history: Honest) -> str:
    line = sort_history(history.records)
    return describe(line, check_history(line), measure(line))


def test_the_verdict_says_what_was_done_and_that_all_is_well() -> None:
    said = words(a_history())
    assert "seed 7" in said
    assert "2 of 2 messages acknowledged" in said
    assert said.endswith("INTACT: no promise was broken.")


def test_the_verdict_says_what_the_proxies_did() -> None:
    stream = a_history()
    stream.inject("faults", "delay", "delay", "reset")
    assert "  at faults: delay 2, reset 1\n" in words(stream)


def test_the_verdict_names_what_is_broken() -> None:
    said = words(a_history(lost=True))
    assert "BROKEN" in said
    assert "lost-acknowledgement: verify/a/json" in said


def test_a_history_can_be_looked_at_again(tmp_path: Path) -> None:
    write(tmp_path, a_history())
    assert run_weir("verify", "--check", str(tmp_path)).returncode == 0
    write(tmp_path, a_history(lost=True))
    again = run_weir("verify", "--check", str(tmp_path))
    assert again.returncode == 1
    assert "lost-acknowledgement" in again.stdout


def test_a_verdict_about_nothing_is_none(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    said = run_weir("verify", "--check", str(tmp_path))
    assert said.returncode == 3
    assert "INCOMPLETE" in said.stdout and "INTACT" not in said.stdout


def test_a_history_that_was_cut_short_is_told_beside_what_is_broken() -> None:
    history = a_history(lost=True)
    history.records.pop()
    said = words(history)
    assert "BROKEN" in said and "INCOMPLETE" in said


def test_a_folder_without_a_history_is_a_mistake(tmp_path: Path) -> None:
    said = run_weir("verify", "--check", str(tmp_path))
    assert said.returncode == 2
    assert "history.jsonl" in said.stderr
