"""The console's files: read once, served by name. Only files in the table exist, so no path can
leave the folder.

The policy allows only the page's own scripts and requests to its own gateway. Stream contents are
shown as text, and could not run even if they were inserted as markup.
"""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath

from protocol.etags import matches
from protocol.replies import Headers, Reply, not_modified

INDEX = "index.html"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
SAFETY: Headers = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


def load_pages() -> Mapping[str, Reply]:
    """The response for each file name; the folder itself serves the index."""
    folder = files("gateway.console").joinpath("page")
    pages = {
        file.name: _page(TYPES[PurePath(file.name).suffix], file.read_bytes())
        for file in folder.iterdir()
        if PurePath(file.name).suffix in TYPES
    }
    return {**pages, "": pages[INDEX]}


def show_page(page: Reply, condition: str | None) -> Reply:
    """The page, or 304 if the client has it."""
    etag = dict(page.headers)["ETag"]
    return not_modified(page) if condition is not None and matches(condition, etag) else page


def _page(content_type: str, body: bytes) -> Reply:
    etag = f'"{sha256(body).hexdigest()[:24]}"'
    caching = ("Cache-Control", "no-cache")  # cached, but revalidated each time
    return Reply(200, (("Content-Type", content_type), ("ETag", etag), caching, *SAFETY), body)
