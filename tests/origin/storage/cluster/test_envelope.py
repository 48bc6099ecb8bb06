"""The chain: whatever happens to the messages of a journal, a replay notices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin.storage.cluster.envelope import (
    HEADER_BYTES,
    START,
    Batch,
    BrokenChain,
    Chain,
    Kind,
    decode,
    encode,
)

MOST = HEADER_BYTES + 10


def journal(payloads: list[bytes], epoch: int = 1) -> list[bytes]:
    """An epoch record and these batches, as messages."""
    found, link = encode(Kind.EPOCH, 3, epoch, START, b"", MOST)
    for payload in payloads:
        messages, link = encode(Kind.RECORDS, 3, epoch, link, payload, MOST)
        found += messages
    return found


def replayed(messages: list[bytes]) -> list[Batch]:
    chain = Chain(3, START)
    return [batch for message in messages if (batch := chain.feed(message)) is not None]


PAYLOADS = st.lists(st.binary(max_size=35), min_size=1, max_size=6)


@given(PAYLOADS)
def test_batches_come_back_whole(payloads: list[bytes]) -> None:
    found = replayed(journal(payloads))
    assert [batch.payload for batch in found] == [b"", *payloads]
    assert [batch.number for batch in found] == list(range(1, len(payloads) + 2))


@given(PAYLOADS, st.data())
def test_a_missing_message_is_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    messages = journal(payloads)
    gone = data.draw(st.integers(0, len(messages) - 2))
    with pytest.raises(BrokenChain):
        replayed(messages[:gone] + messages[gone + 1 :])


@given(PAYLOADS, st.data())
def test_a_changed_byte_is_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    messages = journal(payloads)
    at = data.draw(st.integers(0, len(messages) - 1))
    byte = data.draw(st.integers(0, len(messages[at]) - 1))
    changed = bytearray(messages[at])
    changed[byte] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BrokenChain):
        replayed([*messages[:at], bytes(changed), *messages[at + 1 :]])


@given(PAYLOADS, st.data())
def test_a_repeated_message_is_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    messages = journal(payloads)
    at = data.draw(st.integers(0, len(messages) - 1))
    with pytest.raises(BrokenChain):
        replayed([*messages[: at + 1], messages[at], *messages[at + 1 :]])


def test_parts_that_a_deposed_owner_left_do_not_count() -> None:
    first, link = encode(Kind.EPOCH, 3, 1, START, b"", MOST)
    unfinished, _ = encode(Kind.RECORDS, 3, 1, link, b"x" * 25, MOST)
    second, link = encode(Kind.EPOCH, 3, 2, link, b"", MOST)
    third, _ = encode(Kind.RECORDS, 3, 2, link, b"later", MOST)
    found = replayed([*first, *unfinished[:2], *second, *third])
    assert [(batch.kind, batch.epoch, batch.payload) for batch in found] == [
        (Kind.EPOCH, 1, b""),
        (Kind.EPOCH, 2, b""),
        (Kind.RECORDS, 2, b"later"),
    ]


def test_an_unfinished_batch_of_the_same_owner_is_damage() -> None:
    first, link = encode(Kind.EPOCH, 3, 1, START, b"", MOST)
    unfinished, _ = encode(Kind.RECORDS, 3, 1, link, b"x" * 25, MOST)
    again, _ = encode(Kind.RECORDS, 3, 1, link, b"y", MOST)
    with pytest.raises(BrokenChain, match="unfinished"):
        replayed([*first, *unfinished[:2], *again])


def test_a_late_batch_of_a_deposed_owner_is_noticed() -> None:
    """The fence excludes it; should it ever fail, nothing of it is served."""
    first, link = encode(Kind.EPOCH, 3, 1, START, b"", MOST)
    second, after = encode(Kind.EPOCH, 3, 2, link, b"", MOST)
    for follows in (link, after):
        late, _ = encode(Kind.RECORDS, 3, 1, follows, b"late", MOST)
        with pytest.raises(BrokenChain):
            replayed([*first, *second, *late])


def test_a_message_of_another_shard_is_noticed() -> None:
    other, _ = encode(Kind.EPOCH, 4, 1, START, b"", MOST)
    with pytest.raises(BrokenChain, match="shard 4"):
        replayed(other)


def test_a_purged_beginning_is_skipped_up_to_the_first_whole_batch() -> None:
    messages = journal([b"a" * 25, b"b"])
    chain = Chain(3, None)
    found = [batch for each in messages[2:] if (batch := chain.feed(each)) is not None]
    assert [batch.payload for batch in found] == [b"b"]


def test_messages_stay_within_the_limit() -> None:
    assert max(map(len, journal([b"z" * 95]))) == MOST
    assert decode(journal([b"z" * 95])[-1]).is_last
