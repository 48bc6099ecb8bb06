"""The data directory of the file modes: its files, and the owner of each kind."""

import os

from origin.storage.blobs import Blobs
from origin.storage.catalog import Catalog
from origin.storage.files import Files
from origin.storage.journal import Journal
from origin.storage.reclaim import Reclaimer
from origin.storage.segments import Segments


class DataFolder:
    def __init__(
        self, path: str, files: Files, *, journal_bytes: int = 0, synced: bool = True
    ) -> None:
        """Without a journal file size, the folder may only be read."""
        self.path = path
        self.files = files
        self.synced = synced
        self.catalog_path = os.path.join(path, "catalog")
        self.journal_path = os.path.join(path, "journal")
        self.segments_path = os.path.join(path, "segments")
        self.journal = Journal(self.journal_path, files, file_bytes=journal_bytes, synced=synced)
        self.catalog = Catalog(self.catalog_path, files)
        self.segments = Segments(self.segments_path, files)
        self.blobs = Blobs(os.path.join(path, "snapshots"), files)
        self.reclaimer = Reclaimer(path)
