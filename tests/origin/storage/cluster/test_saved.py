import msgspec
import pytest
from crc32c import crc32c

from origin.storage.base import DamagedData
from origin.storage.cluster.saved import Saved, SavedStream, decode_saved, encode_saved, merged


def stream(id_: int, flushed: int = 0) -> SavedStream:
    return SavedStream(id_, msgspec.Raw(b"\x90"), flushed, msgspec.Raw(b"\x90"))


def test_a_checkpoint_comes_back() -> None:
    saved = Saved([stream(1, 7), stream(2**64 - 1)], [3, 4])
    assert decode_saved(encode_saved(saved, "key"), "key") == saved


def test_a_checkpoint_under_another_key_is_noticed() -> None:
    """As if somebody had restored the wrong one."""
    data = encode_saved(Saved([stream(1)], []), "weir/000/checkpoints/00000001-00000001")
    with pytest.raises(DamagedData, match="checksum"):
        decode_saved(data, "weir/000/checkpoints/00000001-00000002")


def test_a_checkpoint_of_before_is_read() -> None:
    body = encode_saved(Saved([stream(1)], []), "key")[12:]
    data = b"WEIRCKP1" + crc32c(body).to_bytes(4, "little") + body
    assert decode_saved(data, "any") == Saved([stream(1)], [])


@pytest.mark.parametrize("at", [0, 9, 14, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(encode_saved(Saved([stream(1)], []), "some/key"))
    data[at] ^= 1
    with pytest.raises(DamagedData, match="some/key"):
        decode_saved(bytes(data), "some/key")


def test_a_truncated_one_is_noticed() -> None:
    data = encode_saved(Saved([stream(1)], []), "key")
    for length in range(len(data)):
        with pytest.raises(DamagedData):
            decode_saved(data[:length], "key")


def test_later_states_win_and_removed_streams_are_gone() -> None:
    base = Saved([stream(1), stream(2), stream(3)], [])
    found = merged([base, Saved([stream(2, 5)], [3]), Saved([stream(4)], [1])])
    assert [(each.id, each.flushed) for each in found.streams] == [(2, 5), (4, 0)]
    assert found.gone == []


def test_a_name_removed_and_created_again_has_another_id() -> None:
    assert merged([Saved([stream(1)], []), Saved([stream(9)], [1])]).streams == [stream(9)]
