"""`weir origin`: run the stream server.

As a child of `weir up` it is given `child`, through which it reports its readiness.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from origin.app import Origin
from origin.config import OriginConfig, load_config
from weir.serve import raise_file_limit, stop_asked
from wire.addresses import base_url
from wire.children import Child
from wire.logs import set_up_logging
from wire.settings import Key

SWITCH_INTERVAL_SECS = 0.00002


def run(arguments: argparse.Namespace) -> int:
    config = load_config(
        origin_flags(arguments, port=arguments.port, host=arguments.host),
        os.environ,
        profile=arguments.profile,
        config_file=arguments.config,
    )
    set_up_logging(config.log)
    return serve_origin(config, lambda port: print(origin_line(config, port), flush=True))


def origin_flags(
    arguments: argparse.Namespace, *, port: str | None, host: str | None = None
) -> dict[Key, object]:
    return {
        ("server", "host"): host,
        ("server", "port"): port,
        ("storage", "data_dir"): arguments.data_dir,
        ("storage", "mode"): arguments.storage,
    }


def serve_origin(
    config: OriginConfig, on_ready: Callable[[int], None], child: Child | None = None
) -> int:
    # The journal thread needs the interpreter for a few steps per batch; 5 ms is too long.
    sys.setswitchinterval(SWITCH_INTERVAL_SECS)
    raise_file_limit()
    return uvloop.run(_serve_origin(config, on_ready, child))


async def _serve_origin(
    config: OriginConfig, on_ready: Callable[[int], None], child: Child | None
) -> int:
    stop = stop_asked(child)
    origin = Origin(config)
    await origin.start()
    on_ready(origin.port)
    await stop.wait()
    await origin.stop()
    return 0


def origin_line(config: OriginConfig, port: int, key_file: Path | None = None) -> str:
    url = base_url(config.server.host, port, tls=config.tls.cert_path != "")
    data = "" if config.storage.mode == "memory" else f", data {config.storage.data_dir}"
    key = "" if key_file is None else f", key in {key_file}"
    return f"weir origin listening on {url} (storage {config.storage.mode}{data}{key})"
