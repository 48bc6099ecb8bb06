"""Pictures of lanes: everything in its place, nothing over anything else, nothing cut off."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pages import lanes
from pages.lanes import (
    Arrow,
    Box,
    Case,
    Does,
    Either,
    Kind,
    Lane,
    Layout,
    Life,
    Picture,
    Says,
    Words,
)
from tests.helpers.chromium import Chromium
from weir.pictures import FOLDER, PICTURES

LONG = "many words that do not fit between two lanes and have to be broken somewhere"
CROWDED = Picture(
    "A crowded one",
    "Everything that a picture can hold, <and> signs that have to be escaped.",
    (Lane("One", crowd=True), Lane("Two", "& more"), Lane("Three")),
    (
        Says("One", "Two", LONG, many=True),
        *(Does(name, LONG, Kind.SHARED) for name in ("One", "Two", "Three")),
        Says("Three", "One", "back", Kind.SPARED),
        Either((Case("so", "if this", (Does("Two", LONG),)), Case("or so", "else", ()))),
        Does("Three", "the end", Kind.ASIDE),
    ),
    (lanes.Band("Two", "Three", "a pair"),),
    {Kind.SPARED: "this colour", Kind.SHARED: "that colour"},
)
ALL = {"crowded": CROWDED, **PICTURES}
every_picture = pytest.mark.parametrize("picture", ALL.values(), ids=ALL)
HEIGHT = 13.0  # of a line of words, a little generous
REST = 3.0  # of it, below the baseline


def words_of(layout: Layout) -> list[Words]:
    return [shape for shape in layout.shapes if isinstance(shape, Words)]


def bottom_of(layout: Layout) -> float:
    """Where lanes end; the legend is below."""
    return max(shape.bottom for shape in layout.shapes if isinstance(shape, Life))


def notes_of(layout: Layout) -> Iterator[Box]:
    yield from (s for s in layout.shapes if isinstance(s, Box) and s.style.startswith("note"))


def is_within(words: Words, box: Box) -> bool:
    across = box.x <= words.left and words.right <= box.x + box.width
    return across and box.y <= words.y - HEIGHT + REST and words.y + REST <= box.y + box.height


def overlap(one: Words, other: Words) -> bool:
    across = one.left < other.right and other.left < one.right
    return across and abs(one.y - other.y) < HEIGHT


@every_picture
def test_no_words_leave_the_picture(picture: Picture) -> None:
    layout = lanes.lay_out(picture)
    whole = Box(8, 8, lanes.WIDTH - 16, layout.height - 16, "")
    assert all(is_within(words, whole) for words in words_of(layout))


@every_picture
def test_no_words_are_over_others(picture: Picture) -> None:
    pairs = combinations(words_of(lanes.lay_out(picture)), 2)
    assert [(one.text, other.text) for one, other in pairs if overlap(one, other)] == []


@every_picture
def test_arrows_go_from_lane_to_lane(picture: Picture) -> None:
    layout = lanes.lay_out(picture)
    lines = {shape.x for shape in layout.shapes if isinstance(shape, Life)}
    arrows = [s for s in layout.shapes if isinstance(s, Arrow) and s.y < bottom_of(layout)]
    assert len(arrows) > 2
    for arrow in arrows:
        assert {arrow.source, arrow.target} <= lines
        assert abs(arrow.source - arrow.target) > lanes.HEAD_WIDTH


@every_picture
def test_a_note_stands_on_its_own_lane_and_on_no_other(picture: Picture) -> None:
    layout = lanes.lay_out(picture)
    for note in notes_of(layout):
        covered = [x for x in layout.lanes.values() if note.x <= x <= note.x + note.width]
        assert len(covered) == 1


@every_picture
def test_the_words_of_a_note_are_in_it(picture: Picture) -> None:
    layout = lanes.lay_out(picture)
    done = [words for words in words_of(layout) if words.style.startswith("done")]
    assert all(any(is_within(words, note) for note in notes_of(layout)) for words in done)


@every_picture
def test_time_goes_down(picture: Picture) -> None:
    heights = [shape.y for shape in lanes.lay_out(picture).shapes if isinstance(shape, Arrow)]
    assert heights == sorted(heights)


def test_an_arrow_to_a_crowd_ends_at_its_outer_line() -> None:
    layout = lanes.lay_out(CROWDED)
    back = next(s for s in layout.shapes if isinstance(s, Arrow) and s.kind is Kind.SPARED)
    assert (back.source, back.target) == (
        layout.lanes["Three"],
        layout.lanes["One"] + lanes.MANY_APART,
    )


@pytest.mark.parametrize("width", [1, 60, 120, 300, 2000])
def test_lines_are_broken_between_words_and_no_longer_than_they_may_be(width: int) -> None:
    lines = lanes.wrap(LONG, width)
    assert " ".join(lines) == LONG
    assert all(lanes.width_of(line) <= width or " " not in line for line in lines)


def test_lines_are_of_about_the_same_length() -> None:
    first, second = lanes.wrap("one two three four five six seven", 190)
    assert abs(lanes.width_of(first) - lanes.width_of(second)) < 60


@every_picture
def test_a_picture_is_whole_and_asks_nobody_for_anything(picture: Picture) -> None:
    text = lanes.draw(picture)
    root = ElementTree.fromstring(text)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {"svg", "title", "desc", "style", "text", "rect", "line", "path", "g"}
    assert "prefers-color-scheme: dark" in text
    assert "url(" not in text and "@import" not in text and "href" not in text
    assert [element.text for element in root[:2]] == [picture.title, picture.about]


def test_browsers_give_words_the_room_that_was_planned_for_them() -> None:
    """Within a pixel, whatever fonts a machine has."""
    with Chromium() as browser:
        page = browser.open((FOLDER / "flow-catchup.svg").as_uri())
        seen: list[tuple[str, float]] = page.evaluate(
            "[...document.querySelectorAll('text')].map((e) => [e.textContent, e.getBBox().width])"
        )
    planned = words_of(lanes.lay_out(PICTURES["flow-catchup.svg"]))
    assert [text for text, _ in seen] == [words.text for words in planned]
    for words, (text, width) in zip(planned, seen, strict=True):
        assert abs(width - words.width) <= 1, text


def test_the_pictures_of_the_documents_are_drawn_from_this_code() -> None:
    drawn = {name: lanes.draw(picture) for name, picture in PICTURES.items()}
    assert drawn == {path.name: path.read_text() for path in Path(FOLDER).glob("flow-*.svg")}
