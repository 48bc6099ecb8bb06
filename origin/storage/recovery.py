"""From a data directory to its streams: the catalog first, then every whole batch after it.

The journal may end in one torn batch, because a batch starts only after the previous one was
synced. So when a batch is not whole, exactly one of these is true:
  - nothing valid follows and the watermark is not beyond it: a torn write, never acknowledged;
  - a later batch follows, or the watermark is beyond it: acknowledged data is damaged, and we
    refuse with file and position instead of silently losing it.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from origin.storage.base import DamagedData
from origin.storage.catalog import read_catalog
from origin.storage.format import (
    BATCH_HEADER,
    JOURNAL_HEADER_BYTES,
    JournalHead,
    Malformed,
    decode_batch,
    decode_journal_head,
    decode_records,
    decode_watermark,
    find_batch,
)
from origin.storage.journal import Journal, LastBatch
from origin.storage.stored import Stored, replay

log = logging.getLogger("weir.storage")


@dataclass(slots=True)
class Recovered:
    streams: dict[int, Stored]
    next_batch: int
    catalog_end: int
    cataloged: frozenset[int]
    catalog_tail: bytes  # the newest checkpoint, which ends at `catalog_end`
    touched: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    # Number, path, salt of the files that were read.
    journals: list[tuple[int, str, int]] = field(default_factory=list)
    last_batch: LastBatch | None = None


@dataclass(frozen=True, slots=True)
class _Scan:
    path: str
    number: int
    head: JournalHead
    data: bytes


def recover(catalog_path: str, journal: Journal) -> Recovered:
    """Read everything; changes nothing on disk."""
    contents = read_catalog(catalog_path)
    checkpoint = contents.checkpoint
    streams = {stored.state.id: stored for stored in contents.stored()}
    found = journal.list_files()
    needed = [(number, path) for number, path in found if number >= checkpoint.journal]
    if not needed or needed[0][0] != checkpoint.journal:
        raise DamagedData(
            catalog_path,
            contents.end,
            f"journal file {checkpoint.journal} is missing",
        )
    result = Recovered(
        streams, checkpoint.next_batch, contents.end, frozenset(streams), contents.tail
    )
    for number, path, position, payload in _batches(journal, needed, result):
        try:
            for record in decode_records(payload):
                replay(record, result.streams, result.touched, result.removed, Stored)
        except (Malformed, ValueError, KeyError) as error:
            raise DamagedData(path, position, f"batch {number}: {error}") from error
    return result


def _batches(
    journal: Journal, files: list[tuple[int, str]], result: Recovered
) -> Iterator[tuple[int, str, int, bytes]]:
    """(batch number, path, position, payload) in order; advances `result.next_batch`."""
    scans = [_scan(number, path) for number, path in files]
    used = 1
    for index, scan in enumerate(scans):
        if scan.number != files[0][0] + index:
            raise DamagedData(scan.path, 0, f"journal file {scan.number - 1} is missing")
        position = JOURNAL_HEADER_BYTES
        while (batch := decode_batch(scan.data, position, scan.head.salt)) is not None:
            number, payload = batch
            if number != result.next_batch:
                break
            yield number, scan.path, position, payload
            result.next_batch += 1
            used = index + 1
            end = position + BATCH_HEADER.size + len(payload)
            result.last_batch = LastBatch(scan.path, position, scan.data[position:end])
            position = end
        _check_end(scan, position, scans[index + 1 :], result.next_batch)
    _check_watermark(journal, scans, result.next_batch)
    result.journals = [(scan.number, scan.path, scan.head.salt) for scan in scans[:used]]


def _scan(number: int, path: str) -> _Scan:
    with open(path, "rb") as file:
        data = file.read()
    try:
        head = decode_journal_head(data)
        if head.number != number:
            raise Malformed(f"it contains journal {head.number}")
    except Malformed as error:
        raise DamagedData(path, 0, str(error)) from None
    if len(data) < head.size_bytes:
        raise DamagedData(path, len(data), f"truncated; {head.size_bytes} bytes were allocated")
    return _Scan(path, number, head, data)


def _check_end(scan: _Scan, position: int, later: list[_Scan], next_batch: int) -> None:
    """Nothing may follow the last whole batch, except the next one at the start of a later file."""
    if not scan.head.synced:
        return  # file-fast does not guarantee the order in which pages reach the disk
    follower = find_batch(scan.data, position, scan.head.salt, next_batch)
    if follower is not None:
        raise DamagedData(
            scan.path, position, f"batch {next_batch} is torn, but a later one is at {follower}"
        )
    for other in later:
        first = decode_batch(other.data, JOURNAL_HEADER_BYTES, other.head.salt)
        if first is not None and first[0] == next_batch:
            return
        follower = find_batch(other.data, JOURNAL_HEADER_BYTES, other.head.salt, next_batch)
        if follower is not None:
            later_one = f"a later one is at {follower} of {other.path}"
            reason = f"batch {next_batch} is not whole, {later_one}"
            if any(scan.data[position : position + BATCH_HEADER.size]):
                raise DamagedData(scan.path, position, reason)
            raise DamagedData(other.path, JOURNAL_HEADER_BYTES, reason)


def _check_watermark(journal: Journal, scans: list[_Scan], next_batch: int) -> None:
    path = journal.watermark_path
    try:
        with open(path, "rb") as file:
            data = file.read()
        if not any(data):  # never synced: a power cut may leave it empty or all zero
            raise FileNotFoundError(path)
        batch, number, end = decode_watermark(data)
    except FileNotFoundError:
        log.warning("%s is missing: the end of the journal cannot be cross-checked", path)
        return
    except Malformed as error:
        raise DamagedData(path, 0, f"{error} (delete the file to recover without it)") from None
    scan = next((s for s in scans if s.number == number), scans[-1])
    # Without syncs a power cut may lose batches but keep the watermark.
    if batch >= next_batch and scan.head.synced:
        raise DamagedData(
            scan.path,
            end,
            f"batch {batch} was acknowledged, but the last complete one is {next_batch - 1}",
        )
