"""`weir gateway`: run a gateway in this process, or in several workers under it.

As a child of `weir up` it is given `child`, through which it reports its readiness.
"""

import argparse
import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop

from gateway.admin import Admin
from gateway.app import Gateway
from gateway.config import GatewayConfig, load_config
from gateway.console.minting import MintKey
from weir.exits import run_child, warn
from weir.serve import raise_file_limit, stop_asked
from wire.addresses import base_url
from wire.children import Child
from wire.logs import set_up_logging
from wire.workers import Worker, Workers, close_all, reserve_port

LONGEST_RUN_DIR = 60  # characters, so that a socket's path below it stays under the kernel's 108
OPEN_WARNING = (
    "WARNING: auth.mode is off: no tokens are checked, and anyone who can reach this gateway can "
    "read, write and delete every stream. For development only."
)


class Ports(msgspec.Struct):
    """Where the gateway listens."""

    port: int
    admin_port: int


def run(arguments: argparse.Namespace) -> int:
    config = load_config(
        {
            ("gateway", "host"): arguments.host,
            ("gateway", "port"): arguments.port,
            **_origin_settings(arguments.origin),
        },
        os.environ,
        profile=arguments.profile,
        config_file=arguments.config,
    )
    set_up_logging(config.log)
    return serve_gateway(config, lambda ports: print(gateway_lines(config, ports), flush=True))


def _origin_settings(given: list[str] | None) -> dict[tuple[str, str], object]:
    """One URL is an origin, several (repeated or with commas) are the nodes of a cluster."""
    if given is None:
        return {}
    urls = ",".join(given)
    if "," in urls:
        return {("gateway", "origin_urls"): urls}
    return {("gateway", "origin_url"): urls, ("gateway", "origin_urls"): ""}


def serve_gateway(
    config: GatewayConfig,
    on_ready: Callable[[Ports], None],
    child: Child | None = None,
    *,
    mint_key: MintKey | None = None,
) -> int:
    """`mint_key` lets the console sign tokens; only `weir up` has one."""
    if config.auth.mode == "off":
        warn(OPEN_WARNING)
    raise_file_limit()
    with ExitStack() as held:
        config = _hold_ports(config, held)
        if config.gateway.workers > 1:
            return _serve_workers(config, on_ready, child, mint_key)
        return uvloop.run(_serve_gateway(config, on_ready, child, mint_key))


def _hold_ports(config: GatewayConfig, held: ExitStack) -> GatewayConfig:
    """The configuration with actual ports; a port in use is noticed before anything starts."""
    serving = config.gateway
    more, port = reserve_port("gateway.port", serving.host, serving.port)
    held.callback(close_all, more)
    more, admin_port = reserve_port("gateway.admin_port", serving.admin_host, serving.admin_port)
    held.callback(close_all, more)
    return replace(config, gateway=replace(serving, port=port, admin_port=admin_port))


def _serve_workers(
    config: GatewayConfig,
    on_ready: Callable[[Ports], None],
    child: Child | None,
    mint_key: MintKey | None,
) -> int:
    serving = config.gateway
    run_dir = make_run_dir()
    workers = Workers(
        serving.workers,
        lambda worker: _serve_worker(config, run_dir, worker, mint_key),
        on_ready=lambda told: on_ready(Ports(serving.port, serving.admin_port)),
        drain_secs=serving.leave_secs + serving.drain_secs,
    )
    try:
        # Memory loaded now stays shared between workers until it is written to.
        gc.collect()
        gc.freeze()
        return workers.run(child)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def _serve_worker(
    config: GatewayConfig, run_dir: Path, worker: Worker, mint_key: MintKey | None
) -> int:
    child = worker.child

    def serve() -> int:
        said = _serve_gateway(config, lambda ports: child.ready(), child, mint_key, worker, run_dir)
        return uvloop.run(said)

    code = run_child(child, serve)
    if child.is_orphan:  # the parent can no longer do it
        shutil.rmtree(run_dir, ignore_errors=True)
    return code


async def _serve_gateway(
    config: GatewayConfig,
    on_ready: Callable[[Ports], None],
    child: Child | None,
    mint_key: MintKey | None,
    worker: Worker | None = None,
    run_dir: Path | None = None,
) -> int:
    stop = stop_asked(child)
    number = 0 if worker is None else worker.number
    gateway = Gateway(config, worker=number, run_dir=run_dir, mint_key=mint_key)
    if worker is not None:
        restarts = worker.restarts
        gateway.metrics.counter("worker_restarts", "Restarts of this worker.", lambda: restarts)
    await gateway.start()
    try:
        admin = Admin(gateway, config.gateway, worker=number, run_dir=run_dir)
        await admin.start()
        on_ready(Ports(gateway.port, admin.port))
        await stop.wait()
    finally:
        await gateway.stop()
    # Last, so that /readyz says "not ready" while the gateway drains.
    await admin.stop()
    return 0


def gateway_lines(config: GatewayConfig, ports: Ports) -> str:
    serving = config.gateway
    count = "1 worker" if serving.workers == 1 else f"{serving.workers} workers"
    origin = f"origin {without_secrets(serving.origin_url)}"
    if serving.origin_urls:
        origin = f"cluster {', '.join(serving.origin_urls)}"
    about = f"{origin}, auth {config.auth.mode}, {count}"
    return (
        f"weir gateway listening on {gateway_url(config, ports)} ({about})\n"
        f"weir gateway admin on {base_url(serving.admin_host, ports.admin_port)}"
    )


def gateway_url(config: GatewayConfig, ports: Ports) -> str:
    return base_url(config.gateway.host, ports.port, tls=config.gateway.tls_cert_path != "")


def without_secrets(url: str) -> str:
    """The URL without a user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def make_run_dir() -> Path:
    """A private folder for the workers' sockets."""
    folder = tempfile.gettempdir()
    return Path(tempfile.mkdtemp("", "weir-", folder if len(folder) <= LONGEST_RUN_DIR else "/tmp"))
