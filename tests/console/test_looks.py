"""For everyone: by keyboard, on a phone, in light and dark, with a screen reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import FOLDER, node  # noqa: F401
from tests.conformance.runner import Node
from tests.console.driver import JSON, Driver
from tests.helpers.chromium import SHIFT

AXE = Path("node_modules/axe-core/axe.min.js")
CHANGE = {"type": "user", "key": "1", "value": {"name": "Ada"}, "headers": {"operation": "insert"}}


def see_home(driver: Driver) -> None:
    driver.sees("main .home")


def see_stream(driver: Driver) -> None:
    driver.watch("looks")
    driver.counts(50)
    driver.sees(".row")
    driver.page.evaluate("document.querySelector('.composer details').open = true")


def see_state(driver: Driver) -> None:
    driver.go("looks-state")
    driver.says("Ada", ".state tbody")


def see_dialog(driver: Driver) -> None:
    driver.page.evaluate("document.querySelector('[aria-label=\"New stream\"]').click()")
    driver.sees("dialog[open]")


def see_token(driver: Driver) -> None:
    driver.page.click("#token-button")
    driver.sees("dialog[open]")


def see_bucket(driver: Driver) -> None:
    driver.go("/ds/looks", kind="bucket")
    driver.says("1 stream", ".bucket-page")


def see_gateway(driver: Driver) -> None:
    driver.page.evaluate("location.hash = '#/gateway'")
    driver.page.wait_for("document.querySelector('.plot path.line[d]')")


def see_requests(driver: Driver) -> None:
    see_stream(driver)
    assert driver.curls()


VIEWS: dict[str, Callable[[Driver], None]] = {
    "home": see_home,
    "stream": see_stream,
    "state": see_state,
    "dialog": see_dialog,
    "token": see_token,
    "bucket": see_bucket,
    "gateway": see_gateway,
    "requests": see_requests,
}
# What surrounds these is on every page.
PARTS = {"state": "'main'", "bucket": "'main'", "gateway": "'main'", "requests": "'#requests'"}


@pytest.fixture(scope="module")
def streams(shared: Driver) -> None:
    """What the views show."""
    body = json.dumps([{"n": n, "text": "a long text " * 20} for n in range(50)]).encode()
    shared.api.create("looks", JSON, body)
    shared.api.create("looks-state", JSON, json.dumps([CHANGE]).encode())
    with shared.gateway.connect() as connection:
        headers = {"Authorization": f"Bearer {shared.token()}", "Content-Type": JSON}
        for path in ("/ds/looks", "/ds/looks/first"):
            assert connection.request("PUT", path, headers).status == 201
    shared.hang_up()


@pytest.fixture(scope="module")
def axe(node: Node) -> str:  # noqa: F811
    return (FOLDER / AXE).read_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_fault(driver: Driver, streams: None, axe: str, dark: bool) -> None:
    driver.open(dark=dark)
    driver.mint()
    driver.page.evaluate(axe)
    # Only the colours differ in the dark.
    options = {"resultTypes": ["violations"]} | ({"runOnly": ["color-contrast"]} if dark else {})
    found: dict[str, Any] = {}
    for name, see in VIEWS.items():
        see(driver)
        faults = driver.page.evaluate(
            f"""axe.run({PARTS.get(name, "document")}, {json.dumps(options)})
                .then(({{ violations }}) => violations.map(({{ id, nodes }}) => [id, nodes.map(
                    ({{ html, failureSummary: why }}) => [html.slice(0, 200), why])]))"""
        )
        if faults:
            found[name] = faults
        driver.reset()
    assert found == {}, json.dumps(found, indent=1)


def test_nothing_is_wider_than_a_phone(driver: Driver, streams: None) -> None:
    driver.open(width=360, height=740)
    driver.mint()
    wide: dict[str, Any] = {}
    for name, see in VIEWS.items():
        see(driver)
        widths = driver.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if widths != [360, 360]:
            wide[name] = widths
        driver.reset()
    assert wide == {}


def test_everything_can_be_done_by_keyboard(driver: Driver) -> None:
    driver.open()
    tab_to(driver, "Mint a development token")
    driver.page.press("Enter")
    driver.sees("#token-button[data-kind=good]")
    tab_to(driver, "New stream")
    driver.page.press("Enter")
    driver.sees("dialog[open]")
    driver.page.type("by-keys")  # its first field has the focus
    driver.page.press("Enter")
    driver.is_now("live")
    tab_to(driver, "Append (application/json)")
    driver.page.type('["a", "b", "c"]')
    driver.page.press("Tab")
    driver.page.press("Enter")
    driver.counts(3)
    tab_to(driver, "Messages", back=True)
    for _ in range(2):
        driver.page.press("ArrowUp")
    driver.says("Message 1", ".detail")
    tab_to(driver, "Delete")
    driver.page.press("Enter")
    driver.sees("dialog[open]")
    driver.page.press("Escape")
    driver.page.wait_for("!document.querySelector('dialog')")
    assert focused(driver) == "Delete"


def focused(driver: Driver) -> str:
    """What a screen reader would call it."""
    name: str = driver.page.evaluate(
        """(() => {
            const { activeElement: here } = document;
            return here.getAttribute('aria-label') ?? here.labels?.[0]?.innerText
                ?? here.innerText;
        })()"""
    )
    return name


def tab_to(driver: Driver, name: str, *, back: bool = False) -> None:
    seen = []
    for _ in range(60):
        driver.page.press("Tab", SHIFT if back else 0)
        seen.append(focused(driver))
        if seen[-1] == name:
            return
    raise AssertionError(f"{name} cannot be reached by Tab: {seen}")
