"""Server-Sent Events: encode data and control events, decode a byte stream of them (DS 5.8).
`HeldText` handles text whose appends may end within a character.

Everything is bytes until an event is complete. Lines end only at CRLF, CR or LF: str.splitlines()
would also split at U+2028 and similar characters.
"""

import re
from binascii import b2a_base64
from dataclasses import dataclass

import msgspec

from protocol.heads import ReplyHead
from protocol.offsets import incarnation_of_offset, is_offset, moved_to, position_of

DATA_START = b"event: data\ndata:"
DATA_END = b"\n\n"
ROTATION_JITTER = 0.1  # plus or minus, of an event stream's duration, to spread reconnects
PIECE_BYTES = 48 * 1024  # of a payload; divisible by 3, so that its base64 is in whole groups
_STEP_BYTES = 8 * 1024  # of a text, each byte of which may become six
_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"  # as numbers: `in` is several times faster for them
_encode_json = msgspec.json.Encoder().encode

# The start of an incomplete multi-byte character (Unicode table 3-7).
_PARTIAL = re.compile(
    rb"(?:[\xc2-\xf4]|\xe0[\xa0-\xbf]|\xed[\x80-\x9f]|[\xe1-\xec\xee\xef][\x80-\xbf]"
    rb"|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]?)\Z"
)


def data_event(payload: bytes) -> bytes:
    """A text payload as one event."""
    return b"".join((data_start(payload), data_lines(payload), DATA_END))


def data_start(payload: bytes) -> bytes:
    """Readers drop one space after the colon, so a line that starts with one needs a second."""
    return DATA_START + b" " if payload.startswith(b" ") else DATA_START


def data_lines(payload: bytes) -> bytes:
    """Each line of a text gets its own field, so no line can forge one. Without changes, no copy is
    made."""
    if _CR in payload:
        payload = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if _LF in payload:
        payload = payload.replace(b"\n", b"\ndata:")
        if b"\ndata: " in payload:
            payload = payload.replace(b"\ndata: ", b"\ndata:  ")
    return payload


def base64_lines(payload: bytes) -> bytes:
    return b2a_base64(payload, newline=False)


def is_plain(payload: bytes) -> bool:
    """Whether a text is a single line that needs no change."""
    return _CR not in payload and _LF not in payload


def text_piece(payload: bytes, start: int, end: int) -> tuple[bytes, int]:
    """Some lines of a text from `start` on, and where the next ones start. All pieces together are
    the lines up to `end`; the cuts depend only on the payload."""
    made: list[bytes] = []
    size, most = 0, min(start + PIECE_BYTES, end)
    while start < most and size < PIECE_BYTES:
        stop = _not_within_crlf(payload, min(start + _STEP_BYTES, end), end)
        made.append(_lines_between(payload, start, stop))
        size += len(made[-1])
        start = stop
    return b"".join(made), start


def base64_piece(payload: bytes, start: int, end: int) -> tuple[bytes, int]:
    """Like `text_piece`."""
    stop = min(start + PIECE_BYTES, end)
    return base64_lines(payload[start:stop]), stop


def _not_within_crlf(payload: bytes, stop: int, end: int) -> int:
    is_within = payload[stop - 1] == _CR and payload[stop : min(stop + 1, end)] == b"\n"
    return stop + 1 if is_within else stop


def _lines_between(payload: bytes, start: int, stop: int) -> bytes:
    lines = data_lines(payload[start:stop])
    begins_line = start > 0 and payload[start - 1] in (_CR, _LF)
    return b" " + lines if begins_line and lines.startswith(b" ") else lines


def base64_event(payload: bytes) -> bytes:
    return DATA_START + base64_lines(payload) + DATA_END


def control_event(next_offset: str, cursor: int | None, up_to_date: bool, closed: bool) -> bytes:
    """`closed` means closed and everything sent: up to date, without a cursor to return with."""
    offset, line = _encode_json(next_offset), _id(next_offset)
    if closed:
        rest = b',"upToDate":true,"streamClosed":true'
    else:
        rest = b"" if cursor is None else b',"streamCursor":"%d"' % cursor
        if up_to_date:
            rest += b',"upToDate":true'
    return b'event: control\ndata:{"streamNextOffset":%b%b}\n%b\n' % (offset, rest, line)


def _id(offset: str) -> bytes:
    """For reconnects of an `EventSource` (`Last-Event-ID`). After the data: some readers expect the
    data right after the event name."""
    return b"id:%b\n" % offset.encode() if is_offset(offset) else b""


def comment() -> bytes:
    """A heartbeat; the empty line separates it from the next event for simple readers."""
    return b":\n\n"


def complete_utf8(payload: bytes) -> int:
    """Length without an incomplete character at the end; invalid bytes are kept."""
    if not payload or payload[-1] < 0x80:
        return len(payload)
    partial = _PARTIAL.search(payload[-3:])
    return len(payload) - len(partial[0]) if partial else len(payload)


class HeldText:
    """A stream's text for one reader. An append may end within a character: its first bytes are
    held until the rest arrives, and the reader gets the offset before them."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = b""

    def take(self, payload: bytes, *, is_last: bool) -> bytes:
        """What can be sent now: whole characters; at the end of a stream, everything."""
        payload = self.held + payload
        whole = len(payload) if is_last else complete_utf8(payload)
        self.held = payload[whole:]
        return payload[:whole]

    def take_large(self, payload: bytes, *, is_last: bool) -> tuple[bytes, int]:
        """The same without a copy, for payloads longer than a character: the held bytes, and how
        many bytes of the payload follow them."""
        before, whole = self.held, len(payload) if is_last else complete_utf8(payload)
        self.held = payload[whole:]
        return before, whole

    def told(self, next_offset: str) -> str:
        """The offset to send after the text. Only our own offsets can be adjusted."""
        position = position_of(next_offset) if self.held else None
        return next_offset if position is None else moved_to(next_offset, position - len(self.held))


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    data: str


class _Control(msgspec.Struct, rename="camel"):
    stream_next_offset: str = ""
    stream_cursor: str = ""
    up_to_date: bool = False
    stream_closed: bool = False


_decode_control = msgspec.json.Decoder(_Control).decode


def parse_control(data: str) -> ReplyHead:
    """From the data of a control event, which has the same fields as a reply head; raises
    ValueError."""
    told = _decode_control(data)
    return ReplyHead(
        next_offset=told.stream_next_offset,
        incarnation=incarnation_of_offset(told.stream_next_offset),
        up_to_date=told.up_to_date,
        closed=told.stream_closed,
        cursor=told.stream_cursor,
    )


class Decoder:
    """Incremental parser of the WHATWG event stream grammar; `id` and `retry` are ignored."""

    def __init__(self) -> None:
        self._partial = bytearray()  # the line that has not ended yet
        self._after_cr = False  # a following LF belongs to the same line end
        self._at_start = True
        self._kind = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[Event]:
        """The events that became complete with these bytes."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if not data:
            return []
        lines = data.splitlines()  # of bytes: CRLF, CR and LF only
        rest = b"" if data.endswith((b"\n", b"\r")) else lines.pop()
        self._after_cr = data.endswith(b"\r")
        if lines:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        self._partial += rest
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def _take_line(self, line: bytes) -> Event | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")  # a comment has an empty name
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value
        return None

    def _dispatch(self) -> Event | None:
        kind, lines = self._kind, self._data
        self._kind, self._data = b"", []
        if not lines:
            return None
        text = b"\n".join(lines).decode("utf-8", "replace")
        return Event(kind.decode("utf-8", "replace") or "message", text)
