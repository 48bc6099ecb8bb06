"""The load program: one generator, scenarios on top of it, and what people see of them.

The generator:
connection  HTTP/1.1 on bare sockets; `replies` parses what comes back
client      a client of streams; `session` is one that paces and counts
readers     those who wait, follow and catch up, at a given pace
crowd       those who wait by the thousand, as fast as can be
wrk         a generator in C, for rows that Python would limit (`requests.lua`)

Scenarios:
paced       those of `weir load`: a crowd at a given pace, on any target
origin, gateway, state, analytics   those of `make bench`: short rounds on peers, with goals
suites      which of these belong together, and on which peers

Running and telling:
run         one paced scenario, seen as it runs: `meter`, `histogram`, `records`, `view`
compare     all paced scenarios on all peers: `summary`, `results`, `page`
bench       the suites on all their peers: `contest` lets them take turns, `goals` judges the
            figures, `table` prints them
"""
