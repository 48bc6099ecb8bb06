"""Load, faults and proofs: what the servers do when much is asked of them, or much goes wrong.

load       the load program: `weir load`, and the comparisons of `make bench`
bench      the way into those comparisons
peers      the servers and programs that are measured, how they are started, and what they use
analytics  access logs and State streams to measure the Spark pipeline with, and DuckDB beside it
soak       `make soak`: half an hour of mixed load; does anything grow?
demo       `make demo-report`: a minute of traffic, and the report of it
faults     a proxy that does harm by a seeded plan
inspector  `make inspect`: every request on both sides of a gateway, in the browser
verify     `weir verify`: a fleet under faults, and whether a promise was broken
errors     what can go wrong in a run, apart from a slow server

Tests are in tests/loadtest/, tests/load/ and tests/verify/; demo and errors are covered by
tests/spark/test_end_to_end.py.
"""
