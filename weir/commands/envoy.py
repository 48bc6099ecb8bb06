"""`weir envoy`: Envoy in front of gateways, or with --fleet in front of a local fleet."""

import argparse
import os
from pathlib import Path

from gateway.config import GatewayConfig, load_config
from weir.edge.bootstrap import render, to_text
from weir.edge.envoy import EnvoyPorts, serve_envoy, write_config
from weir.edge.listeners import METRICS_PATH
from weir.edge.settings import EnvoySettings
from weir.serve import base_url
from wire.settings import SettingsError

NO_TLS = "weir envoy has no TLS port: it needs a certificate (--cert and --key)"


def run(arguments: argparse.Namespace) -> int:
    if arguments.fleet is not None:
        from weir.commands.fleet import run_fleet  # brings origin and gateway along

        return run_fleet(arguments)
    if not arguments.gateway:
        raise SettingsError("--gateway", "name at least one gateway, or use --fleet")
    config = load_config(
        {("auth", "jwks"): arguments.jwks},
        os.environ,
        profile=arguments.profile,
        config_file=arguments.config,
    )
    settings = settings_of(arguments, config)
    if arguments.render == "-":
        print(to_text(render(settings)), end="")
    elif arguments.render is not None:
        write_config(settings, Path(arguments.render))
    else:
        return serve_envoy(settings, lambda ports: print(envoy_lines(settings, ports), flush=True))
    return 0


def settings_of(arguments: argparse.Namespace, config: GatewayConfig) -> EnvoySettings:
    if bool(arguments.cert) != bool(arguments.key):
        raise SettingsError("--cert", "must be combined with --key")
    names = ("host", "port", "plain_port", "admin_port", "metrics_port", "access_log")
    given = {name: getattr(arguments, name) for name in (*names, "trusted_hops")}
    chosen = {name: value for name, value in given.items() if value is not None}
    if arguments.no_plain:
        chosen["plain_port"] = None
    return EnvoySettings(
        gateways=tuple(arguments.gateway),
        config=config,
        cert_path=arguments.cert or "",
        key_path=arguments.key or "",
        **chosen,
    )


def envoy_lines(settings: EnvoySettings, ports: EnvoyPorts) -> str:
    count = len(settings.gateways)
    about = "1 gateway" if count == 1 else f"{count} gateways"
    lines = [NO_TLS]
    if ports.port:
        url = base_url(settings.host, ports.port, tls=True)
        lines = [f"weir envoy listening on {url} ({about})"]
    if ports.plain_port:
        lines.append(f"weir envoy plain on {base_url(settings.host, ports.plain_port)} ({about})")
    lines.append(f"weir envoy admin on {base_url('127.0.0.1', ports.admin_port)}")
    if ports.metrics_port:
        metrics = base_url(settings.host, ports.metrics_port) + METRICS_PATH
        lines.append(f"weir envoy metrics at {metrics}")
    return "\n".join(lines)
