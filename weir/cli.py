"""The command line: the flags of every command, and what runs when one is called.

`weir NAME` calls `run` in `weir.commands.NAME`, which is imported only then: `weir token` needs no
server. `weir up --cluster` is a command of its own, `localcluster`.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from importlib import import_module

from weir.exits import EXPECTED, exit_code, warn

Flags = Callable[[ArgumentParser], None]


def main(argv: Sequence[str] | None = None) -> None:
    arguments = make_parser().parse_args(argv)
    try:
        code = arguments.run(arguments)
    except EXPECTED as error:
        warn(str(error))
        code = exit_code(error)
    sys.exit(code)


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="weir", description="Edge gateway and origin for Durable Streams.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, about: str, add_flags: Flags) -> None:
        description = f"{about[0].upper()}{about[1:]}."
        command = commands.add_parser(name, help=about, description=description)
        add_flags(command)
        command.set_defaults(run=_runner(name))

    add("up", "run an origin and a gateway with a development key", _add_up)
    add("origin", "run the stream server", _add_origin)
    add("gateway", "run a gateway in front of an origin", _add_gateway)
    add("envoy", "run Envoy in front of gateways, for TLS and HTTP/2", _add_envoy)
    add("cluster", "look at a cluster of origins", _add_cluster)
    add("token", "print a signed development token", _add_token)
    add("keys", "create the keys and secrets that a fleet shares", _add_keys)
    add("produce", "append a message every second", _add_produce)
    add("health", "check a server's health: exit code 0 or 1", _add_health)
    add("state", "show the current state of a stream of State messages", _add_state)
    add("compact", "replace a stream's State messages with a snapshot", _add_compact)
    add("report", "build tables and a report from access logs", _add_report)
    add("load", "run a load test against a server", _add_load)
    add("verify", "check a fleet's guarantees while injecting faults", _add_verify)
    add("fsck", "check a data directory", _add_fsck)
    add("dump", "show the contents of a data directory", _add_dump)
    add("backup", "back up a data directory, even while it is in use", _add_backup)
    add("restore", "restore a data directory from a backup", _add_restore)
    return parser


def _runner(name: str) -> Callable[[Namespace], int]:
    def run(arguments: Namespace) -> int:
        module = "localcluster" if name == "up" and arguments.cluster is not None else name
        code: int = import_module(f"weir.commands.{module}").run(arguments)
        return code

    return run


def _add_up(up: ArgumentParser) -> None:
    up.add_argument("--host", help="address the gateway listens on; does not affect the origin")
    up.add_argument(
        "--gateway-port", "--port", metavar="PORT", help="gateway port; 0 picks a free one"
    )
    _add_origin_port(up)
    up.add_argument(
        "--cluster",
        type=int,
        metavar="N",
        help="run N origins as a cluster instead, with NATS, an S3 server and two gateways",
    )
    up.add_argument(
        "--no-restart",
        action="store_true",
        help="with --cluster: leave processes that die dead, instead of starting them again",
    )
    _add_storage(up)
    _add_files(up)


def _add_origin(origin: ArgumentParser) -> None:
    _add_address(origin)
    _add_storage(origin)
    _add_files(origin)


def _add_gateway(gateway: ArgumentParser) -> None:
    _add_address(gateway)
    about = "base URL of the origin; repeat it for the nodes of a cluster"
    gateway.add_argument("--origin", action="append", metavar="URL", help=about)
    _add_files(gateway)


def _add_envoy(envoy: ArgumentParser) -> None:
    add = envoy.add_argument
    add("--gateway", action="append", default=[], metavar="URL", help="a gateway; repeatable")
    add("--fleet", type=int, metavar="N", help="also start an origin and N gateways")
    add("--jwks", help="file or URL of the public keys (default: the gateways' auth.jwks)")
    add("--cert", metavar="FILE", help="certificate chain (PEM)")
    add("--key", metavar="FILE", help="private key of the certificate (PEM)")
    add("--host", help="address to listen on (default 127.0.0.1)")
    add("--port", type=int, metavar="PORT", help="TLS port (default 8443); 0 picks a free one")
    plain = envoy.add_mutually_exclusive_group().add_argument
    plain("--plain-port", type=int, metavar="PORT", help="port without TLS (default 10000)")
    plain("--no-plain", action="store_true", help="no port without TLS")
    add("--admin-port", type=int, metavar="PORT", help="Envoy's admin port (default 9901)")
    add("--metrics-port", type=int, metavar="PORT", help="port that serves only /metrics")
    add("--access-log", metavar="FILE", help="access log file (default: standard output)")
    add("--trusted-hops", type=int, metavar="N", help="trusted proxies in front (default 0)")
    add("--render", metavar="FILE", help="only write the configuration; - is standard output")
    _add_origin_port(envoy)
    _add_storage(envoy)
    _add_files(envoy)


def _add_cluster(cluster: ArgumentParser) -> None:
    actions = cluster.add_subparsers(required=True, metavar="ACTION", dest="action")
    about = "show nodes and shards; exit code 0 if every shard is served, 1 if not"
    status = actions.add_parser("status", help=about, description=f"S{about[1:]}.")
    status.add_argument("--json", action="store_true", help="print JSON instead of tables")
    status.add_argument("--shards", action="store_true", help="list all shards, not only problems")
    place = status.add_mutually_exclusive_group().add_argument
    place(
        "--data-dir", metavar="DIR", help="data directory of `weir up --cluster` (default ./data)"
    )
    place("--url", metavar="URL", help="URL of any node, for a cluster on other machines")


def _add_token(token: ArgumentParser) -> None:
    add = token.add_argument
    add("--sub", default="dev", help="subject (default dev)")
    add("--scope", help="space-separated action:pattern pairs (default: all actions on *)")
    add("--ttl", default="1h", help="lifetime: 900, 15m, 2h or 7d (default 1h)")
    add("--expired", action="store_true", help="make a token that expired an hour ago, for tests")
    add("--aud", help="audience (default: that of `weir up`)")
    add("--iss", help="issuer (default: that of `weir up`)")
    add("--key", metavar="FILE", help="private key (PEM; default ./data/keys/dev-key.pem)")
    add("--scope-claim", default="scope", help="name of the scope claim (default scope)")


def _add_keys(keys: ArgumentParser) -> None:
    add = keys.add_argument
    add("folder", metavar="DIR", help="folder that gateways and Envoy can read")
    add("--private", metavar="DIR", help="folder of the private development key (default: DIR)")
    add("--jwks", help="key set in use; unless it is the one in DIR, no development key is made")


def _add_produce(produce: ArgumentParser) -> None:
    add = produce.add_argument
    add("url", metavar="URL", help="a JSON stream; created if it does not exist")
    add("--every", metavar="TIME", default="1s", help="interval (default 1s)")
    add("--count", type=int, metavar="N", help="stop after N messages")
    add("--id", default="heartbeat", help="producer id (default heartbeat)")
    _add_bearer(produce)
    add("--key", metavar="FILE", help="development key that signs the tokens")


def _add_health(health: ArgumentParser) -> None:
    health.add_argument("url", metavar="URL", help="for example http://127.0.0.1:9090/readyz")


def _add_state(state: ArgumentParser) -> None:
    add = state.add_argument
    _add_stream(state)
    add("--json", action="store_true", help="print JSON instead of columns")
    add("--follow", action="store_true", help="keep printing changes until interrupted")
    add("--schema", metavar="FILE", help="JSON Schemas, one per entity type")
    add("--type", metavar="TYPE", help="show only entities of this type")


def _add_compact(compact: ArgumentParser) -> None:
    _add_stream(compact)
    add = compact.add_argument
    add("--skip-malformed", action="store_true", help="drop messages that are not State messages")


def _add_report(report: ArgumentParser) -> None:
    add = report.add_argument
    add("--logs", required=True, metavar="DIR", help="folder of the access logs")
    add("--out", required=True, metavar="DIR", help="folder for the tables and the report")
    add("--origin", metavar="URL", help="include the state of streams from this server")
    _add_bearer(report)
    add("--stream", action="append", default=[], help="also include this stream; repeatable")
    add("--bucket", action="append", default=[], help="also include this bucket; repeatable")
    add("--master", default="local[*]", help="Spark master (default local[*])")
    add("--watch", action="store_true", help="keep processing new log lines until interrupted")


def _add_load(load: ArgumentParser) -> None:
    add = load.add_argument
    add(
        "scenario",
        metavar="SCENARIO",
        help="polls, fanout, stampede, zipf, append, browsers, rotation, cold or tokens "
        "(`list` describes them); `report` and `compare` draw charts",
    )
    add("results", nargs="*", help="for report: result files to include")
    add("--target", metavar="URL", help="server under test (default http://127.0.0.1:8080)")
    add("--token", help="bearer token (default: WEIR_TOKEN, or one signed by the key of `weir up`)")
    add("--tokens", metavar="FILE", help="file of tokens, one per line")
    add("--peer", default="weir", help="name of the server in charts (default weir)")
    add("--insecure", action="store_true", help="accept any TLS certificate")
    add("--origin", metavar="URL", help="origin whose reads are counted")
    add("--pid", type=int, default=0, help="process whose memory is measured")
    add("--restart", metavar="COMMAND", help="for cold: restarts the target")
    for knob in ("seconds", "readers", "streams", "rate", "size"):
        add(f"--{knob}", type=float, help="override the scenario's value")
    add("--out", metavar="PATH", help="result file; for report: output folder")
    add("--images", metavar="DIR", help="for report: also draw a PNG per scenario")


def _add_verify(verify: ArgumentParser) -> None:
    add = verify.add_argument
    add("--seconds", type=float, default=300.0, help="how long to inject faults (default 300)")
    add("--seed", type=int, default=1, help="seed; the same seed repeats a run (default 1)")
    add("--readers", type=int, default=2, help="readers per stream and mode (default 2)")
    parts = ("redis", "envoy", "faults")
    add("--without", action="append", default=[], choices=parts, help="leave it out; repeatable")
    add("--out", metavar="DIR", help="folder for history, logs and data (default: a new one)")
    add("--check", metavar="DIR", help="only check the history of an earlier run again")
    add("--cluster", action="store_true", help="check a cluster of three origins instead")
    add("--fault", action="append", metavar="NAME", help="cluster: only this one; repeatable")
    add("--rounds", type=int, default=0, help="cluster: rounds of each fault, instead of seconds")
    add("--lease", type=float, default=6.0, help="cluster: seconds of a lease (default 6)")


def _add_fsck(fsck: ArgumentParser) -> None:
    _add_data_dir(fsck, "data directory to check")


def _add_dump(dump: ArgumentParser) -> None:
    _add_data_dir(dump, "data directory to show")
    dump.add_argument("stream", metavar="STREAM", nargs="?", help="show the appends of this stream")


def _add_backup(backup: ArgumentParser) -> None:
    add = backup.add_argument
    _add_data_dir(backup, "data directory of an origin, running or stopped")
    add("backup", metavar="BACKUP", help="new or empty folder")
    add("--base", metavar="BACKUP", help="hard-link files unchanged since this earlier backup")
    add("--keep-damaged", action="store_true", help="keep the backup even if the data is damaged")


def _add_restore(restore: ArgumentParser) -> None:
    add = restore.add_argument
    add("backup", metavar="BACKUP", help="folder written by `weir backup`")
    _add_data_dir(restore, "new or empty folder")
    add("--keep-damaged", action="store_true", help="restore even if some streams are damaged")


# -- flags that several commands have ------------------------------------------------------------


def _add_address(parser: ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", help="port to listen on; 0 picks a free one")


def _add_origin_port(parser: ArgumentParser) -> None:
    parser.add_argument("--origin-port", metavar="PORT", help="origin port; 0 picks a free one")


def _add_storage(parser: ArgumentParser) -> None:
    parser.add_argument("--data-dir", metavar="DIR", help="data directory")
    parser.add_argument("--storage", metavar="MODE", help="memory, file-fast, file-durable or acid")


def _add_files(parser: ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML file read after the profile")
    parser.add_argument("--profile", metavar="NAME", help="name of a profile in configs/")


def _add_stream(parser: ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="a stream of State messages")
    _add_bearer(parser)


def _add_bearer(parser: ArgumentParser) -> None:
    parser.add_argument("--token", help="bearer token (default: WEIR_TOKEN)")


def _add_data_dir(parser: ArgumentParser, about: str) -> None:
    parser.add_argument("data_dir", metavar="DATA_DIR", help=about)
