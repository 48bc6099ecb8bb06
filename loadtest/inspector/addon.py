"""Durable Streams in mitmweb: `mitmweb -s loadtest/inspector/addon.py`, started by `make inspect`.

Adds the columns and the view of `loadtest.inspector.view`. Live answers are passed on and shown as
they arrive. mitmweb has no columns of an addon's own, so the columns travel in each
request's comment, and a script in the page (`inspector.js`) sets them side by side.

Runs in mitmproxy's own environment.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import tornado.web
from mitmproxy import contentviews, ctx, http
from mitmproxy.tools.web import app as webapp

sys.path.append(str(Path(__file__).resolve().parents[2]))  # nothing of ours is installed here

from loadtest.faults.plan import Asked  # noqa: E402
from loadtest.inspector.view import SEPARATOR, columns, event_lines  # noqa: E402

HERE = Path(__file__).parent
EVENTS = "text/event-stream"
SHOWN_BYTES = 1024 * 1024  # of a body
SHOWN_COLUMNS = ["method", "path", "status", "time", "comment"]
# Ports of the proxy, and what stands between a client's side and the origin's.
ORIGIN_SIDE, CLIENT_SIDE = "origin", "client"


class Inspecting:
    def load(self, loader: Any) -> None:
        loader.add_option("weir_origin_port", int, 0, "the port that gateways take for the origin")

    def running(self) -> None:
        ctx.options.update(
            web_columns=SHOWN_COLUMNS, keep_host_header=True, connection_strategy="lazy"
        )
        _extend_page(ctx.master.app)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        _note(flow)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        flow.response.stream = _tee(flow)
        _note(flow)


def _tee(flow: http.HTTPFlow) -> Callable[[bytes], list[bytes]]:
    """Passes everything on at once, and shows it."""
    seen = bytearray()

    def pass_on(data: bytes) -> list[bytes]:
        if data and len(seen) < SHOWN_BYTES:
            seen.extend(data)
            flow.response.data.content = bytes(seen[:SHOWN_BYTES])
            _show(flow)
        return [data] if data else []

    return pass_on


def _note(flow: http.HTTPFlow) -> None:
    port = flow.client_conn.sockname[1]
    side = ORIGIN_SIDE if port == ctx.options.weir_origin_port else CLIENT_SIDE
    asked = Asked(flow.request.method, flow.request.path)
    answer = flow.response
    headers = {name.lower(): value for name, value in answer.headers.items()} if answer else {}
    status = answer.status_code if answer else None
    flow.comment = SEPARATOR.join(columns(side, asked, status, headers))
    _show(flow)


def _show(flow: http.HTTPFlow) -> None:
    if view := ctx.master.addons.get("view"):
        view.update([flow])


def _extend_page(app: Any) -> None:
    """mitmweb's own page, with our script behind its own."""
    templates = Path(mkdtemp(prefix="weir-inspector-"))
    page = Path(webapp.__file__).with_name("templates") / "index.html"
    script = '<script defer src="weir/inspector.js"></script></head>'
    (templates / "index.html").write_text(page.read_text().replace("</head>", script))
    app.settings["template_path"] = str(templates)
    files = tornado.web.StaticFileHandler
    app.add_handlers(
        r"^(localhost|[0-9.]+)$", [(r"/weir/(inspector\.js)", files, {"path": str(HERE)})]
    )


class EventStream(contentviews.View):  # type: ignore[misc]  # mitmproxy is not installed here
    name = "Event stream"

    def __call__(self, data: bytes, **known: Any) -> tuple[str, Iterator[list[tuple[str, str]]]]:
        return "Event stream", ([line] for line in event_lines(data))

    def render_priority(
        self, data: bytes, *, content_type: str | None = None, **known: Any
    ) -> float:
        return 2 if content_type == EVENTS else 0


contentviews.add(EventStream())
addons = [Inspecting()]
