"""RFC 3339 timestamps: grammar, calendar, and the moment they name."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.requests import EXPIRIES_MS
from protocol.timestamps import format_timestamp, timestamp_ms

ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=ZONES))
def test_whatever_python_can_say_is_read_back(moment: datetime) -> None:
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert timestamp_ms(moment.isoformat()) == expected
    assert timestamp_ms(moment.isoformat().lower().replace("t", " ")) == expected


@given(st.integers(EXPIRIES_MS[0], EXPIRIES_MS[-1]))
def test_what_is_written_is_read_back(at_ms: int) -> None:
    assert timestamp_ms(format_timestamp(at_ms)) == at_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.25z", 250),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1985-04-12T23:20:50.52Z", 482_196_050_520),
        ("1990-12-31T23:59:60Z", 662_688_000_000),  # a second of its own, told as the next one
        ("1990-12-31T15:59:60-08:00", 662_688_000_000),
        ("1970-01-01T00:00:00.00099999999999999999999Z", 0),
        ("2000-02-29T00:00:00-00:00", 951_782_400_000),
        ("0000-02-29T00:00:00Z", -62_162_121_600_000),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
    ],
)
def test_timestamps(text: str, ms: int) -> None:
    assert timestamp_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2025", "2025-01-15", "2025-01-15T10:30:00", "2025-01-15T10:30Z"),
        *("2025-13-01T00:00:00Z", "2025-00-01T00:00:00Z", "2025-02-29T00:00:00Z"),
        *("1900-02-29T00:00:00Z", "2025-04-31T00:00:00Z", "2025-01-00T00:00:00Z"),
        *("2025-01-15T24:00:00Z", "2025-01-15T10:60:00Z", "2025-01-15T10:30:61Z"),
        *("2025-01-15T10:30:60Z", "2025-01-15T23:59:60+01:00", "2025-01-15T10:30:00.Z"),
        *("2025-01-15T10:30:00+24:00", "2025-01-15T10:30:00+0100", "2025-01-15T10:30:00+01"),
        *("2025-01-15T10:30:00+01:60", "20250115T103000Z", "2025-W03-3T10:30:00Z"),
        *(" 2025-01-15T10:30:00Z", "2025-01-15T10:30:00Z\n", "٢٠٢٥-01-15T10:30:00Z"),
        *("2025-01-15T10:30:00,5Z", "+2025-01-15T10:30:00Z", "2025-01-15T10:30:00ZZ"),
    ],
)
def test_what_is_no_timestamp(text: str) -> None:
    assert timestamp_ms(text) is None
