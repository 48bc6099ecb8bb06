"""What is read next, decided from names, sizes and times alone."""

from protocol.accesslog import HOUR_MS, file_name
from spark.logfiles import (
    PACKING_MS,
    SETTLED_MS,
    Found,
    Progress,
    Span,
    advance,
    spans,
)

HOUR = 490_000 * HOUR_MS
NOW = HOUR + HOUR_MS // 2
NAME = file_name("edge", 0, HOUR)
LINE = 10  # every line has so many bytes


def last_line_end(name: str, start: int, end: int) -> int:
    return max(start, end // LINE * LINE)


def next_line_end(name: str, start: int, end: int) -> int:
    return min(end, -(-start // LINE) * LINE)


def step(progress: Progress, *found: Found, most: int | None = None, now_ms: int = NOW) -> Progress:
    return advance(progress, found, most, now_ms, last_line_end, next_line_end)


def file(size: int, name: str = NAME, changed_ms: int = NOW, unpacked: int = 0) -> Found:
    return Found(name, size, changed_ms, unpacked)


def test_a_growing_file_is_read_to_its_last_whole_line() -> None:
    first = step({}, file(25))
    assert first == {NAME: 20}
    second = step(first, file(48))
    assert spans(first, second, 1000) == [Span(NAME, 20, 40)]


def test_a_rest_without_newline_waits_until_nobody_can_finish_it() -> None:
    over = HOUR + HOUR_MS + SETTLED_MS
    assert step({}, file(25, changed_ms=HOUR), now_ms=over - 1) == {NAME: 20}
    assert step({}, file(25, changed_ms=HOUR), now_ms=over) == {NAME: 25}
    assert step({}, file(25, changed_ms=over), now_ms=over) == {NAME: 20}


def test_a_batch_takes_the_oldest_hours_first_and_ends_with_a_line() -> None:
    later = file_name("edge", 0, HOUR + HOUR_MS)
    files = (file(100, later), file(100))
    first = step({}, *files, most=35)
    assert first == {NAME: 30}
    second = step(first, *files, most=95)
    assert second == {NAME: 100, later: 20}


def test_a_line_longer_than_a_batch_is_read_whole() -> None:
    assert step({}, file(100), most=3) == {NAME: 10}


def test_large_files_are_read_in_pieces() -> None:
    end = step({}, file(100))
    assert spans({}, end, 40) == [
        Span(NAME, 0, 40),
        Span(NAME, 40, 80),
        Span(NAME, 80, 100),
    ]


def test_a_file_that_shrank_is_read_from_its_beginning() -> None:
    first = step({}, file(100))
    second = step(first, file(50))
    assert spans(first, second, 1000) == [Span(NAME, 0, 50)]


def test_a_file_that_went_and_came_back_is_read_again() -> None:
    first = step({}, file(100))
    gone = step(first)
    assert gone == {}
    assert spans(gone, step(gone, file(100)), 1000) == [Span(NAME, 0, 100)]


def test_a_file_that_was_compressed_after_it_was_read_is_not_read_again() -> None:
    first = step({}, file(100))
    packed = file(40, NAME + ".gz", unpacked=100)
    second = step(first, packed)
    assert spans(first, second, 1000) == []
    assert spans(second, step(second, packed), 1000) == []


def test_a_copy_beside_a_file_that_went_before_it_was_read_is_read() -> None:
    packed = file(40, NAME + ".gz", unpacked=100)
    first = step({}, file(100), packed, most=50)
    assert first == {NAME: 50}
    assert spans(first, step(first, packed), 1000) == [Span(NAME + ".gz", 0, 40)]


def test_a_file_that_grew_before_it_was_compressed_is_read_again() -> None:
    first = step({}, file(100))
    second = step(first, file(40, NAME + ".gz", unpacked=130))
    assert spans(first, second, 1000) == [Span(NAME + ".gz", 0, 40)]


def test_a_file_that_is_being_compressed_is_left_alone() -> None:
    plain, packing = file(100), file(40, NAME + ".gz", unpacked=12345)
    assert NAME + ".gz" not in step({}, plain, packing)
    later = step({}, plain, packing, now_ms=NOW + PACKING_MS)
    assert later == {NAME: 100, NAME + ".gz": 40}


def test_a_foreign_file_is_told_once() -> None:
    first = step({}, file(100, "notes.txt"))
    assert spans({}, first, 1000) == [Span("notes.txt", 0, 0)]
    assert spans(first, step(first, file(200, "notes.txt")), 1000) == []
