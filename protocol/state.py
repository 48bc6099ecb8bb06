"""The State Protocol: change and control messages, and the resulting state.

Messages are checked exactly as specified (State 4, 5): unknown fields are allowed, and an `insert`
of an existing entity replaces it. Values stay the original JSON bytes, so numbers keep their form.
The offset of a `reset` is reported, not followed: reading from there would meet the same `reset`
again.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import astuple

from protocol import jsonmode
from protocol.jsonmode import Show, despite_halves, framed
from protocol.offsets import is_offset
from protocol.timestamps import timestamp_ms

# `upsert` is not specified, but the official package sends it: an insert or an update.
INSERT, UPDATE, UPSERT, DELETE = OPERATIONS = ("insert", "update", "upsert", "delete")
SNAPSHOT_START, SNAPSHOT_END, RESET = CONTROLS = ("snapshot-start", "snapshot-end", "reset")

RULES = {
    "": "must be a well-formed JSON object",
    "headers": "must be an object with one of `operation` and `control`",
    "headers.operation": "must be one of " + ", ".join(OPERATIONS),
    "headers.control": "must be one of " + ", ".join(CONTROLS),
    "headers.txid": "must be a non-empty string",
    "headers.timestamp": "must be an RFC 3339 timestamp",
    "headers.offset": "must be a stream offset",
    "type": "must be a non-empty string",
    "key": "must be a non-empty string",
    "value": "must be there for insert, update and upsert",
}


class StateError(Exception):
    """An invalid message; `field` is empty if the whole message is invalid."""

    def __init__(self, position: int, field: str, reason: str) -> None:
        super().__init__(f"message {position}{': ' if field else ''}{field} {reason}")
        self.position = position
        self.field = field
        self.reason = reason


class Change(Struct, frozen=True, gc=False):
    """`value` is None if absent; a null is `b"null"`."""

    type: str
    key: str
    operation: str
    value: bytes | None = None
    old_value: bytes | None = None
    txid: str | None = None
    timestamp: str | None = None


class Control(Struct, frozen=True, gc=False):
    control: str
    offset: str | None = None


Message = Change | Control


class _Headers(Struct, gc=False):
    operation: Any = UNSET
    control: Any = UNSET
    txid: Any = UNSET
    timestamp: Any = UNSET
    offset: Any = UNSET


class _Loose(Struct, gc=False):
    """A message before it is checked: the rules depend on `headers`."""

    headers: _Headers
    type: Any = UNSET
    key: Any = UNSET
    value: Raw = Raw()
    old_value: Raw = Raw()


class _RawHeaders(Struct, gc=False):
    operation: Raw = Raw()
    control: Raw = Raw()
    txid: Raw = Raw()
    timestamp: Raw = Raw()
    offset: Raw = Raw()


class _RawMessage(Struct, gc=False):
    headers: _RawHeaders
    type: Raw = Raw()
    key: Raw = Raw()
    value: Raw = Raw()


class _RawFields(Struct, gc=False):
    headers: Raw = Raw()
    type: Raw = Raw()
    key: Raw = Raw()
    value: Raw = Raw()
    old_value: Raw = Raw()


_messages = msgspec.json.Decoder(list[_Loose])
_message = msgspec.json.Decoder(_Loose)
_raw_array = msgspec.json.Decoder(list[Raw])
_raw_message = msgspec.json.Decoder(_RawMessage)
_fields = msgspec.json.Decoder(_RawFields)
_headers = msgspec.json.Decoder(_RawHeaders)
_string = msgspec.json.Decoder(str)
# Exceptions of a decoder for undecodable bytes.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def check_messages(stored: bytes) -> None:
    """Check the stored form of one append; StateError names the first invalid message."""
    try:
        messages = despite_halves(lambda text, _: _messages.decode(text), framed(stored))
    except _UNREADABLE:
        # An error somewhere, or only in a field that does not matter for its message.
        despite_halves(_check_each, framed(stored))
        return
    for position, message in enumerate(messages):
        if (field := _fault(message)) is not None:
            raise StateError(position, field, RULES[field])


def _check_each(text: bytes, show: Show) -> None:
    for position, raw in enumerate(_raw_array.decode(text)):
        if (field := _fault(_read_message(raw, show, position))) is not None:
            raise StateError(position, field, RULES[field])


def _read_message(raw: Raw, show: Show, position: int) -> _Loose:
    """With all checked fields. The slow path is for the first invalid message."""
    try:
        return _message.decode(raw)
    except _UNREADABLE:
        pass
    try:
        found = _raw_message.decode(raw)
    except _UNREADABLE:
        return _decode_slowly(show(raw), position)
    headers = _Headers(*[_text(field, show) for field in astuple(found.headers)])
    return _Loose(headers, _text(found.type, show), _text(found.key, show), found.value)


def parse_message(raw: bytes, position: int = 0) -> Message:
    """One message from its JSON; StateError carries the given position."""
    try:
        if not raw.isascii():
            raw.decode()  # msgspec checks only what it decodes
        message = _message.decode(raw)
    except _UNREADABLE:
        message = _decode_slowly(raw, position)
    if (field := _fault(message)) is not None:
        raise StateError(position, field, RULES[field])
    headers = message.headers
    if headers.operation is UNSET:
        return Control(headers.control, headers.offset or None)
    return Change(
        message.type,
        message.key,
        headers.operation,
        bytes(message.value) or None,
        bytes(message.old_value) or None,
        headers.txid or None,
        headers.timestamp or None,
    )


def split_array(body: bytes) -> list[bytes]:
    """The elements of a JSON array of messages; ValueError if it is not one."""
    try:
        return jsonmode.split_array(body)
    except RecursionError:
        raise ValueError("nests too deep") from None


def _decode_slowly(raw: bytes, position: int) -> _Loose:
    """Field by field. Unreadable texts become None, which no rule allows; values are not read: a
    lone surrogate is invalid in a name, but may occur in a value."""
    try:
        raw.decode()
        fields = despite_halves(_read_fields, raw)
    except _UNREADABLE:
        raise StateError(position, "", RULES[""]) from None
    try:
        headers = despite_halves(_read_headers, bytes(fields.headers))
    except _UNREADABLE:
        raise StateError(position, "headers", RULES["headers"]) from None
    return _Loose(
        _Headers(*map(_text, astuple(headers))),
        _text(fields.type),
        _text(fields.key),
        fields.value,
        fields.old_value,
    )


def _read_fields(text: bytes, show: Show) -> _RawFields:
    return _RawFields(*(Raw(show(field)) for field in astuple(_fields.decode(text))))


def _read_headers(text: bytes, show: Show) -> _RawHeaders:
    return _RawHeaders(*(Raw(show(field)) for field in astuple(_headers.decode(text))))


def _text(raw: Raw, show: Show = bytes) -> Any:
    if not len(raw):
        return UNSET
    try:
        return _string.decode(show(raw))
    except _UNREADABLE:
        return None


def _fault(message: _Loose) -> str | None:
    """The field that breaks its rule, if one does."""
    headers = message.headers
    operation, control = headers.operation, headers.control
    if operation is not UNSET:
        if control is not UNSET:
            return "headers"
        return _change_fault(message, operation)
    if control is UNSET:
        return "headers"
    if type(control) is not str or control not in CONTROLS:
        return "headers.control"
    offset = headers.offset
    if offset is not UNSET and not (type(offset) is str and is_offset(offset)):
        return "headers.offset"
    return None


def _change_fault(message: _Loose, operation: object) -> str | None:
    if type(operation) is not str or operation not in OPERATIONS:
        return "headers.operation"
    if type(message.type) is not str or not message.type:
        return "type"
    if type(message.key) is not str or not message.key:
        return "key"
    if operation != DELETE and not len(message.value):
        return "value"
    txid, timestamp = message.headers.txid, message.headers.timestamp
    if txid is not UNSET and (type(txid) is not str or not txid):
        return "headers.txid"
    if timestamp is not UNSET and (type(timestamp) is not str or timestamp_ms(timestamp) is None):
        return "headers.timestamp"
    return None


class Materialised:
    """The live entities after some messages, by type and key.

    `snapshot_open` means that a snapshot has started and not ended: a reader that stops here has
    seen only part of it. Markers change no entities.
    """

    def __init__(self) -> None:
        self.entities: dict[str, dict[str, bytes]] = {}
        self.snapshot_open = False

    def __len__(self) -> int:
        return sum(map(len, self.entities.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Materialised):
            return NotImplemented
        return (self.entities, self.snapshot_open) == (other.entities, other.snapshot_open)

    def apply(self, message: Message) -> None:
        if isinstance(message, Change):
            self._apply_change(message)
            return
        self.snapshot_open = message.control == SNAPSHOT_START
        if message.control == RESET:
            self.entities.clear()

    def _apply_change(self, change: Change) -> None:
        if change.operation != DELETE:
            assert change.value is not None
            self.entities.setdefault(change.type, {})[change.key] = change.value
        elif change.type in self.entities:
            of_type = self.entities[change.type]
            of_type.pop(change.key, None)
            if not of_type:
                del self.entities[change.type]


def materialise(messages: Iterable[Message]) -> Materialised:
    state = Materialised()
    for message in messages:
        state.apply(message)
    return state


def snapshot_messages(state: Materialised, offset: str) -> bytes:
    """A JSON array that materialises to the same state: markers at `offset`, an insert per entity.

    The end marker is omitted while the stream's own snapshot is open: its end is yet to come.
    """
    encode = msgspec.json.encode
    messages = [_mark(SNAPSHOT_START, offset)]
    for type_, entities in sorted(state.entities.items()):
        head = b'{"type":' + encode(type_) + b',"key":'
        messages += [
            b"".join(
                (head, encode(key), b',"value":', value, b',"headers":{"operation":"insert"}}')
            )
            for key, value in sorted(entities.items())
        ]
    if not state.snapshot_open:
        messages.append(_mark(SNAPSHOT_END, offset))
    return b"[" + b",".join(messages) + b"]"


def _mark(control: str, offset: str) -> bytes:
    return msgspec.json.encode({"headers": {"control": control, "offset": offset}})
