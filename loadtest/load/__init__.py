"""The load program: one generator, scenarios on top of it, and what people see of them.

The generator:

connection  HTTP/1.1 on bare sockets
replies     parses what comes back
client      a client of streams
session     a client that paces and counts
readers     readers that wait, follow and catch up, at a given pace
crowd       thousands of waiting readers, as fast as possible
wrk         a generator in C, for rows that Python would limit (`requests.lua`)
owners      requests that go straight to the owner of each stream

Scenarios:

paced       those of `weir load`: readers and writers at a given pace, on any target
compare     the same on peers
origin      those of `make bench` for the origin: short rounds on peers, with goals
cluster     the same for a cluster of origins: appends and reads
takeovers   the same after an owner was killed
bounds      what much data takes of its nodes
gateway     the same for the gateway
state       the same for compacted State streams
analytics   the same for the Spark pipeline
suites      which of these belong together, and on which peers

`weir load`:

run         one paced scenario, seen as it runs
meter       counts requests and their times
histogram   times in buckets
records     a run as JSON lines
view        a run on the terminal
summary     the figures of a run

Comparisons (`make bench`, `weir load compare`):

bench       the suites on all their peers
contest     lets peers take turns and keeps the results
goals       judges the figures
table       lays them out as a table
page        draws charts of runs
report      the terminal's table, docs/results.md and the page

Tests are in tests/loadtest/ and tests/load/: the latter covers origin, connection, replies, client,
session, readers, crowd, paced, run, meter, histogram, records, view, compare, summary, report and
page.
"""
