"""Mode `cluster`: one shard, its journal replicated by NATS, its older data in object storage.

clusterstore  the storage: room, staging, publishing, reading
envelope      the journal's messages and their chain of checksums (pure)
jetstream     the calls of NATS JetStream that we use
journal       one owner's journal: epochs, doubts, replay
recovery      from checkpoint and journal to streams
flushes       when and in which order data moves to objects
flush         what each stream contributes to a flush
merges        small blocks into larger ones
steps         long loops, in steps
usage         how much of each pack is in use (pure)
saved         checkpoints as bytes (pure)
depot         the objects of one shard
objects       object storage: S3, GCS, Azure or a folder
packs         blocks of many streams in one object, extents, merging (pure)
diskcache     a bounded local cache of blocks
blockreads    one verified block, from the cache or its object
coldreads     reads of streams, from their blocks
coldblobs     snapshots as objects, verified

Tests are in tests/origin/storage/cluster/. test_journal.py covers jetstream; test_clusterstore.py
covers recovery, flushes, flush, merges and depot; test_coldreads.py covers blockreads.
"""
