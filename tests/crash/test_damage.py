"""Cut and flipped bytes at every kind of place: all of the data, or a refusal that says where.

The directories are copies of a running storage's files, which is what SIGKILL leaves. Small files
make it possible to damage every single byte. `test_damaged_server.py` has the real server.
"""

import asyncio
import copy
import io
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from origin.storage import inspect
from origin.storage.base import DamagedData
from origin.storage.files import Files
from origin.storage.format import (
    BATCH_HEADER,
    BATCH_MAGIC,
    BLOCK_HEADER,
    JOURNAL_HEADER,
    JOURNAL_HEADER_BYTES,
    Checkpoint,
    decode_batch,
    decode_frames,
    decode_journal_head,
    encode_batch,
    encode_records,
)
from origin.storage.journal import Journal
from origin.storage.recovery import recover
from origin.storage.segments import Segments
from protocol.stream import Appended, StreamState
from tests.crash.spoil import cut, flip
from tests.helpers.faulty_files import FaultyFiles
from tests.origin.storage.driver import Driver, batches, copy_as_killed, opened

JOURNAL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Truth:
    """A directory as a killed server left it, and all that was acknowledged."""

    folder: Path
    states: dict[str, StreamState]
    contents: dict[str, bytes]
    incarnations: dict[str, str]

    def copy(self, target: Path) -> "Truth":
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target)
        return Truth(target, self.states, self.contents, self.incarnations)

    @property
    def journals(self) -> list[Path]:
        return sorted((self.folder / "journal").glob("*.journal"))

    @property
    def journal(self) -> Path:
        """The file with the batches; others are empty."""
        return next(path for path in self.journals if batches(path))

    @property
    def catalog(self) -> Path:
        return self.folder / "catalog"

    def segment(self, name: str) -> Path:
        stem = self.incarnations[name]
        return self.folder / "segments" / stem[:2] / f"{stem}.seg"


async def keep(driver: Driver, live: Path, target: Path) -> Truth:
    contents = await driver.contents()
    states = copy.deepcopy(driver.states)
    names = {name: state.incarnation for name, state in states.items()}
    return Truth(copy_as_killed(live, target), states, contents, names)


async def fill(driver: Driver) -> None:
    await driver.begin("text", b"first\n")
    await driver.begin("json", b'{"a":1},', content_type="application/json")
    await driver.append("text", b"second\n", producer=("p", 0, 0), seq="a")
    await asyncio.gather(driver.append("text", b"third\n"), driver.append("json", b"2,"))
    await driver.begin("removed", b"bytes that must not come back")
    await driver.remove("removed")
    await driver.append("json", b"", close=True, producer=("q", 1, 0))
    await driver.append("text", b"last\n", producer=("p", 0, 1))


async def leave_in_journal(folder: Path) -> Truth:
    async with opened("file-durable", folder / "live", journal_bytes=JOURNAL_BYTES) as driver:
        await fill(driver)
        return await keep(driver, folder / "live", folder / "killed")


async def leave_in_both(folder: Path) -> Truth:
    live = folder / "live"
    files = FaultyFiles()
    async with opened(
        "file-durable", live, journal_bytes=JOURNAL_BYTES, checkpoint_secs=0.02, files=files
    ) as driver:
        await fill(driver)
        await driver.flushed("text", "json")
        await driver.append("text", b"second block\n")
        await driver.begin("other", b"untouched by what happens to text\n")
        await driver.flushed("text", "other")
        with files.hold_syncs(driver.states["text"].incarnation):
            await driver.append("text", b"only in the journal\n", producer=("p", 0, 2))
            await driver.begin("young", b"never checkpointed\n")
            # The next checkpoint has written and waits for the disk: its bytes do not count yet.
            assert await asyncio.to_thread(files.arrived.wait, 60)
            return await keep(driver, live, folder / "killed")


@pytest.fixture(scope="module")
def in_journal(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """Everything is in the journal, nothing in segments."""
    return asyncio.run(leave_in_journal(tmp_path_factory.mktemp("in-journal")))


@pytest.fixture(scope="module")
def in_both(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """Segments and catalog from several checkpoints, and a journal that goes on."""
    return asyncio.run(leave_in_both(tmp_path_factory.mktemp("in-both")))


def rebuilt(folder: Path) -> tuple[dict[str, StreamState], dict[str, bytes]]:
    """States and bytes as recovery and reading give them, without a server."""
    files = Files()
    journal = Journal(str(folder / "journal"), files, file_bytes=0, synced=True)
    recovered = recover(str(folder / "catalog"), journal)
    segments = Segments(str(folder / "segments"), files)
    states, contents = {}, {}
    for stored in recovered.streams.values():
        data = b""
        if stored.extent.end:
            data = segments.read(stored.state.id, stored.extent, stored.state.base, stored.flushed)
        data += b"" if stored.recent is None else b"".join(stored.recent.parts)
        states[stored.state.name], contents[stored.state.name] = stored.state, data
    return states, contents


def counted(truth: Truth, name: str) -> int:
    """How much of a stream's segment the catalog vouches for."""
    journal = Journal(str(truth.folder / "journal"), Files(), file_bytes=0, synced=True)
    streams = recover(str(truth.catalog), journal).streams.values()
    return next(stored.extent.end for stored in streams if stored.state.name == name)


def outcome(truth: Truth) -> DamagedData | None:
    """None when everything is there; the refusal otherwise. Anything else fails the test."""
    try:
        states, contents = rebuilt(truth.folder)
    except DamagedData as error:
        report = io.StringIO()
        assert inspect.fsck(str(truth.folder), report) == 1, "fsck saw nothing"
        assert error.path in report.getvalue()
        assert f"byte {error.position}" in report.getvalue()
        return error
    assert contents == truth.contents, "other bytes than were acknowledged"
    assert states == truth.states, "another state than was acknowledged"
    assert inspect.fsck(str(truth.folder), io.StringIO()) == 0
    return None


# -- journal ---------------------------------------------------------------------------------


def test_undamaged_copies_are_sound(in_journal: Truth, in_both: Truth) -> None:
    assert outcome(in_journal) is None
    assert outcome(in_both) is None


@pytest.mark.parametrize("mask", [0xFF, 0x01, 0x80])
def test_every_flipped_byte_of_the_journal(in_journal: Truth, tmp_path: Path, mask: int) -> None:
    """In what counts, every flip is refused where it is; elsewhere none does harm."""
    truth = in_journal.copy(tmp_path / "data")
    path = truth.journal
    found = batches(path)
    assert len(found) >= 6
    for position in range(path.stat().st_size):
        flip(path, position, mask)
        error = outcome(truth)
        if position < JOURNAL_HEADER.size:
            assert error is not None and (error.path, error.position) == (str(path), 0)
        elif JOURNAL_HEADER_BYTES <= position < found[-1][1]:
            start = next(start for start, end in found if position < end)
            assert error is not None and error.path == str(path), position
            assert error.position in (start, found[-1][1]), position
        else:
            assert error is None, position
        flip(path, position, mask)


def test_every_cut_of_the_journal_is_refused(in_journal: Truth, tmp_path: Path) -> None:
    """A journal file has its full size from the start: shorter is always damage."""
    truth = in_journal.copy(tmp_path / "data")
    path = truth.journal
    whole = path.read_bytes()
    for size in reversed(range(len(whole))):
        cut(path, size)
        error = outcome(truth)
        assert error is not None and error.path == str(path), size
    path.write_bytes(whole)
    assert outcome(truth) is None


def test_zeroed_runs_of_the_journal(in_journal: Truth, tmp_path: Path) -> None:
    """What a lost page looks like: zeros from somewhere to somewhere."""
    truth = in_journal.copy(tmp_path / "data")
    path = truth.journal
    whole = path.read_bytes()
    end = batches(path)[-1][1]
    for start in range(JOURNAL_HEADER_BYTES, end, 7):
        for stop in (start + 512, len(whole)):
            path.write_bytes(whole[:start] + bytes(stop - start) + whole[stop:])
            error = outcome(truth)
            assert error is not None or path.read_bytes() == whole, (start, stop)
    path.write_bytes(whole)


def test_swapped_and_repeated_batches_are_refused(in_journal: Truth, tmp_path: Path) -> None:
    truth = in_journal.copy(tmp_path / "data")
    path = truth.journal
    whole = path.read_bytes()
    (a, b), (_, c) = batches(path)[1:3]
    for forged in (
        whole[:a] + whole[b:c] + whole[a:b] + whole[c:],
        whole[:b] + whole[a:b] + whole[b : len(whole) - (b - a)],
        whole[:a] + whole[b:] + bytes(b - a),
    ):
        path.write_bytes(forged)
        assert outcome(truth) is not None


def test_deleted_journal_is_refused(in_journal: Truth, tmp_path: Path) -> None:
    truth = in_journal.copy(tmp_path / "data")
    for path in truth.journals:
        path.unlink()
    error = outcome(truth)
    assert error is not None and "journal" in str(error)


async def test_every_file_of_a_longer_journal_counts(tmp_path: Path) -> None:
    """Batches in several files and no checkpoint yet: each one missing or damaged is noticed."""
    live = tmp_path / "live"
    files = FaultyFiles()
    async with opened("file-durable", live, journal_bytes=2048, files=files) as driver:
        with files.hold_syncs("segments"):
            await driver.begin("text", b"0" * 100)
            for number in range(12):
                await driver.append_when_admitted("text", bytes([65 + number]) * 300)
            truth = await keep(driver, live, tmp_path / "killed")
    used = [number for number, path in enumerate(truth.journals) if batches(path)]
    assert len(used) >= 2
    for number in range(len(truth.journals)):
        damaged = truth.copy(tmp_path / "damaged")
        path = damaged.journals[number]
        for start, end in batches(path):
            for position in (start, start + 5, start + 10, start + 20, start + 30, end - 1):
                flip(path, position)
                error = outcome(damaged)
                assert error is not None and error.path == str(path), position
                flip(path, position)
        path.unlink()
        assert (outcome(damaged) is not None) == (number <= used[-1]), path


# -- torn and forged batches -------------------------------------------------------------------


def _torn(truth: Truth) -> tuple[Path, int, bytes]:
    """(journal, end of the last batch, a whole batch that would come next)"""
    path = truth.journal
    data = path.read_bytes()
    end = batches(path)[-1][1]
    last = decode_batch(data, batches(path)[-1][0], decode_journal_head(data).salt)
    assert last is not None
    state = truth.states["text"]
    payload = encode_records([Appended(state.id, state.tail, b"never acknowledged\n", 1)])
    batch = b"".join(encode_batch(payload, last[0] + 1, decode_journal_head(data).salt))
    return path, end, batch


def test_torn_batch_that_nobody_was_told_about_is_dropped(
    in_journal: Truth, tmp_path: Path
) -> None:
    truth = in_journal.copy(tmp_path / "data")
    path, end, batch = _torn(truth)
    whole = path.read_bytes()
    for size in range(len(batch)):
        path.write_bytes(whole[:end] + batch[:size] + whole[end + size :])
        assert outcome(truth) is None, size
    for start in range(1, len(batch)):  # pages of one write may reach the disk in any order
        path.write_bytes(whole[:end] + bytes(start) + batch[start:] + whole[end + len(batch) :])
        assert outcome(truth) is None, start


def test_whole_batch_that_nobody_was_told_about_may_stay(in_journal: Truth, tmp_path: Path) -> None:
    """The kill came between the write and the acknowledgement: the client retries anyway."""
    truth = in_journal.copy(tmp_path / "data")
    path, end, batch = _torn(truth)
    whole = path.read_bytes()
    path.write_bytes(whole[:end] + batch + whole[end + len(batch) :])
    _, contents = rebuilt(truth.folder)
    assert contents["text"] == truth.contents["text"] + b"never acknowledged\n"


def test_garbage_behind_the_last_batch_is_no_batch(in_journal: Truth, tmp_path: Path) -> None:
    truth = in_journal.copy(tmp_path / "data")
    path, end, batch = _torn(truth)
    whole = path.read_bytes()
    other_salt = b"".join(encode_batch([batch[BATCH_HEADER.size :]], 99, 12345))
    rng = random.Random(1)
    for garbage in (other_salt, rng.randbytes(500), BATCH_MAGIC * 60, b"\xff" * 400):
        path.write_bytes(whole[:end] + garbage + whole[end + len(garbage) :])
        assert outcome(truth) is None


async def test_user_data_that_looks_like_batches(tmp_path: Path) -> None:
    """Clients cannot know the salt: their forgeries stay data, before and after a torn batch."""
    live = tmp_path / "live"
    async with opened("file-durable", live) as driver:
        await driver.begin("victim", b"precious")
        victim = driver.states["victim"]
        evil = encode_records([Appended(victim.id, victim.tail, b"forged", 1)])
        forged = b"".join(
            b"".join(encode_batch(evil, number, salt))
            for number in range(1, 30)
            for salt in (0, 1, 0xFFFF)
        )
        await driver.begin("evil", forged)
        await driver.append("evil", BATCH_MAGIC * 500)
        truth = await keep(driver, live, tmp_path / "killed")
    assert outcome(truth) is None
    path = truth.journal
    torn = path.read_bytes()
    end = batches(path)[-1][1]
    salt = decode_journal_head(torn).salt
    number = len(batches(path)) + 1
    batch = b"".join(encode_batch([forged, forged], number, salt))
    for size in (30, 100, len(batch) // 2, len(batch) - 1):
        path.write_bytes(torn[:end] + batch[:size] + torn[end + size :])
        assert outcome(truth) is None
        cut_short = path.read_bytes()
        assert decode_batch(cut_short, end, salt) is None


# -- watermark ---------------------------------------------------------------------------------


def test_flipped_watermark_is_refused_or_harmless(in_journal: Truth, tmp_path: Path) -> None:
    truth = in_journal.copy(tmp_path / "data")
    path = truth.folder / "journal" / "watermark"
    for position in range(64):
        flip(path, position)
        error = outcome(truth)
        assert error is None or error.path == str(path)
        assert (error is None) == (position >= 28), position
        flip(path, position)


@pytest.mark.parametrize("content", [None, b"", bytes(4096)], ids=["missing", "empty", "zeros"])
def test_watermark_that_never_reached_the_disk_stops_nobody(
    in_journal: Truth, tmp_path: Path, content: bytes | None
) -> None:
    """It is written through a map and never synced: a power cut soon after may leave zeros."""
    truth = in_journal.copy(tmp_path / "data")
    path = truth.folder / "journal" / "watermark"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert outcome(truth) is None


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_fast_mode_starts_when_a_power_cut_took_batches(tmp_path: Path, lost: int) -> None:
    """Without syncs pages reach the disk in any order: the watermark may be there before them."""
    live = tmp_path / "live"
    async with opened("file-fast", live) as driver:
        for number in range(4):
            await driver.begin(f"s{number}", b"bytes")
        killed = copy_as_killed(live, tmp_path / "killed")
    journal = next(path for path in (killed / "journal").glob("*.journal") if batches(path))
    start, end = batches(journal)[lost]
    with journal.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    expected = {f"s{number}": b"bytes" for number in range(lost)} | {"new": b"bytes"}
    async with opened("file-fast", killed) as driver:
        await driver.begin("new", b"bytes")
        assert await driver.contents() == expected
    async with opened("file-fast", killed) as driver:
        assert await driver.contents() == expected


# -- catalog -----------------------------------------------------------------------------------


def test_every_flipped_byte_of_the_catalog(in_both: Truth, tmp_path: Path) -> None:
    truth = in_both.copy(tmp_path / "data")
    for position in range(truth.catalog.stat().st_size):
        for mask in (0xFF, 0x01, 0x80):
            flip(truth.catalog, position, mask)
            error = outcome(truth)
            assert error is not None and error.path == str(truth.catalog), position
            flip(truth.catalog, position, mask)


def test_every_cut_of_the_catalog(in_both: Truth, tmp_path: Path) -> None:
    truth = in_both.copy(tmp_path / "data")
    for size in reversed(range(truth.catalog.stat().st_size)):
        cut(truth.catalog, size)
        error = outcome(truth)
        assert error is not None and error.path == str(truth.catalog), size


def test_unfinished_checkpoint_behind_the_last_does_not_count(
    in_both: Truth, tmp_path: Path
) -> None:
    """Killed inside a checkpoint: frames without their Checkpoint, whole or torn."""
    truth = in_both.copy(tmp_path / "data")
    whole = truth.catalog.read_bytes()
    frames = list(decode_frames(whole))
    ends = [8, *(end for end, _ in frames)]
    tail = b"".join(
        whole[ends[number] : end]
        for number, (end, frame) in enumerate(frames)
        if type(frame) is not Checkpoint
    )
    for size in range(0, len(tail), 3):
        truth.catalog.write_bytes(whole + tail[:size])
        assert outcome(truth) is None, size


def test_missing_catalog_is_refused(in_both: Truth, tmp_path: Path) -> None:
    truth = in_both.copy(tmp_path / "data")
    truth.catalog.unlink()
    assert inspect_code(truth.folder) == 1
    with pytest.raises(DamagedData, match="catalog is missing"):
        asyncio.run(_open_and_close(truth.folder))


def test_missing_catalog_and_watermark_are_refused_while_segments_are_there(
    in_both: Truth, tmp_path: Path
) -> None:
    """Starting empty would delete every segment."""
    truth = in_both.copy(tmp_path / "data")
    truth.catalog.unlink()
    (truth.folder / "journal" / "watermark").unlink()
    for path in truth.journals[1:]:
        path.unlink()
    with pytest.raises(DamagedData, match="catalog is missing"):
        asyncio.run(_open_and_close(truth.folder))
    assert truth.segment("text").exists()


def inspect_code(folder: Path) -> int:
    return inspect.fsck(str(folder), io.StringIO())


async def _open_and_close(folder: Path) -> None:
    async with opened("file-durable", folder, journal_bytes=JOURNAL_BYTES):
        pass


# -- segments ----------------------------------------------------------------------------------


async def served(truth: Truth) -> dict[str, bytes | DamagedData]:
    """What a started storage gives for every stream; it must start."""
    found: dict[str, bytes | DamagedData] = {}
    async with opened("file-durable", truth.folder, journal_bytes=JOURNAL_BYTES) as driver:
        assert driver.states == truth.states
        for name in driver.states:
            try:
                found[name] = await driver.read(name)
            except DamagedData as error:
                found[name] = error
    return found


def test_every_flipped_byte_of_a_segment(in_both: Truth, tmp_path: Path) -> None:
    truth = in_both.copy(tmp_path / "data")
    path = truth.segment("text")
    for position in range(counted(truth, "text")):
        flip(path, position)
        error = outcome(truth)
        assert error is not None and error.path == str(path), position
        assert error.position <= position
        flip(path, position)


def test_every_cut_of_a_segment(in_both: Truth, tmp_path: Path) -> None:
    truth = in_both.copy(tmp_path / "data")
    path = truth.segment("text")
    assert path.stat().st_size > counted(truth, "text")
    for size in reversed(range(counted(truth, "text"))):
        cut(path, size)
        error = outcome(truth)
        assert error is not None and error.path == str(path), size


def test_bytes_behind_a_segment_do_not_count(in_both: Truth, tmp_path: Path) -> None:
    """A checkpoint that did not finish leaves them; the next one writes over them."""
    truth = in_both.copy(tmp_path / "data")
    path = truth.segment("text")
    path.write_bytes(path.read_bytes() + path.read_bytes()[: BLOCK_HEADER.size + 9])
    assert outcome(truth) is None


def _replace_by_neighbour(truth: Truth) -> None:
    shutil.copy(truth.segment("json"), truth.segment("text"))


def _zero(truth: Truth) -> None:
    path = truth.segment("text")
    path.write_bytes(bytes(path.stat().st_size))


SEGMENT_DAMAGE: dict[str, Callable[[Truth], None]] = {
    "missing": lambda truth: truth.segment("text").unlink(),
    "empty": lambda truth: cut(truth.segment("text"), 0),
    "zeros": _zero,
    "another stream's": _replace_by_neighbour,
    "header": lambda truth: flip(truth.segment("text"), 6),
    "table": lambda truth: flip(truth.segment("text"), BLOCK_HEADER.size),
    "payload": lambda truth: flip(truth.segment("text"), BLOCK_HEADER.size + 30),
}


@pytest.mark.parametrize("damage", SEGMENT_DAMAGE)
async def test_damaged_segment_spoils_its_own_stream_only(
    in_both: Truth, tmp_path: Path, damage: str
) -> None:
    truth = in_both.copy(tmp_path / "data")
    SEGMENT_DAMAGE[damage](truth)
    found = await served(truth)
    spoiled = found.pop("text")
    assert isinstance(spoiled, DamagedData) and spoiled.path == str(truth.segment("text"))
    assert found == {name: data for name, data in truth.contents.items() if name != "text"}
    assert inspect_code(truth.folder) == 1


async def test_range_reads_of_a_damaged_segment_are_right_or_refused(
    in_both: Truth, tmp_path: Path
) -> None:
    truth = in_both.copy(tmp_path / "data")
    path, whole = truth.segment("text"), truth.contents["text"]
    rng = random.Random(5)
    for _ in range(25):
        position = rng.randrange(path.stat().st_size)
        damaged = truth.copy(tmp_path / "damaged")
        flip(damaged.segment("text"), position)
        async with opened("file-durable", damaged.folder, journal_bytes=JOURNAL_BYTES) as driver:
            for start in range(0, len(whole), 3):
                try:
                    end = rng.randrange(start, len(whole) + 1)
                    assert await driver.read("text", start, end) == whole[start:end]
                except DamagedData:
                    pass
