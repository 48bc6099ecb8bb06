"""The access log: the single definition of its lines and file names.

A line is one JSON object in UTF-8; its only newline is at the end, whatever its strings contain.
Writers and readers (the gateway, Spark's schema) take the fields from `AccessRecord`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

VERSION = 1
HOUR_MS = 3_600_000

# Clients choose some of the strings. User agents are always truncated; all strings are if the line
# is longer than LONG_LINE_BYTES.
USER_AGENT_CHARACTERS = 200
LONG_LINE_BYTES = 2048
STREAM_CHARACTERS = 4096
TEXT_CHARACTERS = 256  # of every other string

MODES = (
    *("catch-up", "now", "long-poll", "sse", "head"),
    *("create", "append", "close", "delete"),
    *("snapshot", "bootstrap", "publish", "withdraw", "bucket", "list"),
    *("preflight", "service", "other"),
)
# Reads are requests that could be served from stored bytes; writes and others are passed on.
READ_VERDICTS = ("hit", "stale", "revalidated", "miss", "hub")
VERDICTS = (*READ_VERDICTS, "pass", "refused", "error")
ROLES = ("", "leader", "follower", "hub")
ENDINGS = (
    *("", "rotated", "token-expired", "token-revoked", "slow", "client-left"),
    *("closed", "deleted", "trimmed", "drained", "upstream-error"),
)


class AccessRecord(msgspec.Struct, kw_only=True, gc=False):
    """One client request, written when its response has ended."""

    v: int = VERSION  # schema version; changes when a field changes meaning, not for new fields
    time_ms: int  # when the request began, Unix time in milliseconds
    gateway: str  # name of the gateway
    worker: int  # number of the worker process
    seq: int  # line number since the worker started: a gap means dropped lines, a repeat a copy
    request_id: str  # as sent to the client and upstream
    flight_id: str = ""  # shared upstream fetch or hub that served the request; empty = none
    role: str = ""  # role in that flight, one of ROLES
    client: str = ""  # client address, as seen by the trusted proxies
    subject: str = ""  # token subject; empty = no valid token
    method: str  # HTTP method
    stream: str = ""  # canonical name of the stream or bucket; empty = any other URL
    mode: str  # kind of request, one of MODES
    offset: str = ""  # requested offset
    status: int  # HTTP status
    verdict: str  # how the request was served, one of VERDICTS
    bytes_sent: int = 0  # response body bytes written to the connection
    bytes_received: int = 0  # request body bytes
    duration_ms: float = 0.0  # from the request head to the end of the response
    wait_ms: float = 0.0  # part of it spent waiting for a shared fetch or at a hub
    upstream_ms: float = 0.0  # part of it spent on this request's own upstream requests
    upstream_requests: int = 0  # upstream requests made for it, alone or as flight leader
    encoding: str = ""  # content encoding of the body; empty = identity
    ended: str = ""  # why an SSE response ended, one of ENDINGS
    error: str = ""  # code of the problem in the response
    user_agent: str = ""  # at most USER_AGENT_CHARACTERS


@dataclass(frozen=True, slots=True)
class LogFile:
    """What a log file's name says: the worker that wrote it, and the hour."""

    gateway: str
    worker: int
    hour_ms: int  # its beginning, Unix time in milliseconds


_TEXTS = tuple(field.name for field in msgspec.structs.fields(AccessRecord) if field.type is str)
_BOUNDS = dict.fromkeys(_TEXTS, TEXT_CHARACTERS) | {
    "stream": STREAM_CHARACTERS,
    "user_agent": USER_AGENT_CHARACTERS,
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_HOUR = "%Y%m%dT%H"
_GATEWAY = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FILE = re.compile(
    rf"access-({_GATEWAY.pattern})-(0|[1-9][0-9]{{0,5}})-([0-9]{{8}}T[0-9]{{2}})\.jsonl(?:\.gz)?"
)

_CUTS = (b"gateway", b"seq", b"flight_id", b"method", b"user_agent")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AccessRecord)


def append_line(record: AccessRecord, buffer: bytearray) -> None:
    """Append one line with its newline; cheaper than a bytes object per line."""
    start = len(buffer)
    try:
        _encoder.encode_into(record, buffer, -1)
        fits = len(buffer) - start <= LONG_LINE_BYTES
    except UnicodeEncodeError:  # non-UTF-8 header bytes become lone surrogates
        fits = False
    if not fits or len(record.user_agent) > USER_AGENT_CHARACTERS:
        del buffer[start:]
        _encoder.encode_into(_clean(record), buffer, -1)
    buffer += b"\n"


def encode_line(record: AccessRecord) -> bytes:
    buffer = bytearray()
    append_line(record, buffer)
    return bytes(buffer)


class LineParts(NamedTuple):
    """A line split into parts, so that shared parts are encoded only once."""

    gateway: bytes  # up to the sequence number
    who: bytes  # flight to subject
    what: bytes  # method to error
    agent: bytes  # user agent and the end


def cut_line(record: AccessRecord) -> LineParts:
    """Without time, sequence number and request id. Quotes within strings are escaped, so field
    names can be found by searching."""
    line = encode_line(record)
    at = [line.index(b',"%b":' % name) for name in _CUTS]
    return LineParts(
        line[at[0] : at[1]] + b',"seq":', line[at[2] : at[3]], line[at[3] : at[4]], line[at[4] :]
    )


def join_line(
    time_ms: int, seq: int, request_id: str, gateway: bytes, who: bytes, what: bytes, agent: bytes
) -> bytes:
    """The whole line; `request_id` needs no escapes."""
    head = b'{"v":%d,"time_ms":%d%b%d,"request_id":"%b"'
    return head % (VERSION, time_ms, gateway, seq, request_id.encode()) + who + what + agent


def decode_line(line: bytes) -> AccessRecord:
    """Unknown fields are ignored; raises ValueError."""
    try:
        return _decoder.decode(line)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error


def file_name(gateway: str, worker: int, time_ms: int) -> str:
    """The file for a worker's lines at this time; hours are in UTC."""
    if not _GATEWAY.fullmatch(gateway):
        raise ValueError(f"{gateway!r} cannot be part of a file name")
    hour = datetime.fromtimestamp(time_ms // HOUR_MS * 3600, UTC).strftime(_HOUR)
    return f"access-{gateway}-{worker}-{hour}.jsonl"


def parse_file_name(name: str) -> LogFile | None:
    """None for foreign names. Files may have been compressed."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    try:
        hour = datetime.strptime(found[3], _HOUR).replace(tzinfo=UTC)
    except ValueError:
        return None
    return LogFile(found[1], int(found[2]), int(hour.timestamp()) * 1000)


def _clean(record: AccessRecord) -> AccessRecord:
    """The record with truncated, encodable strings."""
    texts = {name: getattr(record, name)[:most] for name, most in _BOUNDS.items()}
    valid = {name: _SURROGATE.sub("\ufffd", text) for name, text in texts.items()}
    return msgspec.structs.replace(record, **valid)
