"""multipart/mixed: whole parts, however the bytes arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.multipart import (
    MultipartError,
    Part,
    PartDecoder,
    boundary_of,
    close_parts,
    content_type_of,
    open_part,
    split_parts,
)

TYPES = ["", "application/json", "text/plain; charset=utf-8"]
pieces = st.sampled_from([b"\r\n", b"--", b"b", b"\r", b"\n", b"-", b"x", b"\r\n--", b"\x00"])
bodies = (
    st.lists(pieces, max_size=8).map(b"".join).filter(lambda body: b"\r\n--b" not in b"\r\n" + body)
)
parts = st.lists(st.builds(Part, st.sampled_from(TYPES), bodies), max_size=5)


def encode(parts: list[Part], close: bytes = b"\r\n--b--\r\n") -> bytes:
    heads = [b"Content-Type: %b\r\n" % part.content_type.encode() for part in parts]
    joined = [
        b"\r\n--b\r\n" + (head if part.content_type else b"") + b"\r\n" + part.body
        for head, part in zip(heads, parts, strict=True)
    ]
    return b"".join(joined)[2:] + close


@given(parts.filter(lambda parts: bool(parts)), st.lists(st.integers(0, 200), max_size=6))
def test_parts_come_out_whole_wherever_the_bytes_are_cut(
    parts: list[Part], cuts: list[int]
) -> None:
    data = b"preamble\r\n" + encode(parts) + b"epilogue\r\n--b\r\n\r\nno part\r\n--b--"
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decoder = PartDecoder("b")
    assert [part for a, b in pairwise(edges) for part in decoder.feed(data[a:b])] == parts
    assert decoder.complete


@given(parts)
def test_byte_by_byte(parts: list[Part]) -> None:
    data = encode(parts, b"\r\n--b--" if parts else b"--b--")
    decoder = PartDecoder("b")
    assert [part for byte in data for part in decoder.feed(bytes([byte]))] == parts
    assert decoder.complete


@given(parts.filter(lambda parts: bool(parts)))
def test_what_is_written_is_read_back(parts: list[Part]) -> None:
    first, *others = parts
    data = open_part("b", first.content_type, first=True) + first.body
    data += b"".join(open_part("b", each.content_type) + each.body for each in others)
    data += close_parts("b")
    assert split_parts(content_type_of("b"), data) == parts
    with pytest.raises(MultipartError):
        split_parts(content_type_of("b"), data[:-3])


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (content_type_of("weir-0f"), "weir-0f"),
        ('Multipart/Mixed; charset=x; boundary="a b"', "a b"),
        ("multipart/mixed", None),
        ("multipart/form-data; boundary=b", None),
        ("application/json", None),
        ("", None),
    ],
)
def test_the_boundary_of_a_content_type(content_type: str, boundary: str | None) -> None:
    assert boundary_of(content_type) == boundary


def test_what_has_no_boundary_has_no_parts() -> None:
    with pytest.raises(MultipartError, match="'text/plain' is not multipart/mixed"):
        split_parts("text/plain", b"--b--")


def test_what_was_cut_short_is_not_complete() -> None:
    data = encode([Part("text/plain", b"a"), Part("text/plain", b"b")], b"\r\n--b--")
    for end in range(len(data)):
        decoder = PartDecoder("b")
        decoder.feed(data[:end])
        assert not decoder.complete


def test_headers_of_all_kinds_and_padding_after_a_boundary() -> None:
    first = b"--b \t\r\nX-Other: 1\r\ncontent-TYPE:text/plain \r\nX: y\r\n\r\na\r\n"
    data = first + b"--b\r\nX: y\r\n\r\nb\r\n--b--"
    assert PartDecoder("b").feed(data) == [Part("text/plain", b"a"), Part("", b"b")]


@pytest.mark.parametrize(
    "data", [b"--bx\r\n\r\na\r\n--b--", b"--b\r\nno end\r\n--b--", b"--b\r\n--b--"]
)
def test_what_is_no_multipart_entity(data: bytes) -> None:
    with pytest.raises(MultipartError):
        PartDecoder("b").feed(data)


def test_a_large_part_is_looked_at_once() -> None:
    """The search goes on where it ended: 32 MB in small pieces would take minutes otherwise."""
    decoder = PartDecoder("b")
    decoder.feed(b"--b\r\n\r\n")
    for _ in range(8192):
        assert decoder.feed(b"\r\n--" * 1024) == []
    [part] = decoder.feed(b"\r\n--b--")
    assert len(part.body) == 8192 * 4096 and decoder.complete
