"""`weir backup` and `weir restore`: copy a data directory while its server writes, and back.

Deletions are postponed (`reclaim.pinned`), then copies are made in startup order:

  catalog   as of its last whole checkpoint
  journal   every whole batch since, up to the moment it is read
  the rest  what recovery of these two refers to: extents of segments, snapshots

So a backup is what a crash at that moment would have left: everything acknowledged before it began,
a prefix of each stream, including producers and sequences. Live bytes never change except by
deletion, so nothing else has to stop. Each LMDB shard is copied in one transaction; the
transactions of all shards are of the same moment.

The copy is read back and verified before the manifest is written, which makes it a backup.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TextIO

import lmdb

from origin.storage import inspect
from origin.storage.acid import AcidShard, open_shards
from origin.storage.base import DamagedData, UnusableData
from origin.storage.catalog import read_catalog
from origin.storage.copies import (
    DATA,
    FORMAT,
    Copier,
    Copy,
    Manifest,
    ManifestHead,
    check_sizes,
    read_manifest,
    write_manifest,
)
from origin.storage.datafolder import DataFolder
from origin.storage.files import RESTORING, Files, lock_directory, refuse_unfinished
from origin.storage.format import (
    BATCH_HEADER,
    JOURNAL_HEADER_BYTES,
    JournalHead,
    Malformed,
    decode_batch,
    decode_journal_head,
    decode_watermark,
    find_batch,
)
from origin.storage.journal import Journal
from origin.storage.reclaim import pinned
from origin.storage.recovery import recover
from protocol.stream import StreamState

log = logging.getLogger("weir.storage")

MAY_BE_THERE = {"lock", "lost+found"}  # in a folder that counts as empty
TRIES = 1000


def back_up(
    data_dir: str, folder: str, out: TextIO, *, base: str | None = None, keep_damaged: bool = False
) -> int:
    """0 if the backup is complete and verified, 1 if the data is damaged."""
    refuse_unfinished(data_dir)
    mode = _mode_of(data_dir)
    earlier = None if base is None else read_manifest(base)
    _refuse_full(folder)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    target = os.path.join(folder, DATA)
    os.mkdir(target)
    manifest = Manifest(
        ManifestHead(FORMAT, mode, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    )
    backup = _Backup(data_dir, target, manifest, base, earlier)
    with pinned(data_dir):
        if mode == "acid":
            backup.copy_shards()
        else:
            backup.copy_files()
    Files().sync_disk(folder)
    code = inspect.fsck(target, out)
    if code and not keep_damaged:
        print(f"no backup: {data_dir} is damaged, and so is the copy in {folder}", file=out)
        return code
    write_manifest(folder, manifest)
    linked = f", {backup.linked} shared with {base}" if base else ""
    print(f"{folder}: {len(manifest.copies)} files{linked}", file=out)
    return code


def restore(folder: str, data_dir: str, out: TextIO, *, keep_damaged: bool = False) -> int:
    """0 if everything was restored, 1 if damaged files of some streams were kept."""
    manifest = read_manifest(folder)
    copies = manifest.copies.values()
    forgiven = {copy.path for copy in copies if keep_damaged and _is_of_one_stream(copy)}
    check_sizes(folder, (copy for copy in copies if copy.path not in forgiven))
    damages = 0
    _refuse_full(data_dir)
    os.makedirs(data_dir, mode=0o750, exist_ok=True)
    lock_fd = lock_directory(data_dir)
    try:
        _refuse_full(data_dir)
        with _restoring(data_dir):
            copier = Copier(os.path.join(folder, DATA), data_dir)
            for noted in copies:
                try:
                    _restore_file(copier, folder, noted)
                except DamagedData as error:
                    if noted.path not in forgiven:
                        raise
                    damages += 1
                    print(f"damaged: {error}", file=out)
    finally:
        os.close(lock_fd)
    print(
        f"{data_dir}: {len(manifest.copies)} files, {manifest.size_bytes} bytes "
        f"of {manifest.head.made}",
        file=out,
    )
    if damages:
        inspect.fsck(data_dir, out)  # names the streams
    return 1 if damages else 0


def _is_of_one_stream(copy: Copy) -> bool:
    """Damage to it is detected when that stream is read, and affects no other. Shared files are
    different: a damaged end of the journal looks like its regular end."""
    return copy.path.startswith(("segments/", "snapshots/"))


def _restore_file(copier: Copier, folder: str, noted: Copy) -> None:
    path = os.path.join(folder, DATA, noted.path)
    try:
        copy = copier.copy(noted.path, noted.start, noted.end, noted.size)
    except FileNotFoundError:
        raise DamagedData(path, noted.start, "it is missing") from None
    if copy != noted:
        raise DamagedData(path, noted.start, "checksum mismatch")


@contextmanager
def _restoring(data_dir: str) -> Iterator[None]:
    """The folder cannot be used until everything is on disk; a failure leaves it empty."""
    files = Files()
    mark = os.path.join(data_dir, RESTORING)
    files.close(files.open(mark, create=True))
    files.sync_dir(data_dir)
    try:
        yield
        files.sync_disk(data_dir)
    except BaseException:
        for name in set(os.listdir(data_dir)) - MAY_BE_THERE - {RESTORING}:
            path = os.path.join(data_dir, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        os.unlink(mark)
        raise
    os.unlink(mark)
    files.sync_dir(data_dir)


def _refuse_full(folder: str) -> None:
    if os.path.exists(folder) and set(os.listdir(folder)) - MAY_BE_THERE:
        raise UnusableData(f"{folder}: the folder is not empty")


def _mode_of(data_dir: str) -> str:
    for mode, name in (("acid", "acid"), ("file", "catalog")):
        if os.path.exists(os.path.join(data_dir, name)):
            return mode
    raise UnusableData(f"{data_dir}: this is not a data directory")


class _Backup:
    def __init__(
        self,
        data_dir: str,
        target: str,
        manifest: Manifest,
        base: str | None,
        earlier: Manifest | None,
    ) -> None:
        self._data_dir = data_dir
        self._source = DataFolder(data_dir, Files())
        self._target = DataFolder(target, Files())
        self._manifest = manifest
        self._base = base
        self._earlier = earlier
        self._copier = Copier(data_dir, target)
        self.linked = 0

    # -- file modes ----------------------------------------------------------------------------

    def copy_files(self) -> None:
        path, journal = self._source.catalog_path, self._source.journal
        contents = read_catalog(path)
        watermark = _read_watermark(journal)  # before the batches, which then include all it covers
        wanted = contents.checkpoint.journal
        with ExitStack() as opened:
            files = [opened.enter_context(file) for file in _open_journals(journal, wanted)]
            if not files or files[0].number != wanted:
                reason = f"journal file {wanted} is missing"
                raise DamagedData(path, contents.end, reason)
            _take_batches(files, contents.checkpoint.next_batch)
        self._write("catalog", contents.encode())
        for file in files:
            name = os.path.join("journal", os.path.basename(file.path))
            self._write(name, file.data[: file.taken], file.head.size_bytes)
        if watermark:
            self._write("journal/watermark", watermark)
        self._copy_streams()

    def _write(self, name: str, data: bytes, size: int | None = None) -> None:
        self._manifest.add(self._copier.write(name, data, size))

    def _copy_streams(self) -> None:
        """Determine from the copied catalog and journal what else a start needs."""
        recovered = recover(self._target.catalog_path, self._target.journal)
        os.makedirs(self._target.segments_path, exist_ok=True)
        for stored in recovered.streams.values():
            first, end = stored.extent
            if end > first:
                self._copy(self._source.segments.path(stored.state.id), first, end)
            self._copy_snapshot(stored.state)

    def _copy_snapshot(self, state: StreamState) -> None:
        if state.snapshot is not None:
            path = self._source.blobs.path(state.snapshot.blob)
            self._copy(path, 0, state.snapshot.blob_bytes)

    def _copy(self, path: str, start: int, end: int) -> None:
        name = os.path.relpath(path, self._data_dir)
        known = self._earlier.copies.get(name) if self._earlier else None
        try:
            if known and self._base and (known.start, known.end) == (start, end):
                if self._copier.link(self._base, known):
                    self.linked += 1
                    self._manifest.add(known)
                    return
            self._manifest.add(self._copier.copy(name, start, end))
        except FileNotFoundError:
            log.error("%s is missing", path)  # verifying the copy names its stream

    # -- acid ----------------------------------------------------------------------------------

    def copy_shards(self) -> None:
        manifest = os.path.join("acid", "manifest.json")
        with open(os.path.join(self._data_dir, manifest), "rb") as file:
            self._write(manifest, file.read())
        try:
            shards = open_shards(self._data_dir)
            for shard, view in zip(shards, _same_moment(shards), strict=True):
                self._copy_shard(shard, view)
        except lmdb.Error as error:
            raise UnusableData(f"{self._data_dir}: {error}") from None
        for shard in open_shards(self._target.path):
            for state in shard.states():
                self._copy_snapshot(state)
            shard.env.close()

    def _copy_shard(self, shard: AcidShard, view: "lmdb.Transaction[bytes]") -> None:
        name = os.path.relpath(os.path.join(shard.path, "data.mdb"), self._data_dir)
        path = os.path.join(self._target.path, name)
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            shard.env.copyfd(file.fileno(), True, view)
        self._manifest.add(self._copier.note(name))


def _same_moment(shards: list[AcidShard]) -> "list[lmdb.Transaction[bytes]]":
    """A view of each shard, none of which changed until all views existed.

    Checked with a second view, because a shard's own counter runs ahead of what can be read.
    """
    for shard in shards:
        shard.forget_dead_readers()  # an earlier backup may have been killed
    for _ in range(TRIES):
        views = [shard.env.begin() for shard in shards]
        if all(_newest(s) == view.id() for s, view in zip(shards, views, strict=True)):
            return views
        for view in views:
            view.abort()
    raise UnusableData(f"{shards[0].path}: too busy for a consistent copy; try again later")


def _newest(shard: AcidShard) -> int:
    with shard.env.begin() as view:
        return view.id()


# -- the journal of a server that writes to it ---------------------------------------------------


class _JournalCopy:
    """One journal file, and how much of it has been found whole."""

    def __init__(self, number: int, path: str) -> None:
        self.number = number
        self.path = path
        self._file = open(path, "rb")  # stays readable even if it is deleted
        self.taken = JOURNAL_HEADER_BYTES

    def __enter__(self) -> "_JournalCopy":
        self.look()
        try:
            self.head: JournalHead = decode_journal_head(self.data)
        except Malformed as error:
            self._file.close()
            raise DamagedData(self.path, 0, str(error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def look(self) -> None:
        self._file.seek(0)
        self.data = self._file.read()

    def take(self, next_batch: int) -> int:
        """Continue while batches are whole; returns the number of the next one."""
        while (batch := decode_batch(self.data, self.taken, self.head.salt)) is not None:
            number, payload = batch
            if number != next_batch:
                break
            self.taken += BATCH_HEADER.size + len(payload)
            next_batch += 1
        return next_batch

    def has_later(self, next_batch: int) -> bool:
        found = find_batch(self.data, self.taken, self.head.salt, next_batch)
        return self.head.synced and found is not None


def _open_journals(journal: Journal, least: int) -> Iterator[_JournalCopy]:
    for number, path in journal.list_files():
        if number >= least:
            with suppress(FileNotFoundError):  # a start recreates the last, empty one
                yield _JournalCopy(number, path)


def _take_batches(files: list[_JournalCopy], next_batch: int) -> None:
    """All whole batches. A torn batch followed by a later one was being written when we read it and
    finished by the time we read on: so it is whole on the next try, or damaged.
    """
    suspect: int | None = None
    while True:
        for file in files:
            next_batch = file.take(next_batch)
        if not any(file.has_later(next_batch) for file in files):
            return
        if suspect == next_batch:
            last = max(
                (f for f in files if f.taken > JOURNAL_HEADER_BYTES),
                default=files[0],
                key=lambda f: f.number,
            )
            raise DamagedData(last.path, last.taken, f"batch {next_batch} is torn")
        suspect = next_batch
        for file in files:
            file.look()


def _read_watermark(journal: Journal) -> bytes:
    """Empty if there is none. It is being written concurrently, so one read may find half of it."""
    for _ in range(TRIES):
        try:
            with open(journal.watermark_path, "rb") as file:
                data = file.read()
            if any(data):
                decode_watermark(data)
                return data
            return b""
        except FileNotFoundError:
            return b""
        except Malformed as error:
            reason = str(error)
    raise DamagedData(journal.watermark_path, 0, reason)
