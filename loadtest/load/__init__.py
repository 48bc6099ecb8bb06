"""Load that people can look at: `weir load SCENARIO`, `weir load report`, `weir load compare`.

A scenario is a crowd of clients, as coroutines over plain connections. Whatever is measured goes
into one file, second by second; views and charts are made from that file, as often as wanted.
"""
