"""Entries as values of the second level."""

import msgspec

from gateway.entries import Entry


class _Packed(msgspec.Struct, array_like=True):
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
    snapshot_offset: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def pack_entry(entry: Entry) -> bytes:
    return _encode(_Packed(*(getattr(entry, name) for name in _Packed.__struct_fields__)))


def unpack_entry(stream: str, part: str, value: bytes | None, *, public: bool) -> Entry | None:
    """None for what is not there or does not make sense."""
    if value is None:
        return None
    try:
        packed = _decode(value)
    except msgspec.DecodeError:
        return None
    return Entry(stream, part, public=public, **msgspec.structs.asdict(packed))
