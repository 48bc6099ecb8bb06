"""Content encodings of stored chunks: which one a client gets, which bodies gain by it, and the
forms of a chunk, each compressed once and kept with it.

The same body gives the same bytes on every gateway, so that entity tags of an encoding may be made
from the content.
"""

import asyncio
import gzip
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import zstandard

from gateway.config import CacheConfig
from gateway.entries import Entry, Form
from protocol.media import media_type

AVAILABLE = ("zstd", "gzip")  # the better one first
MAX_HEADER_CHARACTERS = 256
GZIP_LEVEL = 6
ZSTD_LEVEL = 3  # its 2 MiB window is within the limit of browsers (RFC 9659: 8 MiB)

INLINE_BYTES = 16 * 1024  # compressed on the loop; larger bodies in a thread

_MEMBER = re.compile(
    r"(?P<coding>[!#$%&'*+.^_`|~0-9a-z-]+)"
    r"(?:[ \t]*;[ \t]*q=(?P<q>0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?"
)
_ALIASES = {"x-gzip": "gzip"}  # RFC 9110 8.4.1.3
_TEXTS = frozenset(
    "application/" + name
    for name in (
        *("json", "x-ndjson", "ndjson", "jsonl", "jsonlines", "json-seq", "json5", "geo+json-seq"),
        *("xml", "xml-dtd", "javascript", "x-javascript", "ecmascript", "graphql", "sql"),
        *("yaml", "x-yaml", "toml", "x-www-form-urlencoded", "n-triples", "n-quads", "rtf"),
    )
)
_SUFFIXES = ("+json", "+xml", "+yaml", "+text")


def choose(accept_encoding: str | None, available: tuple[str, ...] = AVAILABLE) -> str:
    """The encoding for a client that sent this header; empty = identity (RFC 9110 12.5.3).

    Also identity if the header is malformed or allows none of our encodings: serving such a
    client is better than refusing it.
    """
    if not accept_encoding or len(accept_encoding) > MAX_HEADER_CHARACTERS:
        return ""
    return _choose(accept_encoding, available)


# Clients send only a handful of different headers.
@lru_cache(maxsize=1024)
def _choose(accept_encoding: str, available: tuple[str, ...]) -> str:
    weights = parse_weights(accept_encoding)
    if weights is None:
        return ""
    others = weights.get("*", 0.0)
    offers = [(weights.get(coding, others), coding) for coding in available]
    weight, best = max(offers, key=lambda offer: offer[0], default=(0.0, ""))
    # A client that names an encoding but not identity, not even by `*`, prefers the encoding.
    return best if weight > 0 and weight >= weights.get("identity", others) else ""


def parse_weights(accept_encoding: str) -> Mapping[str, float] | None:
    """Codings, in lower case, to their weights; the smallest of several; None if malformed."""
    weights: dict[str, float] = {}
    for member in accept_encoding.lower().split(","):
        text = member.strip(" \t")
        found = _MEMBER.fullmatch(text)
        if found is not None:
            coding = _ALIASES.get(found["coding"], found["coding"])
            weight = float(found["q"] or 1)
            weights[coding] = min(weight, weights.get(coding, 1.0))
        elif text:
            return None
    return weights


@lru_cache(maxsize=1024)
def compressible(content_type: str) -> bool:
    """Whether bodies of this type usually shrink. Event streams are never compressed: an encoder
    would delay events."""
    media = media_type(content_type)
    if media == "text/event-stream":
        return False
    return media.startswith("text/") or media in _TEXTS or media.endswith(_SUFFIXES)


def compress(body: bytes, encoding: str) -> bytes:
    """The encoded body, or `body` itself if encoding it gains nothing."""
    match encoding:
        case "gzip":
            encoded = gzip.compress(body, GZIP_LEVEL, mtime=0)
        case "zstd":
            # A compressor must not be shared between threads; making one takes about 20 us.
            encoded = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
        case "":
            return body
        case _:
            raise ValueError(f"{encoding!r} is not a supported encoding")
    return encoded if len(encoded) < len(body) else body


class Forms:
    """`recount` is called for each entry that got a new form."""

    def __init__(self, config: CacheConfig, recount: Callable[[Entry], None]) -> None:
        self._min_bytes = config.compress_min_bytes if config.compress else None
        self._recount = recount
        self._compressing: dict[tuple[int, str], asyncio.Task[None]] = {}

    def ready(self, entry: Entry, accept: str | None) -> Form | None:
        """The form for this `Accept-Encoding`, if it exists already."""
        return entry.form(self._encoding(entry, accept))

    async def make(self, entry: Entry, accept: str | None) -> Form:
        encoding = self._encoding(entry, accept)
        if encoding and entry.form(encoding) is None:
            await self._compress(entry, encoding)
        form = entry.form(encoding) or entry.form()
        assert form is not None
        return form

    def chosen(self, accept: str | None) -> str:
        """The encoding for compressible entries."""
        return "" if self._min_bytes is None else choose(accept)

    def squeezes(self, entry: Entry) -> bool:
        if self._min_bytes is None or len(entry.body) < self._min_bytes:
            return False
        return compressible(entry.content_type)

    def _encoding(self, entry: Entry, accept: str | None) -> str:
        return choose(accept) if accept is not None and self.squeezes(entry) else ""

    async def _compress(self, entry: Entry, encoding: str) -> None:
        """Once for all readers."""
        if len(entry.body) <= INLINE_BYTES:
            self._add(entry, encoding, compress(entry.body, encoding))
            return
        key = (id(entry), encoding)
        task = self._compressing.get(key)
        if task is None:
            task = asyncio.create_task(self._compress_aside(entry, encoding), name="compress")
            self._compressing[key] = task
            task.add_done_callback(lambda _: self._compressing.pop(key, None))
        await asyncio.shield(task)

    async def _compress_aside(self, entry: Entry, encoding: str) -> None:
        self._add(entry, encoding, await asyncio.to_thread(compress, entry.body, encoding))

    def _add(self, entry: Entry, encoding: str, body: bytes) -> None:
        plain = entry.form()
        assert plain is not None
        gains = len(body) < len(entry.body)
        made = Form(encoding, body, entry.etag_of(encoding)) if gains else plain
        entry.forms[encoding] = made
        self._recount(entry)
