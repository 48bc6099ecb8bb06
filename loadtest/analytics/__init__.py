"""Input for the Spark pipeline, and an independent way to its tables.

accesslogs  logs of a busy fleet, as many lines as one likes
changes     a State stream whose final state is known
duck        the tables of `weir report` by DuckDB
"""
