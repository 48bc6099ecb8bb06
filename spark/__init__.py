"""Spark: access logs beside materialised stream state, as tables and a report.

Streams over HTTP, as the data source `durable_stream`:

source     what Spark calls; how our modules get to executors
options    what may be asked for
planning   in the driver: where streams end, which ranges are read
ranges     a part of a stream; how parts are cut and dealt out
reading    on executors: the rows of a range, whatever happened to the stream meanwhile
rows       answers to Arrow batches: what the columns mean
streams    what a server says about its streams
http       asks a server

Lines of access logs, as the data source `weir_log`:

logsource  what Spark calls
logfiles   which bytes of a folder are read next
loglines   on executors: those bytes as lines

What is made of them, with built-in functions:

schema     columns of a line, from `protocol.accesslog`
requests   lines to cleaned requests, or to the quarantine
traffic    aggregates of requests
messages   State messages, judged
state      current rows of each stream, and what moved
joined     traffic beside state

The run:

run        new lines to tables, tables to a report
statestep  brings the state of streams up to date
intake     the lines of one batch into files, each request once
tables     a folder of tables, changed only as a whole
session    one session for a run
progress   what a run tells its operator
summary    tables to the numbers of the report
statesummary  the numbers about state
report     numbers to one HTML page

Tests are in tests/spark/: test_run.py covers summary, statesummary, traffic and session.
"""
