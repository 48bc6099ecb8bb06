import pytest

from gateway.outcomes import FROM_HUB, FROM_WINDOW, PASSED, WRITTEN
from loadtest.faults.plan import Asked
from loadtest.inspector.view import cache_verdict, columns, event_lines, short_offset
from protocol.offsets import format_offset
from protocol.sse import base64_event, comment, control_event, data_event
from tests.helpers.offsets import nameless

OFFSET = nameless(16384)


def test_our_offsets_are_shown_as_positions() -> None:
    assert short_offset(OFFSET) == "16384"
    assert short_offset(nameless(0)) == "0"
    assert short_offset(format_offset(7, 16384)) == "16384"
    assert [short_offset(other) for other in ("-1", "now", "abc_12")] == ["-1", "now", "abc_12"]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("", ""),
        ("weir; hit", "hit"),
        ("weir; hit; detail=stale", "hit stale"),
        (FROM_WINDOW.cache_status, "hit hub"),
        (FROM_HUB.cache_status, "miss hub"),
        ("weir; fwd=stale; fwd-status=304; collapsed; detail=collapsed", "revalidated collapsed"),
        ("weir; fwd=uri-miss; fwd-status=200; stored", "miss stored"),
        (PASSED.cache_status, "pass"),
        (WRITTEN.cache_status, "write"),
    ],
)
def test_the_cache_verdict_in_a_word(status: str, verdict: str) -> None:
    assert cache_verdict(status) == verdict


def test_a_long_poll_in_columns() -> None:
    asked = Asked("GET", f"/v1/stream/a?offset={OFFSET}&live=long-poll&cursor=7")
    assert columns("client", asked, None, {}) == ("client", "long-poll", "16384", "7", "…")
    headers = {
        **{"stream-next-offset": nameless(16400), "stream-cursor": "9"},
        **{"stream-up-to-date": "true", "cache-status": FROM_HUB.cache_status},
    }
    told = columns("client", asked, 200, headers)
    assert told == ("client", "long-poll", "16384 → 16400 tail", "9", "miss hub")


def test_an_append_in_columns() -> None:
    asked = Asked("POST", "/v1/stream/a")
    told = columns("origin", asked, 204, {"stream-next-offset": OFFSET})
    assert told == ("origin", "append", "→ 16384", "", "")


def test_events_become_readable() -> None:
    body = data_event(b'[{"a":1}]') + control_event(OFFSET, 7, True, False) + comment()
    lines = list(event_lines(body + base64_event(b"\0") + data_event("zwei\nüber".encode())))
    assert [line for style, line in lines if style == "header"] == [
        *("── data ", "── control ", "── data ", "── data ")
    ]
    texts = [line for style, line in lines if style == "text"]
    assert texts[:5] == ["[", "  {", '    "a": 1', "  }", "]"]
    assert f'  "streamNextOffset": "{OFFSET}",' in texts
    assert texts[-3:] == ["AA==", "zwei", "über"]
    assert ("offset", "·") in lines


def test_half_an_event_is_shown_too() -> None:
    assert list(event_lines(b"event: data\ndata: [1")) == [("header", "── data "), ("text", "[1")]


def test_half_a_surrogate_pair_is_shown_as_it_is_written() -> None:
    told = "\n".join(line for _, line in event_lines(data_event(rb'[{"t":"\ud83d"}]')))
    assert r'"\ud83d"' in told.encode().decode()
