"""RFC 3339 timestamps, written in one form and read in all that the grammar allows: leap seconds,
year 0, any number of fraction digits, lower-case letters, and a space for the `T`.
"""

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)
_CALENDAR = timedelta(days=146_097)  # 400 years, after which it repeats


def format_timestamp(at_ms: int) -> str:
    """Unix time in milliseconds, of the years 1 to 9999."""
    moment = _EPOCH + at_ms * _MILLISECOND
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_ms(text: str) -> int | None:
    """Unix time in milliseconds; None if the text is not an RFC 3339 timestamp."""
    if _RFC3339.fullmatch(text) is None:
        return None
    try:
        if text[17:19] == "60" or text[:4] == "0000":
            since = _unknown_to_python(text)
        else:
            since = datetime.fromisoformat(text.upper()) - _EPOCH
    except ValueError:  # the 30th of February, a leap second at noon
        return None
    return since // _MILLISECOND


def _unknown_to_python(text: str) -> timedelta:
    """For year 0 and leap seconds, which Python does not support."""
    is_leap, is_zero = text[17:19] == "60", text[:4] == "0000"
    year = "0400" if is_zero else text[:4]
    known = year + text[4:17] + ("59" if is_leap else text[17:19]) + text[19:]
    since = datetime.fromisoformat(known.upper()) - _EPOCH
    if is_leap:
        since += timedelta(seconds=1)
        if since % _DAY >= timedelta(seconds=1):
            raise ValueError("a leap second must end a day in UTC")
    return since - _CALENDAR if is_zero else since
