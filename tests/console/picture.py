"""`make pictures`: docs/images/console.png, drawn by a real browser from a real gateway.

python -m tests.console.picture [FILE] [--dark] [--phone] [--view messages]

What is shown is an office: rooms that fill, and people who come and go.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.console.driver import JSON, Driver, make_gateway
from tests.helpers.chromium import Chromium
from tests.helpers.gateway import bearer
from tests.helpers.origin import LocalOrigin, make_config

TARGET = Path(__file__).parents[2] / "docs/images/console.png"
SIZES = {"desk": (1280, 900), "phone": (390, 844)}

ROOMS: dict[str, dict[str, Any]] = {
    "atrium": {"name": "Atrium", "floor": 0, "seats": 24, "taken": 3},
    "library": {"name": "Library", "floor": 1, "seats": 12, "taken": 3},
    "workshop": {"name": "Workshop", "floor": 1, "seats": 8, "taken": 2},
    "roof": {"name": "Roof terrace", "floor": 4, "seats": 30, "taken": 0},
}
PEOPLE: dict[str, dict[str, Any]] = {
    "ada": {"name": "Ada Lovelace", "room": "library", "status": "online"},
    "alan": {"name": "Alan Turing", "room": "workshop", "status": "online"},
    "annie": {"name": "Annie Easley", "room": "atrium", "status": "away"},
    "barbara": {"name": "Barbara Liskov", "room": "library", "status": "online"},
    "edsger": {"name": "Edsger Dijkstra", "room": None, "status": "offline"},
    "grace": {"name": "Grace Hopper", "room": "atrium", "status": "online"},
    "hedy": {"name": "Hedy Lamarr", "room": "atrium", "status": "away"},
    "katherine": {"name": "Katherine Johnson", "room": "library", "status": "online"},
    "leslie": {"name": "Leslie Lamport", "room": None, "status": "offline"},
    "margaret": {"name": "Margaret Hamilton", "room": "workshop", "status": "online"},
}
# What happens while we look.
NEWS = [
    ("room", "library", ROOMS["library"] | {"taken": 4}),
    ("user", "edsger", PEOPLE["edsger"] | {"room": "library", "status": "online"}),
]
ORDERS = [
    {"order": 1041 + n, "item": item, "total": total, "paid": n % 3 != 1}
    for n, (item, total) in enumerate(
        [("desk lamp", 39.0), ("notebook", 4.5), ("whiteboard", 120.0), ("chair", 210.0)] * 6
    )
]
OTHERS = ("chat/support", "chat/design", "payments")
BUCKET = ("planner", "researcher", "reviewer")


def change(kind: str, key: str, value: Any, operation: str = "insert") -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value, "headers": {"operation": operation}}


def fill_streams(driver: Driver) -> None:
    rows = [change("room", key, room) for key, room in ROOMS.items()]
    rows += [change("user", key, person) for key, person in PEOPLE.items()]
    driver.api.create("office", JSON, json.dumps(rows).encode(), stream_state="strict")
    driver.api.create("orders", JSON, json.dumps(ORDERS).encode())
    for name in OTHERS:
        driver.api.create(name, JSON)
    with driver.gateway.connect() as connection:
        headers = bearer(driver.token()) | {"Content-Type": JSON}
        for path in ("/ds/agents", *(f"/ds/agents/{name}" for name in BUCKET)):
            assert connection.request("PUT", path, headers).status == 201


def show_state(driver: Driver) -> None:
    driver.go("office")
    driver.says("Margaret", ".state tbody")
    driver.is_now("live")
    news = [change(kind, key, value, "update") for kind, key, value in NEWS]
    driver.api.append("office", json.dumps(news).encode(), JSON)
    driver.sees(".state tr.flash")


def show_messages(driver: Driver) -> None:
    driver.watch("orders")
    driver.counts(len(ORDERS))
    driver.sees(".detail pre")


def show_gateway(driver: Driver) -> None:
    driver.page.evaluate("location.hash = '#/gateway'")
    driver.page.wait_for("document.querySelectorAll('.plot path.line[d]').length >= 8")


VIEWS = {
    "state": show_state,
    "messages": show_messages,
    "gateway": show_gateway,
}


def draw(path: Path, view: str = "state", *, size: str = "desk", dark: bool = False) -> None:
    width, height = SIZES[size]
    with TemporaryDirectory() as folder, Chromium() as browser:
        with (
            running(LocalOrigin(make_config(Path(folder)))) as origin,
            make_gateway(origin, Path(folder)) as gateway,
        ):
            driver = Driver(browser, gateway)
            fill_streams(driver)
            driver.open(width=width, height=height, dark=dark)
            driver.use(driver.token())
            driver.says("payments", "#sidebar")
            if size == "desk":
                driver.page.click(".bucket summary")
                driver.sees(".inside .item")
                driver.page.point_at(width / 2, 20)  # so that nothing is lit by the mouse
            VIEWS[view](driver)
            driver.page.screenshot(path)
            driver.close()


@contextmanager
def running(origin: LocalOrigin) -> Iterator[LocalOrigin]:
    origin.start()
    try:
        yield origin
    finally:
        origin.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the console as the documents show it.")
    parser.add_argument("file", nargs="?", type=Path, default=TARGET)
    parser.add_argument("--view", choices=VIEWS, default="state")
    parser.add_argument("--phone", action="store_true")
    parser.add_argument("--dark", action="store_true")
    asked = parser.parse_args()
    draw(asked.file, asked.view, size="phone" if asked.phone else "desk", dark=asked.dark)


if __name__ == "__main__":
    main()
