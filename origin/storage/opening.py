"""Prepares a data directory at startup: recover, make durable, remove leftovers."""

import logging
import os
from dataclasses import dataclass
from functools import partial

from origin.storage.base import DamagedData
from origin.storage.datafolder import DataFolder
from origin.storage.journal import JournalFile
from origin.storage.reclaim import Step
from origin.storage.recovery import Recovered, recover

log = logging.getLogger("weir.storage")


@dataclass(frozen=True, slots=True)
class Opened:
    recovered: Recovered
    older: list[JournalFile]
    current: JournalFile
    spare: JournalFile | None
    no_space: OSError | None  # why there is no spare


def open_folder(folder: DataFolder) -> Opened:
    """The journal is left unchanged: the first checkpoint retires it."""
    if not os.path.exists(folder.catalog_path):
        _begin(folder)
    recovered = recover(folder.catalog_path, folder.journal)
    # Data written but not synced before a crash is valid from now on: sync it before
    # deleting anything because of it, and before it can be read.
    folder.catalog.open(recovered.catalog_end, recovered.catalog_tail)
    last = recovered.last_batch
    *older, current = [
        folder.journal.reopen(number, path, salt, last if last and last.path == path else None)
        for number, path, salt in recovered.journals
    ]
    _drop_leftovers(folder, recovered)
    folder.journal.open_watermark()
    folder.journal.mark(recovered.next_batch - 1, current.number, current.used)
    try:
        spare = folder.journal.create_file(current.number + 1)
    except OSError as error:
        log.error("cannot create a journal file, refusing appends: %s", error)
        return Opened(recovered, older, current, None, error)
    return Opened(recovered, older, current, spare, None)


def _begin(folder: DataFolder) -> None:
    """Create an empty journal and catalog."""
    _refuse_orphans(folder)
    first = folder.journal.create_file(1)
    folder.journal.release(first)
    folder.catalog.create(1)
    folder.catalog.close()
    folder.journal.open_watermark()
    folder.journal.mark(0, 1, first.used)


def _refuse_orphans(folder: DataFolder) -> None:
    """More than a first, empty journal file without a catalog means that the catalog was lost."""
    found = folder.journal.list_files()
    segments = os.listdir(folder.segments_path)
    if len(found) > 1 or segments or os.path.exists(folder.journal.watermark_path):
        raise DamagedData(folder.catalog_path, 0, "the catalog is missing, but there is data")
    for _, path in found:
        folder.files.unlink(path)


def _drop_leftovers(folder: DataFolder, recovered: Recovered) -> None:
    """Files left by a crash: unfinished, retired, or without a stream."""
    files, segments, blobs = folder.files, folder.segments, folder.blobs
    for name in os.listdir(folder.journal_path):
        if name.endswith(".new"):
            files.unlink(os.path.join(folder.journal_path, name))
    steps: list[Step] = []
    for number, path in folder.journal.list_files():
        if number > recovered.journals[-1][0]:  # empty, and its name will be reused
            files.unlink(path)
        elif number < recovered.journals[0][0]:
            steps.append(partial(files.unlink, path))
    streams = recovered.streams
    named = {s.state.snapshot.blob for s in streams.values() if s.state.snapshot}
    steps += [partial(blobs.remove, blob) for blob in blobs.leftovers(named)]
    for stored in streams.values():
        if stored.extent.first:  # the last punch may not have happened
            steps.append(partial(_punch, folder, stored.state.id, stored.extent.first))
    for stream_id in set(segments.found()) - recovered.cataloged:
        if stream_id in streams:  # its next flush starts a new file; no backup refers to this one
            segments.remove(stream_id)
        else:
            steps.append(partial(segments.remove, stream_id))
    folder.reclaimer.do(*steps)


def _punch(folder: DataFolder, stream_id: int, first: int) -> None:
    try:
        folder.segments.punch(stream_id, first)
    except OSError as error:  # not supported by every file system
        log.warning("could not free disk space: %s", error)
