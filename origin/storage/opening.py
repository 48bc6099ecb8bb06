"""What a start does to the files of a data directory: recover, make durable, clear leftovers."""

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
    """Leaves the journal as it is: the first checkpoint retires it."""
    if not os.path.exists(folder.catalog_path):
        _begin(folder)
    recovered = recover(folder.catalog_path, folder.journal)
    # What was written and not synced when we died counts from now on: sync it before we
    # delete anything because of it, and before anyone can read it.
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
        log.error("no new journal file, appends will be refused: %s", error)
        return Opened(recovered, older, current, None, error)
    return Opened(recovered, older, current, spare, None)


def _begin(folder: DataFolder) -> None:
    """An empty journal and a catalog that says so."""
    _refuse_orphans(folder)
    first = folder.journal.create_file(1)
    folder.journal.release(first)
    folder.catalog.create(1)
    folder.catalog.close()
    folder.journal.open_watermark()
    folder.journal.mark(0, 1, first.used)


def _refuse_orphans(folder: DataFolder) -> None:
    """A journal beyond its first, empty file without a catalog means the catalog was lost."""
    found = folder.journal.list_files()
    segments = os.listdir(folder.segments_path)
    if len(found) > 1 or segments or os.path.exists(folder.journal.watermark_path):
        raise DamagedData(folder.catalog_path, 0, "the catalog is missing, but data is there")
    for _, path in found:
        folder.files.unlink(path)


def _drop_leftovers(folder: DataFolder, recovered: Recovered) -> None:
    """Files that a crash left between two steps: unfinished, retired, or no stream's."""
    files, segments, blobs = folder.files, folder.segments, folder.blobs
    for name in os.listdir(folder.journal_path):
        if name.endswith(".new"):
            files.unlink(os.path.join(folder.journal_path, name))
    steps: list[Step] = []
    for number, path in folder.journal.list_files():
        if number > recovered.journals[-1][0]:  # empty, and its name is wanted again
            files.unlink(path)
        elif number < recovered.journals[0][0]:
            steps.append(partial(files.unlink, path))
    streams = recovered.streams
    named = {s.state.snapshot.blob for s in streams.values() if s.state.snapshot}
    steps += [partial(blobs.remove, blob) for blob in blobs.leftovers(named)]
    for stored in streams.values():
        if stored.extent.first:  # perhaps the last punch never came
            steps.append(partial(_punch, folder, stored.state.id, stored.extent.first))
    for stream_id in set(segments.found()) - recovered.cataloged:
        if stream_id in streams:  # its next flush begins anew; no backup knows this one
            segments.remove(stream_id)
        else:
            steps.append(partial(segments.remove, stream_id))
    folder.reclaimer.do(*steps)


def _punch(folder: DataFolder, stream_id: int, first: int) -> None:
    try:
        folder.segments.punch(stream_id, first)
    except OSError as error:  # not every file system can
        log.warning("nothing given back: %s", error)
