"""A cluster on one machine, as `weir up --cluster` starts it, and what `weir cluster` shows.

natsserver    one NATS server: its configuration, its process
objectserver  the S3 server (SeaweedFS): its flags, its process, its bucket
program       a third-party server as a child: found, started, waited for, stopped
keeper        starts services in order, and again when one dies; stops them in reverse
clusterfile   cluster.json: what runs where, and the ports that stay
layout        names, folders and settings of all of them
credentials   what NATS and S3 ask for
ports         free ports, the same ones after a restart
status        the answers of several nodes as one status, as JSON and as tables

Tests are in tests/weir/cluster/: test_servers.py covers natsserver, objectserver and program with
the real programs.
"""
