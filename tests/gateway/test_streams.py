"""What is known of a stream beside its chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rules.freshness import Expiry
from gateway.streams import MAX_STREAMS, News, Streams
from protocol.heads import ReplyHead, parse_head


@pytest.fixture
def streams() -> Streams:
    return Streams()


# -- incarnations --------------------------------------------------------------------------------


def learn(streams: Streams, incarnation: str, departure: int | None = None) -> News:
    """From an answer to what left at that stamp, or just now."""
    left = next(streams.stamps) if departure is None else departure
    return streams.learn_incarnation("a", incarnation, left)


def test_the_first_incarnation_replaces_nothing(streams: Streams) -> None:
    assert learn(streams, "one") is News.FIRST
    assert learn(streams, "one") is News.NOTHING


def test_another_incarnation_that_was_asked_for_later_is_a_replacement(streams: Streams) -> None:
    learn(streams, "one")
    assert learn(streams, "two") is News.REPLACED
    assert learn(streams, "two") is News.NOTHING


def test_of_two_that_were_under_way_at_once_neither_is_believed(streams: Streams) -> None:
    """Which one the origin looked at first, their order here does not say."""
    early, late = next(streams.stamps), next(streams.stamps)
    learn(streams, "one", early)
    assert learn(streams, "two", late) is News.CONTESTED
    assert streams.get("a").incarnation == ""


def test_an_origin_that_names_none_teaches_nothing(streams: Streams) -> None:
    learn(streams, "one")
    assert learn(streams, "") is News.NOTHING
    assert streams.get("a").incarnation == "one"


def test_what_was_forgotten_replaces_nothing(streams: Streams) -> None:
    learn(streams, "one")
    streams.forget("a")
    assert streams.peek("a") is None
    assert learn(streams, "two") is News.FIRST


def test_a_stream_begins_later_and_later(streams: Streams) -> None:
    assert streams.learn_earliest("a", "5")
    assert not streams.learn_earliest("a", "5") and not streams.learn_earliest("a", "4")
    assert streams.learn_earliest("a", "6") and streams.get("a").earliest == "6"
    streams.forget("a")
    assert streams.learn_earliest("a", "1"), "it is another stream"


@given(st.permutations(range(15)), st.sets(st.integers(0, 4)), st.integers(0, 15))
def test_whatever_order_answers_come_in_the_old_stream_is_never_kept_after_the_new_was_seen(
    moments: list[int], fetches: set[int], recreated_at: int
) -> None:
    """Five requests leave, are looked at by the origin and come back, at any moments; some of them
    are fetches, whose answers are kept unless something was purged meanwhile."""
    streams, departures, purges = Streams(), dict[int, int](), 0
    kept, seen_new, purges_before = set[str](), False, dict[int, int]()
    trips = [sorted(moments[at : at + 3]) for at in range(0, 15, 3)]
    for moment in range(15):
        [number] = [n for n, trip in enumerate(trips) if moment in trip]
        left, looked, came = trips[number]
        if moment == left:
            departures[number], purges_before[number] = next(streams.stamps), purges
        if moment != came or (number in fetches and purges_before[number] < purges):
            continue
        told = "old" if looked < recreated_at else "new"
        news = streams.learn_incarnation("a", told, departures[number])
        if news in (News.REPLACED, News.CONTESTED):
            kept, purges = set(), purges + 1
        if number in fetches and news is not News.CONTESTED:
            kept.add(told)
        seen_new |= told == "new"
        assert not (seen_new and "old" in kept)


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
    streams.learn_expiry("a", parse_head(headers))
    assert (streams.get("a").expiry, streams.get("a").ttl_s) == (expiry, ttl_s)


def test_a_sliding_window_is_renewed_several_times_before_it_ends(streams: Streams) -> None:
    streams.learn_expiry("a", ReplyHead(can_expire=True, ttl_s=40))
    streams.get("a").touched_at = 100.0
    assert not streams.needs_touch("a", 109.0)
    assert streams.needs_touch("a", 111.0)


@pytest.mark.parametrize("headers", [{}, {"stream-expires-at": "2030-01-01T00:00:00Z"}])
def test_what_has_no_window_needs_no_touch(streams: Streams, headers: dict[str, str]) -> None:
    assert not streams.needs_touch("a", 10.0**9)
    streams.learn_expiry("a", parse_head(headers))
    assert not streams.needs_touch("a", 10.0**9)


def test_what_is_known_is_bounded(streams: Streams) -> None:
    for number in range(MAX_STREAMS + 10):
        streams.get(str(number))
    assert streams.peek("0") is None and streams.peek(str(MAX_STREAMS + 9)) is not None


def test_streams_that_were_told_of_are_named_newest_first() -> None:
    streams = Streams()
    streams.learn_incarnation("a", "1", 1)
    streams.learn_expiry("b", ReplyHead())
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
