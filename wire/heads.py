"""Request heads that need no full parser: the plain subset, and `None` for everything else.

A head is accepted only if nothing about it is unusual: HTTP/1.1, origin-form target, visible ASCII,
each header once, a plain length. All others go to aiohttp unchanged, so this module never has to
decide what is malformed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Generic, Protocol, TypeVar, cast

from protocol.paths import Rename

END = b"\r\n\r\n"

_REQUEST_LINE = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS) (/[!-~]*) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~]*)")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,14}")
_ID = "[A-Za-z0-9._:-]{1,64}"
_REQUEST_ID = re.compile(_ID)
# As spelled by Envoy, nginx and others.
_ID_STARTS = tuple(b"\r\n%s: " % n for n in (b"x-request-id", b"X-Request-ID", b"X-Request-Id"))
_ID_REST = re.compile(rb"%s(?=\r\n)" % _ID.encode())
_SPECIAL = frozenset(
    {"transfer-encoding", "expect", "upgrade", "te", "trailer", "content-encoding"}
)
LINE_ENTRIES = 4096
LINE_BYTES = 2048
MEMO_ENTRIES = 16_384
MEMO_BYTES = 16 * 1024 * 1024
MEMO_FORGOTTEN = MEMO_ENTRIES // 8
MEMO_PART_BYTES = 4096
MEMO_SEEN = MEMO_ENTRIES


@dataclass(slots=True)
class Target:
    """The request line. `parsed` is the service's interpretation, kept for the next time."""

    method: str
    path: str
    query: str
    parsed: object = field(default=None, compare=False)


@dataclass(slots=True)
class Fields:
    """All header lines. `parsed` as in `Target`; `admitted` if a service accepts requests with
    these headers."""

    headers: dict[str, str]  # lower-case names
    content_length: int
    parsed: object = field(default=None, compare=False)
    admitted: bool = field(default=False, compare=False)


class Admission(Protocol):
    """Permission to send a body, granted before it arrives."""

    def release(self) -> None:
        """The body has arrived, or never will."""


@dataclass(slots=True)
class Head:
    """`request_id` is the client's, if it may be passed on; `admission` is what a service granted
    to this request."""

    target: Target
    fields: Fields
    request_id: str = ""
    admission: Admission | None = field(default=None, compare=False)

    @property
    def method(self) -> str:
        return self.target.method

    @property
    def path(self) -> str:
        return self.target.path

    @property
    def query(self) -> str:
        return self.target.query

    @property
    def headers(self) -> dict[str, str]:
        return self.fields.headers

    @property
    def content_length(self) -> int:
        return self.fields.content_length


def make_head(
    method: str, path: str, query: str, headers: dict[str, str], content_length: int
) -> Head:
    return Head(Target(method, path, query), Fields(headers, content_length), id_in(headers))


def parse_head(data: bytes) -> Head | None:
    """`data` is one complete head, which ends with its empty line."""
    line, _, rest = data.partition(b"\r\n")
    target, fields = parse_target(line), parse_fields(rest)
    return None if target is None or fields is None else Head(target, fields, id_in(fields.headers))


def id_in(headers: dict[str, str]) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else ""


def cut_id(rest: bytes) -> tuple[bytes, str]:
    """The header lines without a proxy's `x-request-id`, and that id.

    A proxy in front adds one to every request, which would make every set of lines different.
    Nothing is removed if anything follows the empty line.
    """
    for name in _ID_STARTS:
        if (start := rest.find(name)) >= 0:
            break
    else:
        return rest, ""
    match = _ID_REST.match(rest, start + len(name))
    if match is None or rest.find(END) != len(rest) - len(END):
        return rest, ""
    return rest[:start] + rest[match.end() :], match[0].decode("ascii")


def parse_target(line: bytes, rename: Rename = str) -> Target | None:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None or b"#" in line:
        return None
    path, _, query = match[2].decode("ascii").partition("?")
    return Target(match[1].decode("ascii"), rename(path), query)


def parse_fields(rest: bytes) -> Fields | None:
    """`rest` is everything after the request line, the empty line included."""
    if not rest.endswith(END):
        return None
    lines = [_parse_field(line) for line in rest.split(b"\r\n")[:-2]]
    if None in lines:
        return None
    headers = dict(cast(list[tuple[str, str]], lines))
    if len(headers) != len(lines) or "host" not in headers:
        return None
    if not _SPECIAL.isdisjoint(headers):
        return None
    if "connection" in headers and headers["connection"].lower() != "keep-alive":
        return None
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        return None
    return Fields(headers, int(length))


def _parse_field(line: bytes) -> tuple[str, str] | None:
    return _recall_field(line) if len(line) <= LINE_BYTES else _read_field(line)


def _read_field(line: bytes) -> tuple[str, str] | None:
    """(lower-case name, value)"""
    match = _FIELD.fullmatch(line)
    if match is None:
        return None
    return match[1].decode("ascii").lower(), match[2].decode("ascii").rstrip(" \t")


# Sets of lines usually differ in a line or two; the rest repeat.
_recall_field = lru_cache(maxsize=LINE_ENTRIES)(_read_field)


Part = TypeVar("Part")


class Memo(Generic[Part]):
    """Clients repeat themselves byte for byte, and a parse is a pure function of those bytes.

    Many occur only once: they contain a sequence number, a condition, or a trace id. So a head is
    remembered when it occurs for the second time; after the first, only a hash is kept.
    """

    def __init__(self, parse: Callable[[bytes], Part | None]) -> None:
        self.known: dict[bytes, Part] = {}
        self._parse = parse
        self._bytes = 0
        self._seen: set[int] = set()

    def find(self, data: bytes) -> Part | None:
        part = self.known.get(data)
        if part is None:
            part = self._parse(data)
            if part is not None and len(data) <= MEMO_PART_BYTES and self._comes_again(data):
                self._remember(data, part)
        return part

    def _comes_again(self, data: bytes) -> bool:
        trace = hash(data)
        if trace in self._seen:
            return True
        if len(self._seen) >= MEMO_SEEN:
            self._seen.clear()
        self._seen.add(trace)
        return False

    def _remember(self, data: bytes, part: Part) -> None:
        if len(self.known) >= MEMO_ENTRIES or self._bytes >= MEMO_BYTES:
            self._forget_oldest()
        self.known[data] = part
        self._bytes += len(data)

    def _forget_oldest(self) -> None:
        """Only some of them: dropping all at once would cause a noticeable pause."""
        for data in list(islice(self.known, MEMO_FORGOTTEN)):
            del self.known[data]
            self._bytes -= len(data)


class HeadMemo:
    """Request lines repeat across clients, header lines across requests: each has its own memo."""

    def __init__(self, rename: Rename = str) -> None:
        self.targets = Memo(lambda line: parse_target(line, rename))
        self.fields = Memo(parse_fields)

    def recall(self, data: bytes) -> Head | None:
        """The head, if `data` is exactly one head whose parts were all seen before."""
        line, _, rest = data.partition(b"\r\n")
        lines, request_id = cut_id(rest)
        return _join(self.targets.known.get(line), self.fields.known.get(lines), request_id)

    def parse(self, data: bytes) -> Head | None:
        line, _, rest = data.partition(b"\r\n")
        lines, request_id = cut_id(rest)
        return _join(self.targets.find(line), self.fields.find(lines), request_id)


def _join(target: Target | None, fields: Fields | None, cut: str) -> Head | None:
    if target is None or fields is None:
        return None
    if not cut:
        return Head(target, fields, id_in(fields.headers))
    if "x-request-id" in fields.headers:  # a second one
        return None
    return Head(target, fields, cut)
