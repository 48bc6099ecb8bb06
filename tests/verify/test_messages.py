"""Messages that say where they belong, and what a reader takes from an answer."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.verify.messages import (
    BINARY,
    FIXED_BYTES,
    JSON,
    KINDS,
    Decoder,
    Message,
    Told,
    decode,
    encode,
)
from protocol.heads import ReplyHead

STREAM = "verify/a/x"
FIRST, SECOND = (Message(STREAM, 3, "p0", number) for number in (0, 1))
MADE_OF = json.dumps({"stream": STREAM, "generation": 3, "count": 7}).encode()
HEAD = ReplyHead('multipart/mixed; boundary="b"', "0_9", up_to_date=True)

messages = st.builds(
    Message,
    st.sampled_from(["verify/a/json", "verify/b/text"]),
    st.integers(0, 99),
    st.sampled_from(["p0", "p1", "intruder"]),
    st.integers(0, 99_999),
)


def join(kind: str, sent: list[Message]) -> bytes:
    """As a server answers with them."""
    bodies = [encode(kind, message) for message in sent]
    return b"[" + b",".join(bodies) + b"]" if kind == JSON else b"".join(bodies)


@given(st.sampled_from(KINDS), st.lists(messages, max_size=5))
def test_what_was_joined_is_taken_apart_again(kind: str, sent: list[Message]) -> None:
    assert decode(kind, join(kind, sent)) == (sent, "")


@given(st.sampled_from(KINDS), st.lists(messages, min_size=1, max_size=3), st.data())
def test_a_cut_is_noticed_unless_it_is_between_messages(
    kind: str, sent: list[Message], data: st.DataObject
) -> None:
    body = join(kind, sent)
    at = data.draw(st.integers(1, len(body) - 1))
    found, damage = decode(kind, body[:at])
    assert found == sent[: len(found)]
    assert damage or body[:at] == join(kind, found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_byte_is_noticed(kind: str) -> None:
    body = bytearray(join(kind, [Message("verify/a/x", 0, "p0", 7)]))
    body[body.index(b"p0")] = ord("q")
    assert decode(kind, bytes(body))[1]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != JSON])
def test_all_messages_of_a_stream_have_one_size(kind: str) -> None:
    sizes = {len(encode(kind, Message("verify/a/x", g, "p0", 10**g))) for g in range(4)}
    assert sizes == {FIXED_BYTES[kind]}


def test_a_binary_message_is_no_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        encode(BINARY, Message("verify/a/x", 0, "p0", 0)).decode()


# -- answers ---------------------------------------------------------------------------------------


def multipart(*parts: bytes) -> bytes:
    head = b"--b\r\nContent-Type: text/plain\r\n\r\n"
    return b"".join(head + part + b"\r\n" for part in parts) + b"--b--\r\n"


@pytest.mark.parametrize("kind", KINDS)
def test_events_tell_messages_and_where_to_go_on(kind: str) -> None:
    body = encode(kind, FIRST)
    body = b"[" + body + b"]" if kind == JSON else body
    data = b64encode(body).decode() if kind == BINARY else body.decode()
    control = ReplyHead(next_offset="0_9", cursor="5", up_to_date=True)
    told = Decoder(STREAM, kind).events([data], control)
    assert told == Told([FIRST.id], head=control)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bootstrap_is_a_snapshot_and_updates(kind: str) -> None:
    body = multipart(MADE_OF, encode(kind, FIRST), encode(kind, SECOND))
    told = Decoder(STREAM, kind).bootstrap(HEAD, body)
    reached = ReplyHead(next_offset="0_9")
    assert told == Told([FIRST.id, SECOND.id], head=reached, snapshot=7, snapshot_of=3)


def test_a_bootstrap_without_its_end_is_damaged() -> None:
    body = multipart(MADE_OF).removesuffix(b"--b--\r\n")
    told = Decoder(STREAM, JSON).bootstrap(HEAD, body)
    assert told.damage == "the last part is missing" and told.snapshot_of == -1


def test_a_snapshot_of_another_stream_is_told() -> None:
    told = Decoder("verify/b/x", JSON).snapshot(HEAD, MADE_OF)
    assert told.ids == [f"{STREAM}/snapshot"]


def test_a_message_that_is_cut_is_damage() -> None:
    ids, damage = Decoder(STREAM, BINARY).ids([encode(BINARY, FIRST) + encode(BINARY, SECOND)[:-1]])
    assert ids == [FIRST.id] and "not whole" in damage
