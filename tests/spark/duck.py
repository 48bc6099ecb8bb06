"""Requests by DuckDB from whatever lines a folder holds; `loadtest.duck` has the aggregates."""

from pathlib import Path
from typing import Any

from loadtest.duck import MICROSECONDS, TIMES, connect
from protocol.accesslog import parse_file_name


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
