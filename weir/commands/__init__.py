"""The commands: `weir NAME` calls `run` in the module NAME. Flags are in `weir.cli`.

up        an origin and a gateway with a development key
localcluster  `weir up --cluster`: NATS, an S3 server, origins and gateways
cluster   `weir cluster`: what the nodes of a cluster say
origin    the stream server
gateway   a gateway, in one process or several workers
envoy     Envoy in front of gateways
fleet     `weir envoy --fleet`: an origin, gateways and Envoy
token     one signed development token
keys      the keys and secrets that a fleet shares
produce   a message every second
health    a health check for containers
state     the state of a stream of State messages
compact   a snapshot instead of State messages
report    tables and a report from access logs
load      load tests
verify    a fleet's guarantees under faults
fsck      check a data directory
dump      show a data directory
backup    copy a data directory
restore   a data directory from a backup

Tested elsewhere: fsck, dump, backup and restore in tests/crash/, verify in tests/verify/, load in
tests/load/, origin in tests/origin/, fleet with envoy and up.
"""
