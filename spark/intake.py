"""Writes the lines of one batch to the tables, each request once.

Nearly all lines are valid and new. So they are parsed directly into their final files, and
duplicates are found afterwards, by `line_id` alone: only files with duplicates are rewritten
without them. The rows of a batch are never sorted or shuffled as a whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from spark import requests
from spark.http import SourceError
from spark.loglines import GONE, SHARED
from spark.schema import REQUESTS
from spark.tables import Change, Tables

LOG_FILES = (
    "file string, lines bigint, requests bigint, duplicates bigint, quarantined bigint, date date"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The contents of a batch, file by file."""

    files: Mapping[str, Row]

    @property
    def lines(self) -> int:
        return sum(row.lines for row in self.files.values())

    @property
    def bad(self) -> int:
        return sum(row.quarantined for row in self.files.values())

    @property
    def gone(self) -> list[str]:
        """Files that executors did not find."""
        return sorted(name for name, row in self.files.items() if row.gone)

    @property
    def span_ms(self) -> tuple[int, int] | None:
        """Times of the first and the last valid line."""
        good = [row for row in self.files.values() if row.first_ms is not None]
        if not good:
            return None
        return min(row.first_ms for row in good), max(row.last_ms for row in good)


class Intake:
    def __init__(self, session: SparkSession, tables: Tables, change: Change) -> None:
        self._session = session
        self._tables = tables
        self._change = change
        self._parsed = change.scratch / "parsed"
        self._name = f"change-{tables.state.generation + 1:08d}"

    def read(self, lines: DataFrame) -> Seen:
        """Parse them into files. Raises SourceError if these are not visible here."""
        written = Observation()
        parsed = requests.parse(lines).observe(written, F.count(F.lit(1)).alias("lines"))
        parsed.write.partitionBy("is_good", "date").parquet(str(self._parsed))
        is_good = F.col("is_good")
        counts = (
            self._rows()
            .groupBy("file")
            .agg(
                F.count(F.lit(1)).alias("lines"),
                F.count_if(~is_good).alias("quarantined"),
                F.count_if(~is_good & (F.col("error") == GONE)).alias("gone"),
                F.min(F.when(is_good, F.col("time_ms"))).alias("first_ms"),
                F.max(F.when(is_good, F.col("time_ms"))).alias("last_ms"),
            )
        )
        seen = Seen({row.file: row for row in counts.collect()})
        if seen.lines != (wrote := written.get["lines"]):
            told = f"{wrote:,} lines were written to {self._parsed}, but {seen.lines:,} found there"
            raise SourceError(f"{told}: {SHARED}")
        return seen

    def add(self, seen: Seen) -> None:
        """Add new requests to the tables, and the counts of their files."""
        duplicates = self._drop_copies(seen)
        left = sorted((self._parsed / "is_good=true").glob("date=*/*.parquet"))
        self._change.adopt("requests", left, self._name)
        if seen.bad:
            known = self._tables.read(self._session, "quarantine", requests.QUARANTINE)
            bad = requests.quarantine(self._rows())
            new = bad.join(known, ["file", "position", "reason"], "left_anti")
            self._change.add("quarantine", new, self._name)
        self._change.add("log_files", self._log_files(seen, duplicates), self._name)

    def _rows(self, paths: Iterable[Path] = ()) -> DataFrame:
        """The rows of these files, or of all."""
        names = [str(path) for path in paths] or [str(self._parsed)]
        reader = self._session.read.schema(requests.PARSED).option("basePath", str(self._parsed))
        return reader.parquet(*names)

    def _drop_copies(self, seen: Seen) -> dict[str, int]:
        """Returns the number of duplicates in each log file."""
        if seen.span_ms is None:
            return {}
        # A copy has the time of its original, so only requests of that time need to be checked.
        known = self._tables.read(self._session, "requests", REQUESTS)
        earlier = known.where(F.col("time_ms").between(*seen.span_ms))
        new = self._rows().where("is_good")
        twice = self._keep("twice", requests.seen_twice(new, earlier))
        if twice is None:
            return {}
        part = F.col("_metadata.file_name").alias("part")
        copies = self._keep("copies", requests.copies(new.select("*", part), earlier, twice))
        if copies is None:
            return {}
        spoilt = [
            self._parsed / "is_good=true" / f"date={row.date}" / row.part
            for row in copies.select("date", "part").distinct().collect()
        ]
        good = requests.requests(self._rows(spoilt))
        rest = good.join(copies, ["file", "position"], "left_anti").select(REQUESTS.fieldNames())
        self._change.add("requests", rest, f"{self._name}-rest")
        for path in spoilt:
            path.unlink()
        return {row.file: row["count"] for row in copies.groupBy("file").count().collect()}

    def _keep(self, name: str, rows: DataFrame) -> DataFrame | None:
        """Written to a file and read back; None if there are no rows."""
        path, schema, seen = str(self._change.scratch / name), rows.schema, Observation()
        rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.parquet(path)
        return self._session.read.schema(schema).parquet(path) if seen.get["rows"] else None

    def _log_files(self, seen: Seen, duplicates: Mapping[str, int]) -> DataFrame:
        rows = [
            (name, row.lines, row.quarantined, duplicates.get(name, 0))
            for name, row in seen.files.items()
        ]
        columns = "file string, lines bigint, quarantined bigint, duplicates bigint"
        return (
            self._session.createDataFrame(rows, columns)
            .coalesce(1)
            .withColumn("requests", F.expr("lines - quarantined - duplicates"))
            .withColumn("date", requests.date_of_file(F.col("file")))
            .select("file", "lines", "requests", "duplicates", "quarantined", "date")
        )
