"""One value for the log, the metric and `Cache-Status`."""

import pytest

from gateway.outcomes import FROM_HUB, FROM_WINDOW, HIT, PASSED, UNDECIDED, Outcome, read_outcome


@pytest.mark.parametrize(
    ("verdict", "role", "status", "stored", "text"),
    [
        ("hit", "", 0, False, "weir; hit"),
        ("hit", "follower", 0, False, "weir; hit; collapsed; detail=collapsed"),
        ("stale", "follower", 500, False, "weir; hit; detail=stale"),
        ("revalidated", "leader", 304, True, "weir; fwd=stale; fwd-status=304"),
        ("miss", "leader", 200, True, "weir; fwd=uri-miss; fwd-status=200; stored"),
        (
            "miss",
            "follower",
            404,
            False,
            "weir; fwd=uri-miss; fwd-status=404; collapsed; detail=collapsed",
        ),
        ("hub", "", 0, False, "weir; hit; detail=hub"),
        ("pass", "", 200, False, "weir; fwd=bypass"),
    ],
)
def test_reads_through_the_cache(
    verdict: str, role: str, status: int, stored: bool, text: str
) -> None:
    outcome = read_outcome(verdict, role, status=status, stored=stored)
    assert outcome == Outcome(verdict, text, role)


def test_a_role_stays_until_another_replaces_it() -> None:
    led = read_outcome("miss", "leader", status=200, stored=True)
    assert HIT.after(led) == Outcome("hit", "weir; hit", "leader")
    assert FROM_HUB.after(led) is FROM_HUB
    assert HIT.after(UNDECIDED) is HIT


def test_what_went_wrong_keeps_what_was_said_before() -> None:
    assert PASSED.failed() == Outcome("error", "weir; fwd=bypass")
    assert UNDECIDED.refused() == Outcome("refused")
    assert HIT.at_hub() == Outcome("hit", "weir; hit", "hub")


def test_waiting_at_a_hub_and_its_window_are_told_apart() -> None:
    assert FROM_HUB.verdict == FROM_WINDOW.verdict == "hub"
    assert FROM_HUB.cache_status != FROM_WINDOW.cache_status
