"""The origin: a Durable Streams server.

Requests come in:

app             wiring, start and drained stop
handlers        requests that aiohttp has parsed: dispatch, errors to replies, health and metrics
calls           one such request, and responses that are written piece by piece
streamroutes    streams over HTTP
bucketroutes    buckets over HTTP
snapshotroutes  snapshots and bootstraps over HTTP
plainrequests   plain appends and reads of bytes at hand, straight on the connection
live            long-poll and SSE
admission       whom the origin listens to

A shard answers them:

shard           one storage and all that works on it
registry        every stream by name, id and bucket; limits of number and size
streams         one open stream: staged state, and what readers see of it
lifetimes       finding, renewal, expiry, deletion
creations       PUT: a new stream, a fork, or one that is there already
forks           where a fork begins, and what it inherits
appends         POST: judge, stage, publish
removals        the end of a stream, and what its forks hold back
staging         room for a unit, its commit, waiting until it is settled, its errors
chunks          catch-up reads, and the encoded answers kept for reuse
messages        large JSON appends, looked through a slice at a time
buckets         which streams each bucket has
snapshots       publishing snapshots, and bootstraps made of them
snapshotblobs   the bytes of snapshots, and who reads them

config          settings and their limits
metrics         /metrics
storage         where bytes live

Tests are in tests/origin/. bucketroutes, snapshotroutes and snapshots are tested in
tests/extension/, removals in tests/crash/, plainrequests in tests/wire/test_front.py.
test_live.py covers calls and streams; test_handlers.py and test_offsets.py cover streamroutes.
"""
