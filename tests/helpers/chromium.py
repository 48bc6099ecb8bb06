"""A real Chromium without a window, driven by its DevTools protocol over a pair of pipes.

with Chromium() as browser:
    page = browser.open(path.as_uri(), width=390, dark=True)
    assert page.evaluate("document.title") == "…"
    assert page.complaints == []
"""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from tests.helpers.require import need

PATIENCE_S = 30.0
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe"),
)
# Keys that a page acts upon by more than their name: the number, and the text they type.
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "Space": (32, " ")}
SHIFT, CONTROL = 8, 2
# What a browser says when a page has gone wrong, however quietly.
COMPLAINTS = {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"}


class Chromium:
    """One process for any number of pages; leaving the `with` ends it and removes its profile."""

    def __init__(self) -> None:
        program = shutil.which("chromium")
        need(program, "chromium is not installed")
        assert program is not None
        self._profile = TemporaryDirectory(prefix="weir-chromium-", ignore_cleanup_errors=True)
        self._in, theirs_out = os.pipe()
        theirs_in, self._out = os.pipe()
        self._pid = _spawn(
            [program, *FLAGS, f"--user-data-dir={self._profile.name}"], theirs_in, theirs_out
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = bytearray()
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Its helpers are in the session that we started for it, and in no other.
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> "Page":
        """A page that has been loaded, scripts run."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.ask("Emulation.setEmulatedMedia", features=[scheme])
        page.ask("Page.navigate", url=url)
        self.wait_for(lambda: "Page.loadEventFired" in page.events)
        return page

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": parameters}
        if session is not None:
            command["sessionId"] = session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        self.wait_for(lambda: number in self._answers)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, "the browser did not answer in time"
            waiting = select.poll()  # `select` takes no file above 1023
            waiting.register(self._in, select.POLLIN)
            if waiting.poll(left * 1000):
                self._read()

    def _read(self) -> None:
        data = os.read(self._in, 1 << 20)
        assert data, "the browser has ended"
        self._buffer += data
        *whole, rest = self._buffer.split(b"\0")
        self._buffer = bytearray(rest)
        for message in map(json.loads, whole):
            if "id" in message:
                self._answers[message["id"]] = message
            elif page := self._pages.get(message.get("sessionId", "")):
                page.note(message["method"], message["params"])


def _spawn(command: list[str], commands: int, answers: int) -> int:
    """A process in a session of its own, which reads from 3 and writes to 4."""
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (commands, answers)]
    silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    pipes = [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in zip(sources, (3, 4), strict=True)]
    try:
        return os.posix_spawn(
            command[0], command, os.environ, file_actions=[*silence, *pipes], setsid=True
        )
    finally:
        for fd in sources:
            os.close(fd)


class Page:
    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self.events: set[str] = set()
        self.complaints: list[dict[str, Any]] = []  # console lines, exceptions, refused loads
        self.requests: list[str] = []  # URLs that it asked for, its own too

    def note(self, event: str, details: dict[str, Any]) -> None:
        self.events.add(event)
        if event in COMPLAINTS:
            self.complaints.append(details)
        elif event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript, promises awaited."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        small = width < 600
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=small,
        )

    def wait_for(self, expression: str, seconds: float = PATIENCE_S) -> None:
        """Look at JavaScript again and again until its value is true."""
        came = self.evaluate(f"""new Promise((resolve) => {{
            const until = performance.now() + {seconds * 1000};
            const look = () => {{
                const came = Boolean({expression});
                if (came || performance.now() > until) resolve(came);
                else setTimeout(look, 10);
            }};
            look();
        }})""")
        assert came, f"did not become true in the page: {expression}"

    def close(self) -> None:
        self._browser.ask("Target.closeTarget", targetId=self._target)

    def press(self, key: str, modifiers: int = 0) -> None:
        number, text = KEYS.get(key, (0, ""))
        details: dict[str, Any] = {"key": text or key, "code": key, "modifiers": modifiers}
        if number:
            details["windowsVirtualKeyCode"] = number
        if key == "Enter":
            details["key"] = key
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, **details, **typed)

    def type(self, text: str) -> None:
        """Into whatever has the focus."""
        self.ask("Input.insertText", text=text)

    def click(self, selector: str, while_down: str = "") -> None:
        """With the mouse, in the middle of the element: what lies above it gets the click.

        As a person would: once it is there, and stands still. With `while_down` the button is held
        until this JavaScript is true.
        """
        self.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")
        box = self.evaluate(f"""(async () => {{
            const middle = () => {{
                const element = document.querySelector({json.dumps(selector)});
                if (!element) throw new Error("nothing is at " + {json.dumps(selector)});
                element.scrollIntoView({{block: "nearest"}});
                const {{x, y, width, height}} = element.getBoundingClientRect();
                return [x + width / 2, y + height / 2];
            }};
            for (let before = middle(); ; ) {{
                await new Promise((resolve) => setTimeout(resolve, 30));
                const now = middle();
                if (now.join() === before.join()) return now;
                before = now;
            }}
        }})()""")
        self._mouse("mousePressed", *box)
        self.wait_for(while_down or "true")
        self._mouse("mouseReleased", *box)

    def _mouse(self, kind: str, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point_at(self, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(b64decode(shot["data"]))
