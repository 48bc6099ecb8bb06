"""`weir up --cluster N`: a cluster on this machine, for development: N NATS servers, an S3 server,
N origins and two gateways.

Whatever dies is started again, with the same ports and data, so that everybody may kill what they
like and watch. `cluster.json` in the data directory says what runs where.
"""

import argparse
import importlib.util
import os
import secrets
import shlex
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from pathlib import Path

from msgspec import structs

from gateway import devkeys
from gateway.config import GatewayConfig
from gateway.console.minting import MintKey
from origin.config import OriginConfig
from origin.storage.files import lock_directory
from weir.client.access import DATA, KEYS
from weir.cluster.clusterfile import ClusterFile, read_file, write_file
from weir.cluster.credentials import ensure_credentials
from weir.cluster.keeper import Keeper, Service, keep_running
from weir.cluster.layout import GATEWAYS, HOST, S3, Layout, node_ids, port_names
from weir.cluster.natsserver import PROGRAM as NATS_PROGRAM
from weir.cluster.natsserver import NatsSettings, serve_nats
from weir.cluster.objectserver import BUCKET, serve_objects
from weir.cluster.objectserver import PROGRAM as S3_PROGRAM
from weir.cluster.ports import choose_ports
from weir.cluster.program import STOP_SECS, find_program
from weir.commands.fleet import NO_REDIS
from weir.commands.gateway import Ports, gateway_lines, serve_gateway
from weir.commands.health import ask
from weir.commands.origin import origin_line, serve_origin
from weir.commands.up import Plan, make_plan, typed_name, welcome
from weir.exits import warn
from wire.children import Child
from wire.logs import set_up_logging
from wire.settings import SettingsError
from wire.workers import KILL_MARGIN_SECS, close_all, reserve_port

MOST_NODES = 16
READY_SECS = 60.0
POLL_SECS = 0.2
NEEDED = ("nats", "obstore")  # packages of the extra `cluster`


def run(arguments: argparse.Namespace) -> int:
    check_arguments(arguments)
    for name in (NATS_PROGRAM, S3_PROGRAM):
        find_program(name)  # before anything is started
    plan = make_plan(argparse.Namespace(**{**vars(arguments), "storage": "memory"}), os.environ)
    set_up_logging(plan.gateway.log)
    data = Path(plan.origin.storage.data_dir).resolve()
    data.mkdir(parents=True, exist_ok=True)
    lock = lock_directory(str(data))
    try:
        layout = make_layout(plan, data, arguments.cluster)
        return run_layout(plan, layout, restart=not arguments.no_restart)
    finally:
        os.close(lock)


def check_arguments(arguments: argparse.Namespace) -> None:
    if not 1 <= arguments.cluster <= MOST_NODES:
        raise SettingsError("--cluster", f"must be a number from 1 to {MOST_NODES}")
    if arguments.storage is not None or arguments.origin_port is not None:
        raise SettingsError("--cluster", "cannot be combined with --storage or --origin-port")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        install = "`pip install weir-gateway[cluster,cluster-dev]`"
        raise SettingsError("--cluster", f"{' and '.join(missing)} not installed: {install}")


def make_layout(plan: Plan, data: Path, size: int) -> Layout:
    """With the ports of the last start, as far as they are free."""
    file, serving = read_file(data), plan.gateway.gateway
    if file is not None and len(file.nodes) != size:
        told = f"{data} holds a cluster of {len(file.nodes)}; for another one name a new --data-dir"
        raise SettingsError("--cluster", told)
    close_all(reserve_port("gateway.port", serving.host, serving.port)[0])
    given = {GATEWAYS[0]: serving.port} if serving.port else {}
    names = [name for name in port_names(size) if name not in given]
    kept = {} if file is None else file.ports
    ports = choose_ports(HOST, names, {**kept, **given}) | given
    return Layout(data, size, ports, ensure_credentials(data / KEYS))


# -- processes ---------------------------------------------------------------------------------


class Notes:
    """Keeps `cluster.json` up to date."""

    def __init__(self, data: Path, file: ClusterFile) -> None:
        self._data = data
        self._file = structs.replace(file, pid=os.getpid())
        write_file(data, self._file)

    def note_pid(self, name: str, pid: int | None) -> None:
        self._file = self._file.with_pid(name, pid)
        write_file(self._data, self._file)

    def note_end(self) -> None:
        write_file(self._data, structs.replace(self._file, pid=None))


def run_layout(plan: Plan, layout: Layout, *, restart: bool) -> int:
    if plan.keys is not None:
        devkeys.ensure_dev_key(plan.keys)
    devkeys.write_private(plan.origin_key, plan.origin.server.access_key)
    if not plan.gateway.cache.redis_url:
        warn(NO_REDIS)
    file = layout.file(plan.origin, plan.gateway)
    notes = Notes(layout.data, file)
    start = partial(_start_all, plan, layout, file)
    try:
        return keep_running(start, restart=restart, on_pid=notes.note_pid)
    finally:
        notes.note_end()


def _start_all(plan: Plan, layout: Layout, file: ClusterFile, keeper: Keeper) -> None:
    mint_key = plan.mint_key(secrets.token_urlsafe())
    nats = [nats_service(server) for server in layout.nats(plan.origin.cluster.name)]
    keeper.start(nats, [object_service(layout)])
    nodes = [layout.node(plan.origin, node_id) for node_id in node_ids(layout.size)]
    keeper.start([node_service(config) for config in nodes])
    key = plan.origin.server.access_key
    gateways = [layout.gateway(plan.gateway, name, key) for name in GATEWAYS]
    keeper.start([gateway_service(config, mint_key) for config in gateways])
    if not wait_until_ready(keeper, file):
        warn(f"the cluster is not ready after {READY_SECS:.0f} s")
    words = welcome(plan, file.gateways[0].url, time.time(), mint_key=mint_key)
    print(f"{words}\n{status_words(plan)}", flush=True)


def nats_service(settings: NatsSettings) -> Service:
    line = f"weir {settings.name} listening on {settings.url} (monitor {settings.monitor})"
    return Service(settings.name, partial(serve_nats, settings), line, STOP_SECS)


def object_service(layout: Layout) -> Service:
    settings = layout.objects()
    line = f"weir s3 listening on {settings.endpoint} (bucket {BUCKET})"
    return Service(S3, partial(serve_objects, settings), line, STOP_SECS)


def node_service(config: OriginConfig) -> Service:
    def serve(on_ready: Callable[[int], None], child: Child) -> int:
        return serve_origin(config, lambda port: on_ready(os.getpid()), child)

    server = config.server
    line = f"{origin_line(config, server.port)[:-1]}, node {server.node_id})"
    return Service(server.node_id, serve, line, server.drain_secs)


def gateway_service(config: GatewayConfig, mint_key: MintKey | None) -> Service:
    def serve(on_ready: Callable[[int], None], child: Child) -> int:
        return serve_gateway(config, lambda ports: on_ready(os.getpid()), child, mint_key=mint_key)

    serving = config.gateway
    drain_secs = serving.leave_secs + serving.drain_secs + KILL_MARGIN_SECS  # of its workers
    line = gateway_lines(config, Ports(serving.port, serving.admin_port))
    return Service(serving.name, serve, line, drain_secs)


def wait_until_ready(keeper: Keeper, file: ClusterFile) -> bool:
    """Every shard has an owner, and the gateways know."""
    urls = [f"{node.url}/readyz/cluster" for node in file.nodes]
    urls += [f"{gateway.admin_url}/readyz" for gateway in file.gateways]
    until = time.monotonic() + READY_SECS
    while not all(map(_is_ready, urls)):
        if time.monotonic() > until:
            return False
        keeper.wait(time.monotonic() + POLL_SECS)
    return True


def _is_ready(url: str) -> bool:
    try:
        return ask(url) == 200
    except (OSError, HTTPException):
        return False


def status_words(plan: Plan) -> str:
    data = Path(plan.origin.storage.data_dir)
    flag = [] if data == Path(DATA) else ["--data-dir", str(data)]
    command = shlex.join([typed_name(), "cluster", "status", *flag])
    return f"See the cluster, and who takes over when you kill a process:\n\n{command}\n"
