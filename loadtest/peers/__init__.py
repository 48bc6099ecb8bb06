"""Programs that are measured.

process   one that serves: started, found ready, stopped, started again
servers   ours, and what could stand in their place
clusters  a cluster of origins: its processes, who owns what, and what stands beside it
configs   configurations of the others
nats      NATS servers
weed      an S3 server
names     what all are called
jobs      one that runs to its end
memory    what processes and the machine use, from /proc
tokens    signed tokens, and the key set that checks them
debian    programs that Debian packages

Tests are in tests/loadtest/: test_servers.py covers names; tests/verify/test_cluster.py runs nats
and weed.
"""
