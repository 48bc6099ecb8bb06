"""What a run says while it runs."""

import io

from spark.progress import CLEAR_LINE, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tell(out: io.StringIO) -> str:
    times = iter((0.0, 1.0, 2.5))
    progress = Progress(out, lambda: next(times, 9.0))
    progress.doing("reading")
    progress.done("read")
    return out.getvalue()


def test_a_file_gets_a_line_for_each_step_that_is_done() -> None:
    assert tell(io.StringIO()) == "    1.0 s  read\n"


def test_a_note_is_told_once() -> None:
    out = io.StringIO()
    progress = Progress(out, lambda: 0.0)
    for what in ("one", "one", "two", "one"):
        progress.note(what)
    assert out.getvalue() == "    0.0 s  note: one\n    0.0 s  note: two\n"


def test_a_terminal_shows_the_step_it_is_at_until_it_is_done() -> None:
    expected = f"{CLEAR_LINE}    1.0 s  reading …{CLEAR_LINE}    2.5 s  read\n"
    assert tell(Terminal()) == expected
