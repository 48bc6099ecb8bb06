"""Content encodings of stored chunks: which one a client gets, which bodies gain by it, the bytes.

Pure but for its caches. The same body gives the same bytes on every gateway, so that entity tags
of an encoding may be made from the content.
"""

import gzip
import re
from collections.abc import Mapping
from functools import lru_cache

import zstandard

from protocol.media import media_type

AVAILABLE = ("zstd", "gzip")  # the better one first
MAX_HEADER_CHARACTERS = 256
GZIP_LEVEL = 6
ZSTD_LEVEL = 3  # its window of 2 MiB is within what browsers take (RFC 9659: 8 MiB)

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

    Identity too when the header is malformed, or leaves nothing that we have: a client that can
    read nothing else is better served than refused.
    """
    if not accept_encoding or len(accept_encoding) > MAX_HEADER_CHARACTERS:
        return ""
    return _choose(accept_encoding, available)


# Clients repeat a handful of headers.
@lru_cache(maxsize=1024)
def _choose(accept_encoding: str, available: tuple[str, ...]) -> str:
    weights = parse_weights(accept_encoding)
    if weights is None:
        return ""
    others = weights.get("*", 0.0)
    offers = [(weights.get(coding, others), coding) for coding in available]
    weight, best = max(offers, key=lambda offer: offer[0], default=(0.0, ""))
    # Whoever names an encoding, and identity not even by a star, prefers the encoding.
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
    would hold events back."""
    media = media_type(content_type)
    if media == "text/event-stream":
        return False
    return media.startswith("text/") or media in _TEXTS or media.endswith(_SUFFIXES)


def compress(body: bytes, encoding: str) -> bytes:
    """The encoded body, or `body` itself where encoding it gains nothing."""
    match encoding:
        case "gzip":
            encoded = gzip.compress(body, GZIP_LEVEL, mtime=0)
        case "zstd":
            # A compressor is not for two threads at once; making one costs about 20 us.
            encoded = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
        case "":
            return body
        case _:
            raise ValueError(f"{encoding!r} is not an encoding of ours")
    return encoded if len(encoded) < len(body) else body
