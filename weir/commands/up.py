"""`weir up`: an origin and a gateway as two processes of one parent, with a development key.

The parent starts the origin, then the gateway, prints how to use them, and waits. It stops them in
reverse order, so that the gateway drains while its origin still answers. When one dies, the other
is stopped as well.
"""

import argparse
import math
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gateway.config import FOREIGN_SECTIONS, GatewayConfig
from gateway.console.minting import MintKey
from gateway.devkeys import (
    DEV_AUDIENCE,
    DEV_ISSUER,
    JWKS_FILE,
    KEY_FILE,
    ensure_dev_key,
    sign_token,
    token_command,
    write_private,
)
from origin.config import OriginConfig
from origin.config import load_config as load_origin_config
from weir.client.access import KEYS, ORIGIN_KEY_FILE
from weir.commands.gateway import Ports, gateway_lines, gateway_url, serve_gateway
from weir.commands.origin import origin_flags, origin_line, serve_origin
from weir.commands.token import ALL_SCOPES
from weir.exits import run_child, warn
from weir.serve import base_url
from wire import settings
from wire.children import Child, ChildFailed, Children, Died, Ready, StopAsked, Work, describe_exit
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
        return None if self.keys is None else self.keys / KEY_FILE

    def mint_key(self, secret: str) -> MintKey | None:
        """For the console; none behind a proxy, where clients may be anywhere."""
        if self.dev_key is None or self.gateway.gateway.trusted_hops > 0:
            return None
        return MintKey(self.dev_key, secret)


def run(arguments: argparse.Namespace) -> int:
    plan = make_plan(arguments, os.environ)
    set_up_logging(plan.gateway.log)
    if plan.keys is not None:
        ensure_dev_key(plan.keys)
    return Up(plan).run()


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
    keys = str(data / KEYS / JWKS_FILE)
    log: dict[str, object] = {"access_log": str(data / "access")}
    auth: dict[str, object] = {"jwks": keys, "issuer": DEV_ISSUER, "audience": DEV_AUDIENCE}
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
        gateway=replace(plan.gateway.gateway, origin_url=url),
        upstream=replace(plan.gateway.upstream, access_key=server.access_key),
    )


# -- processes ---------------------------------------------------------------------------------


class _Stopped(Exception):
    """A stop was asked for."""


class Up:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._mint_key = plan.mint_key(secrets.token_urlsafe())
        self._names: dict[int, str] = {}
        self._running: list[tuple[int, float]] = []  # (process id, seconds to stop), as started
        self._clean = True

    def run(self) -> int:
        """Return the exit code, or raise ChildFailed with what went wrong."""
        with Children() as children:
            self._children = children
            try:
                self._start_all()
                self._watch()
            except _Stopped:
                pass
            finally:
                self._stop_all()
        return 0 if self._clean else 1

    def _start_all(self) -> None:
        config = self._start_origin()
        ports = self._start_gateway("gateway", config)
        url = gateway_url(config, ports)
        print(welcome(self._plan, url, time.time(), mint_key=self._mint_key), flush=True)

    def _start_origin(self) -> GatewayConfig:
        """Return the configuration of a gateway in front of it."""
        origin = self._plan.origin
        told = self._start("origin", origin.server.drain_secs, lambda c: _origin_child(origin, c))
        # Only now: while another process has the data directory, its key is in there.
        write_private(self._plan.origin_key, origin.server.access_key)
        print(origin_line(origin, int(told), self._plan.origin_key), flush=True)
        return point_at_origin(self._plan, int(told))

    def _start_gateway(self, name: str, config: GatewayConfig) -> Ports:
        key = self._mint_key
        told = self._start(name, stop_secs(config), lambda c: _gateway_child(config, c, key))
        ports = msgspec.json.decode(told, type=Ports)
        print(gateway_lines(config, ports), flush=True)
        return ports

    def _start(self, name: str, drain_secs: float, work: Work) -> str:
        """Start a child, wait until it is ready, and return what it said."""
        pid = self._children.start(work)
        self._names[pid] = name
        self._running.append((pid, drain_secs + KILL_MARGIN_SECS))
        while True:
            event = self._next_event()
            if isinstance(event, Ready):
                return event.text

    def _watch(self) -> None:
        while True:
            self._next_event()

    def _next_event(self) -> Ready | None:
        """Raises _Stopped, or ChildFailed for the first that died."""
        match self._children.wait():
            case StopAsked():
                raise _Stopped
            case Died() as death:
                raise self._blame(death)
            case Ready() as ready:
                return ready
        return None

    def _blame(self, death: Died) -> ChildFailed:
        if death.complaint:
            return ChildFailed(death.code, death.complaint)
        return ChildFailed(1, f"the {self._names[death.pid]} died ({describe_exit(death.code)})")

    def _stop_all(self) -> None:
        for pid, seconds in reversed(self._running):
            self._stop(pid, seconds)

    def _stop(self, pid: int, seconds: float) -> None:
        self._children.send(pid, signal.SIGTERM)
        until = time.monotonic() + seconds
        while pid in self._children.alive:
            event = self._children.wait(until)
            if event is None:
                self._children.send(pid, signal.SIGKILL)
                until = math.inf
            elif isinstance(event, Died):
                self._note_end(event)

    def _note_end(self, death: Died) -> None:
        if death.code not in (0, -signal.SIGTERM):
            name = self._names[death.pid]
            warn(f"the {name} did not stop cleanly")
            self._clean = False


def stop_secs(config: GatewayConfig) -> float:
    """How long a gateway may take to stop, including its workers."""
    return config.gateway.leave_secs + config.gateway.drain_secs + KILL_MARGIN_SECS


def _origin_child(config: OriginConfig, child: Child) -> int:
    return run_child(child, lambda: serve_origin(config, lambda p: child.ready(str(p)), child))


def _gateway_child(config: GatewayConfig, child: Child, mint_key: MintKey | None) -> int:
    def tell(ports: Ports) -> None:
        child.ready(msgspec.json.encode(ports).decode())

    return run_child(child, lambda: serve_gateway(config, tell, child, mint_key=mint_key))


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
    token = sign_token(key, "dev", ALL_SCOPES, seconds, auth.audience, auth.issuer, now, claim)
    command = token_command(key, auth.audience, auth.issuer, claim, _typed_name())
    about = f" (this token is valid for {seconds / 3600:.3g} hours; `{command}` makes others)"
    return about, f"-H 'Authorization: Bearer {token}' "


def _typed_name() -> str:
    """How to call this program: by name if it is on the PATH, else as it was called."""
    called = sys.argv[0]
    return called if Path(called).name == "weir" and shutil.which("weir") is None else "weir"
