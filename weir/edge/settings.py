"""What Envoy's configuration is made from."""

import argparse
from dataclasses import dataclass

from gateway.config import GatewayConfig
from wire.settings import SettingsError


@dataclass(frozen=True, slots=True)
class EnvoySettings:
    """`gateways` are URLs or `host:port`; `config` is what these gateways run with."""

    gateways: tuple[str, ...]
    config: GatewayConfig
    cert_path: str = ""  # empty: no TLS listener
    key_path: str = ""
    secret_path: str = ""  # file of `render_secret`; empty: certificates are read only once
    jwks: str = ""  # file or URL as Envoy sees it; empty: the gateways' own
    host: str = "127.0.0.1"
    port: int = 8443  # 0: Envoy picks one, also below
    plain_port: int | None = 10000  # None: no plain listener
    admin_port: int = 9901
    metrics_port: int | None = None  # None: no port that serves only metrics
    trusted_hops: int = 0  # proxies in front of Envoy whose X-Forwarded-For counts
    max_connections: int = 50_000
    health_secs: float = 1.0  # between two health checks of a gateway
    access_log: str = "/dev/stdout"  # empty: none

    @property
    def key_set(self) -> str:
        return self.jwks or self.config.auth.jwks


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
