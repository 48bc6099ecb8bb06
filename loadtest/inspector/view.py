"""What a person wants to see of a Durable Streams request: five columns, and readable events. Pure.

Runs in mitmproxy's environment too: nothing that needs more than the standard library.
"""

import json
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qs, urlsplit

from loadtest.faults.plan import Asked
from protocol.heads import parse_head
from protocol.offsets import START, position_of

SEPARATOR = " | "

_VERDICTS = {"hit": "hit", "fwd=stale": "revalidated", "fwd=bypass": "pass", "fwd=method": "write"}
_REASONS = ("stored", "detail=collapsed", "detail=hub", "detail=stale")


def columns(
    side: str, asked: Asked, status: int | None, headers: Mapping[str, str]
) -> tuple[str, ...]:
    """Headers by lower-case names; no status means that the answer has not begun."""
    query, head = parse_qs(urlsplit(asked.target).query), parse_head(headers)
    begin = short_offset(query.get("offset", [""])[0])
    end = f"→ {short_offset(head.next_offset)}" if head.next_offset else ""
    facts = [begin, end, "tail" if head.up_to_date else "", "closed" if head.closed else ""]
    offset = " ".join(filter(None, facts))
    cursor = head.cursor or query.get("cursor", [""])[0]
    verdict = "…" if status is None else cache_verdict(headers.get("cache-status", ""))
    return side, asked.mode, offset, cursor, verdict


def short_offset(offset: str) -> str:
    """The byte position of our own offsets; others as they are."""
    position = None if offset == START else position_of(offset)
    return offset if position is None else str(position)


def cache_verdict(status: str) -> str:
    """Of a Cache-Status header (RFC 9211), in the words of the access log."""
    _, *facts = [fact.strip() for fact in status.split(";")]
    if not facts:
        return ""
    verdict = _VERDICTS.get(facts[0], "miss")
    return " ".join([verdict, *(r.removeprefix("detail=") for r in _REASONS if r in facts)])


def event_lines(body: bytes) -> Iterator[tuple[str, str]]:
    """(style, line) of an event stream: each event with its kind, JSON spread out."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n"):
        fields = [line.partition(":") for line in block.split("\n") if line]
        values = [(name, value.removeprefix(" ")) for name, _, value in fields]
        kind = next((value for name, value in values if name == "event"), "")
        data = "\n".join(value for name, value in values if name == "data")
        if kind or data:
            yield "header", f"── {kind or 'message'} "
            yield from (("text", line) for line in _pretty(data).split("\n"))
        elif values:  # a line that begins with a colon: a sign of life
            yield "offset", "·"


def _pretty(data: str) -> str:
    try:
        pretty = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
        pretty.encode()  # half a surrogate pair stays the escape that it was
        return pretty
    except ValueError:
        return data
