"""What may be kept of an origin's answer, and how long it may be trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rules.freshness import Expiry, Policy, Times, judge, parse_cache_control

TIMES = Times(fresh_s=60, stale_s=300, stale_error_s=86_400, obey_no_store=True)
LAX = Times(fresh_s=60, stale_s=300, stale_error_s=86_400, obey_no_store=False)
IMMUTABLE = Policy(True, True, 60, 300, 86_400)
ASK_EACH_TIME = Policy(True, False)
KEEP_NOTHING = Policy(False, False)
OURS = "public, max-age=60, stale-while-revalidate=300, immutable"

CONTROLS = st.lists(
    st.sampled_from(
        ["public", "private", "no-store", "no-cache", "max-age=0", "max-age=5", "max-age=999"]
        + ["s-maxage=1", "s-maxage=0", "must-revalidate", "immutable", 'ext="a,b"', "max-age=x"]
    )
).map(", ".join)


def judged(
    control: str | None = None,
    *,
    up_to_date: bool = False,
    closed: bool = False,
    expiry: Expiry = Expiry.UNKNOWN,
    times: Times = TIMES,
) -> Policy:
    headers = {} if control is None else {"cache-control": control}
    return judge(headers, up_to_date=up_to_date, closed=closed, expiry=expiry, times=times)


# -- the policy table ----------------------------------------------------------------------------


@pytest.mark.parametrize("expiry", [Expiry.UNKNOWN, Expiry.NEVER])
def test_a_chunk_below_the_tail_never_changes(expiry: Expiry) -> None:
    assert judged(OURS, expiry=expiry) == IMMUTABLE


def test_a_closed_stream_never_changes_at_its_end() -> None:
    assert judged(OURS, up_to_date=True, closed=True) == IMMUTABLE


@pytest.mark.parametrize("control", [None, OURS, "public, max-age=600"])
def test_an_open_tail_needs_the_origins_word_whatever_it_says(control: str | None) -> None:
    assert judged(control, up_to_date=True, expiry=Expiry.NEVER) == ASK_EACH_TIME


@pytest.mark.parametrize("control", [None, OURS])
def test_a_stream_that_can_expire_needs_the_origins_word(control: str | None) -> None:
    assert judged(control, closed=True, expiry=Expiry.POSSIBLE) == ASK_EACH_TIME


def test_an_origin_that_says_nothing_is_trusted_once_expiry_is_known() -> None:
    assert judged(None) == ASK_EACH_TIME
    assert judged(None, expiry=Expiry.NEVER) == IMMUTABLE


# -- the origin's word ---------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["no-store", "private", "private, max-age=60", "NO-STORE"])
def test_what_the_origin_forbids_is_not_kept(control: str) -> None:
    assert judged(control, expiry=Expiry.NEVER) == KEEP_NOTHING


@pytest.mark.parametrize("control", ["no-store", "private, max-age=60"])
def test_by_configuration_an_origin_that_forbids_everything_is_asked_each_time(
    control: str,
) -> None:
    """Unless its streams are known not to expire: then its chunks are chunks."""
    assert judged(control, times=LAX) == ASK_EACH_TIME
    assert judged(control, times=LAX, expiry=Expiry.NEVER) == IMMUTABLE


@pytest.mark.parametrize(
    "control", ["no-cache", "max-age=0", "max-age=-1", "max-age=soon", "s-maxage=0, max-age=60"]
)
def test_what_must_be_asked_each_time_is(control: str) -> None:
    assert judged(control, expiry=Expiry.NEVER) == ASK_EACH_TIME


@pytest.mark.parametrize(
    ("control", "fresh_s"),
    [("max-age=7", 7), ("max-age=999", 60), ("s-maxage=9, max-age=7", 9), ('max-age="7"', 7)],
)
def test_the_origin_can_shorten_a_lifetime(control: str, fresh_s: float) -> None:
    assert judged(control).fresh_s == fresh_s


@pytest.mark.parametrize("word", ["must-revalidate", "proxy-revalidate"])
def test_what_must_not_be_served_stale_is_not(word: str) -> None:
    assert judged(f"max-age=7, {word}") == Policy(True, True, 7)


@given(CONTROLS, st.booleans(), st.booleans(), st.sampled_from(Expiry))
def test_an_origin_never_makes_it_looser(
    control: str, up_to_date: bool, closed: bool, expiry: Expiry
) -> None:
    told = judged(control, up_to_date=up_to_date, closed=closed, expiry=expiry)
    most = judged(OURS, up_to_date=up_to_date, closed=closed, expiry=expiry)
    assert told.store <= most.store and told.immutable <= most.immutable
    assert told.fresh_s <= most.fresh_s and told.stale_s <= most.stale_s
    assert told.stale_error_s <= most.stale_error_s


@given(CONTROLS, st.booleans(), st.booleans(), st.sampled_from(Expiry))
def test_only_what_never_changes_is_served_without_asking(
    control: str, up_to_date: bool, closed: bool, expiry: Expiry
) -> None:
    told = judged(control, up_to_date=up_to_date, closed=closed, expiry=expiry)
    served = told.fresh_s or told.stale_s or told.stale_error_s
    assert not served or (told.immutable and told.store)
    assert not told.immutable or (closed or not up_to_date)
    assert not told.immutable or expiry is not Expiry.POSSIBLE


# -- syntax --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", {}),
        ("max-age=60", {"max-age": 60}),
        (" Max-Age = 60 , PUBLIC ", {"max-age": None, "public": None}),
        ("max-age=99999999999999999999", {"max-age": 999_999_999}),
        (',,="x",no-store;', {"no-store": None}),
    ],
)
def test_directives_are_found(value: str, found: dict[str, int | None]) -> None:
    assert parse_cache_control(value) == found


@given(st.text(max_size=50))
def test_any_value_is_read_somehow(value: str) -> None:
    parse_cache_control(value)
