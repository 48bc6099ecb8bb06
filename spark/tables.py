"""The tables in a folder, changed atomically.

    DIR/tables -> _weir/generations/N     one folder per table, Parquet
    DIR/_weir/generations/N               files of the N-th change, and links to the rest
    DIR/_weir/staging                     the next generation, unfinished

A change is written to staging, unchanged files are linked from the previous generation, and then
the link `tables` is atomically switched to the new one. A run killed before that has changed
nothing, and the next run deletes its staging. The description of the change (the batch, the dates
whose aggregates are pending) is a file of the generation itself, so that it always matches the
tables. The previous generation is kept for current readers.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

STATE = "_state.json"  # Spark ignores names that start with an underscore
KEPT = 2  # generations


class InUse(Exception):
    """Another run is writing to the folder."""


@dataclass(frozen=True, slots=True)
class State:
    generation: int = 0
    query: str = ""  # whose batches are counted
    batch: int = -1  # the last one that is in the tables
    stale: list[str] = field(default_factory=list)  # dates with requests newer than the aggregates
    is_refreshed: bool = True  # nothing was added after the aggregates were made
    is_joined: bool = False  # state is joined with these aggregates


class Tables:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.current = folder / "tables"
        self._own = folder / "_weir"
        self._generations = self._own / "generations"
        self._staging = self._own / "staging"
        self._lock: int | None = None

    @property
    def checkpoint(self) -> Path:
        return self._own / "checkpoint"

    def open(self) -> None:
        """For writing; raises InUse. Removes leftovers of a killed run."""
        self._generations.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InUse(f"another run is writing to {self.folder}") from None
        shutil.rmtree(self._staging, ignore_errors=True)
        if self.state.generation == 0:
            self._recover()
        self._sweep()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def state(self) -> State:
        try:
            return State(**json.loads((self.current / STATE).read_bytes()))
        except FileNotFoundError:
            return State()

    def path(self, table: str) -> Path:
        return self.current / table

    def size_bytes(self, *folders: str) -> int:
        """Size of the files in tables, or in their partitions."""
        paths = (path for folder in folders for path in self.path(folder).rglob("*.parquet"))
        return sum(path.stat().st_size for path in paths)

    def read(self, session: SparkSession, table: str, schema: StructType | str) -> DataFrame:
        """The columns are those of `schema`, even without rows."""
        return _read(session, self.path(table).resolve(), schema)

    def find(self, session: SparkSession, table: str) -> DataFrame | None:
        """A table that may not exist."""
        path = self.path(table)
        return session.read.parquet(str(path.resolve())) if path.exists() else None

    def begin(self) -> "Change":
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True)
        return Change(self._staging)

    def commit(self, change: "Change", state: State) -> None:
        """`state` gets the number of the next generation."""
        number = self.state.generation + 1
        made = change.folder
        made.mkdir(exist_ok=True)
        if self.current.exists():
            _link_rest(self.current.resolve(), made, change.replaced)
        whole = asdict(state) | {"generation": number}
        (made / STATE).write_text(json.dumps(whole))
        _sync(made)
        generation = self._generations / f"{number:08d}"
        shutil.rmtree(generation, ignore_errors=True)  # left by a run killed before the last step
        made.rename(generation)
        _sync_folder(self._generations)
        self._point_to(generation)
        self._sweep()

    def _point_to(self, generation: Path) -> None:
        pointer = self._staging / "pointer"
        pointer.symlink_to(Path("_weir/generations") / generation.name)
        pointer.rename(self.current)
        _sync_folder(self.folder)

    def _recover(self) -> None:
        """If the link is missing, the newest generation is used. If that is older than the
        checkpoint, everything is read again."""
        whole = sorted(path.parent for path in self._generations.glob(f"*/{STATE}"))
        if whole:
            self._staging.mkdir()
            self._point_to(whole[-1])
        commits = (path.name for path in (self.checkpoint / "commits").glob("[0-9]*"))
        if max(map(int, commits), default=-1) > self.state.batch:
            shutil.rmtree(self.checkpoint)

    def _sweep(self) -> None:
        """A generation is removed atomically: it is moved away first, then deleted."""
        number = self.state.generation
        if number == 0:
            return
        self._staging.mkdir(exist_ok=True)
        for path in self._generations.iterdir():
            if not number - KEPT < int(path.name) <= number:
                path.rename(self._staging / path.name)
        shutil.rmtree(self._staging, ignore_errors=True)


class Change:
    """Files for the next generation, and the partitions of the previous one that they replace."""

    def __init__(self, staging: Path) -> None:
        self.folder = staging / "tables"
        self.scratch = staging / "scratch"  # for temporary files of the change
        self.replaced: set[Path] = set()  # folders below that of all tables

    def dates(self, table: str) -> list[str]:
        """The dates written."""
        paths = (self.folder / table).glob("date=*")
        return sorted(path.name.removeprefix("date=") for path in paths)

    def read(self, session: SparkSession, table: str, schema: StructType | str) -> DataFrame:
        """The rows written so far."""
        return _read(session, self.folder / table, schema)

    def add(self, table: str, rows: DataFrame, name: str) -> None:
        """More rows; `name` distinguishes their files from existing ones."""
        for folder in self._write(table, rows):
            for number, path in enumerate(sorted(folder.glob("*.parquet"))):
                path.rename(folder / f"{name}-{number:05d}.parquet")

    def adopt(self, table: str, files: Iterable[Path], name: str) -> None:
        """More rows, in files already written to folders by date."""
        for number, path in enumerate(files):
            folder = self.folder / table / path.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            path.rename(folder / f"{name}-{number:05d}.parquet")

    def replace(self, table: str, rows: DataFrame, dates: list[str]) -> None:
        """Replace all rows of these dates."""
        self._write(table, rows)
        self.replaced |= {Path(table, f"date={date}") for date in dates}

    def replace_all(self, table: str, rows: DataFrame, *, is_small: bool = True) -> None:
        self.replaced.add(Path(table))
        (rows.coalesce(1) if is_small else rows).write.parquet(str(self.folder / table))
        _strip(self.folder / table)

    def _write(self, table: str, rows: DataFrame) -> list[Path]:
        path = self.folder / table
        rows.write.partitionBy("date").parquet(str(path))
        _strip(path)
        return list(path.glob("date=*"))


def _read(session: SparkSession, path: Path, schema: StructType | str) -> DataFrame:
    if not path.exists():
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(str(path))


def _link_rest(before: Path, made: Path, replaced: set[Path]) -> None:
    """Link the files of the previous generation, except in replaced folders."""
    for parent, folders, names in os.walk(before):
        below = Path(parent).relative_to(before)
        folders[:] = [name for name in folders if below / name not in replaced]
        (made / below).mkdir(exist_ok=True)
        for name in names:
            if name.endswith(".parquet"):
                os.link(Path(parent, name), made / below / name)


def _strip(folder: Path) -> None:
    """Remove what Spark leaves next to its files."""
    for pattern in ("_SUCCESS", "._SUCCESS.crc", ".*.crc", "*/.*.crc"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Sync new files and folders; linked ones are already on disk, so they cost almost nothing."""
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync_folder(Path(parent, name))
        _sync_folder(Path(parent))


def _sync_folder(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
