"""Names both sides of the wire agree on: paths, headers, query keys, fixed values.

Header names are written in the case we send; requests are looked up in lower case.
"""

STREAM_PREFIX = "/v1/stream/"
BUCKET_PREFIX = "/ds/"

METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS"
DEFAULT_CONTENT_TYPE = "application/octet-stream"
JSON_TYPE = "application/json"
MAX_SAFE_INTEGER = 2**53 - 1

STREAM_NEXT_OFFSET = "Stream-Next-Offset"
STREAM_UP_TO_DATE = "Stream-Up-To-Date"
STREAM_CLOSED = "Stream-Closed"
STREAM_CURSOR = "Stream-Cursor"
STREAM_SEQ = "Stream-Seq"
STREAM_TTL = "Stream-TTL"
STREAM_EXPIRES_AT = "Stream-Expires-At"
STREAM_FORKED_FROM = "Stream-Forked-From"
STREAM_FORK_OFFSET = "Stream-Fork-Offset"
STREAM_FORK_SUB_OFFSET = "Stream-Fork-Sub-Offset"
STREAM_SSE_DATA_ENCODING = "Stream-SSE-Data-Encoding"
STREAM_SNAPSHOT_OFFSET = "Stream-Snapshot-Offset"
STREAM_EARLIEST_OFFSET = "Stream-Earliest-Offset"
STREAM_STATE = "Stream-State"
ACCESS_KEY = "Weir-Access-Key"  # identifies gateways to their origin
# Between the nodes of a cluster; clients need none of them.
WEIR_ROUTING = "Weir-Routing"  # `redirect` asks for the owner's URL instead of its answer
WEIR_MAP = "Weir-Map"  # the version of the map by which a node forwarded
WEIR_HOP = "Weir-Hop"  # how many nodes a request has passed
WEIR_SHARD = "Weir-Shard"  # the shard that it is for
WEIR_HOST = "Weir-Host"  # host and ...
WEIR_SCHEME = "Weir-Scheme"  # ... scheme by which the client addressed the first node
WEIR_GRANT = "Weir-Grant"  # what a shard permitted for a creation
LAST_EVENT_ID = "Last-Event-ID"  # of a reconnecting EventSource
PRODUCER_ID = "Producer-Id"
PRODUCER_EPOCH = "Producer-Epoch"
PRODUCER_SEQ = "Producer-Seq"
PRODUCER_EXPECTED_SEQ = "Producer-Expected-Seq"
PRODUCER_RECEIVED_SEQ = "Producer-Received-Seq"

# What a browser may send and read across origins (Fetch does not let `*` cover Authorization).
CORS_REQUEST_HEADERS = (
    *("Authorization", "Content-Type", "If-Match", "If-None-Match", LAST_EVENT_ID, "X-Request-Id"),
    *(STREAM_SEQ, STREAM_TTL, STREAM_EXPIRES_AT, STREAM_CLOSED),
    *(STREAM_FORKED_FROM, STREAM_FORK_OFFSET, STREAM_FORK_SUB_OFFSET, STREAM_STATE),
    *(PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ),
)
CORS_EXPOSED_HEADERS = (
    *(STREAM_NEXT_OFFSET, STREAM_CURSOR, STREAM_UP_TO_DATE, STREAM_CLOSED),
    *(STREAM_SSE_DATA_ENCODING, STREAM_TTL, STREAM_EXPIRES_AT),
    *(STREAM_SNAPSHOT_OFFSET, STREAM_EARLIEST_OFFSET, STREAM_STATE),
    *(PRODUCER_EPOCH, PRODUCER_SEQ, PRODUCER_EXPECTED_SEQ, PRODUCER_RECEIVED_SEQ),
    *("ETag", "Location", "Retry-After", "WWW-Authenticate"),
    *("Cache-Status", "Age", "X-Request-Id"),
)


def is_true(value: str | None) -> bool:
    """Whether a flag such as Stream-Closed is set: `true` in any case; anything else counts as
    absent (DS 4.1)."""
    return value is not None and value.strip().lower() == "true"
