"""The tables in a folder, changed only as a whole.

    DIR/tables -> _weir/generations/N     one folder for each table, Parquet
    DIR/_weir/generations/N               what was made by the N-th change, and links to the rest
    DIR/_weir/staging                     the next generation in the making

A change is written into staging, what it leaves alone is linked from the generation before, and
then the name `tables` is moved to the new one: the one step that counts, and it is atomic. A run
that was killed before it has changed nothing, and its staging is thrown away by the next. What the
change was (the batch, the dates whose aggregates are yet to be made) is a file of the generation
itself, so that it cannot disagree with the tables. The generation before is kept for who is still
reading it.
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

STATE = "_state.json"  # Spark passes over names that begin so
KEPT = 2  # generations


class InUse(Exception):
    """Somebody else writes to the folder."""


@dataclass(frozen=True, slots=True)
class State:
    generation: int = 0
    query: str = ""  # whose batches are counted
    batch: int = -1  # the last one that is in the tables
    stale: list[str] = field(default_factory=list)  # dates with requests newer than the aggregates
    is_refreshed: bool = True  # nothing was added after the aggregates were made
    is_joined: bool = False  # state stands beside the traffic of these aggregates


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
        """For writing; raises InUse. Clears away what a killed run has left."""
        self._generations.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InUse(f"another run writes to {self.folder}") from None
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
        """Of files in tables, or in partitions of them."""
        paths = (path for folder in folders for path in self.path(folder).rglob("*.parquet"))
        return sum(path.stat().st_size for path in paths)

    def read(self, session: SparkSession, table: str, schema: StructType | str) -> DataFrame:
        """The columns are those of `schema`, also while there are no rows."""
        return _read(session, self.path(table).resolve(), schema)

    def find(self, session: SparkSession, table: str) -> DataFrame | None:
        """One that may not be there."""
        path = self.path(table)
        return session.read.parquet(str(path.resolve())) if path.exists() else None

    def begin(self) -> "Change":
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True)
        return Change(self._staging)

    def commit(self, change: "Change", state: State) -> None:
        """`state` without its generation, which is the next one."""
        number = self.state.generation + 1
        made = change.folder
        made.mkdir(exist_ok=True)
        if self.current.exists():
            _link_rest(self.current.resolve(), made, change.replaced)
        whole = asdict(state) | {"generation": number}
        (made / STATE).write_text(json.dumps(whole))
        _sync(made)
        generation = self._generations / f"{number:08d}"
        shutil.rmtree(generation, ignore_errors=True)  # of a run killed right before the last step
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
        """Somebody may have lost the link: the newest generation is taken. If that lacks what the
        checkpoint says was read, all is read again."""
        whole = sorted(path.parent for path in self._generations.glob(f"*/{STATE}"))
        if whole:
            self._staging.mkdir()
            self._point_to(whole[-1])
        commits = (path.name for path in (self.checkpoint / "commits").glob("[0-9]*"))
        if max(map(int, commits), default=-1) > self.state.batch:
            shutil.rmtree(self.checkpoint)

    def _sweep(self) -> None:
        """A generation is there as a whole or not at all: it is moved away, then removed."""
        number = self.state.generation
        if number == 0:
            return
        self._staging.mkdir(exist_ok=True)
        for path in self._generations.iterdir():
            if not number - KEPT < int(path.name) <= number:
                path.rename(self._staging / path.name)
        shutil.rmtree(self._staging, ignore_errors=True)


class Change:
    """Files for the next generation, and which partitions of the one before they replace."""

    def __init__(self, staging: Path) -> None:
        self.folder = staging / "tables"
        self.scratch = staging / "scratch"  # for files that do not outlive the change
        self.replaced: set[Path] = set()  # folders below that of all tables

    def dates(self, table: str) -> list[str]:
        """Those that were written."""
        paths = (self.folder / table).glob("date=*")
        return sorted(path.name.removeprefix("date=") for path in paths)

    def read(self, session: SparkSession, table: str, schema: StructType | str) -> DataFrame:
        """What was written so far."""
        return _read(session, self.folder / table, schema)

    def add(self, table: str, rows: DataFrame, name: str) -> None:
        """More rows; `name` tells them from those that are there."""
        for folder in self._write(table, rows):
            for number, path in enumerate(sorted(folder.glob("*.parquet"))):
                path.rename(folder / f"{name}-{number:05d}.parquet")

    def adopt(self, table: str, files: Iterable[Path], name: str) -> None:
        """More rows, in files that were written elsewhere into folders by date."""
        for number, path in enumerate(files):
            folder = self.folder / table / path.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            path.rename(folder / f"{name}-{number:05d}.parquet")

    def replace(self, table: str, rows: DataFrame, dates: list[str]) -> None:
        """All rows of these dates."""
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
    """Files of the generation before, except those of folders that are replaced."""
    for parent, folders, names in os.walk(before):
        below = Path(parent).relative_to(before)
        folders[:] = [name for name in folders if below / name not in replaced]
        (made / below).mkdir(exist_ok=True)
        for name in names:
            if name.endswith(".parquet"):
                os.link(Path(parent, name), made / below / name)


def _strip(folder: Path) -> None:
    """Of what Spark leaves beside its files."""
    for pattern in ("_SUCCESS", "._SUCCESS.crc", ".*.crc", "*/.*.crc"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """New files and folders; linked ones are on the disk already, which costs next to nothing."""
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
