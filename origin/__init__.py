"""The origin: a Durable Streams server.

config    settings and their limits
app       wiring, start and drained stop
handlers  requests as aiohttp brings them
fast      the same for plain appends and cached reads, straight on the connection
http      headers every response carries
service   create, append, delete, expire: judge, stage, publish
chunks    catch-up reads; messages looks through large JSON appends a slice at a time
live      long-poll and SSE
streams   one open stream: staged state and what readers see
metrics   /metrics
storage   where bytes live
"""
