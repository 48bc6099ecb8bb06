"""Which form a client gets, and that each is made once."""

import asyncio
import gzip

import pytest

from gateway.config import CacheConfig
from gateway.encodings import INLINE_BYTES, Forms
from gateway.entries import Entry

TEXT = b"hello " * 1000
LARGE = b"hello " * INLINE_BYTES


def make_entry(body: bytes = TEXT, content_type: str = "text/plain") -> Entry:
    return Entry("a", "-1", content_type, "1", False, False, "", "", body, True, 0, 0, 0, 0)


def make_forms(**settings: bool | int) -> tuple[Forms, list[Entry]]:
    grown: list[Entry] = []
    return Forms(CacheConfig(**settings), grown.append), grown  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [TEXT, LARGE], ids=["on-the-loop", "in-a-thread"])
async def test_a_form_is_made_once_for_everybody(body: bytes) -> None:
    forms, grown = make_forms()
    entry = make_entry(body)
    assert forms.ready(entry, "gzip") is None
    first, *others = await asyncio.gather(*(forms.make(entry, "gzip") for _ in range(5)))
    assert gzip.decompress(first.body) == body and first.encoding == "gzip"
    assert all(form is first for form in others) and grown == [entry]
    assert forms.ready(entry, "gzip") is first


@pytest.mark.parametrize(
    ("body", "content_type", "accept"),
    [
        (TEXT, "text/plain", None),
        (TEXT, "text/plain", "identity"),
        (b"short", "text/plain", "gzip"),
        (TEXT, "image/png", "gzip"),
    ],
)
async def test_identity_where_nothing_is_gained(
    body: bytes, content_type: str, accept: str | None
) -> None:
    forms, grown = make_forms()
    form = await forms.make(make_entry(body, content_type), accept)
    assert (form.encoding, form.body, grown) == ("", body, [])


async def test_without_compression_nobody_gets_any() -> None:
    forms, _ = make_forms(compress=False)
    assert forms.chosen("gzip") == ""
    assert (await forms.make(make_entry(), "gzip")).encoding == ""
