"""What streams hold and how it came to be, by DuckDB from their messages: another way to the tables
of state, and to their join with the traffic.

`m` has the messages of streams without snapshots in their order: `stream`, `n`, `text`. `current`
is the table `state`, needed for the values as they were written, and `r` has the requests.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from loadtest.analytics.duck import READ

_TIME = "CASE WHEN year(told) BETWEEN 1970 AND 2099 THEN told END"

# Names are compared as JSON, which DuckDB writes in one way.
_CHANGES = f"""
    CREATE TABLE changes AS
    SELECT * EXCLUDE told, {_TIME} AS time, date_trunc('minute', {_TIME}) AS minute,
        {_TIME}::DATE AS date,
        coalesce(lag(alive) OVER life, false) AS was_alive,
        lead(n) OVER life IS NULL AS is_last
    FROM (SELECT stream, n, epoch, max(epoch) OVER (PARTITION BY stream) AS last_epoch,
            text ->> '$.type' AS type, text -> '$.key' AS key,
            text ->> '$.headers.operation' AS operation, operation != 'delete' AS alive,
            ((text ->> '$.headers.timestamp')::TIMESTAMPTZ AT TIME ZONE 'UTC') AS told
        FROM (SELECT *, count(*) FILTER (text ->> '$.headers.control' = 'reset')
                OVER (PARTITION BY stream ORDER BY n) AS epoch FROM m))
    WHERE operation IS NOT NULL AND key IS NOT NULL
    WINDOW life AS (PARTITION BY stream, epoch, type, key ORDER BY n)"""
# What a reset takes away goes at the latest time before it.
_MOVES = """
    CREATE TABLE moves AS
    SELECT stream, type, minute, date,
        CASE WHEN operation != 'upsert' THEN operation
            WHEN was_alive THEN 'update' ELSE 'insert' END AS operation,
        alive::INT - was_alive::INT AS growth
    FROM changes
    UNION ALL
    SELECT stream, type, date_trunc('minute', gone), gone::DATE, NULL, -1
    FROM (SELECT *, (SELECT max(time) FROM changes earlier
            WHERE earlier.stream = c.stream AND earlier.epoch <= c.epoch) AS gone
        FROM changes c)
    WHERE alive AND is_last AND epoch < last_epoch"""
_SUMS = """
    count(*) FILTER (operation = 'insert') AS inserts,
    count(*) FILTER (operation = 'update') AS updates,
    count(*) FILTER (operation = 'delete') AS deletes,
    sum(growth)::BIGINT AS growth"""
_MOVED = "inserts + updates + deletes > 0 OR growth != 0"
_COUNTS = """
    SELECT stream, type, coalesce(entities, 0) AS entities, coalesce(value_bytes, 0) AS value_bytes,
        inserts, updates, deletes, inserts + updates + deletes AS changes,
        growth, first_date, last_date
    FROM (SELECT stream, type, sum(inserts) AS inserts, sum(updates) AS updates,
            sum(deletes) AS deletes, sum(growth) FILTER (date IS NOT NULL) AS growth,
            min(date) AS first_date, max(date) AS last_date
        FROM churn GROUP BY ALL)
    LEFT JOIN (SELECT stream, type, count(*) AS entities FROM changes
            WHERE alive AND is_last AND epoch = last_epoch GROUP BY ALL)
        USING (stream, type)
    LEFT JOIN (SELECT stream, type, sum(strlen(value)) AS value_bytes FROM current GROUP BY ALL)
        USING (stream, type)"""
_IN_LOG = "date IN (SELECT date FROM r)"
_JOINED = f"""
    SELECT *, reads / nullif(entities, 0) AS reads_per_entity,
        readers / nullif(entities, 0) AS readers_per_entity,
        bytes_sent / nullif(entities, 0) AS bytes_sent_per_entity,
        bytes_sent / nullif(changed_entities, 0) AS bytes_sent_per_changed_entity,
        CASE WHEN coalesce(reads, 0) = 0 THEN coalesce(entities, 0) ELSE 0 END AS unread_entities
    FROM (SELECT stream, count(*) AS requests, count(*) FILTER ({READ}) AS reads,
            count(*) FILTER (method IN ('PUT', 'POST', 'DELETE', 'PATCH')) AS writes,
            sum(bytes_sent) AS bytes_sent, sum(bytes_received) AS bytes_received,
            coalesce(sum(bytes_sent) FILTER ({READ} AND upstream_requests = 0), 0) AS bytes_saved,
            count(DISTINCT subject) FILTER (subject != '') AS subjects,
            count(DISTINCT subject) FILTER (subject != '' AND {READ}) AS readers,
            max(time) AS last_seen
        FROM r WHERE stream != '' GROUP BY ALL)
    FULL JOIN (SELECT stream, count(*) FILTER (entities > 0) AS types, sum(entities) AS entities,
            sum(value_bytes) AS value_bytes, sum(inserts) AS inserts, sum(updates) AS updates,
            sum(deletes) AS deletes, sum(changes) AS changes, max(last_date) AS last_change_date
        FROM counts GROUP BY ALL) USING (stream)
    LEFT JOIN (SELECT stream,
            CASE WHEN max(date) IS NOT NULL
                THEN coalesce(sum(growth) FILTER ({_IN_LOG}), 0) END AS growth
        FROM moves GROUP BY ALL) USING (stream)
    LEFT JOIN (SELECT stream,
            CASE WHEN max(date) IS NOT NULL
                THEN count(DISTINCT (type, key)) FILTER ({_IN_LOG}) END AS changed_entities
        FROM changes GROUP BY ALL) USING (stream)"""

QUERIES = {
    "state_churn": "SELECT * FROM churn",
    "state_by_minute": f"SELECT * FROM by_minute WHERE {_MOVED}",
    "state_counts": "SELECT * FROM counts",
    "state_changed": """SELECT DISTINCT stream, type, key ->> '$' AS key, date
        FROM changes WHERE date IS NOT NULL""",
    "traffic_and_state": _JOINED,
}


def load_messages(
    db: duckdb.DuckDBPyConnection, streams: Mapping[str, Sequence[str]], state: Path
) -> None:
    """What the queries ask; `state` is the folder of that table."""
    rows = [(name, n, text) for name, texts in streams.items() for n, text in enumerate(texts)]
    columns = dict(zip(("stream", "n", "text"), map(list, zip(*rows, strict=True)), strict=True))
    db.register("given", pa.table(columns))
    db.execute("CREATE TABLE m AS SELECT stream, n, text::JSON AS text FROM given")
    db.execute(f"CREATE VIEW current AS SELECT * FROM '{state}/*.parquet'")
    db.execute(_CHANGES)
    db.execute(_MOVES)
    for name, keys in (("churn", "stream, type, date"), ("by_minute", "type, minute")):
        db.execute(f"CREATE TABLE {name} AS SELECT {keys}, {_SUMS} FROM moves GROUP BY ALL")
    db.execute(f"DELETE FROM churn WHERE NOT ({_MOVED})")
    db.execute(f"CREATE TABLE counts AS {_COUNTS}")
