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
    module, _, function = name.partition(".")

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
    _add_token(commands.add_parser("token", help="print a signed development token"))
    _add_state(
        commands.add_parser("state", help="show the state that a stream's messages add up to")
    )
    _add_compact(commands.add_parser("compact", help="fold a stream's messages into a snapshot"))

    _add_report(commands.add_parser("report", help="make tables and a report of access logs"))

    fsck = commands.add_parser("fsck", help="check a data directory")
    fsck.add_argument("data_dir")
    fsck.set_defaults(run=_command("inspection.run_fsck"))

    dump = commands.add_parser("dump", help="show what a data directory holds")
    dump.add_argument("data_dir")
    dump.add_argument("stream", nargs="?", help="a stream's name: show its appends")
    dump.set_defaults(run=_command("inspection.run_dump"))
    return parser


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("--host", help="address the gateway listens on; the origin stays as configured")
    up.add_argument("--gateway-port", "--port", help="port of the gateway; 0 picks a free one")
    up.add_argument("--origin-port", help="port of the origin; 0 picks a free one")
    _add_storage(up)
    _add_files(up)
    up.set_defaults(run=_command("up.run_up"))


def _add_origin(origin: argparse.ArgumentParser) -> None:
    _add_address(origin)
    _add_storage(origin)
    _add_files(origin)
    origin.set_defaults(run=_command("serve_origin.run_origin"))


def _add_gateway(gateway: argparse.ArgumentParser) -> None:
    _add_address(gateway)
    gateway.add_argument("--origin", metavar="URL", help="base URL of the origin")
    _add_files(gateway)
    gateway.set_defaults(run=_command("serve_gateway.run_gateway"))


def _add_token(token: argparse.ArgumentParser) -> None:
    token.add_argument("--sub", default="dev", help="whose token it is (dev)")
    token.add_argument("--scope", help="space-separated action:pattern (all actions on *)")
    token.add_argument("--ttl", default="1h", help="how long it is valid: 900, 15m, 2h or 7d (1h)")
    token.add_argument("--aud", help="audience (that of `weir up`)")
    token.add_argument("--iss", help="issuer (that of `weir up`)")
    token.add_argument("--key", help="private key in PEM (./data/keys/dev-key.pem)")
    token.set_defaults(run=_command("tokens.run_token"))


def _add_state(state: argparse.ArgumentParser) -> None:
    _add_stream(state)
    state.add_argument("--json", action="store_true", help="JSON instead of columns")
    state.add_argument(
        "--follow", action="store_true", help="go on with every change, until Ctrl-C"
    )
    state.add_argument("--schema", metavar="FILE", help="a JSON Schema for each entity type")
    state.add_argument("--type", metavar="T", help="show entities of this type only")
    state.set_defaults(run=_command("state.run_state"))


def _add_compact(compact: argparse.ArgumentParser) -> None:
    _add_stream(compact)
    compact.add_argument(
        "--skip-malformed", action="store_true", help="leave out what is no State message"
    )
    compact.set_defaults(run=_command("compact.run_compact"))


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
    report.set_defaults(run=_command("report.run_report"))


def _add_stream(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="of a stream of State messages")
    parser.add_argument("--token", help="bearer token (WEIR_TOKEN)")


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", help="port to listen on; 0 picks a free one")


def _add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", help="folder of the data")
    parser.add_argument("--storage", help="memory, file-fast, file-durable or acid")


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="a TOML file read after the profile")
    parser.add_argument("--profile", metavar="NAME", help="name of a file in configs/")
