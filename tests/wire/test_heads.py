import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.heads import (
    LINE_BYTES,
    MEMO_ENTRIES,
    MEMO_PART_BYTES,
    MEMO_SEEN,
    HeadMemo,
    _recall_field,
    make_head,
    parse_head,
)

PLAIN = b"POST /v1/stream/a?x=1&y HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nX-Y: \t a b \r\n\r\n"


def with_line(line: bytes) -> bytes:
    return b"GET /a HTTP/1.1\r\nHost: h\r\n" + line + b"\r\n\r\n"


def test_a_plain_head() -> None:
    headers = {"host": "h", "content-length": "3", "x-y": "a b"}
    assert parse_head(PLAIN) == make_head("POST", "/v1/stream/a", "x=1&y", headers, 3)


@pytest.mark.parametrize(
    "line",
    [b"Connection: keep-alive", b"connection: Keep-Alive", b"X:", b"Content-Length: 0"],
)
def test_usual_lines_are_plain(line: bytes) -> None:
    assert parse_head(with_line(line)) is not None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_line(b"Transfer-Encoding: chunked"), id="chunked"),
        pytest.param(with_line(b"transfer-encoding: identity"), id="any-transfer-encoding"),
        pytest.param(with_line(b"Expect: 100-continue"), id="expect"),
        pytest.param(with_line(b"Upgrade: h2c"), id="upgrade"),
        pytest.param(with_line(b"Content-Encoding: gzip"), id="encoded-body"),
        pytest.param(with_line(b"Connection: close"), id="close"),
        pytest.param(with_line(b"Connection: keep-alive, Stream-Seq"), id="connection-list"),
        pytest.param(with_line(b"Host: other"), id="two-hosts"),
        pytest.param(with_line(b"X: 1\r\nx: 2"), id="repeated-header"),
        pytest.param(with_line(b"Content-Length: +3"), id="signed-length"),
        pytest.param(with_line(b"Content-Length: 03"), id="padded-length"),
        pytest.param(with_line(b"Content-Length: 3, 3"), id="length-list"),
        pytest.param(with_line(b"Content-Length: 9" + b"9" * 20), id="long-length"),
        pytest.param(with_line(b"Content-Length:"), id="empty-length"),
        pytest.param(with_line(b"X : 1"), id="space-before-colon"),
        pytest.param(with_line(b"X: 1\r\n folded"), id="folded"),
        pytest.param(with_line(b"X: a\nY: b"), id="bare-lf"),
        pytest.param(with_line(b"X: a\rY: b"), id="bare-cr"),
        pytest.param(with_line(b"X: a\x00b"), id="nul"),
        pytest.param(with_line(b"X: caf\xc3\xa9"), id="not-ascii"),
        pytest.param(with_line(b"no colon"), id="no-colon"),
        pytest.param(with_line(b": empty name"), id="empty-name"),
        pytest.param(b"GET /a HTTP/1.1\r\nX: 1\r\n\r\n", id="no-host"),
        pytest.param(b"GET /a HTTP/1.1\r\n\r\n", id="no-headers"),
        pytest.param(b"GET /a HTTP/1.0\r\nHost: h\r\n\r\n", id="http-1.0"),
        pytest.param(b"GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n", id="absolute-form"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", id="asterisk-form"),
        pytest.param(b"PATCH /a HTTP/1.1\r\nHost: h\r\n\r\n", id="other-method"),
        pytest.param(b"get /a HTTP/1.1\r\nHost: h\r\n\r\n", id="lower-case-method"),
        pytest.param(b"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", id="fragment"),
        pytest.param(b"GET /a?b#c HTTP/1.1\r\nHost: h\r\n\r\n", id="fragment-in-query"),
        pytest.param(b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", id="space-in-target"),
        pytest.param(b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", id="raw-utf8-target"),
        pytest.param(b"\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n", id="leading-empty-line"),
    ],
)
def test_anything_unusual_is_left_to_the_full_parser(data: bytes) -> None:
    assert parse_head(data) is None


@given(st.binary(max_size=80))
def test_any_bytes_are_a_head_or_not(noise: bytes) -> None:
    parse_head(noise)
    found = parse_head(with_line(noise))
    if found is not None:
        assert all(name == name.lower() and name.isascii() for name in found.headers)


def test_the_memo_gives_what_parsing_gives() -> None:
    memo = HeadMemo()
    for data in (PLAIN, PLAIN, with_line(b"Expect: x"), with_line(b"Expect: x")):
        assert memo.parse(data) == parse_head(data)


def test_what_comes_but_once_is_not_remembered() -> None:
    memo = HeadMemo()
    for number in range(2 * MEMO_SEEN):
        memo.parse(with_line(b"X: %d" % number))
    assert memo.fields.known == {} and len(memo.fields._seen) <= MEMO_SEEN
    assert len(memo.targets.known) == 1  # the same line each time


def test_the_memo_is_bounded() -> None:
    memo = HeadMemo()
    lines = [b"X: %d" % number for number in range(MEMO_ENTRIES + 10)]
    for line in (*lines, b"X: " + b"y" * MEMO_PART_BYTES):
        memo.parse(with_line(line))
        memo.parse(with_line(line))
    known = memo.fields.known
    assert 0 < len(known) <= MEMO_ENTRIES
    assert max(map(len, known)) < MEMO_PART_BYTES


def test_a_full_memo_forgets_what_is_oldest() -> None:
    memo = HeadMemo()
    for number in range(MEMO_ENTRIES + 1):
        memo.parse(with_line(b"X: %d" % number))
        memo.parse(with_line(b"X: %d" % number))
    assert MEMO_ENTRIES // 2 < len(memo.fields.known) < MEMO_ENTRIES
    assert memo.recall(with_line(b"X: %d" % MEMO_ENTRIES)) is not None
    assert memo.recall(with_line(b"X: 0")) is None


def test_the_memo_keeps_lines_and_fields_apart() -> None:
    memo = HeadMemo()
    for path in range(3):
        for line in range(3):
            head = memo.parse(b"GET /%d HTTP/1.1\r\nHost: %d\r\n\r\n" % (path, line))
            assert head is not None
            assert (head.path, head.headers["host"]) == (f"/{path}", str(line))
    assert (len(memo.targets.known), len(memo.fields.known)) == (3, 3)


# -- a proxy's request ids -----------------------------------------------------------------------


def test_requests_that_differ_only_in_their_id_share_what_was_made_of_them() -> None:
    memo = HeadMemo()
    heads = [memo.parse(with_line(b"x-request-id: r-%d\r\nX: 1" % number)) for number in range(4)]
    assert [head.request_id for head in heads if head] == ["r-0", "r-1", "r-2", "r-3"]
    assert len({id(head.fields) for head in heads[1:] if head}) == 1
    recalled = memo.recall(with_line(b"x-request-id: r-9\r\nX: 1"))
    assert recalled is not None and recalled.request_id == "r-9"
    assert recalled.headers == {"host": "h", "x": "1"}


@pytest.mark.parametrize("value", [b"", b"a b", b"a" * 65, b"<script>"])
def test_an_id_that_may_not_be_passed_on_is_none(value: bytes) -> None:
    head = HeadMemo().parse(with_line(b"x-request-id: " + value))
    assert head is not None and head.request_id == ""


@pytest.mark.parametrize("name", [b"X-Request-ID", b"X-Request-Id", b"X-REQUEST-ID"])
def test_an_id_in_another_spelling_is_one_as_well(name: bytes) -> None:
    head = HeadMemo().parse(with_line(name + b": r1"))
    assert head is not None and head.request_id == "r1"
    assert ("x-request-id" in head.headers) == (name == b"X-REQUEST-ID")


@pytest.mark.parametrize("second", [b"x-request-id: b", b"X-Request-Id: b", b"x-request-id:b"])
def test_two_ids_are_left_to_the_full_parser_each_time(second: bytes) -> None:
    memo = HeadMemo()
    for _ in range(2):
        memo.parse(with_line(second))  # so that what is left of the other is known
    for data in (
        with_line(b"x-request-id: a\r\n" + second),
        with_line(second + b"\r\nx-request-id: a"),
    ):
        assert memo.parse(data) is memo.recall(data) is None


@pytest.mark.parametrize(
    "behind", [b"x-request-id: a\r\n", b"x-request-id: a\r\n\r\n", b"\r\nx-request-id: a\r\n\r\n"]
)
def test_what_follows_a_head_is_never_taken_for_a_part_of_it(behind: bytes) -> None:
    memo = HeadMemo()
    plain = with_line(b"X: 1")
    assert memo.parse(plain) is not None and memo.recall(plain) is None
    assert memo.parse(plain) is not None and memo.recall(plain) is not None
    assert memo.recall(plain + behind) is None


_PIECES = [
    b"x-request-id: a",
    b"x-request-id: b",
    b"X-Request-Id: c",
    b"x-request-id: ",
    b"x-request-id:d",
]
_PIECES += [
    b"Host: h",
    b"X: x-request-id: e",
    b"X: 1",
    b"\r",
    b"\n",
    b"\r\n",
    b"Content-Length: 1",
    b" f",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=6), st.booleans())
def test_without_its_id_a_head_is_what_it_was(pieces: list[bytes], joined: bool) -> None:
    data = (
        b"GET /a HTTP/1.1\r\nHost: h\r\n" + (b"" if joined else b"\r\n").join(pieces) + b"\r\n\r\n"
    )
    data = data[: data.find(b"\r\n\r\n") + 4]
    memo, expected = HeadMemo(), parse_head(data)
    for found in (memo.parse(data), memo.parse(data), memo.recall(data)):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found.request_id == expected.request_id
            headers = {k: v for k, v in expected.headers.items() if k != "x-request-id"}
            left = {k: v for k, v in found.headers.items() if k != "x-request-id"}
            assert (found.target, left) == (expected.target, headers)
            assert found.content_length == expected.content_length


def test_long_lines_are_read_but_not_remembered() -> None:
    """Who makes them up shall not fill our memory with them."""
    before = _recall_field.cache_info().currsize
    for number in range(50):
        line = b"X: %d" % number + b"x" * LINE_BYTES
        head = parse_head(with_line(line))
        assert head is not None and head.headers["x"] == line[3:].decode()
    assert _recall_field.cache_info().currsize <= before + 1  # Host
