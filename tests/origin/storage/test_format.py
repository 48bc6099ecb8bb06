"""Bytes of the storage format: everything comes back as it was, and no damage goes unnoticed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin.storage.format import (
    BATCH_HEADER,
    BATCH_MAGIC,
    BLOCK_HEADER,
    CATALOG_MAGIC,
    JOURNAL_HEADER,
    JOURNAL_HEADER_BYTES,
    LARGE_BYTES,
    WATERMARK,
    CatalogGone,
    CatalogStream,
    Checkpoint,
    Frame,
    JournalHead,
    Malformed,
    block_boundaries,
    check_block_body,
    decode_batch,
    decode_block_head,
    decode_frames,
    decode_journal_head,
    decode_records,
    decode_state,
    decode_watermark,
    encode_batch,
    encode_block,
    encode_frame,
    encode_journal_head,
    encode_records,
    encode_state,
    encode_watermark,
    find_batch,
)
from protocol.producers import Known
from protocol.stream import (
    Appended,
    Created,
    Fork,
    Record,
    Released,
    Removed,
    Renewed,
    StreamState,
)

ids = st.integers(0, 2**64 - 1)
positions = st.integers(0, 2**53)
salts = st.integers(0, 2**32 - 1)
names = st.text(max_size=40)
producers = st.tuples(names, positions, positions)
forks = st.builds(Fork, ids, names, positions, st.none() | positions, positions)
maybe_position = st.none() | positions

records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        Created,
        ids,
        names,
        names,
        positions,
        maybe_position,
        maybe_position,
        st.none() | forks,
        st.booleans(),
    ),
    st.builds(
        Appended,
        ids,
        positions,
        st.binary(max_size=200),
        positions,
        st.none() | producers,
        st.none() | names,
        st.booleans(),
    ),
    st.builds(Renewed, ids, positions),
    st.builds(Released, ids),
    st.builds(Removed, ids),
)

states = st.builds(
    StreamState,
    id=ids,
    name=names,
    content_type=names,
    created_at_ms=positions,
    ttl_s=maybe_position,
    expires_at_ms=maybe_position,
    fork=st.none() | forks,
    tail=positions,
    closed=st.booleans(),
    closed_by=st.none() | producers,
    last_seq=st.none() | names,
    producers=st.none()
    | st.dictionaries(names, st.builds(Known, positions, positions, positions), max_size=4),
    renewed_at_ms=positions,
    gone=st.booleans(),
)

frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(
        CatalogStream,
        ids,
        states.map(lambda state: msgspec.Raw(encode_state(state))),
        positions,
        positions,
    ),
    st.builds(CatalogGone, ids),
    st.builds(Checkpoint, positions, positions),
)


def one_batch(payload: bytes, number: int, salt: int) -> bytes:
    return b"".join(encode_batch([payload[:7], payload[7:]], number, salt))


@given(st.lists(records, max_size=6))
def test_records_come_back(items: list[Record]) -> None:
    assert list(decode_records(b"".join(encode_records(items)))) == items


def test_large_data_is_neither_copied_nor_changed() -> None:
    large = Appended(1, 0, bytes(range(256)) * 400, 5, ("p", 0, 1), "s", True)
    items: list[Record] = [
        large,
        Removed(2),
        Appended(1, 102_400, b"z" * (LARGE_BYTES + 1), 5),
        Appended(1, 118_785, b"z" * LARGE_BYTES, 5),
    ]
    buffers = encode_records(items)
    assert any(buffer is large.data for buffer in buffers)
    batch = b"".join(encode_batch(buffers * 5, 3, 99))
    found = decode_batch(batch, 0, 99)
    assert found is not None and list(decode_records(found[1])) == items * 5


@given(states)
def test_states_come_back(state: StreamState) -> None:
    assert decode_state(encode_state(state)) == state


def test_producers_of_earlier_versions_are_as_old_as_the_last_write() -> None:
    """They had no time of their own."""
    state = StreamState(1, "s", "text/plain", 5, written_at_ms=50, producers={"p": Known(1, 3)})
    array = msgspec.msgpack.decode(encode_state(state))
    assert array[11] == {"p": [1, 3, -1]}
    array[11] = {"p": [1, 3], "q": [0, 0]}
    found = decode_state(msgspec.msgpack.encode(array))
    assert found.producers == {"p": Known(1, 3, 50), "q": Known(0, 0, 50)}


@given(st.booleans(), salts, ids, positions)
def test_journal_head_comes_back(synced: bool, salt: int, number: int, size: int) -> None:
    head = JournalHead(synced, salt, number, size)
    data = encode_journal_head(head)
    assert len(data) == JOURNAL_HEADER_BYTES
    assert decode_journal_head(data + b"more") == head


@given(st.integers(0, JOURNAL_HEADER.size - 1), st.integers(1, 255))
def test_journal_head_notices_every_flip_and_cut(position: int, mask: int) -> None:
    data = bytearray(encode_journal_head(JournalHead(True, 77, 3, 4096)))
    with pytest.raises(Malformed):
        decode_journal_head(bytes(data[:position]))
    data[position] ^= mask
    with pytest.raises(Malformed):
        decode_journal_head(bytes(data))


@given(st.binary(max_size=300), ids, salts, st.binary(max_size=20), st.binary(max_size=20))
def test_batch_comes_back(
    payload: bytes, number: int, salt: int, before: bytes, after: bytes
) -> None:
    data = before + one_batch(payload, number, salt) + after
    assert decode_batch(data, len(before), salt) == (number, payload)


@given(st.binary(max_size=60), salts, st.data())
def test_batch_that_is_cut_flipped_or_salted_otherwise_is_none(
    payload: bytes, salt: int, data: st.DataObject
) -> None:
    whole = one_batch(payload, 5, salt)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert decode_batch(whole[:cut], 0, salt) is None
    assert decode_batch(whole[:cut] + bytes(len(whole) - cut + 50), 0, salt) in (
        None,
        (5, payload),  # only zeros were cut off
    )
    flipped = bytearray(whole)
    flipped[cut] ^= data.draw(st.integers(1, 255))
    assert decode_batch(bytes(flipped), 0, salt) is None
    assert decode_batch(whole, 0, salt ^ 1) is None


@given(st.lists(st.binary(max_size=50) | st.just(BATCH_MAGIC * 3), max_size=5), salts)
def test_find_batch_sees_the_next_whole_one(noise: list[bytes], salt: int) -> None:
    garbage = b"".join(noise)
    batch = one_batch(b"payload", 8, salt)
    data = garbage + batch + bytes(40)
    assert find_batch(data, 0, salt, 8) == len(garbage)
    assert find_batch(data, 0, salt, 9) is None
    assert find_batch(garbage, 0, salt, 0) is None
    assert find_batch(data, 0, salt ^ 4, 0) is None


@given(ids, ids, positions)
def test_watermark_comes_back(batch: int, journal: int, end: int) -> None:
    data = encode_watermark(batch, journal, end)
    assert decode_watermark(data + bytes(10)) == (batch, journal, end)
    for position in range(WATERMARK.size):
        with pytest.raises(Malformed):
            decode_watermark(data[:position])
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        with pytest.raises(Malformed):
            decode_watermark(bytes(flipped))


@given(ids, positions, st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=6))
def test_block_comes_back(stream_id: int, start: int, parts: list[bytes]) -> None:
    data = b"".join(encode_block(stream_id, start, parts))
    head = decode_block_head(data)
    body = memoryview(data)[BLOCK_HEADER.size :]
    assert (head.stream_id, head.start, head.appends) == (stream_id, start, len(parts))
    assert head.size_bytes == len(data)
    assert check_block_body(head, body) == b"".join(parts)
    ends = block_boundaries(head, body)
    assert ends[-1] == head.end and len(ends) == len(parts)
    assert [b - a for a, b in zip([start, *ends], ends, strict=False)] == list(map(len, parts))


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4), st.data())
def test_block_notices_every_flip_and_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(encode_block(9, 100, parts))
    position = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[position] ^= data.draw(st.integers(1, 255))
    for damaged in (whole[:position], bytes(flipped)):
        with pytest.raises(Malformed):
            head = decode_block_head(damaged)
            check_block_body(head, memoryview(damaged)[BLOCK_HEADER.size :])


@given(st.lists(frames, max_size=5), st.data())
def test_frames_come_back_up_to_the_first_that_is_not_whole(
    items: list[Frame], data: st.DataObject
) -> None:
    encoded = [encode_frame(item) for item in items]
    whole = CATALOG_MAGIC + b"".join(encoded)
    assert [frame for _, frame in decode_frames(whole)] == items
    assert [end for end, _ in decode_frames(whole)][-1:] == ([len(whole)] if items else [])
    cut = data.draw(st.integers(0, len(whole)))
    found = [frame for _, frame in decode_frames(whole[:cut])]
    assert found == items[: len(found)]
    end = len(CATALOG_MAGIC) + sum(map(len, encoded[: len(found) + 1]))
    assert len(found) == len(items) or cut < end


def test_batch_header_is_as_documented() -> None:
    assert (BATCH_HEADER.size, BLOCK_HEADER.size, JOURNAL_HEADER.size) == (24, 40, 36)
