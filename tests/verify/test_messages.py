"""Messages that say where they belong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.verify.messages import BINARY, FIXED_BYTES, JSON, KINDS, Message, decode, encode

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
