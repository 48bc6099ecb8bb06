"""A node of a cluster: which shards it owns, and requests for several shards or those of others.

Ownership:

assignment      who owns which shard, and how that changes (pure)
control         leases and the assignment, in NATS
node            turns: renew the lease, look, act on the difference
holdings        the shards that this node has open, or opens
nodestatus      what a node says about itself
nodemetrics     the same in numbers, on /metrics
joining         whether a node belongs to the cluster that it joins
opening         from settings to a node
syncs           whether the NATS servers sync always

Requests:

serving         the request side, wired
view            the cluster as a node sees it, and which shard has a stream
forwarding      one hop to the owner of a shard
following       live reads that are passed on end when their shard moves
clusterroutes   map, status, readiness, and questions of other nodes
placing         PUT over several shards, and the aliases of forks
clusterbuckets  buckets over several shards
listings        one listing from those of many shards
peers           connections to the other nodes
questions       what nodes ask each other
answering       the answers, from the shards open here

Tests are in tests/origin/cluster/. test_clusterbuckets.py covers answering, questions and listings;
test_forwarding.py covers following, peers and view; test_as_one_machine.py covers serving;
test_node.py covers holdings, nodestatus, joining, opening and syncs.
"""
