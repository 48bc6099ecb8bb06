"""What a reader takes from an answer."""

import json
from base64 import b64encode

import pytest

from loadtest.verify.answers import Decoder, Told
from loadtest.verify.messages import BINARY, JSON, KINDS, Message, encode
from protocol.heads import ReplyHead

STREAM = "verify/a/x"
FIRST, SECOND = (Message(STREAM, 3, "p0", number) for number in (0, 1))
MADE_OF = json.dumps({"stream": STREAM, "generation": 3, "count": 7}).encode()
MULTIPART = 'multipart/mixed; boundary="b"'


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
    assert told == Told([FIRST.id], next="0_9", cursor="5", up_to_date=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bootstrap_is_a_snapshot_and_updates(kind: str) -> None:
    body = multipart(MADE_OF, encode(kind, FIRST), encode(kind, SECOND))
    told = Decoder(STREAM, kind).bootstrap(MULTIPART, body, "0_9")
    assert told == Told([FIRST.id, SECOND.id], next="0_9", snapshot=7, snapshot_of=3)


def test_a_bootstrap_without_its_end_is_damaged() -> None:
    body = multipart(MADE_OF).removesuffix(b"--b--\r\n")
    told = Decoder(STREAM, JSON).bootstrap(MULTIPART, body, "0_9")
    assert told.damage == "the last part is missing" and told.snapshot_of == -1


def test_a_snapshot_of_another_stream_is_told() -> None:
    told = Decoder("verify/b/x", JSON).snapshot(MADE_OF, "0_9")
    assert told.ids == [f"{STREAM}/snapshot"]


def test_a_message_that_is_cut_is_damage() -> None:
    ids, damage = Decoder(STREAM, BINARY).ids([encode(BINARY, FIRST) + encode(BINARY, SECOND)[:-1]])
    assert ids == [FIRST.id] and "not whole" in damage
