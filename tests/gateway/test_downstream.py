"""What clients, and caches between them and us, are told of an answer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.entries import Entry
from gateway.rules.downstream import (
    cache_control,
    chunk_headers,
    live_control,
    live_headers,
    not_modified_headers,
    passed_headers,
    sandbox,
    stream_headers,
    vary,
)
from protocol.replies import Headers

NOW = 1_800_000_000.25
CHUNK = Entry(
    "a",
    "-1",
    "text/plain",
    "5",
    False,
    False,
    "",
    "",
    b"hello",
    True,
    NOW,
    NOW + 60,
    NOW + 360,
    NOW + 9999,
)
TAIL = replace(CHUNK, up_to_date=True, immutable=False, fresh_until=NOW, stale_until=NOW)
TAG: Headers = (("Surrogate-Key", "weir-a"),)


def named(headers: Headers) -> dict[str, str]:
    found = dict(headers)
    assert len(found) == len(headers), "a header is repeated"
    return found


def chunk(entry: Entry, encoding: str = "") -> dict[str, str]:
    form = entry.form()
    assert form is not None
    form = replace(form, encoding=encoding)
    control, varies = cache_control(entry), vary(entry, True)
    return named(chunk_headers(entry, form, control=control, varies=varies, cdn=TAG))


# -- chunks --------------------------------------------------------------------------------------


def test_a_chunk_says_what_the_origin_said_of_it() -> None:
    told = chunk(CHUNK)
    assert (told["Content-Type"], told["Stream-Next-Offset"]) == ("text/plain", "5")
    assert told["Surrogate-Key"] == "weir-a" and "Content-Encoding" not in told
    assert "Stream-Up-To-Date" not in told and "Stream-Closed" not in told


@pytest.mark.parametrize("up_to_date", [True, False])
def test_a_snapshot_says_whether_more_follows_either_way(up_to_date: bool) -> None:
    told = chunk(replace(CHUNK, snapshot_offset="5", up_to_date=up_to_date))
    assert told["Stream-Snapshot-Offset"] == "5"
    assert told["Stream-Up-To-Date"] == str(up_to_date).lower()


def test_the_end_of_a_closed_stream_says_so() -> None:
    told = chunk(replace(CHUNK, up_to_date=True, closed=True))
    assert (told["Stream-Up-To-Date"], told["Stream-Closed"]) == ("true", "true")


@pytest.mark.parametrize(
    ("entry", "control"),
    [
        (CHUNK, "private, max-age=60, stale-while-revalidate=300, immutable"),
        (replace(CHUNK, public=True), "public, max-age=60, stale-while-revalidate=300, immutable"),
        (replace(CHUNK, stale_until=NOW + 60), "private, max-age=60, immutable"),
        (TAIL, "private, max-age=0, must-revalidate"),
        (replace(TAIL, public=True), "public, max-age=0, must-revalidate"),
    ],
)
def test_caches_are_told_how_long_they_may_trust_it(entry: Entry, control: str) -> None:
    assert cache_control(entry) == control


@given(st.floats(0, 10**10), st.floats(0, 10**6), st.floats(0, 10**6))
def test_nobody_is_told_to_trust_a_chunk_for_longer_than_we_do(
    now: float, fresh_s: float, stale_s: float
) -> None:
    fresh_until = now + fresh_s
    entry = replace(
        CHUNK, stored_at=now, fresh_until=fresh_until, stale_until=fresh_until + stale_s
    )
    told = dict(part.strip().partition("=")[::2] for part in cache_control(entry).split(","))
    assert fresh_s - 1.01 <= int(told["max-age"]) <= fresh_s + 0.01
    assert int(told.get("stale-while-revalidate", "0")) <= stale_s + 0.01


def test_what_varies_is_named() -> None:
    assert vary(CHUNK, True) == "Authorization, Accept-Encoding"
    assert vary(replace(CHUNK, public=True), True) == "Accept-Encoding"
    assert vary(replace(CHUNK, public=True), False) == ""


def test_a_304_describes_no_body_and_keeps_the_rest() -> None:
    whole = tuple(chunk(CHUNK, "gzip").items())
    told = named(not_modified_headers(whole))
    assert set(dict(whole)) - set(told) == {"Content-Type", "Content-Encoding"}
    assert {"ETag", "Cache-Control", "Vary", "Stream-Next-Offset"} <= set(told)


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xml", "Text/HTML; x"])
def test_what_a_browser_would_run_is_put_into_a_sandbox(kind: str) -> None:
    assert chunk(replace(CHUNK, content_type=kind))["Content-Security-Policy"] == "sandbox"
    assert named(sandbox(kind)) == {"Content-Security-Policy": "sandbox"}


@pytest.mark.parametrize("kind", ["text/plain; charset=utf-8", "application/json", ""])
def test_what_no_browser_runs_needs_none(kind: str) -> None:
    assert sandbox(kind) == ()


# -- live answers --------------------------------------------------------------------------------


def live(entry: Entry, *, may_keep: bool = True, up_to_date: bool = True) -> dict[str, str]:
    headers = live_headers(
        entry, '"e"', cursor=7, up_to_date=up_to_date, may_keep=may_keep, cdn=TAG
    )
    return named(headers)


def test_a_live_answer_may_be_kept_for_one_interval_by_its_reader() -> None:
    told = live(TAIL)
    assert told["Cache-Control"] == "private, max-age=20" and told["Vary"] == "Authorization"
    assert (told["Stream-Cursor"], told["Surrogate-Key"]) == ("7", "weir-a")
    public = live(replace(TAIL, public=True))
    assert public["Cache-Control"] == "public, max-age=20" and "Vary" not in public


def test_a_live_answer_that_may_not_be_kept_says_so() -> None:
    told = live(TAIL, may_keep=False)
    assert told["Cache-Control"] == "no-store" and "Surrogate-Key" not in told


@pytest.mark.parametrize(
    ("told", "live"),
    [
        ("", ""),
        ("max-age=3600", "max-age=20"),
        ("public, s-maxage=600, max-age=5", "max-age=20"),
        ("max-age=7", "max-age=7"),
        ("max-age=0", "max-age=0"),
        ("no-store", "no-store"),
        ("private, max-age=60", "private, max-age=60"),
        ("stale-while-revalidate=9", "max-age=20"),
    ],
)
def test_a_cdn_keeps_a_live_answer_no_longer_than_its_url_lasts(told: str, live: str) -> None:
    assert live_control(told) == live


def test_a_closed_stream_has_no_cursor() -> None:
    assert "Stream-Cursor" not in live(replace(TAIL, closed=True))


def test_old_data_does_not_claim_to_be_all_there_is() -> None:
    assert "Stream-Up-To-Date" not in live(TAIL, up_to_date=False)
    assert stream_headers(TAIL, up_to_date=False) == (("Stream-Next-Offset", "5"),)


# -- the origin's own answers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "control", "private", "public"),
    [
        (200, "", "no-store", "no-store"),
        (307, "public, max-age=60", "no-store", "no-store"),
        (404, "public, max-age=60", "no-store", "no-store"),
        (500, "public, max-age=60", "no-store", "no-store"),
        (200, "no-store", "no-store", "no-store"),
        (200, "No-Store, public", "no-store", "no-store, public"),
        (200, "public, max-age=60", "private, max-age=60", "public, max-age=60"),
        (200, "s-maxage=600,max-age=5", "private, max-age=5", "s-maxage=600,max-age=5"),
        (200, 'private="x", max-age=5', "private, max-age=5", 'private="x", max-age=5'),
    ],
)
def test_what_is_passed_on_is_kept_by_no_shared_cache_unless_public(
    status: int, control: str, private: str, public: str
) -> None:
    headers = (("cache-control", control),) if control else ()
    assert dict(passed_headers(status, headers, public=False))["Cache-Control"] == private
    assert dict(passed_headers(status, headers, public=True))["Cache-Control"] == public


def test_all_else_is_passed_on() -> None:
    headers = (("Content-Type", "text/plain"), ("Stream-Next-Offset", "5"))
    assert passed_headers(200, headers, public=False)[:2] == headers
