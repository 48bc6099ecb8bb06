"""The access log: the one definition of a line, and of the names of its files.

A line is one JSON object in UTF-8 that ends with the only newline in it, whatever its strings hold.
Writers and readers (the gateway, Spark's schema) take the fields from `AccessRecord`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

VERSION = 1
HOUR_MS = 3_600_000

# Clients choose some of the strings. A user agent is always cut, all strings are when the line is
# longer than LONG_LINE_BYTES.
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
# Reads are requests that stored bytes could have answered; writes and the like are passed on.
READ_VERDICTS = ("hit", "stale", "revalidated", "miss", "hub")
VERDICTS = (*READ_VERDICTS, "pass", "refused", "error")
ROLES = ("", "leader", "follower", "hub")
ENDINGS = (
    *("", "rotated", "token-expired", "token-revoked", "slow", "client-left"),
    *("closed", "deleted", "trimmed", "drained", "upstream-error"),
)


class AccessRecord(msgspec.Struct, kw_only=True, gc=False):
    """One request of one client, written when its response has ended."""

    v: int = VERSION  # of this schema; a new field does not change it, a new meaning does
    time_ms: int  # when the request began, Unix time in milliseconds
    gateway: str  # name of the gateway
    worker: int  # number of its worker process
    seq: int  # counts the worker's lines from its start: a gap was dropped, a repeat was copied
    request_id: str  # as sent to the client and upstream
    flight_id: str = ""  # the shared upstream fetch or hub that answered; empty = none
    role: str = ""  # in that flight, one of ROLES
    client: str = ""  # address of the client, behind the trusted proxies
    subject: str = ""  # of the token; empty = no valid token
    method: str  # of HTTP
    stream: str = ""  # canonical name of a stream or bucket; empty = the URL of neither
    mode: str  # kind of request, one of MODES
    offset: str = ""  # as asked for
    status: int  # of HTTP
    verdict: str  # how it was answered, one of VERDICTS
    bytes_sent: int = 0  # of the body, as written to the connection
    bytes_received: int = 0  # of the request's body
    duration_ms: float = 0.0  # from the request's head to the end of the response
    wait_ms: float = 0.0  # of it, spent waiting for somebody else's flight or in a hub
    upstream_ms: float = 0.0  # of it, spent on upstream requests of its own
    upstream_requests: int = 0  # made for this request alone or as the leader
    encoding: str = ""  # content encoding of the body; empty = identity
    ended: str = ""  # why an SSE response ended, one of ENDINGS
    error: str = ""  # code of the problem that was answered
    user_agent: str = ""  # at most USER_AGENT_CHARACTERS


@dataclass(frozen=True, slots=True)
class LogFile:
    """What the name of a file says: whose lines it has, and of which hour."""

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
    """Add one line with its newline; cheaper than making a bytes object of each."""
    start = len(buffer)
    try:
        _encoder.encode_into(record, buffer, -1)
        fits = len(buffer) - start <= LONG_LINE_BYTES
    except UnicodeEncodeError:  # header bytes that are not UTF-8 come as lone surrogates
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
    """A line, cut so that lines which have a part in common need not encode it again."""

    gateway: bytes  # up to the sequence number
    who: bytes  # flight to subject
    what: bytes  # method to error
    agent: bytes  # user agent and the end


def cut_line(record: AccessRecord) -> LineParts:
    """Without time, sequence number and request id. A quote within a string is escaped, so what
    looks like the name of a field is one."""
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
    """Fields that this version does not know are left out; raises ValueError."""
    try:
        return _decoder.decode(line)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error


def file_name(gateway: str, worker: int, time_ms: int) -> str:
    """Of the file that a worker's lines of that time go to; hours are those of UTC."""
    if not _GATEWAY.fullmatch(gateway):
        raise ValueError(f"{gateway!r} cannot be part of a file name")
    hour = datetime.fromtimestamp(time_ms // HOUR_MS * 3600, UTC).strftime(_HOUR)
    return f"access-{gateway}-{worker}-{hour}.jsonl"


def parse_file_name(name: str) -> LogFile | None:
    """None for anything that is not ours. Whoever keeps the files may have compressed them."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    try:
        hour = datetime.strptime(found[3], _HOUR).replace(tzinfo=UTC)
    except ValueError:
        return None
    return LogFile(found[1], int(found[2]), int(hour.timestamp()) * 1000)


def _clean(record: AccessRecord) -> AccessRecord:
    """The record with strings that any line can hold."""
    texts = {name: getattr(record, name)[:most] for name, most in _BOUNDS.items()}
    valid = {name: _SURROGATE.sub("\ufffd", text) for name, text in texts.items()}
    return msgspec.structs.replace(record, **valid)
