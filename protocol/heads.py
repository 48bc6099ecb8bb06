"""The head of a reply as its reader sees it: the inverse of `replies`, and of what other Durable
Streams servers send.

Lenient: offsets are taken as sent (`offsets.is_offset` checks them), and invalid numbers count as
absent. Standard library only, because Spark's executors run it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.etags import incarnation_of_etag
from protocol.names import is_true
from protocol.offsets import incarnation_of_offset
from protocol.timestamps import timestamp_ms

_MAX_DIGITS = 16  # of 2^53 - 1


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """Absent texts are empty, absent numbers None."""

    content_type: str = ""
    next_offset: str = ""
    up_to_date: bool = False
    closed: bool = False
    cursor: str = ""
    etag: str = ""
    incarnation: str = ""  # sent by our origin only
    earliest_offset: str = ""
    snapshot_offset: str = ""
    can_expire: bool = False
    ttl_s: int | None = None
    expires_at_ms: int | None = None
    cache_control: str = ""
    location: str = ""
    producer_epoch: int | None = None
    producer_seq: int | None = None
    expected_seq: int | None = None
    received_seq: int | None = None


def parse_head(headers: Mapping[str, str]) -> ReplyHead:
    """From headers with lower-case names."""
    get = headers.get
    etag, next_offset = get("etag", ""), get("stream-next-offset", "")
    ttl, expires = get("stream-ttl"), get("stream-expires-at")
    return ReplyHead(
        get("content-type", ""),
        next_offset,
        is_true(get("stream-up-to-date")),
        is_true(get("stream-closed")),
        get("stream-cursor", ""),
        etag,
        incarnation_of_etag(etag) or incarnation_of_offset(next_offset),
        get("stream-earliest-offset", ""),
        get("stream-snapshot-offset", ""),
        ttl is not None or expires is not None,
        _number(ttl),
        None if expires is None else timestamp_ms(expires),
        get("cache-control", ""),
        get("location", ""),
        _number(get("producer-epoch")),
        _number(get("producer-seq")),
        _number(get("producer-expected-seq")),
        _number(get("producer-received-seq")),
    )


def _number(text: str | None) -> int | None:
    if text is None or not text.isdigit() or not text.isascii() or len(text) > _MAX_DIGITS:
        return None
    return int(text)
