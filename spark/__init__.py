"""Spark: access logs and materialised stream state, as tables and a report.

Streams over HTTP, as the data source `durable_stream`:

source     Spark's entry point; ships our modules to executors
options    its options
planning   in the driver: where streams end, which ranges to read
ranges     parts of streams, and their distribution to tasks
reading    on executors: the rows of a range, even if the stream has changed
rows       responses to Arrow batches: the meaning of the columns
streams    a server's information about its streams
http       the HTTP client

Lines of access logs, as the data source `weir_log`:

logsource  Spark's entry point
logfiles   which bytes of a folder to read next
loglines   on executors: those bytes as lines

Transformations, with built-in functions:

schema     columns of a line, from `protocol.accesslog`
requests   lines to cleaned requests, or to the quarantine
traffic    aggregates of requests
messages   State messages, checked
state      current rows of each stream, and changes over time
joined     traffic joined with state

The run:

run        new lines to tables, tables to a report
statestep  brings the state of streams up to date
intake     the lines of one batch into files, each request once
tables     a folder of tables, changed atomically
session    one session for a run
progress   messages to the operator
summary    tables to the numbers of the report
statesummary  the numbers about state
report     numbers to one HTML page

Tests are in tests/spark/: test_run.py covers summary, statesummary, traffic and session.
"""
