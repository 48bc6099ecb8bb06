"""The `weir_log` data source: lines of a folder of access logs, with file and position.

    session.readStream.format("weir_log").option("path", folder)

The driver decides what to read (`spark.logfiles`), executors read it (`spark.loglines`). All of
them must see the folder. Options: `path`, `maxBytesPerBatch`, `partitionBytes`.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql.streaming import datasource as limits
from pyspark.sql.types import StructType

from spark.loglines import COLUMNS, foreign_file, read_lines

FORMAT = "weir_log"
MAX_BATCH_BYTES = 1024 * 1024 * 1024
PARTITION_BYTES = 32 * 1024 * 1024
SCAN_BYTES = 64 * 1024

Progress = dict[str, int]


def register(session: SparkSession) -> None:
    session.dataSource.register(LogSource)


@dataclass
class Piece(datasource.InputPartition):
    folder: str
    name: str
    start: int
    end: int
    is_ours: bool

    def read(self) -> Iterator[pa.RecordBatch]:
        if self.is_ours:
            return read_lines(Path(self.folder), self.name, self.start, self.end)
        return iter([foreign_file(self.name)])


class Folder:
    """The current files. Modules imported here are not needed on executors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        if "path" not in options:
            raise ValueError("weir_log: option path is required (the access log folder)")
        self._path = Path(options["path"]).absolute()
        self._piece_bytes = int(options.get("partitionBytes", PARTITION_BYTES))

    def advance(
        self, progress: Progress, most_bytes: int | None, stop: Progress | None = None
    ) -> Progress:
        """`stop` is the end when the run started: later data is left to the next one."""
        from spark.logfiles import advance

        found, _ = self._look()
        if stop is not None:
            ends = progress | stop
            found = [
                replace(file, size=min(file.size, ends[file.name]))
                for file in found
                if file.name in ends
            ]
        now_ms = int(time.time() * 1000)
        return advance(
            progress, found, most_bytes, now_ms, self._last_line_end, self._next_line_end
        )

    def pieces(self, start: Progress, end: Progress) -> list[Piece]:
        from protocol.accesslog import parse_file_name
        from spark.logfiles import spans

        return [
            Piece(
                str(self._path),
                span.name,
                span.start,
                span.end,
                parse_file_name(span.name.rpartition("/")[2]) is not None,
            )
            for span in spans(start, end, self._piece_bytes)
        ]

    def unreadable(self) -> list[str]:
        """Our files, and folders, that cannot be read now; a later run may be able to."""
        return sorted(self._look()[1])

    def _look(self) -> tuple[list[Any], list[str]]:
        """The existing files, and the names of unreadable ones."""
        from protocol.accesslog import parse_file_name
        from spark.logfiles import PACKED, Found

        found: list[Any] = []
        closed: list[str] = []

        def refused(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                closed.append(self._shown(error.filename))

        for folder, _, names in os.walk(self._path, onerror=refused):
            for name in names:
                path = os.path.join(folder, name)
                is_ours = parse_file_name(name) is not None
                try:
                    status = os.stat(path)
                    if is_ours and not os.access(path, os.R_OK):
                        raise PermissionError
                    unpacked = _unpacked_size(path) if is_ours and name.endswith(PACKED) else 0
                except OSError as error:  # not found: deleted, or a broken link
                    if is_ours and not isinstance(error, FileNotFoundError):
                        closed.append(self._shown(path))
                    continue
                changed_ms = status.st_mtime_ns // 10**6
                found.append(Found(self._shown(path), status.st_size, changed_ms, unpacked))
        return found, closed

    def _shown(self, path: str) -> str:
        relative = os.path.relpath(path, self._path)
        shown = relative.encode(errors="backslashreplace").decode()
        return shown if relative == shown else shown + "?"  # never a name of ours

    def _last_line_end(self, name: str, start: int, end: int) -> int:
        try:
            with (self._path / name).open("rb") as file:
                while end > start:
                    begin = max(start, end - SCAN_BYTES)
                    file.seek(begin)
                    at = file.read(end - begin).rfind(b"\n")
                    if at >= 0:
                        return begin + at + 1
                    end = begin
        except OSError:
            pass
        return start

    def _next_line_end(self, name: str, start: int, end: int) -> int:
        try:
            with (self._path / name).open("rb") as file:
                file.seek(start)
                while start < end:
                    piece = file.readline(min(SCAN_BYTES, end - start))
                    start += len(piece)
                    if not piece or piece.endswith(b"\n"):
                        return start
        except OSError:
            pass
        return end


class LogSource(datasource.DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return LogReader(self.options)

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:
        return LogStreamReader(self.options)


class LogReader(datasource.DataSourceReader):
    """Everything that exists now."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._folder = Folder(options)

    def partitions(self) -> list[Piece]:
        end = self._folder.advance({}, None)
        return self._folder.pieces({}, end)

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Piece)
        return partition.read()


class LogStreamReader(datasource.DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._folder = Folder(options)
        self._most_bytes = int(options.get("maxBytesPerBatch", MAX_BATCH_BYTES))
        self._stop_at: Progress | None = None

    def initialOffset(self) -> Progress:
        return {}

    def getDefaultReadLimit(self) -> limits.ReadLimit:
        return limits.ReadMaxBytes(self._most_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = self._folder.advance({}, None)

    def latestOffset(self, start: Progress, limit: limits.ReadLimit) -> Progress:
        most = limit.max_bytes if isinstance(limit, limits.ReadMaxBytes) else None
        if not isinstance(limit, limits.ReadMaxBytes | limits.ReadAllAvailable):
            most = self._most_bytes
        return self._folder.advance(start, most, self._stop_at)

    def partitions(self, start: Progress, end: Progress) -> list[Piece]:
        return self._folder.pieces(start, end)

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Piece)
        return partition.read()


def _unpacked_size(path: str) -> int:
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() < 18:  # the smallest gzip file
            return 0
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")
