"""`weir up`: an origin and a gateway as two processes of one parent, with a development key.

The origin is started first and stopped last, so that it still answers while the gateway drains.
"""

import argparse
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gateway import devkeys
from gateway.config import FOREIGN_SECTIONS, GatewayConfig
from gateway.console.minting import MintKey
from origin.config import OriginConfig
from origin.config import load_config as load_origin_config
from weir.client.access import KEYS, ORIGIN_KEY_FILE
from weir.commands.gateway import Ports, gateway_lines, gateway_url, serve_gateway
from weir.commands.origin import origin_flags, origin_line, serve_origin
from weir.commands.token import ALL_SCOPES
from weir.parent import Parent, supervise
from wire import settings
from wire.addresses import base_url
from wire.logs import set_up_logging
from wire.workers import KILL_MARGIN_SECS

TOKEN_SECS = 12 * 3600.0
MOST_READERS = 1_000_000  # of one subject: as many as there may be in total
# With the development key everybody is likely to be one subject, which may use everything.
ALL_FOR_ONE: dict[str, object] = {
    "requests_per_second": 0.0,
    "max_live_readers_per_subject": MOST_READERS,
}
ALL_OF_ORIGIN: dict[str, object] = {"subject_share": 1.0}
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be started; `keys` is the folder of the development key, if there is one."""

    origin: OriginConfig
    gateway: GatewayConfig
    keys: Path | None

    @property
    def origin_key(self) -> Path:
        """Where this user's other tools find the origin's access key."""
        return Path(self.origin.storage.data_dir) / KEYS / ORIGIN_KEY_FILE

    @property
    def dev_key(self) -> Path | None:
        return None if self.keys is None else self.keys / devkeys.KEY_FILE

    def mint_key(self, secret: str) -> MintKey | None:
        """For the console; none behind a proxy, where clients may be anywhere."""
        if self.dev_key is None or self.gateway.gateway.trusted_hops > 0:
            return None
        return MintKey(self.dev_key, secret)


def run(arguments: argparse.Namespace) -> int:
    plan = make_plan(arguments, os.environ)
    set_up_logging(plan.gateway.log)
    if plan.keys is not None:
        devkeys.ensure_dev_key(plan.keys)
    return supervise(partial(_start_all, plan))


# -- configuration -----------------------------------------------------------------------------


def make_plan(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Plan:
    origin = load_origin_config(
        origin_flags(arguments, port=arguments.origin_port),
        environ,
        profile=arguments.profile,
        config_file=arguments.config,
    )
    origin = for_gateways_only(origin)
    data = Path(origin.storage.data_dir)
    keys = str(data / KEYS / devkeys.JWKS_FILE)
    log: dict[str, object] = {"access_log": str(data / "access")}
    auth: dict[str, object] = {
        "jwks": keys,
        "issuer": devkeys.DEV_ISSUER,
        "audience": devkeys.DEV_AUDIENCE,
    }
    ours: dict[str, object] = {"gateway": log | ALL_FOR_ONE, "upstream": ALL_OF_ORIGIN}
    gateway = _load_gateway(arguments, environ, {**ours, "auth": auth})
    if gateway.auth.mode == "jwt" and gateway.auth.jwks == keys:
        return Plan(origin, gateway, data / KEYS)
    # Other keys are configured, so issuer and audience are configured with them.
    return Plan(origin, _load_gateway(arguments, environ, {"gateway": log}), None)


def for_gateways_only(config: OriginConfig) -> OriginConfig:
    """The origin accepts only the gateway that is started with it, and no web pages. Its access key
    is new for each run unless one is configured."""
    key = config.server.access_key or secrets.token_urlsafe()
    server, http = replace(config.server, access_key=key), replace(config.http, cors_origins=())
    return replace(config, server=server, http=http)


def _load_gateway(
    arguments: argparse.Namespace, environ: Mapping[str, str], ours: Mapping[str, object]
) -> GatewayConfig:
    """`ours` are the defaults of `weir up`: above default.toml, below everything else."""
    folder = settings.find_configs_dir()
    files = settings.read_layers(folder, arguments.profile, arguments.config)
    files.insert(int((folder / "default.toml").exists()), settings.SettingsFile("weir up", ours))
    return settings.load(
        GatewayConfig,
        ignored=FOREIGN_SECTIONS,
        files=files,
        environ=environ,
        overrides={
            ("gateway", "host"): arguments.host,
            ("gateway", "port"): arguments.gateway_port,
        },
    )


def point_at_origin(plan: Plan, port: int) -> GatewayConfig:
    """The gateway's configuration with the actual address and access key of the origin."""
    server = plan.origin.server
    host = ANY_ADDRESS.get(server.host, server.host)
    url = base_url(host, port, tls=plan.origin.tls.cert_path != "")
    return replace(
        plan.gateway,
        gateway=replace(plan.gateway.gateway, origin_url=url, origin_urls=()),
        upstream=replace(plan.gateway.upstream, access_key=server.access_key),
    )


# -- processes ---------------------------------------------------------------------------------


def _start_all(plan: Plan, parent: Parent) -> None:
    mint_key = plan.mint_key(secrets.token_urlsafe())
    config = start_origin(plan, parent)
    ports = start_gateway("gateway", config, parent, mint_key)
    url = gateway_url(config, ports)
    print(welcome(plan, url, time.time(), mint_key=mint_key), flush=True)


def start_origin(plan: Plan, parent: Parent) -> GatewayConfig:
    """Return the configuration of a gateway in front of it."""
    origin = plan.origin
    drain_secs = origin.server.drain_secs
    port = parent.start("origin", drain_secs, int, partial(serve_origin, origin))
    # Only now: while another process has the data directory, its key is in there.
    devkeys.write_private(plan.origin_key, origin.server.access_key)
    print(origin_line(origin, port, plan.origin_key), flush=True)
    return point_at_origin(plan, port)


def start_gateway(
    name: str, config: GatewayConfig, parent: Parent, mint_key: MintKey | None = None
) -> Ports:
    # Longer than its workers may take.
    drain_secs = config.gateway.leave_secs + config.gateway.drain_secs + KILL_MARGIN_SECS
    serve = partial(serve_gateway, config, mint_key=mint_key)
    ports = parent.start(name, drain_secs, Ports, serve)
    print(gateway_lines(config, ports), flush=True)
    return ports


# -- words -------------------------------------------------------------------------------------


def welcome(
    plan: Plan, url: str, now: float, curl: str = "curl", mint_key: MintKey | None = None
) -> str:
    """How to use it. Each `curl` line can be pasted into another terminal by itself."""
    reachable = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    stream = f"{reachable}/v1/stream/demo"
    about, authorization = _token_words(plan, now)
    sent = f"{authorization}-H 'Content-Type: text/plain'"
    # What follows the `#` stays in the browser, so no log or proxy sees the secret.
    secret = "" if mint_key is None else f"#mint={mint_key.secret}"
    address = f"{reachable}/console/{secret}"
    console = ["", f"Open the console: {address}"] if plan.gateway.gateway.console else []
    return "\n".join(
        [
            *console,
            "",
            f"Try it in another terminal{about}:",
            "",
            f"{curl} -i -X PUT {sent} {stream}",
            f"{curl} -i -X POST {sent} -d 'hello' {stream}",
            f"{curl} -i {authorization}'{stream}?offset=-1'",
            "",
        ]
    )


def _token_words(plan: Plan, now: float) -> tuple[str, str]:
    """What to say about the token, and the `curl` flag that sends it."""
    auth = plan.gateway.auth
    if auth.mode == "off":
        return "", ""
    key = plan.dev_key
    if key is None:
        return ", with a token from your issuer in $TOKEN", '-H "Authorization: Bearer $TOKEN" '
    seconds = min(TOKEN_SECS, auth.max_lifetime_secs)
    claim = auth.scope_claim
    token = devkeys.sign_token(
        key, "dev", ALL_SCOPES, seconds, auth.audience, auth.issuer, now, claim
    )
    command = devkeys.token_command(key, auth.audience, auth.issuer, claim, typed_name())
    about = f" (this token is valid for {seconds / 3600:.3g} hours; `{command}` makes others)"
    return about, f"-H 'Authorization: Bearer {token}' "


def typed_name() -> str:
    """How to call this program: by name if it is on the PATH, else as it was called."""
    called = sys.argv[0]
    return called if Path(called).name == "weir" and shutil.which("weir") is None else "weir"
