"""What is known of a stream beside its chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rules.freshness import Expiry
from gateway.streams import MAX_STREAMS, News, Streams


@pytest.fixture
def streams() -> Streams:
    return Streams()


# -- incarnations --------------------------------------------------------------------------------


def test_the_first_incarnation_is_no_news(streams: Streams) -> None:
    assert streams.learn_incarnation("a", "one", 1) is News.NOTHING
    assert streams.learn_incarnation("a", "one", 2) is News.NOTHING


def test_another_incarnation_that_was_asked_for_later_is_a_replacement(streams: Streams) -> None:
    streams.learn_incarnation("a", "one", 1)
    assert streams.learn_incarnation("a", "two", 2) is News.REPLACED
    assert streams.learn_incarnation("a", "two", 3) is News.NOTHING


def test_an_old_incarnation_that_was_asked_for_earlier_is_outdated(streams: Streams) -> None:
    streams.learn_incarnation("a", "two", 5)
    assert streams.learn_incarnation("a", "one", 4) is News.OUTDATED
    assert streams.get("a").incarnation == "two"


def test_an_origin_that_names_none_teaches_nothing(streams: Streams) -> None:
    streams.learn_incarnation("a", "one", 1)
    assert streams.learn_incarnation("a", "", 2) is News.NOTHING
    assert streams.get("a").incarnation == "one"


def test_what_was_forgotten_is_no_news_again(streams: Streams) -> None:
    streams.learn_incarnation("a", "one", 1)
    streams.forget("a")
    assert streams.peek("a") is None
    assert streams.learn_incarnation("a", "two", 2) is News.NOTHING


def test_a_stream_begins_later_and_later(streams: Streams) -> None:
    assert streams.learn_earliest("a", "5")
    assert not streams.learn_earliest("a", "5") and not streams.learn_earliest("a", "4")
    assert streams.learn_earliest("a", "6") and streams.get("a").earliest == "6"
    streams.forget("a")
    assert streams.learn_earliest("a", "1"), "it is another stream"


@given(st.permutations(range(1, 7)), st.integers(1, 5))
def test_whatever_order_answers_come_in_the_latest_incarnation_stays(
    arrivals: list[int], recreated_at: int
) -> None:
    """Requests that left before the re-creation saw the old stream, later ones the new one."""
    streams = Streams()
    for departure in arrivals:
        seen = "old" if departure <= recreated_at else "new"
        news = streams.learn_incarnation("a", seen, departure)
        known = streams.get("a").incarnation
        assert news is not News.OUTDATED or (seen, known) == ("old", "new")
        assert news is not News.REPLACED or seen == known == "new"
    assert streams.get("a").incarnation == "new"


# -- expiry --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expiry", "ttl_s"),
    [
        ({}, Expiry.NEVER, None),
        ({"stream-ttl": "60"}, Expiry.POSSIBLE, 60.0),
        ({"stream-expires-at": "2030-01-01T00:00:00Z"}, Expiry.POSSIBLE, None),
        ({"stream-ttl": "soon"}, Expiry.POSSIBLE, None),
        ({"stream-ttl": "9" * 400}, Expiry.POSSIBLE, None),
    ],
)
def test_expiry_is_learned_from_headers(
    streams: Streams, headers: dict[str, str], expiry: Expiry, ttl_s: float | None
) -> None:
    assert streams.get("a").expiry is Expiry.UNKNOWN
    streams.learn_expiry("a", headers)
    assert (streams.get("a").expiry, streams.get("a").ttl_s) == (expiry, ttl_s)


def test_a_sliding_window_is_renewed_several_times_before_it_ends(streams: Streams) -> None:
    streams.learn_expiry("a", {"stream-ttl": "40"})
    streams.get("a").touched_at = 100.0
    assert not streams.needs_touch("a", 109.0)
    assert streams.needs_touch("a", 111.0)


@pytest.mark.parametrize("headers", [{}, {"stream-expires-at": "2030-01-01T00:00:00Z"}])
def test_what_has_no_window_needs_no_touch(streams: Streams, headers: dict[str, str]) -> None:
    assert not streams.needs_touch("a", 10.0**9)
    streams.learn_expiry("a", headers)
    assert not streams.needs_touch("a", 10.0**9)


def test_what_is_known_is_bounded(streams: Streams) -> None:
    for number in range(MAX_STREAMS + 10):
        streams.get(str(number))
    assert streams.peek("0") is None and streams.peek(str(MAX_STREAMS + 9)) is not None


def test_streams_that_were_told_of_are_named_newest_first() -> None:
    streams = Streams()
    streams.learn_incarnation("a", "1", 1)
    streams.learn_expiry("b", {})
    streams.get("only asked for")
    assert streams.recent(9) == ["b", "a"]
    assert streams.recent(1) == ["b"]


def test_naming_them_keeps_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.streams.MAX_STREAMS", 2)
    streams = Streams()
    streams.learn_incarnation("a", "1", 1)
    streams.learn_incarnation("b", "1", 1)
    streams.recent(9)
    streams.get("a")
    streams.recent(9)
    streams.learn_incarnation("c", "1", 1)
    assert streams.recent(9) == ["c", "a"]
