"""A stored chunk: its forms, its tags, its size."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.entries import OVERHEAD_BYTES, Entry, Form
from protocol.etags import matches
from tests.helpers.parts import INCARNATION

CHUNK = Entry("a", "-1", "text/plain", "5", False, False, "", "", b"hello", True, 0, 60, 360, 999)


def etag(**changes: Any) -> str:
    return replace(CHUNK, forms={}, **changes).etag_of("")


# -- tags ----------------------------------------------------------------------------------------


def test_equal_entries_have_equal_tags() -> None:
    """Gateways of a fleet answer each other's conditions."""
    assert etag() == etag(stored_at=7.0, fresh_until=9.0, immutable=False, public=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"body": b"hellO"},
        {"next_offset": "6"},
        {"up_to_date": True},
        {"closed": True},
        {"content_type": "text/html"},
        {"incarnation": INCARNATION},
        {"origin_etag": '"other"'},
        {"part": "0"},
    ],
    ids=str,
)
def test_whatever_a_client_sees_changes_the_tag(changes: dict[str, Any]) -> None:
    assert etag(**changes) != etag()


def test_each_encoding_has_a_tag_of_its_own() -> None:
    entry = replace(CHUNK, forms={})
    early = entry.etag_of("gzip")
    plain = entry.form()
    assert plain is not None and plain.etag == etag()
    assert entry.etag_of("gzip") == early == f'{plain.etag[:-1]}-gzip"'
    assert len({plain.etag, early, entry.etag_of("zstd")}) == 3


@pytest.mark.parametrize(("part", "tag"), [("/bootstrap", 'W/"x:1"'), ("/snapshot/5", '"x:1"')])
def test_snapshots_and_bootstraps_of_our_origin_keep_its_tags(part: str, tag: str) -> None:
    """Not those of origins that name no incarnations, and those of chunks never."""
    ours = replace(CHUNK, forms={}, part=part, origin_etag=tag, incarnation=INCARNATION)
    assert ours.etag_of("") == tag and ours.etag_of("gzip") == f'{tag[:-1]}-gzip"'
    assert etag(part=part, origin_etag=tag) != tag
    assert etag(origin_etag=tag, incarnation=INCARNATION) != tag


@given(st.binary(max_size=20), st.text(max_size=5), st.sampled_from(["", "gzip"]))
def test_tags_are_tags(body: bytes, offset: str, encoding: str) -> None:
    tag = replace(CHUNK, body=body, part=offset, forms={}).etag_of(encoding)
    assert matches(f'"x", W/{tag}', tag) and not matches('"x"', tag)


# -- forms ---------------------------------------------------------------------------------------


def test_the_plain_form_is_there_and_others_are_not() -> None:
    entry = replace(CHUNK, forms={})
    plain = entry.form()
    assert plain is entry.form() and plain is not None
    assert (plain.body, plain.encoding) == (b"hello", "")
    assert entry.form("gzip") is None


def test_an_entrys_size_counts_all_that_it_holds() -> None:
    entry = replace(CHUNK, forms={})
    assert entry.size == OVERHEAD_BYTES + 5
    entry.form()
    assert entry.size == OVERHEAD_BYTES + 5, "the plain form is the body itself"
    entry.forms["gzip"] = Form("gzip", b"123", "")
    assert entry.size == OVERHEAD_BYTES + 8
    event = entry.event()
    assert entry.size == OVERHEAD_BYTES + 8 + len(event)


def test_a_form_that_did_not_shrink_costs_nothing() -> None:
    entry = replace(CHUNK, forms={})
    plain = entry.form()
    assert plain is not None
    entry.forms["gzip"] = plain
    assert entry.size == OVERHEAD_BYTES + 5


# -- what the bytes are --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "empty"),
    [
        ("text/plain", b"", True),
        ("text/plain", b"[]", False),
        ("application/json", b"[]", True),
        ("Application/JSON; charset=utf-8", b"[]", True),
        ("application/json", b"[1]", False),
        ("image/png", b"", True),
    ],
)
def test_empty_is_what_its_type_calls_so(kind: str, body: bytes, empty: bool) -> None:
    assert replace(CHUNK, content_type=kind, body=body).is_empty is empty


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("text/plain", b"event: data\ndata:hello\n\n"),
        ("application/json", b"event: data\ndata:hello\n\n"),
        ("image/png", b"event: data\ndata:aGVsbG8=\n\n"),
    ],
)
def test_an_event_is_made_once_in_the_way_of_its_type(kind: str, event: bytes) -> None:
    entry = replace(CHUNK, content_type=kind, _event=None)
    assert entry.event() == event and entry.event() is entry.event()


@pytest.mark.parametrize(
    ("kind", "body", "within"),
    [
        ("text/plain", "é".encode()[:1], True),
        ("text/plain", "é".encode(), False),
        ("text/plain", b"\xff", False),
        ("image/png", "é".encode()[:1], False),
        ("application/json", "é".encode()[:1], False),
    ],
)
def test_only_text_can_end_within_a_character(kind: str, body: bytes, within: bool) -> None:
    assert replace(CHUNK, content_type=kind, body=body).ends_within_character is within
