"""Requests by DuckDB from whatever lines a folder holds. `loadtest.analytics.duck` has their
aggregates, `duckstate` those of state, and here are those about the log itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.analytics.duck import MICROSECONDS, TIMES, connect
from protocol.accesslog import HOUR_MS, parse_file_name
from tests.spark.duckstate import load_messages

# Of the tables with single rows. What a worker wrote is told from the lines themselves: a process
# begins with its first number, and none of its requests began before that one.
LOG_QUERIES = {
    "quarantine_reasons": """
        SELECT reason, count(*) AS lines, count(DISTINCT file) AS files
        FROM quarantine GROUP BY ALL""",
    "log_runs": f"""
        SELECT date, gateway, worker, hour, stretch, max(begins) AS starts,
            min(seq) AS first_seq, max(seq) AS last_seq, count(*) AS lines
        FROM (SELECT *, sum(begins) OVER file AS stretch
            FROM (SELECT *, coalesce(seq <= lag(seq) OVER file, seq = 1)::INT AS begins
                FROM (SELECT *, time_ms // {HOUR_MS} AS hour FROM requests)
                WINDOW file AS (PARTITION BY gateway, worker, hour ORDER BY position, seq))
            WINDOW file AS (PARTITION BY gateway, worker, hour ORDER BY position, seq))
        GROUP BY ALL""",
    "log_quality": r"""
        SELECT gateway, worker, coalesce(files, 0) AS files, coalesce(lines, 0) AS lines,
            coalesce(duplicates, 0) AS duplicates, coalesce(quarantined, 0) AS quarantined,
            coalesce(requests, 0) AS requests, coalesce(starts, 0) AS starts,
            coalesce(missing, 0) AS missing
        FROM (SELECT gateway, worker, sum(lines) AS requests, count(*) AS starts,
                sum(last - first + 1 - lines) AS missing
            FROM (SELECT gateway, worker, process, count(*) AS lines, min(seq) AS first,
                    max(seq) AS last
                FROM (SELECT *, count(*) FILTER (seq = 1) OVER (
                    PARTITION BY gateway, worker ORDER BY time_ms) AS process FROM r)
                GROUP BY ALL)
            GROUP BY ALL)
        FULL JOIN (SELECT regexp_extract(file, name, 1) AS gateway,
                try_cast(regexp_extract(file, name, 2) AS BIGINT) AS worker,
                count(DISTINCT file) AS files, sum(lines) AS lines,
                sum(duplicates) AS duplicates, sum(quarantined) AS quarantined
            FROM log_files, (SELECT 'access-(.+)-([0-9]+)-[0-9]{8}T[0-9]{2}[.]jsonl' AS name)
            GROUP BY ALL)
        USING (gateway, worker)""",
}


class Duck:
    def __init__(self, logs: Path) -> None:
        self._db = connect()
        files = [
            str(path) for path in logs.rglob("*") if parse_file_name(path.name) and _whole(path)
        ]
        self._db.execute(
            """CREATE TABLE lines AS SELECT DISTINCT line FROM read_csv(?, delim = '\x01',
               columns = {'line': 'VARCHAR'}, auto_detect = false, header = false, quote = '',
               escape = '', max_line_size = 8000000, ignore_errors = true, strict_mode = false)
               WHERE json_valid(line) AND json_type(line) = 'OBJECT' AND length(line) < 1000000""",
            [files],
        )
        self._db.execute(f"""CREATE TABLE r AS
            SELECT *, {TIMES}, {MICROSECONDS}
            FROM (SELECT {", ".join(map(_column, _FIELDS))} FROM lines WHERE {_GOOD})""")

    def look_at(self, tables: Path, streams: Mapping[str, Sequence[str]]) -> None:
        """What else is asked: tables with single rows, and the messages of streams."""
        for table in ("requests", "quarantine", "log_files"):
            files = f"'{tables / table}/*/*.parquet', hive_partitioning = true"
            self._db.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet({files})")
        load_messages(self._db, streams, tables / "state")

    def rows(self, query: str) -> list[dict[str, Any]]:
        found = self._db.execute(query)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


_FIELDS = {
    **dict.fromkeys(("time_ms", "worker", "seq", "status"), ("BIGINT", None)),
    **dict.fromkeys(("gateway", "request_id", "method", "mode", "verdict"), ("VARCHAR", None)),
    **dict.fromkeys(("bytes_sent", "bytes_received", "upstream_requests"), ("BIGINT", "0")),
    **dict.fromkeys(("duration_ms", "wait_ms", "upstream_ms"), ("DOUBLE", "0")),
    **dict.fromkeys(("role", "client", "subject", "stream", "ended", "error"), ("VARCHAR", "''")),
}
_WHOLE = "('UBIGINT', 'BIGINT')"
_NUMBER = "('UBIGINT', 'BIGINT', 'DOUBLE')"
_GOOD = " AND ".join(
    [
        "coalesce(json_extract_string(line, '$.v'), '1') = '1'",
        "json_extract(line, '$.time_ms')::BIGINT > 1577836800000",
        *(
            f"""coalesce(json_type(line, '$.{name}') IN {_WHOLE if kind == "BIGINT" else _NUMBER},
            {"false" if default is None else "true"})
            AND try_cast(json_extract_string(line, '$.{name}') AS DOUBLE) IS DISTINCT FROM -1
            AND coalesce(try_cast(json_extract_string(line, '$.{name}') AS DOUBLE) < 1e16, true)"""
            for name, (kind, default) in _FIELDS.items()
            if kind != "VARCHAR"
        ),
        *(
            f"json_extract_string(line, '$.{name}') IS NOT NULL"
            for name, (kind, default) in _FIELDS.items()
            if kind == "VARCHAR" and default is None
        ),
    ]
)


def _column(name: str) -> str:
    kind, default = _FIELDS[name]
    value = f"try_cast(json_extract_string(line, '$.{name}') AS {kind})"
    return f"{value if default is None else f'coalesce({value}, {default})'} AS {name}"


def _whole(path: Path) -> bool:
    """DuckDB gives up on archives that end too early; what they hold are copies."""
    return not (path.parent.name == "late" and path.suffix == ".gz")
