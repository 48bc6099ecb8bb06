"""A stored part of a stream: the origin's response, and the forms in which it is sent, each made
once. Usually a chunk, else a snapshot or a bootstrap (`rules.routes` defines their names).

A form is one content encoding. Its head is kept without Age, Date and request id. Age and Date
change once a second, so the bytes up to the request id are also kept for that second.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from weakref import ReferenceType, WeakValueDictionary, ref

from gateway.rules.freshness import Policy
from gateway.rules.routes import is_chunk
from protocol import sse
from protocol.heads import ReplyHead
from protocol.media import media_type, text_like
from protocol.names import DEFAULT_CONTENT_TYPE
from wire.encoding import frame_chunk

OVERHEAD_BYTES = 2048  # of an entry with its heads, without its body


@dataclass(slots=True)
class Form:
    """The bytes of one encoding."""

    encoding: str
    body: bytes
    etag: str
    head: bytes = b""  # up to the lines that change
    head_second: bytes = b""
    second: int = -1
    log: bytes = b""  # its part of a log line
    _lines: "ReferenceType[Lines] | None" = None

    def shared(self) -> "Lines":
        """The body as an object shared by all readers that still need it."""
        lines = None if self._lines is None else self._lines()
        if lines is None:
            lines = Lines(self.body)
            self._lines = ref(lines)
        return lines


class Kept:
    """An entry's place in the store, empty once it has left. Code that keeps this instead of the
    entry never serves purged bytes and never keeps evicted bytes alive."""

    __slots__ = ("entry",)

    def __init__(self, entry: "Entry") -> None:
        self.entry: Entry | None = entry


class Lines:
    """The bytes of a response or an event, on their way to readers."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data


class Piece:
    """Some lines of a large event as they are sent, framed or not."""

    __slots__ = ("__weakref__", "data", "next", "size")

    def __init__(self, data: bytes, size: int, following: int) -> None:
        self.data = data
        self.size = size  # without its frame
        self.next = following  # where the next one begins in the body


class EventLines(Lines):
    """A body whose lines are made in pieces on demand: a text of only line ends grows sixfold.
    Each piece exists once for all readers that still need it."""

    __slots__ = ("_is_text", "_pieces")

    def __init__(self, body: bytes, *, is_text: bool) -> None:
        super().__init__(body)
        self._is_text = is_text
        self._pieces: WeakValueDictionary[tuple[int, int, bool], Piece] = WeakValueDictionary()

    def known_piece(self, start: int, end: int, framed: bool) -> Piece | None:
        return self._pieces.get((start, end, framed))

    def make_piece(self, start: int, end: int, framed: bool) -> Piece:
        encode = sse.text_piece if self._is_text else sse.base64_piece
        data, following = encode(self.data, start, end)
        piece = Piece(frame_chunk(data) if framed else data, len(data), following)
        self._pieces[start, end, framed] = piece
        return piece


@dataclass(slots=True)
class Entry:
    stream: str
    part: str  # an offset, or another name (`rules.routes`)
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    origin_etag: str
    incarnation: str
    body: bytes
    immutable: bool
    stored_at: float
    fresh_until: float
    stale_until: float
    error_until: float
    public: bool = False
    no_store: bool = False  # the origin's directive for live responses
    snapshot_offset: str = ""  # of a snapshot or bootstrap; `-1` for a bootstrap without one
    kept: Kept | None = field(default=None, repr=False)  # while it is in the store
    forms: dict[str, Form] = field(default_factory=dict)
    _event: bytes | None = None
    _is_plain: bool | None = None
    _lines: "ReferenceType[EventLines] | None" = None

    @property
    def size(self) -> int:
        forms = sum(len(form.body) for form in self.forms.values() if form.encoding)
        event = 0 if self._event is None else len(self._event)
        return OVERHEAD_BYTES + len(self.body) + forms + event

    def end_at(self, *, up_to_date: bool, closed: bool) -> None:
        """Update what the origin says about the end of its bytes; tags and heads depend on it."""
        if (up_to_date, closed) != (self.up_to_date, self.closed):
            self.up_to_date, self.closed = up_to_date, closed
            self.forms.clear()

    def renew(self, policy: Policy, now: float) -> None:
        """The origin has just confirmed it."""
        self.immutable = policy.immutable
        self.stored_at = now
        self.fresh_until = now + policy.fresh_s
        self.stale_until = self.fresh_until + policy.stale_s
        self.error_until = self.fresh_until + policy.stale_error_s
        for form in self.forms.values():
            form.head, form.second = b"", -1

    def is_fresh(self, now: float) -> bool:
        """Whether it can be served without asking the origin. The next two apply if not."""
        return self.immutable and now < self.fresh_until

    def is_usable_stale(self, now: float) -> bool:
        """Whether it can be served while it is being revalidated."""
        return self.immutable and now < self.stale_until

    def may_stand_in(self, now: float) -> bool:
        """Whether it can be served if the origin fails (RFC 5861 4)."""
        return self.immutable and now < self.error_until

    @property
    def is_text(self) -> bool:
        return text_like(self.content_type)

    @property
    def is_empty(self) -> bool:
        """Whether it has no messages, in terms of its content type."""
        return not self.body or (self.body == b"[]" and self.is_json)

    @property
    def is_json(self) -> bool:
        return media_type(self.content_type) == "application/json"

    @property
    def ends_within_character(self) -> bool:
        return self.is_text and not self.is_json and sse.complete_utf8(self.body) != len(self.body)

    def form(self, encoding: str = "") -> Form | None:
        found = self.forms.get(encoding)
        if found is None and not encoding:
            found = self.forms[""] = Form("", self.body, self.etag_of(""))
        return found

    def etag_of(self, encoding: str) -> str:
        """Made from the content: origins reuse theirs across incarnations, ranges and forms. Our
        origin's tags of snapshots and bootstraps are kept: they are the same for HEAD, for bodies
        too large to store, and on gateways whose bootstrap has another boundary."""
        suffix = f"-{encoding}" if encoding else ""
        identity = self.forms.get("")
        if identity is not None:
            return f'{identity.etag[:-1]}{suffix}"'
        if not is_chunk(self.part) and self.incarnation and self.origin_etag:
            return f'{self.origin_etag[:-1]}{suffix}"'
        digest = blake2b(self.body, digest_size=16)
        facts = (self.incarnation, self.origin_etag, self.content_type, self.part)
        flags = (self.next_offset, str(self.up_to_date), str(self.closed))
        digest.update("\0".join(("", *facts, *flags)).encode())
        return f'"{digest.hexdigest()}{suffix}"'

    def event(self) -> bytes:
        """The body as an SSE data event."""
        if self._event is None:
            encode = sse.data_event if self.is_text else sse.base64_event
            self._event = encode(self.body)
        return self._event

    def event_start(self) -> bytes:
        """The bytes before the lines of its event."""
        return sse.data_start(self.body if self.is_text else b"")

    @property
    def is_plain_text(self) -> bool:
        """Whether the lines of its event are its body."""
        if self._is_plain is None:
            self._is_plain = self.is_text and sse.is_plain(self.body)
        return self._is_plain

    def event_lines(self) -> EventLines:
        """For a body so large that its event is never assembled: shared by all current readers,
        and freed with the last of them."""
        lines = None if self._lines is None else self._lines()
        if lines is None:
            lines = EventLines(self.body, is_text=self.is_text)
            self._lines = ref(lines)
        return lines


def make_entry(
    stream: str, part: str, head: ReplyHead, body: bytes, policy: Policy, now: float, public: bool
) -> Entry:
    """From a response of the origin that has a next offset."""
    fresh_until = now + policy.fresh_s
    return Entry(
        stream,
        part,
        head.content_type or DEFAULT_CONTENT_TYPE,
        head.next_offset,
        head.up_to_date,
        head.closed,
        head.etag,
        head.incarnation,
        body,
        policy.immutable,
        now,
        fresh_until,
        fresh_until + policy.stale_s,
        fresh_until + policy.stale_error_s,
        public,
        no_store="no-store" in head.cache_control,
        snapshot_offset=head.snapshot_offset if not is_chunk(part) else "",
    )
