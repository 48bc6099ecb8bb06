import pytest

from loadtest.analytics.changes import History
from loadtest.load.catchup import (
    Reading,
    bootstrap,
    bootstrap_messages,
    fingerprint,
    replay,
    run_catchup,
    split_parts,
)
from loadtest.load.client import WrongAnswerError
from loadtest.load.exchange import Script, run_scripts
from loadtest.load.replies import Reply
from loadtest.load.state import PATH, write_changes
from protocol.state import Materialised, parse_message, snapshot_messages
from tests.helpers.origin import LocalOrigin

HISTORY = History(entities=20, rounds=30)
CHANGE = b'{"type":"item","key":"late","value":1,"headers":{"operation":"insert"}}'
MULTIPART = 'multipart/mixed; boundary="b"'


def answer(script: Script, *replies: Reply) -> list[bytes]:
    """The request lines of a script that gets these replies."""
    lines = [next(script)]
    try:
        for reply in replies:
            lines.append(script.send(reply))
    except StopIteration:
        pass
    return [line.partition(b" HTTP/1.1")[0] for line in lines]


def json_reply(body: bytes, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(200, named, len(body), bytearray(body))


def test_both_ways_come_to_the_state_that_was_written(origin: LocalOrigin) -> None:
    run_scripts(origin.port, [write_changes(HISTORY)], timeout_s=30)
    for way, times in (("replay", 1), ("bootstrap", 3)):
        result = run_catchup(way, origin.port, PATH, times, "token")
        assert result["fingerprint"] == fingerprint(HISTORY.final_state())
        assert result["received_bytes"] > len(b"".join(HISTORY.batches())) - 10
        assert 0 < result["counted_s"] < 30 and 0 < result["materialised_s"] < 30


def test_a_bootstrap_is_the_snapshot_and_what_came_after_it(origin: LocalOrigin) -> None:
    run_scripts(origin.port, [write_changes(HISTORY)], timeout_s=30)
    expected = HISTORY.final_state()
    with origin.client() as client:
        tail = client("HEAD", PATH).next_offset
        json_type = {"Content-Type": "application/json"}
        snapshot = snapshot_messages(expected, tail)
        published = client("PUT", f"{PATH}/snapshot/{tail}", json_type, snapshot)
        assert published.status == 204
        client.append(PATH, CHANGE, "application/json")
    expected.apply(parse_message(CHANGE))
    result = run_catchup("bootstrap", origin.port, PATH, 2, "token")
    assert result["fingerprint"] == fingerprint(expected)
    with pytest.raises(WrongAnswerError, match="status 410"):
        run_catchup("replay", origin.port, PATH, 1, "token")


def test_a_replay_follows_the_offsets_to_the_tail() -> None:
    reading = Reading(materialises=True)
    lines = answer(
        replay("s", [], reading),
        json_reply(b"[]", stream_next_offset="0_1"),
        json_reply(b"[" + CHANGE + b"]", stream_next_offset="0_2", stream_up_to_date="true"),
    )
    assert lines == [b"GET /v1/stream/s?offset=-1", b"GET /v1/stream/s?offset=0_1"]
    assert (len(reading.state), reading.received_bytes) == (1, len(CHANGE) + 4)


def test_a_server_that_does_not_move_on_is_refused() -> None:
    with pytest.raises(WrongAnswerError, match="no way on"):
        answer(replay("s", [], Reading(materialises=False)), json_reply(b"[]"))


def test_a_bootstrap_that_ends_before_the_tail_is_refused() -> None:
    with pytest.raises(WrongAnswerError, match="tail"):
        answer(bootstrap("s", [], Reading(materialises=False)), json_reply(b""))


def test_messages_of_a_bootstrap_are_in_order() -> None:
    head = b"\r\nContent-Type: application/json\r\n\r\n"
    body = b"--b" + head + b"[1,2]\r\n--b" + head + b"3\r\n--b" + head + b"4\r\n--b--\r\n"
    assert bootstrap_messages(json_reply(body, content_type=MULTIPART)) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"[]"),
        (MULTIPART, b""),
        (MULTIPART, b"--b\r\nA: b\r\n\r\n1\r\n--b\r\nA: b\r\n\r\n2"),
        (MULTIPART, b"--b--\r\n"),
    ],
    ids=["not multipart", "empty", "cut short", "no parts"],
)
def test_what_is_no_whole_multipart_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        split_parts(content_type, body)


def test_fingerprints_tell_states_apart() -> None:
    one, other = Materialised(), Materialised()
    one.apply(parse_message(CHANGE))
    assert fingerprint(one) != fingerprint(other)
    other.apply(parse_message(CHANGE))
    assert fingerprint(one) == fingerprint(other)
