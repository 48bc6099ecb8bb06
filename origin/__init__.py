"""The origin: a Durable Streams server.

Requests come in:

app             wiring, start and drained stop
handlers        requests that aiohttp has parsed: dispatch, errors to replies, health and metrics
calls           one such request, and responses written in pieces
streamroutes    streams over HTTP
bucketroutes    buckets over HTTP
snapshotroutes  snapshots and bootstraps over HTTP
plainrequests   plain appends and reads from memory, directly on the connection
live            long-poll and SSE
admission       which requests the origin accepts at all
freshness       what may be said while another node may own the shard
outcomes        requests that get no outcome in time

A shard answers them:

shards          which shards are served here
shard           one storage and everything that works on it
registry        every stream by name, id and bucket; limits of number and size
streams         one open stream: staged state, and the state visible to readers
lifetimes       finding, renewal, expiry, deletion
creations       PUT: a new stream, a fork, or an existing one
forks           where a fork begins, and what it inherits
appends         POST: judge, stage, publish
removals        the end of a stream, and data kept for its forks
staging         room for a unit, its commit, waiting for it, its errors
chunks          catch-up reads, and encoded responses kept for reuse
messages        large JSON appends, scanned in slices
buckets         which streams each bucket has
aliases         where forks are whose names are at home in this shard
snapshots       publishing snapshots, and bootstraps
snapshotblobs   the bytes of snapshots, and their readers

config          settings and their limits
metrics         /metrics
storage         where bytes live
cluster         a node among others

Tests are in tests/origin/. bucketroutes, snapshotroutes and snapshots are tested in
tests/extension/, removals in tests/crash/, plainrequests in tests/wire/test_front.py.
test_live.py covers calls and streams; test_handlers.py and test_offsets.py cover streamroutes;
tests/origin/cluster/test_placing.py covers aliases.
"""
