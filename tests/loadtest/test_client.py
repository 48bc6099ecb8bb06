import pytest

from loadtest.load.client import (
    WrongAnswerError,
    append_all,
    build_request,
    compare_stream,
    follow_stream,
    note_tails,
)
from loadtest.load.exchange import Script
from loadtest.load.replies import Reply


def chunk(size: int, offset: str, *, last: bool = False) -> Reply:
    headers = {"stream-next-offset": offset}
    if last:
        headers["stream-up-to-date"] = "true"
    return Reply(200, headers, size, bytearray(b"x" * size))


def play(script: Script, *replies: Reply) -> list[str]:
    """Answer the script with these replies; the request lines it sent."""
    lines = [next(script)]
    try:
        for reply in replies:
            lines.append(script.send(reply))
    except StopIteration:
        return [line.split(b" HTTP/1.1")[0].decode() for line in lines]
    raise AssertionError("the script wants to go on")


def test_request_bytes() -> None:
    assert build_request("GET", "a/b", query="?offset=-1") == (
        b"GET /v1/stream/a/b?offset=-1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    )
    assert build_request("POST", "a", b"xyz").endswith(b"Content-Length: 3\r\n\r\nxyz")


def test_reader_follows_until_up_to_date() -> None:
    assert play(follow_stream("s", 5), chunk(3, "0_3"), chunk(2, "0_5", last=True)) == [
        "GET /v1/stream/s?offset=-1",
        "GET /v1/stream/s?offset=0_3",
    ]


@pytest.mark.parametrize(
    "replies",
    [
        [chunk(3, "0_3"), chunk(1, "0_4", last=True)],
        [chunk(3, "0_3"), chunk(0, "0_3")],
        [Reply(404, {})],
        [Reply(200, {}, 3)],
    ],
    ids=["too short", "stuck", "gone", "no next offset"],
)
def test_reader_refuses_wrong_answers(replies: list[Reply]) -> None:
    with pytest.raises(WrongAnswerError):
        play(follow_stream("s", 5), *replies)


def test_comparing_reader_sees_a_changed_byte() -> None:
    play(compare_stream("s", b"xxxxx"), chunk(3, "0_3"), chunk(2, "0_5", last=True))
    with pytest.raises(WrongAnswerError):
        play(compare_stream("s", b"xxxxy"), chunk(3, "0_3"), chunk(2, "0_5", last=True))


def test_writer_wants_success() -> None:
    assert len(play(append_all("s", [b"1", b"2"]), Reply(204, {}), Reply(200, {}))) == 2
    with pytest.raises(WrongAnswerError):
        play(append_all("s", [b"1"]), Reply(503, {}))


def test_tails_are_byte_positions() -> None:
    tails: list[int] = []
    play(note_tails(["a", "b"], tails), chunk(0, "0000_0012"), chunk(0, "0000_0034"))
    assert tails == [12, 34]
