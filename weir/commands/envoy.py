"""`weir envoy`: Envoy in front of gateways, or with --fleet in front of a local fleet."""

import argparse
import os
from pathlib import Path

from gateway.config import load_config
from weir.edge.bootstrap import render, to_text
from weir.edge.envoy import envoy_lines, serve_envoy, write_config
from weir.edge.settings import settings_of
from wire.settings import SettingsError


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
