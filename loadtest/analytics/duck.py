"""The tables of `weir report` by DuckDB: an independent way to every aggregate, and a peer.

`python -m loadtest.analytics.duck make LOGS OUT` writes them as Parquet, `compare TABLES OUT` names
those of a report that differ, `state TABLES OUT` prints its entities. Each prints one JSON line.
(DuckDB's reader of JSON lines is enough for lines that are good or no JSON at all; tests of the odd
ones bring another.)
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import msgspec

from protocol.accesslog import AccessRecord, parse_file_name

READ = "verdict IN ('hit', 'stale', 'revalidated', 'miss', 'hub')"
COLLAPSED = f"({READ} AND role = 'follower')"
ALONE = f"{READ} AND role != 'follower'"
SAVED = f"({READ} AND upstream_requests = 0)"
ERROR = "(status >= 500 OR verdict = 'error')"
COUNTS = f"""
    count(*) AS requests,
    count(*) FILTER ({READ}) AS reads,
    count(*) FILTER (method IN ('PUT', 'POST', 'DELETE', 'PATCH')) AS writes,
    sum(bytes_sent) AS bytes_sent, sum(bytes_received) AS bytes_received,
    count(*) FILTER ({ALONE} AND verdict = 'hit') AS hits,
    count(*) FILTER ({ALONE} AND verdict = 'stale') AS stale,
    count(*) FILTER ({ALONE} AND verdict = 'revalidated') AS revalidated,
    count(*) FILTER ({ALONE} AND verdict = 'miss') AS misses,
    count(*) FILTER ({ALONE} AND verdict = 'hub') AS hub,
    count(*) FILTER ({COLLAPSED}) AS collapsed,
    sum(upstream_requests) AS upstream_requests,
    count(*) FILTER ({SAVED}) AS requests_saved,
    coalesce(sum(bytes_sent) FILTER ({SAVED}), 0) AS bytes_saved,
    count(*) FILTER ({ERROR}) AS errors,
    count(*) FILTER (status >= 400) AS failures,
    count(*) FILTER (verdict = 'refused') AS refused,
    count(*) FILTER (status IN (401, 403)) AS token_failures,
    min(time) AS first_seen, max(time) AS last_seen
"""
# A bin is the number whose text has zeros behind its first two digits.
BIN = "rpad(left(us::VARCHAR, 2), length(us::VARCHAR)::INT, '0')::BIGINT"
SUMS = """count(*) AS requests, max(us) AS max_us, sum(us) AS duration_us,
    sum(round(wait_ms * 1000)::BIGINT) AS wait_us,
    sum(round(upstream_ms * 1000)::BIGINT) AS upstream_us"""


def percentiles(keys: str) -> str:
    """Of the bins of single requests, by nearest rank."""
    shares = ", ".join(
        f"quantile_disc({BIN}, {share / 100}) AS p{share}_us" for share in (50, 90, 95, 99)
    )
    return f"SELECT {keys}, {shares}, {SUMS} FROM r GROUP BY ALL"


# Of the relation `r`: requests with `time`, `date` and `us`, the duration in microseconds.
QUERIES = {
    "traffic_by_minute": f"""
        SELECT date, date_trunc('minute', time) AS minute, gateway, mode, verdict,
            count(*) AS requests, count(*) FILTER ({COLLAPSED}) AS collapsed,
            sum(bytes_sent) AS bytes_sent, sum(bytes_received) AS bytes_received,
            sum(upstream_requests) AS upstream_requests,
            count(*) FILTER ({SAVED}) AS requests_saved,
            coalesce(sum(bytes_sent) FILTER ({SAVED}), 0) AS bytes_saved,
            count(*) FILTER ({ERROR}) AS errors,
            count(*) FILTER (status IN (401, 403)) AS token_failures
        FROM r GROUP BY ALL""",
    "usage": f"SELECT date, stream, subject, {COUNTS} FROM r GROUP BY ALL",
    "streams": f"""
        SELECT *, (hits + stale) / nullif(reads, 0) AS hit_ratio,
            collapsed / nullif(reads, 0) AS collapsed_ratio, hub / nullif(reads, 0) AS hub_ratio
        FROM (SELECT date, stream, {COUNTS},
            count(DISTINCT subject) FILTER (subject != '') AS subjects,
            count(DISTINCT subject) FILTER (subject != '' AND {READ}) AS readers
        FROM r WHERE stream != '' GROUP BY ALL)""",
    "subjects": f"""
        SELECT date, subject, {COUNTS}, count(DISTINCT stream) FILTER (stream != '') AS streams
        FROM r GROUP BY ALL""",
    "latency": f"SELECT date, stream, mode, {BIN} AS bin_us, {SUMS} FROM r GROUP BY ALL",
    "latency_by_minute": f"""
        SELECT date, date_trunc('minute', time) AS minute, mode, {BIN} AS bin_us, {SUMS}
        FROM r GROUP BY ALL""",
    "latency_percentiles": percentiles("date, stream, mode"),
    "latency_by_mode": percentiles("date, mode"),
    "sse_sessions": """
        SELECT date, request_id, gateway, worker, stream, subject, time AS started,
            us AS duration_us, bytes_sent, verdict, ended
        FROM r WHERE mode = 'sse' AND status = 200""",
    "errors": f"""
        SELECT date, status, error, mode, count(*) AS requests,
            count(*) FILTER (status IN (401, 403)) AS token_failures,
            count(DISTINCT stream) FILTER (stream != '') AS streams,
            count(DISTINCT client) AS clients, min(time) AS first_seen, max(time) AS last_seen
        FROM r WHERE status >= 400 OR {ERROR} GROUP BY ALL""",
}
TIMES = "make_timestamp(time_ms * 1000) AS time, time::DATE AS date"
MICROSECONDS = "round(duration_ms * 1000)::BIGINT AS us"

_KINDS = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
_FIELDS = {field.name: _KINDS[field.type] for field in msgspec.structs.fields(AccessRecord)}


def log_files(logs: Path) -> list[Path]:
    return sorted(path for path in logs.rglob("*") if parse_file_name(path.name))


def connect() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    return db


def make(logs: Path, out: Path) -> dict[str, object]:
    """Requests and all aggregates; copies of a line have the same values in all fields."""
    db = connect()
    db.execute(
        f"""CREATE TABLE r AS SELECT *, {TIMES}, {MICROSECONDS} FROM (
            SELECT DISTINCT * FROM read_ndjson(?, columns = ?, ignore_errors = true)
            WHERE gateway IS NOT NULL)""",
        [[str(path) for path in log_files(logs)], _FIELDS],
    )
    out.mkdir(parents=True, exist_ok=True)
    for table, query in {"requests": "SELECT * EXCLUDE us FROM r", **QUERIES}.items():
        db.execute(f"COPY ({query}) TO '{out / table}.parquet' (FORMAT parquet, COMPRESSION zstd)")
    return {"requests": _count(db, "r")}


def compare(tables: Path, out: Path) -> dict[str, object]:
    """Names of the aggregates that differ, and what each side says it has read."""
    db = connect()
    theirs = {table: f"read_parquet('{out / table}.parquet')" for table in ("requests", *QUERIES)}
    ours = {
        table: f"read_parquet('{tables / table}/*/*.parquet', hive_partitioning = true)"
        for table in QUERIES
    }
    differ = [table for table in QUERIES if _differ(db, ours[table], theirs[table])]
    quality = ("lines", "requests", "duplicates", "quarantined")
    sums = ", ".join(f"sum({name})::BIGINT" for name in quality)
    [found] = db.execute(f"SELECT {sums} FROM '{tables}/log_quality/*.parquet'").fetchall()
    return {
        "differ": differ,
        "ours": dict(zip(quality, found, strict=True)),
        "theirs": _count(db, theirs["requests"]),
    }


def read_state(tables: Path, out: Path) -> dict[str, object]:
    """Entities of a report by type and key."""
    entities: dict[str, dict[str, object]] = {}
    rows = connect().execute(f"SELECT type, key, value FROM '{tables}/state/*.parquet'")
    for kind, key, value in rows.fetchall():
        entities.setdefault(kind, {})[key] = json.loads(value)
    return dict(entities)


def _differ(db: duckdb.DuckDBPyConnection, ours: str, theirs: str) -> bool:
    names = [row[0] for row in db.execute(f"DESCRIBE SELECT * FROM {theirs}").fetchall()]
    if sorted(names) != sorted(
        row[0] for row in db.execute(f"DESCRIBE SELECT * FROM {ours}").fetchall()
    ):
        return True
    listed = ", ".join(names)
    sides = [f"SELECT {listed} FROM {side}" for side in (ours, theirs)]
    return any(_count(db, f"({one} EXCEPT ALL {other})") for one, other in (sides, reversed(sides)))


def _count(db: duckdb.DuckDBPyConnection, rows: str) -> int:
    found = db.execute(f"SELECT count(*) FROM {rows}").fetchone()
    assert found is not None
    return int(found[0])


ACTIONS = {"make": make, "compare": compare, "state": read_state}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.analytics.duck")
    parser.add_argument("action", choices=list(ACTIONS))
    parser.add_argument("source", type=Path, help="folder of the logs, or of a report's tables")
    parser.add_argument("out", type=Path, help="folder of DuckDB's tables")
    options = parser.parse_args(arguments)
    print(json.dumps(ACTIONS[options.action](options.source, options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
