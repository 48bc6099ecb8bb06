"""The same numbers by DuckDB, straight from the files: an independent way to every aggregate."""

from pathlib import Path
from typing import Any

import duckdb

from protocol.accesslog import parse_file_name

INTEGERS = ("seq", "worker", "status")
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
    """Of the bins of single requests, one after the other."""
    shares = ", ".join(
        f"list_sort(list({BIN}))[((count(*) * {share} + 99) // 100)::INT] AS p{share}_us"
        for share in (50, 90, 95, 99)
    )
    return f"SELECT {keys}, {shares}, {SUMS} FROM r GROUP BY ALL"


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
            us AS duration_us, bytes_sent, status, verdict, ended
        FROM r WHERE mode = 'sse'""",
    "errors": f"""
        SELECT date, status, error, mode, count(*) AS requests,
            count(*) FILTER (status IN (401, 403)) AS token_failures,
            count(DISTINCT stream) FILTER (stream != '') AS streams,
            count(DISTINCT client) AS clients, min(time) AS first_seen, max(time) AS last_seen
        FROM r WHERE status >= 400 OR {ERROR} GROUP BY ALL""",
}


class Duck:
    def __init__(self, logs: Path) -> None:
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
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
            SELECT *, make_timestamp(time_ms * 1000) AS time, time::DATE AS date,
                round(duration_ms * 1000)::BIGINT AS us
            FROM (SELECT {", ".join(map(_column, _FIELDS))} FROM lines WHERE {_GOOD})""")

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
