"""Selects the storage for a configuration.

Separate from the package, so that importing its errors does not load every engine.
"""

import os

from origin.config import OriginConfig
from origin.storage.acid import AcidStorage
from origin.storage.base import Storage, UnusableData
from origin.storage.filestore import FileStorage
from origin.storage.memory import MemoryStorage


def open_storage(config: OriginConfig) -> Storage:
    storage = config.storage
    if storage.mode == "memory":
        return MemoryStorage()
    refuse_other_mode(storage.data_dir, storage.mode)
    if storage.mode == "acid":
        return AcidStorage(
            storage.data_dir, shards=storage.acid_shard_count, map_bytes=storage.acid_map_bytes
        )
    return FileStorage(
        storage.data_dir,
        synced=storage.mode == "file-durable",
        journal_bytes=storage.journal_bytes,
        journal_files=storage.journal_files,
        checkpoint_s=storage.checkpoint_secs,
    )


def refuse_other_mode(data_dir: str, mode: str) -> None:
    """Streams must not seem to disappear because another engine opened the directory."""
    other = "catalog" if mode == "acid" else "acid"
    path = os.path.join(data_dir, other)
    if os.path.exists(path):
        kind = "file" if mode == "acid" else "acid"
        raise UnusableData(f"{path}: this directory holds data of the {kind} mode, not {mode}")
