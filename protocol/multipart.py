"""multipart/mixed, written piece by piece and read as it arrives (RFC 2046 5.1)."""

from email.message import Message as MimeHeaders
from typing import NamedTuple

MEDIA_TYPE = "multipart/mixed"


class MultipartError(Exception):
    """The bytes are not a multipart entity."""


class Part(NamedTuple):
    content_type: str  # empty when the part does not say
    body: bytes


# -- writing ---------------------------------------------------------------------------------------


def content_type_of(boundary: str) -> str:
    return f"{MEDIA_TYPE}; boundary={boundary}"


def open_part(boundary: str, content_type: str, *, first: bool = False) -> bytes:
    """Everything between one body and the next."""
    lead = "" if first else "\r\n"
    return f"{lead}--{boundary}\r\nContent-Type: {content_type}\r\n\r\n".encode()


def close_parts(boundary: str) -> bytes:
    return f"\r\n--{boundary}--\r\n".encode()


# -- reading ---------------------------------------------------------------------------------------


def boundary_of(content_type: str) -> str | None:
    """None if it is not multipart/mixed."""
    headers = MimeHeaders()
    headers["Content-Type"] = content_type
    return headers.get_boundary() if headers.get_content_type() == MEDIA_TYPE else None


def split_parts(content_type: str, body: bytes) -> list[Part]:
    """The parts of a complete body."""
    boundary = boundary_of(content_type)
    if boundary is None:
        raise MultipartError(f"{content_type!r} is not {MEDIA_TYPE} with a boundary")
    decoder = PartDecoder(boundary)
    parts = decoder.feed(body)
    if not decoder.complete:
        raise MultipartError("the last part does not end")
    return parts


class PartDecoder:
    """Bytes in, complete parts out; only the open part is buffered. A body truncated at the end of
    a part looks whole, except for `complete`."""

    def __init__(self, boundary: str) -> None:
        self._delimiter = b"\r\n--" + boundary.encode("latin-1", "replace")
        self._buffer = bytearray(b"\r\n")  # the first delimiter may be at the very start
        self._in_preamble = True
        self.complete = False

    def feed(self, data: bytes) -> list[Part]:
        """The parts that end in these bytes."""
        if self.complete:
            return []  # the epilogue
        size = len(self._delimiter)
        search = max(0, len(self._buffer) - size + 1)
        self._buffer += data
        parts = []
        begin = 0
        while (end := self._buffer.find(self._delimiter, search)) >= 0:
            if not self._in_preamble:
                if self._buffer.startswith(b"--", begin):
                    break
                parts.append(_parse_part(bytes(memoryview(self._buffer)[begin:end])))
            self._in_preamble = False
            begin = search = end + size
        del self._buffer[:begin]
        if not self._in_preamble and self._buffer.startswith(b"--"):
            self.complete = True
            self._buffer.clear()
        return parts


def _parse_part(text: bytes) -> Part:
    """The text between two delimiters; `text` starts in the line of the first one."""
    padding, ended, rest = text.partition(b"\r\n")
    if not ended or padding.strip(b" \t"):
        raise MultipartError("a boundary does not end its line")
    if rest.startswith(b"\r\n"):
        return Part("", rest[2:])
    head, blank, body = rest.partition(b"\r\n\r\n")
    if not blank:
        raise MultipartError("a part has no end of its headers")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-type":
            return Part(value.strip().decode("latin-1"), body)
    return Part("", body)
