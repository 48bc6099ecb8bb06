import gzip
import random
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gateway.encodings import MAX_HEADER_CHARACTERS, choose, compress, compressible, parse_weights

TEXT = b'[{"type":"message","key":"k","value":{"n":1}}]' * 100
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": lambda body: zstandard.decompress(body),
}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param(None, "", id="absent"),
        pytest.param("", "", id="empty"),
        pytest.param("gzip, deflate, br, zstd", "zstd", id="browser"),
        pytest.param("gzip, deflate, br", "gzip", id="older-browser"),
        pytest.param("gzip", "gzip", id="one"),
        pytest.param("GZip", "gzip", id="any-case"),
        pytest.param("x-gzip", "gzip", id="alias"),
        pytest.param("br, deflate", "", id="none-of-ours"),
        pytest.param("identity", "", id="identity"),
        pytest.param("*", "zstd", id="anything"),
        pytest.param("gzip;q=1.0, zstd;q=0.9", "gzip", id="weights-win-over-our-order"),
        pytest.param("zstd;q=0.5, gzip;q=0.5", "zstd", id="our-order-among-equals"),
        pytest.param("gzip;q=0", "", id="zero-is-refused"),
        pytest.param("zstd;q=0, *", "gzip", id="star-for-the-rest"),
        pytest.param("*;q=0, gzip;q=0.1", "gzip", id="only-this-one"),
        pytest.param("*;q=0", "", id="nothing-at-all"),
        pytest.param("identity;q=0, gzip;q=0.1", "gzip", id="identity-refused"),
        pytest.param("identity;q=0, br", "", id="identity-refused-and-none-of-ours"),
        pytest.param("identity;q=0.5, gzip;q=0.1", "", id="identity-preferred"),
        pytest.param("identity;q=0.5, *;q=0.5", "zstd", id="identity-no-better"),
        pytest.param("gzip;q=0.5, zstd;q=0.5, *", "", id="identity-preferred-by-a-star"),
        pytest.param("gzip;q=0.001", "gzip", id="smallest-weight"),
        pytest.param("gzip ; Q=0.8 ,\tzstd; q=0.2", "gzip", id="blanks"),
        pytest.param(", gzip,,", "gzip", id="empty-members"),
        pytest.param("gzip;q=0, gzip", "", id="said-twice-the-smaller-counts"),
    ],
)
def test_encoding_is_chosen(header: str | None, expected: str) -> None:
    assert choose(header) == expected


@pytest.mark.parametrize(
    "header",
    [
        "gzip;q=2",
        "gzip;q=1.001",
        "gzip;q=0.1234",
        "gzip;q=-1",
        "gzip;q=nan",
        "gzip;q=",
        "gzip;q",
        "gzip;level=9",
        "gzip;q=1;q=1",
        "gzip zstd",
        "gzip, (zstd)",
        "gzip\n",
        "gzip;q=\u0661",
        "gzip," * MAX_HEADER_CHARACTERS,
    ],
)
def test_a_malformed_or_endless_header_gets_identity(header: str) -> None:
    assert choose(header) == ""


def test_only_what_is_available_is_chosen() -> None:
    assert choose("zstd, gzip;q=0.5", available=("gzip",)) == "gzip"
    assert choose("zstd, gzip", available=()) == ""


@given(st.text(max_size=300))
def test_any_header_gives_an_encoding_that_it_names(header: str) -> None:
    assert choose(header) in ("", "zstd", "gzip")
    if choose(header):
        assert choose(header) in header.lower() or "*" in header


members = st.sampled_from(["gzip", "zstd", "br", "identity", "*"])
weights = st.integers(0, 1000).map(lambda number: f"{number / 1000:.3f}")


@given(st.dictionaries(members, weights))
def test_what_is_chosen_has_the_greatest_weight(header: dict[str, str]) -> None:
    chosen = choose(", ".join(f"{coding};q={weight}" for coding, weight in header.items()))
    weight_of = {name: float(header.get(name, header.get("*", 0))) for name in ("zstd", "gzip")}
    identity = float(header.get("identity", header.get("*", 0)))
    if chosen:
        assert weight_of[chosen] == max(weight_of.values()) > 0
        assert weight_of[chosen] >= identity
    else:
        assert max(weight_of.values()) == 0 or identity > max(weight_of.values())


def test_weights_are_read_once_each() -> None:
    assert parse_weights("a, B;q=0.25,x-gzip;q=0") == {"a": 1.0, "b": 0.25, "gzip": 0.0}
    assert parse_weights("a b") is None


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/html; charset=utf-8",
        "Application/JSON",
        "application/json;charset=utf-8",
        "application/vnd.api+json",
        "application/x-ndjson",
        "application/ndjson",
        "application/xml",
        "image/svg+xml",
        "application/javascript",
    ],
)
def test_text_is_worth_compressing(content_type: str) -> None:
    assert compressible(content_type)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/octet-stream",
        "image/png",
        "video/mp4",
        "application/zip",
        "application/jsonish",
        "text/event-stream",
        "text",
        "",
    ],
)
def test_other_types_are_left_alone(content_type: str) -> None:
    assert not compressible(content_type)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@given(body=st.binary(max_size=500), repeats=st.integers(1, 50))
def test_bodies_decode_to_what_they_were(encoding: str, body: bytes, repeats: int) -> None:
    whole = body * repeats
    encoded = compress(whole, encoding)
    assert encoded is whole or DECODERS[encoding](encoded) == whole
    assert len(encoded) <= len(whole)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_text_shrinks_and_always_to_the_same_bytes(encoding: str) -> None:
    encoded = compress(TEXT, encoding)
    assert len(encoded) < len(TEXT) / 10
    assert encoded == compress(TEXT, encoding)


def test_gzip_tells_no_time() -> None:
    assert compress(TEXT, "gzip")[4:8] == b"\0\0\0\0"


def test_zstd_names_its_size_and_keeps_to_a_window_that_browsers_take() -> None:
    large = random.Random(1).randbytes(8 * 1024 * 1024) + bytes(8 * 1024 * 1024)
    frame = zstandard.get_frame_parameters(compress(large, "zstd"))
    assert frame.content_size == len(large)
    assert frame.window_size <= 8 * 1024 * 1024


@pytest.mark.parametrize("encoding", ["gzip", "zstd", ""])
@pytest.mark.parametrize("body", [b"", b"short", random.Random(2).randbytes(5000)])
def test_a_body_that_does_not_shrink_stays_itself(encoding: str, body: bytes) -> None:
    assert compress(body, encoding) is body


def test_an_unknown_encoding_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="br"):
        compress(TEXT, "br")
