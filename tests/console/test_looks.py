"""For everyone: by keyboard, on a phone, in light and dark, with a screen reader."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import FOLDER, node  # noqa: F401
from tests.conformance.runner import Node
from tests.console.driver import JSON, Driver
from tests.console.picture import draw
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


def see_snapshot(driver: Driver) -> None:
    driver.go("looks-snapped")
    driver.page.click("#tab-snapshot")
    driver.says('"S"', "#pane-snapshot pre")


def see_bootstrap(driver: Driver) -> None:
    see_snapshot(driver)
    driver.page.click("#pane-snapshot .tools button:last-child")
    driver.says("Update 1", "#pane-snapshot")
    driver.page.evaluate("document.querySelector('#pane-snapshot details').open = true")


def see_details(driver: Driver) -> None:
    driver.watch("looks")
    driver.page.click("#tab-details")
    driver.says("application/json", "#pane-details .facts")


def see_close(driver: Driver) -> None:
    driver.watch("looks")
    driver.act("close")


def see_fork(driver: Driver) -> None:
    driver.watch("looks")
    driver.act("fork")


def see_delete(driver: Driver) -> None:
    driver.watch("looks")
    driver.act("delete")
    driver.page.click("dialog [type=submit]")
    driver.says("The name does not match", "dialog")


def see_missing(driver: Driver) -> None:
    driver.go("looks-like-nothing")
    driver.says("Stream “looks-like-nothing” not found", "main")


def see_little(driver: Driver) -> None:
    """With a token for one stream, and only to read it."""
    driver.use(driver.token("read:looks"))
    driver.watch("looks")
    driver.says("It needs the scope write:looks", ".composer")


def see_refusal(driver: Driver) -> None:
    driver.go("secret")
    driver.says("needs the scope read:secret", "main")


def see_expired(driver: Driver) -> None:
    driver.use(driver.token(ttl=60, now=time.time() - 3600))
    driver.says("Your token expired at", "#banner")
    driver.go("looks")
    driver.says("Your token expired at", "main")


VIEWS: dict[str, Callable[[Driver], None]] = {
    "home": see_home,
    "stream": see_stream,
    "state": see_state,
    "dialog": see_dialog,
    "token": see_token,
    "bucket": see_bucket,
    "gateway": see_gateway,
    "requests": see_requests,
    "snapshot": see_snapshot,
    "bootstrap": see_bootstrap,
    "details": see_details,
    "close": see_close,
    "fork": see_fork,
    "delete": see_delete,
    "missing": see_missing,
    # From here on with other tokens.
    "little": see_little,
    "refusal": see_refusal,
    "expired": see_expired,
}
# What surrounds these is on every page.
PARTS = {
    **dict.fromkeys(("state", "bucket", "gateway", "snapshot", "bootstrap"), "'main'"),
    **dict.fromkeys(("details", "missing", "little", "refusal"), "'main'"),
    **dict.fromkeys(("close", "fork", "delete"), "'dialog'"),
    "requests": "'#requests'",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 360, "height": 740},
}


@pytest.fixture(scope="module")
def streams(shared: Driver) -> None:
    """What the views show."""
    body = json.dumps([{"n": n, "text": "a long text " * 20} for n in range(50)]).encode()
    shared.api.create("looks", JSON, body)
    shared.api.create("looks-state", JSON, json.dumps([CHANGE]).encode())
    offset = shared.api.create("looks-snapped", JSON, b"[1]")
    shared.api("PUT", f"looks-snapped/snapshot/{offset}", {"Content-Type": JSON}, b'["S"]')
    shared.api.append("looks-snapped", b'["after"]', JSON)
    with shared.gateway.connect() as connection:
        headers = {"Authorization": f"Bearer {shared.token()}", "Content-Type": JSON}
        for path in ("/ds/looks", "/ds/looks/first"):
            assert connection.request("PUT", path, headers).status == 201
    shared.hang_up()


@pytest.fixture(scope="module")
def axe(node: Node) -> str:  # noqa: F811
    return (FOLDER / AXE).read_text()


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_no_fault(driver: Driver, streams: None, axe: str, look: str) -> None:
    driver.expects_refusals = True
    driver.open(**LOOKS[look])
    driver.mint()
    driver.page.evaluate(axe)
    # Only the colours differ in the dark.
    options = {"resultTypes": ["violations"]} | (
        {"runOnly": ["color-contrast"]} if look == "dark" else {}
    )
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
    driver.open(**LOOKS["phone"])
    driver.mint()
    wide: dict[str, Any] = {}
    for name, see in VIEWS.items():
        see(driver)
        widths = driver.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if widths != [360, 360]:
            wide[name] = widths
        driver.reset()
    assert wide == {}


def test_the_picture_of_the_guide_can_be_drawn(tmp_path: Path) -> None:
    """With what a reader is to see: changes that are lit among what was there."""
    drawn = tmp_path / "console.png"
    draw(drawn)
    assert drawn.read_bytes().startswith(b"\x89PNG")


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


def test_streams_are_forked_and_closed_by_keyboard(driver: Driver) -> None:
    driver.api.create("keys", JSON, b"[1]")
    driver.open()
    driver.mint()
    driver.watch("keys")
    tab_to(driver, "Fork")
    driver.page.press("Enter")
    driver.sees("dialog[open]")
    driver.page.press("Enter")  # its first field has the focus
    driver.says("keys-fork", ".stream-head h1")
    driver.is_now("live")
    tab_to(driver, "Close")
    driver.page.press("Enter")
    driver.sees("dialog[open]")
    tab_to(driver, "Close the stream")
    driver.page.press("Enter")
    driver.is_now("closed")
    tab_to(driver, "Messages")
    steps = [("ArrowRight", "Snapshot"), ("ArrowRight", "Details"), ("ArrowRight", "Messages")]
    for key, tab in (*steps, ("ArrowLeft", "Details")):
        driver.page.press(key)
        assert focused(driver) == tab
        driver.sees(f"#pane-{tab.lower()}:not([hidden])")


def test_buckets_are_made_and_deleted_by_keyboard(driver: Driver) -> None:
    driver.open()
    driver.mint()
    tab_to(driver, "New bucket")
    driver.page.press("Enter")
    driver.sees("dialog[open]")
    driver.page.type("by-keyboard")
    driver.page.press("Enter")
    driver.says("by-keyboard", "#sidebar")
    tab_to(driver, "by-keyboard")
    driver.page.press("Enter")
    driver.says("Empty", "#sidebar")
    tab_to(driver, "About this bucket")
    driver.page.press("Enter")
    driver.says("No streams.", ".bucket-page")
    tab_to(driver, "Delete")
    driver.page.press("Enter")
    driver.sees("dialog[open]")
    tab_to(driver, "Delete the bucket")
    driver.page.press("Enter")
    driver.sees("main .home")
    driver.page.wait_for("!document.querySelector('#sidebar').innerText.includes('by-keyboard')")


def test_the_colours_are_chosen_and_kept(driver: Driver) -> None:
    driver.open(dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = driver.page.evaluate(ground)
    driver.page.click("#theme-button")
    driver.says("Light", "#theme-button")
    light = driver.page.evaluate(ground)
    assert light != dark
    driver.page.ask("Page.reload")
    driver.says("Light", "#theme-button")
    assert driver.page.evaluate(ground) == light
    for name, colour in (("Dark", dark), ("Auto", dark)):
        driver.page.click("#theme-button")
        driver.says(name, "#theme-button")
        assert driver.page.evaluate(ground) == colour


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
