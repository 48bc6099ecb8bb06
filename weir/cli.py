"""Command line: `weir up`, `origin`, `gateway`, `token`, `state`, `report` and the others.

Each command is imported when it is asked for: a token needs no server.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from weir.exits import EXPECTED, exit_code

Run = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> None:
    arguments = make_parser().parse_args(argv)
    try:
        code = arguments.run(arguments)
    except EXPECTED as error:
        print(f"weir: {error}", file=sys.stderr)
        code = exit_code(error)
    sys.exit(code)


def _command(name: str) -> Run:
    """The function of that name in the module before the dot, not imported until it runs."""
    module, _, function = name.rpartition(".")

    def run(arguments: argparse.Namespace) -> int:
        code: int = getattr(import_module(f"weir.{module}"), function)(arguments)
        return code

    return run


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weir", description="Edge gateway and origin for Durable Streams."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="run origin and gateway with a development key"))
    _add_origin(commands.add_parser("origin", help="run the stream server"))
    _add_gateway(commands.add_parser("gateway", help="run the gateway in front of an origin"))
    _add_envoy(commands.add_parser("envoy", help="run Envoy in front of gateways: TLS and HTTP/2"))
    _add_token(commands.add_parser("token", help="print a signed development token"))
    _add_keys(commands.add_parser("keys", help="make keys and secrets that a fleet shares"))
    _add_produce(commands.add_parser("produce", help="append a message each second, for ever"))
    health = commands.add_parser("health", help="ask a server whether it is well: exit code 0 or 1")
    health.add_argument("url", metavar="URL", help="such as http://127.0.0.1:9090/readyz")
    health.set_defaults(run=_command("commands.health.run_health"))
    _add_state(
        commands.add_parser("state", help="show the state that a stream's messages add up to")
    )
    _add_compact(commands.add_parser("compact", help="fold a stream's messages into a snapshot"))

    _add_report(commands.add_parser("report", help="make tables and a report of access logs"))
    _add_load(commands.add_parser("load", help="put a server under load and look at it"))

    _add_verify(commands.add_parser("verify", help="prove a fleet's promises under faults"))

    fsck = commands.add_parser("fsck", help="check a data directory")
    fsck.add_argument("data_dir")
    fsck.set_defaults(run=_command("commands.inspection.run_fsck"))

    dump = commands.add_parser("dump", help="show what a data directory holds")
    dump.add_argument("data_dir")
    dump.add_argument("stream", nargs="?", help="a stream's name: show its appends")
    dump.set_defaults(run=_command("commands.inspection.run_dump"))
    _add_backup(commands.add_parser("backup", help="copy a data directory that may be in use"))

    restore = commands.add_parser("restore", help="make a data directory from a backup")
    restore.add_argument("backup", metavar="BACKUP", help="folder that `weir backup` made")
    restore.add_argument("data_dir", metavar="DATA_DIR", help="new or empty folder")
    restore.add_argument(
        "--keep-damaged",
        action="store_true",
        help="go on where files of single streams are damaged",
    )
    restore.set_defaults(run=_command("commands.backup.run_restore"))
    return parser


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("--host", help="address the gateway listens on; the origin stays as configured")
    up.add_argument("--gateway-port", "--port", help="port of the gateway; 0 picks a free one")
    up.add_argument("--origin-port", help="port of the origin; 0 picks a free one")
    _add_storage(up)
    _add_files(up)
    up.set_defaults(run=_command("commands.up.run_up"))


def _add_origin(origin: argparse.ArgumentParser) -> None:
    _add_address(origin)
    _add_storage(origin)
    _add_files(origin)
    origin.set_defaults(run=_command("commands.origin.run_origin"))


def _add_gateway(gateway: argparse.ArgumentParser) -> None:
    _add_address(gateway)
    gateway.add_argument("--origin", metavar="URL", help="base URL of the origin")
    _add_files(gateway)
    gateway.set_defaults(run=_command("commands.gateway.run_gateway"))


def _add_envoy(envoy: argparse.ArgumentParser) -> None:
    envoy.add_argument(
        "--gateway", action="append", default=[], metavar="URL", help="one in front of; repeatable"
    )
    envoy.add_argument(
        "--fleet", type=int, metavar="N", help="start an origin and N gateways as well"
    )
    envoy.add_argument("--jwks", help="file or URL of the public keys (that of the gateways)")
    envoy.add_argument("--cert", metavar="FILE", help="certificate chain in PEM")
    envoy.add_argument("--key", metavar="FILE", help="its private key in PEM")
    envoy.add_argument("--host", help="address to listen on (127.0.0.1)")
    envoy.add_argument("--port", type=int, help="port of TLS (8443); 0 picks a free one")
    plain = envoy.add_mutually_exclusive_group()
    plain.add_argument("--plain-port", type=int, help="port without TLS (10000)")
    plain.add_argument("--no-plain", action="store_true", help="no port without TLS")
    envoy.add_argument("--admin-port", type=int, help="port of Envoy's own pages (9901)")
    envoy.add_argument("--metrics-port", type=int, help="port of its /metrics alone (none)")
    envoy.add_argument("--access-log", metavar="FILE", help="(standard output)")
    envoy.add_argument(
        "--trusted-hops", type=int, metavar="N", help="proxies in front, such as a CDN (0)"
    )
    envoy.add_argument(
        "--render", metavar="FILE", help="only write the configuration; - for standard output"
    )
    envoy.add_argument("--origin-port", help="port of the fleet's origin; 0 picks a free one")
    _add_storage(envoy)
    _add_files(envoy)
    envoy.set_defaults(run=_command("edge.envoy.run_envoy"))


def _add_token(token: argparse.ArgumentParser) -> None:
    token.add_argument("--sub", default="dev", help="whose token it is (dev)")
    token.add_argument("--scope", help="space-separated action:pattern (all actions on *)")
    token.add_argument("--ttl", default="1h", help="how long it is valid: 900, 15m, 2h or 7d (1h)")
    token.add_argument(
        "--expired", action="store_true", help="valid until an hour ago: to see it refused"
    )
    token.add_argument("--aud", help="audience (that of `weir up`)")
    token.add_argument("--iss", help="issuer (that of `weir up`)")
    token.add_argument("--key", help="private key in PEM (./data/keys/dev-key.pem)")
    token.add_argument("--scope-claim", default="scope", help="as in `auth.scope_claim` (scope)")
    token.set_defaults(run=_command("commands.token.run_token"))


def _add_keys(keys: argparse.ArgumentParser) -> None:
    keys.add_argument("folder", metavar="DIR", help="what gateways and Envoy may read")
    keys.add_argument("--private", metavar="DIR", help="of the development key (the same)")
    keys.add_argument("--jwks", help="file or URL in use; not that of DIR: no development key")
    keys.set_defaults(run=_command("commands.keys.run_keys"))


def _add_produce(produce: argparse.ArgumentParser) -> None:
    produce.add_argument("url", metavar="URL", help="of a JSON stream; made if there is none")
    produce.add_argument("--every", default="1s", help="time between two messages (1s)")
    produce.add_argument("--count", type=int, metavar="N", help="end after so many")
    produce.add_argument("--id", default="heartbeat", help="name of the producer (heartbeat)")
    produce.add_argument("--token", help="bearer token (WEIR_TOKEN)")
    produce.add_argument("--key", metavar="FILE", help="development key to sign tokens with")
    produce.set_defaults(run=_command("commands.produce.run_produce"))


def _add_state(state: argparse.ArgumentParser) -> None:
    _add_stream(state)
    state.add_argument("--json", action="store_true", help="JSON instead of columns")
    state.add_argument(
        "--follow", action="store_true", help="go on with every change, until Ctrl-C"
    )
    state.add_argument("--schema", metavar="FILE", help="a JSON Schema for each entity type")
    state.add_argument("--type", metavar="T", help="show entities of this type only")
    state.set_defaults(run=_command("commands.state.run_state"))


def _add_compact(compact: argparse.ArgumentParser) -> None:
    _add_stream(compact)
    compact.add_argument(
        "--skip-malformed", action="store_true", help="leave out what is no State message"
    )
    compact.set_defaults(run=_command("commands.compact.run_compact"))


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("--logs", required=True, metavar="DIR", help="folder of access logs")
    report.add_argument("--out", required=True, metavar="DIR", help="folder of tables and report")
    report.add_argument("--origin", metavar="URL", help="whose streams' state is to be shown")
    report.add_argument("--token", help="bearer token for the origin (WEIR_TOKEN)")
    report.add_argument(
        "--stream", action="append", default=[], help="a stream beside those of the log; repeatable"
    )
    report.add_argument(
        "--bucket", action="append", default=[], help="all streams of a bucket; repeatable"
    )
    report.add_argument(
        "--master", default="local[*]", help="address of a Spark cluster (local[*])"
    )
    report.add_argument("--watch", action="store_true", help="go on with new lines, until Ctrl-C")
    report.set_defaults(run=_command("commands.report.run_report"))


def _add_load(load: argparse.ArgumentParser) -> None:
    load.add_argument(
        "scenario",
        metavar="SCENARIO",
        help="polls, fanout, stampede, zipf, append, browsers, rotation, cold or tokens; "
        "report and compare make charts of results; list tells more",
    )
    load.add_argument("results", nargs="*", help="of report: the files of earlier runs")
    load.add_argument("--target", metavar="URL", help="whom to load (http://127.0.0.1:8080)")
    load.add_argument(
        "--token", help="bearer token (WEIR_TOKEN; without --target one by the key of `weir up`)"
    )
    load.add_argument("--tokens", metavar="FILE", help="many tokens, one a line")
    load.add_argument("--peer", default="weir", help="who that is, in a word, for charts (weir)")
    load.add_argument("--insecure", action="store_true", help="accept any TLS certificate")
    load.add_argument("--origin", metavar="URL", help="where the origin counts its reads")
    load.add_argument("--pid", type=int, default=0, help="whose memory is to be watched")
    load.add_argument("--restart", metavar="COMMAND", help="of cold: restarts the target")
    for knob in ("seconds", "readers", "streams", "rate", "size"):
        load.add_argument(f"--{knob}", type=float, help="instead of the scenario's own")
    load.add_argument("--out", metavar="PATH", help="file of the result; of report: folder")
    load.add_argument("--images", metavar="DIR", help="of report: draw each scenario as a PNG, too")
    load.set_defaults(run=_command("commands.load.run_load"))


def _add_verify(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("--seconds", type=float, default=300.0, help="of faults (300)")
    verify.add_argument("--seed", type=int, default=1, help="of the plan: repeats a run (1)")
    verify.add_argument("--readers", type=int, default=2, help="of each stream and mode (2)")
    verify.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("redis", "envoy", "faults"),
        help="leave a part of the fleet out; repeatable",
    )
    verify.add_argument("--out", metavar="DIR", help="for history, logs and data (a new folder)")
    verify.add_argument("--check", metavar="DIR", help="only look at the history of a run again")
    verify.set_defaults(run=_command("commands.verify.run_verify"))


def _add_stream(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="of a stream of State messages")
    parser.add_argument("--token", help="bearer token (WEIR_TOKEN)")


def _add_backup(backup: argparse.ArgumentParser) -> None:
    backup.add_argument("data_dir", metavar="DATA_DIR", help="of an origin, running or not")
    backup.add_argument("backup", metavar="BACKUP", help="new or empty folder")
    backup.add_argument(
        "--base", metavar="EARLIER", help="share unchanged files with this backup by hard links"
    )
    backup.add_argument(
        "--keep-damaged", action="store_true", help="keep a backup of data that is damaged"
    )
    backup.set_defaults(run=_command("commands.backup.run_backup"))


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", help="port to listen on; 0 picks a free one")


def _add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", help="folder of the data")
    parser.add_argument("--storage", help="memory, file-fast, file-durable or acid")


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a TOML file read after the profile")
    parser.add_argument("--profile", metavar="NAME", help="name of a file in configs/")
