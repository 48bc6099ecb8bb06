"""The catalog: what counts after a crash, and a rewrite that changes nothing but its length."""

import errno
from pathlib import Path

import msgspec
import pytest

from origin.storage import catalog as catalog_module
from origin.storage.base import DamagedData
from origin.storage.catalog import Catalog, read_catalog
from origin.storage.format import CatalogGone, CatalogStream, Checkpoint, Frame, encode_state
from protocol.stream import StreamState
from tests.helpers.faulty_files import Fault, FaultyFiles


def stream(number: int, tail: int) -> CatalogStream:
    state = StreamState(number, f"s{number}", "text/plain", 0, tail=tail)
    return CatalogStream(number, msgspec.Raw(encode_state(state)), tail, tail + 40)


def tails(path: Path) -> dict[str, int]:
    contents = read_catalog(str(path))
    return {stored.state.name: stored.state.tail for stored in contents.stored()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog"


def test_new_catalog_is_empty_and_names_its_journal(path: Path) -> None:
    catalog = Catalog(str(path), FaultyFiles())
    catalog.create(7)
    contents = read_catalog(str(path))
    assert (contents.streams, contents.checkpoint) == ({}, Checkpoint(1, 7))
    catalog.close()


def test_last_frame_of_a_stream_counts(path: Path) -> None:
    catalog = Catalog(str(path), FaultyFiles())
    catalog.create(1)
    catalog.append([stream(1, 10), stream(2, 20), Checkpoint(5, 2)])
    catalog.append([stream(1, 11), CatalogGone(2), CatalogGone(99), Checkpoint(9, 3)])
    catalog.close()
    assert tails(path) == {"s1": 11}
    assert read_catalog(str(path)).checkpoint == Checkpoint(9, 3)


def test_frames_without_their_checkpoint_do_not_count(path: Path) -> None:
    catalog = Catalog(str(path), FaultyFiles())
    catalog.create(1)
    catalog.append([stream(1, 10), Checkpoint(5, 2)])
    contents = read_catalog(str(path))
    catalog.append([stream(1, 12), CatalogGone(1)])
    catalog.close()
    assert tails(path) == {"s1": 10}
    again = Catalog(str(path), FaultyFiles())
    again.open(contents.end, contents.tail)
    again.append([stream(3, 30), Checkpoint(6, 3)])
    again.close()
    assert tails(path) == {"s1": 10, "s3": 30}


def test_rewrite_drops_history_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "REWRITE_BYTES", 2000)
    catalog = Catalog(str(path), FaultyFiles())
    catalog.create(1)
    sizes = []
    for number in range(1, 200):
        frames: list[Frame] = [stream(number % 5, number), CatalogGone((number + 1) % 5)]
        catalog.append([*frames, Checkpoint(number, number)])
        sizes.append(path.stat().st_size)
        assert tails(path)[f"s{number % 5}"] == number
        assert len(tails(path)) == min(number, 4)
        assert read_catalog(str(path)).checkpoint == Checkpoint(number, number)
    catalog.close()
    assert max(sizes) < 5000
    assert sorted(sizes) != sizes, "it was never rewritten"


@pytest.mark.parametrize(
    "fault",
    [
        Fault("open", "catalog.new", times=1),
        Fault("write_at", "catalog.new", errno.ENOSPC, times=1, partial=0.5),
        Fault("sync", "catalog.new", times=1),
        Fault("rename", "catalog", times=1),
        Fault("close", "catalog", times=1),
        Fault("sync_dir", "", times=1),
    ],
    ids=lambda fault: str(fault.operation),
)
def test_failed_rewrite_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(catalog_module, "REWRITE_BYTES", 500)
    files = FaultyFiles()
    catalog = Catalog(str(path), files)
    catalog.create(1)
    files.faults = [fault]
    for number in range(1, 60):
        catalog.append([stream(1, number), Checkpoint(number, number)])
        assert tails(path) == {"s1": number}
    catalog.close()
    assert files.struck == 1


def test_rewrite_never_drops_what_it_cannot_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage under a running server: the log stays as it is, so that the next start can refuse."""
    catalog = Catalog(str(path), FaultyFiles())
    catalog.create(1)
    catalog.append([stream(1, 10), Checkpoint(2, 2)])
    middle = path.stat().st_size + 20
    catalog.append([stream(2, 20), Checkpoint(3, 3)])
    data = bytearray(path.read_bytes())
    data[middle] ^= 0xFF
    path.write_bytes(data)
    monkeypatch.setattr(catalog_module, "REWRITE_BYTES", -10_000)
    catalog.append([stream(3, 30), Checkpoint(4, 4)])
    catalog.close()
    assert path.read_bytes()[: len(data)] == data
    assert read_catalog(str(path)).checkpoint == Checkpoint(2, 2)  # asks for a journal long gone


@pytest.mark.parametrize("content", [b"", b"WEIR", b"WEIRCAT1", b"something else entirely"])
def test_what_is_no_catalog_is_damage(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedData):
        read_catalog(str(path))
