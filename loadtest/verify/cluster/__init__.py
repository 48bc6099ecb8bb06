"""`weir verify --cluster`: three origins that share journals and objects under faults.

clusterrun     a whole run: an episode for each kind of fault, each with a history of its own
machines       the real processes: NATS, an S3 server, origins, a gateway
links          TCP proxies between them: passed, cut, frozen, slow
sources        which process is at the other end of a connection
overview       who owns and who leads what, as the cluster itself says
faults         what is done, by name, and how it is undone
rounds         one fault after another, and the wait until all is well again
crew           all clients of an episode
clients        those that only a cluster needs
damage         changed bytes in objects and journals: refused by name, never served
pauses         how long each shard took no writes (pure)
clusterreport  the figures in words (pure)

The history and its checks are those of `loadtest.verify`; `check_cluster` has what is new. Tests
are in tests/verify/: test_links.py covers links and sources, test_pauses.py pauses and
clusterreport; test_cluster.py runs the rest (clusterrun, machines, overview, faults, rounds, crew,
clients and damage), and test_cluster_mutants.py shows that it can fail.
"""
