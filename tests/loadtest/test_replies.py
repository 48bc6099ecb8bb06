import pytest

from loadtest.load.replies import BadReplyError, Reply, ReplyReader

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nStream-Next-Offset: 7\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
)
EMPTY = b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 7\r\n\r\n"


def read(raw: bytes, step: int, *, head_only: bool = False) -> Reply:
    reader = ReplyReader(head_only=head_only, keep_body=True)
    pieces = [raw[start : start + step] for start in range(0, len(raw), step)]
    ends = [reader.feed(memoryview(piece)) for piece in pieces]
    assert ends == [False] * (len(pieces) - 1) + [True]
    return reader.reply


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("raw", [SIZED, CHUNKED])
def test_body_in_any_pieces(raw: bytes, step: int) -> None:
    reply = read(raw, step)
    assert (reply.status, bytes(reply.body), reply.body_bytes) == (200, b"hello", 5)


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_replies_without_a_body(step: int) -> None:
    assert read(EMPTY, step).headers == {"stream-next-offset": "7"}
    assert read(SIZED[:-5], step, head_only=True).body_bytes == 0
    assert read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", step).status == 200


def test_body_is_only_counted_unless_kept() -> None:
    reader = ReplyReader()
    assert reader.feed(memoryview(SIZED))
    assert (reader.reply.body_bytes, bytes(reader.reply.body)) == (5, b"")


def test_body_may_be_skipped_unseen() -> None:
    reader = ReplyReader()
    assert reader.skippable == 0
    assert not reader.feed(memoryview(SIZED[:-4]))
    assert reader.skippable == 4
    assert not reader.skip(1)
    assert reader.skip(3)
    assert reader.reply.body_bytes == 5


def test_only_the_chunk_at_hand_may_be_skipped() -> None:
    reader = ReplyReader()
    start = CHUNKED.index(b"hel")
    assert not reader.feed(memoryview(CHUNKED[:start]))
    assert reader.skippable == 3
    assert not reader.skip(3)
    assert reader.skippable == 0
    assert reader.feed(memoryview(CHUNKED[start + 3 :]))
    assert reader.reply.body_bytes == 5


def test_a_kept_body_is_never_skipped() -> None:
    reader = ReplyReader(keep_body=True)
    reader.feed(memoryview(SIZED[:-4]))
    assert reader.skippable == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        SIZED + b"x",
        CHUNKED.replace(b"3\r\n", b"g\r\n"),
        CHUNKED.replace(b"3\r\n", b"2\r\n"),
    ],
)
def test_what_is_not_one_response(raw: bytes) -> None:
    with pytest.raises(BadReplyError):
        ReplyReader().feed(memoryview(raw))
