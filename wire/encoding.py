"""Reply heads as bytes, for responses that are written directly to the transport."""

from http import HTTPStatus

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
_NO_LENGTH = frozenset({204, 304})
LAST_CHUNK = b"0\r\n\r\n"


def frame_chunk(data: bytes) -> bytes:
    """One piece of a body that is sent in chunks."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode_head(
    status: int, headers: tuple[tuple[str, str], ...], stamp: str, length: int | None
) -> bytes:
    """Everything but the Date line and the empty line, so that it can be reused."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    size = "" if status in _NO_LENGTH or length is None else f"Content-Length: {length}\r\n"
    first = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} Unknown\r\n"
    return f"{first}{lines}{stamp}{size}".encode("latin-1")


def encode_lines(headers: tuple[tuple[str, str], ...]) -> str:
    """Header lines that every response shares, for `encode_head`."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers)
