"""`make inspect` as a person sees it: a real mitmweb in a real browser."""

from collections.abc import Iterator

import pytest

from loadtest.errors import UnavailableError
from loadtest.faults.proxy import find_program
from loadtest.inspector.start import Inspector, inspecting, words
from tests.helpers.chromium import Chromium, Page
from tests.helpers.gateway import TokenClient, bearer
from tests.helpers.rawhttp import EventStream, wait_until
from tests.helpers.require import need

PATIENCE_SECS = 30.0
ROWS = """[...document.querySelectorAll("td.col-comment .weir")].map(
    (row) => [...row.children].map((cell) => cell.textContent))"""


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspector]:
    try:
        find_program("mitmweb")
    except UnavailableError as error:
        need(False, str(error))
    with inspecting(tmp_path_factory.mktemp("inspector")) as inspector:
        yield inspector


def click(page: Page, selector: str, text: str) -> None:
    """The first of these elements that shows the text, once it is there."""
    found = (
        f"[...document.querySelectorAll({selector!r})].find(e => e.innerText.includes({text!r}))"
    )
    wait_until(lambda: page.evaluate(f"!!{found}"), PATIENCE_SECS, text)
    page.evaluate(f"{found}.click()")


def test_the_page_has_the_columns_and_readable_events(inspector: Inspector) -> None:
    port = int(inspector.url.rpartition(":")[2])
    events_of = bearer(inspector.token)
    with TokenClient(port, inspector.token) as client, Chromium() as browser:
        client.create("demo", "application/json")
        client.append("demo", b'{"hello":1}', "application/json")
        client.read("demo")
        page = browser.open(inspector.page, width=1400)
        wait_until(lambda: len(page.evaluate(ROWS)) >= 6, PATIENCE_SECS)
        rows = page.evaluate(ROWS)
        assert ["client", "append", "→ 12", "", "write"] in rows
        assert ["origin", "append", "→ 12", "", ""] in rows
        assert ["client", "catch-up", "-1 → 12 tail", "", "miss stored"] in rows
        heads = page.evaluate("document.querySelector('th.col-comment').innerText").split()
        assert heads == ["Side", "Mode", "Offset", "Cursor", "Cache"]
        # An event stream is readable while it goes on.
        with EventStream(port, "demo", headers=events_of) as events:
            events.next_write()
            click(page, "tr", "live=sse")
            click(page, "nav a", "Response")
            shown = "document.querySelector('.contentview')?.innerText ?? ''"
            wait_until(lambda: '"hello": 1' in page.evaluate(shown), PATIENCE_SECS)
            assert "── control" in page.evaluate(shown)
        assert page.complaints == []


def test_the_words_are_commands_that_can_be_pasted(inspector: Inspector) -> None:
    lines = words(inspector).splitlines()
    assert lines[0] == f"Look at it: {inspector.page}"
    assert sum(line.startswith("curl ") for line in lines) == 3
