from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.cursors import (
    EPOCH_SECS,
    INTERVAL_SECS,
    MAX_DIGITS,
    MAX_STEP,
    checked_cursor,
    next_cursor,
)
from protocol.errors import ProtocolError

KEY = b"key"
NOW_SECS = EPOCH_SECS + 1000 * INTERVAL_SECS  # interval 1000
clocks = st.floats(0, 4e9)


def test_epoch_is_the_ninth_of_october_2024() -> None:
    assert datetime(2024, 10, 9, tzinfo=UTC).timestamp() == EPOCH_SECS


@pytest.mark.parametrize(
    ("now_s", "expected"),
    [
        pytest.param(EPOCH_SECS, 0, id="epoch"),
        pytest.param(EPOCH_SECS + 19.999, 0, id="end-of-the-first-interval"),
        pytest.param(EPOCH_SECS + 20, 1, id="second-interval"),
        pytest.param(EPOCH_SECS - 1000, 0, id="clock-before-the-epoch"),
    ],
)
def test_without_a_client_cursor_the_current_interval_is_sent(now_s: float, expected: int) -> None:
    assert next_cursor(now_s, None, KEY) == expected


@pytest.mark.parametrize(
    "client",
    [
        pytest.param("999", id="one-behind"),
        pytest.param("0", id="zero"),
        pytest.param("0000999", id="leading-zeros"),
        pytest.param("", id="empty"),
        pytest.param("abc", id="letters"),
        pytest.param("-5", id="negative"),
        pytest.param("+5000", id="plus-sign"),
        pytest.param("5000.0", id="fraction"),
        pytest.param(" 5000", id="blank"),
        pytest.param("5_000", id="underscore"),
        pytest.param("\u0665\u0660\u0660\u0660", id="arabic-digits"),
    ],
)
def test_behind_or_unparsable_gives_the_current_interval(client: str) -> None:
    assert next_cursor(NOW_SECS, client, KEY) == 1000


@pytest.mark.parametrize(
    "client", ["1000", "1001", "001000", "123456789", "9" * 15, "1" * 16, str(2**53 - 1), "9" * 32]
)
def test_client_not_behind_gets_a_step_of_1_to_180(client: str) -> None:
    assert 1 <= next_cursor(NOW_SECS, client, KEY) - int(client) <= MAX_STEP


@given(clocks, st.integers(0, 10**MAX_DIGITS - 1), st.binary(max_size=100))
def test_valid_cursor_strictly_grows(now_s: float, client: int, key: bytes) -> None:
    assert next_cursor(now_s, str(client), key) > client


@given(clocks, clocks, st.binary(max_size=100))
def test_echoed_cursors_strictly_grow_whatever_the_clock_does(
    first_s: float, second_s: float, key: bytes
) -> None:
    first = next_cursor(first_s, None, key)
    second = next_cursor(second_s, str(first), key)
    assert first < second < next_cursor(first_s, str(second), key)


@given(st.integers(1000, 10**15 - 1), st.binary(max_size=100))
def test_same_key_and_cursor_give_the_same_step_at_any_time(client: int, key: bytes) -> None:
    earlier = next_cursor(NOW_SECS - 500, str(client), key)
    assert next_cursor(NOW_SECS, str(client), key) == earlier


@pytest.mark.parametrize("token", [None, "", "abc", "-5", "5.0", "\u0665", "x" * 100])
def test_what_is_no_number_is_no_cursor(token: str | None) -> None:
    assert checked_cursor(token) is None


def test_a_number_too_long_to_go_on_from_is_refused() -> None:
    assert checked_cursor("9" * MAX_DIGITS) == "9" * MAX_DIGITS
    for token in ("1" + "0" * MAX_DIGITS, "1" * 100_000):
        with pytest.raises(ProtocolError) as caught:
            checked_cursor(token)
        assert (caught.value.status, caught.value.code) == (400, "invalid-cursor")


def test_steps_differ_by_key_and_spread_over_the_whole_range() -> None:
    steps = {next_cursor(NOW_SECS, "5000", b"%d" % n) - 5000 for n in range(5000)}
    assert steps == set(range(1, MAX_STEP + 1))


def test_long_keys_count_in_full() -> None:
    keys = [b"k" * 200 + b"%d" % n for n in range(20)]
    assert len({next_cursor(NOW_SECS, "5000", key) for key in keys}) > 1


@given(st.text(max_size=20))
def test_no_client_text_leads_below_the_current_interval(client: str) -> None:
    assert next_cursor(NOW_SECS, client, KEY) >= 1000
