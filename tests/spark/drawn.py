"""What a browser has really drawn of a report."""

from tests.helpers.chromium import Page


def drawn_charts(page: Page) -> dict[str, bool]:
    """Titles of charts, and whether there are marks in them, none of them outside. A single value
    is a stroke of no length."""
    found: dict[str, bool] = page.evaluate(
        """Object.fromEntries([...document.querySelectorAll(".plot .marks")].map((marks) => {
             const room = marks.getBoundingClientRect();
             const boxes = [...marks.querySelectorAll("rect:not(.cursor), path, .point > *")]
               .map((mark) => [mark.getBoundingClientRect(), mark.matches(".dot")])
               .filter(([box, isDot]) => isDot || (box.height > 0 && box.width > 0))
               .map(([box]) => box);
             const isInside = (box) => box.top > room.top - 8 && box.bottom < room.bottom + 8;
             const title = marks.closest("figure").querySelector("h3").textContent;
             return [title, boxes.length > 0 && boxes.every(isInside)];
           }))"""
    )
    return found
