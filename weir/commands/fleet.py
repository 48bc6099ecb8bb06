"""`weir envoy --fleet N`: an origin, N gateways and Envoy, for development.

Like `weir up`, but with the edge of production in front: TLS, HTTP/2, tokens checked twice, streams
spread over the gateways. Envoy is started last and stopped first.
"""

import argparse
import os
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gateway.config import GatewayConfig
from gateway.devkeys import ensure_dev_key
from weir.client.access import KEYS
from weir.cluster.layout import beside_others
from weir.commands.up import Plan, make_plan, start_gateway, start_origin, welcome
from weir.edge.certificates import ensure_dev_certificate
from weir.edge.envoy import LEAVE_SECS, EnvoyPorts, envoy_lines, find_envoy, serve_envoy
from weir.edge.settings import settings_of
from weir.exits import warn
from weir.parent import Parent, supervise
from wire.addresses import base_url
from wire.logs import set_up_logging
from wire.settings import SettingsError

MOST_GATEWAYS = 64
NO_REDIS = (
    "no cache.redis_url: gateways cannot tell each other about deleted streams, so every read is "
    "checked at the origin"
)


def run_fleet(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.fleet <= MOST_GATEWAYS:
        raise SettingsError("--fleet", f"must be a number from 1 to {MOST_GATEWAYS}")
    if arguments.gateway or arguments.render is not None:
        raise SettingsError("--fleet", "cannot be combined with --gateway or --render")
    find_envoy()  # before anything is started
    of_up = {"host": None, "gateway_port": "0"}  # the given address is Envoy's
    plan = make_plan(argparse.Namespace(**{**vars(arguments), **of_up}), os.environ)
    plan = replace(plan, gateway=in_a_fleet(plan.gateway))
    set_up_logging(plan.gateway.log)
    folder = Path(plan.origin.storage.data_dir) / KEYS
    ensure_dev_key(folder)
    if not arguments.cert:
        arguments.cert = arguments.key = str(ensure_dev_certificate(folder, datetime.now(UTC)))
    return supervise(partial(_start_all, plan, arguments))


def in_a_fleet(config: GatewayConfig) -> GatewayConfig:
    """One of several gateways on free ports behind one proxy."""
    serving = replace(config.gateway, admin_port=0, trusted_hops=1)
    return replace(config, gateway=serving, cache=beside_others(config.cache))


def _start_all(plan: Plan, arguments: argparse.Namespace, parent: Parent) -> None:
    if not plan.gateway.cache.redis_url:
        warn(NO_REDIS)
    config = start_origin(plan, parent)
    gateways = []
    for number in range(1, arguments.fleet + 1):
        named = replace(config.gateway, name=f"{config.gateway.name or 'gateway'}-{number}")
        ports = start_gateway(named.name, replace(config, gateway=named), parent)
        gateways.append(f"127.0.0.1:{ports.port}")
    settings = replace(settings_of(arguments, config), gateways=tuple(gateways))
    drain_secs = LEAVE_SECS + config.gateway.drain_secs
    edge = parent.start("Envoy", drain_secs, EnvoyPorts, partial(serve_envoy, settings))
    print(envoy_lines(settings, edge), flush=True)
    curl = f"curl --cacert {shlex.quote(settings.cert_path)}"
    url = base_url("localhost", edge.port, tls=True)
    print(welcome(plan, url, time.time(), curl), flush=True)
