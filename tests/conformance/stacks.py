"""The servers that the suite and the official clients meet, as real processes.

A gateway must do more than answer: it may not log an error, and it stops when it is asked to.
"""

import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.config import AuthConfig, GatewayConfig
from loadtest.errors import UnavailableError
from loadtest.peers.servers import ensure_reference
from tests.conformance.runner import FOLDER, Node, Target
from tests.helpers.envoy import Envoy, running_envoy
from tests.helpers.keys import AUDIENCE, ISSUER, Key, make_key, make_token, write_jwks
from tests.helpers.require import need
from tests.helpers.server import Server, launch_gateway, serving

LONG_POLL_MS = 500
TOKEN_SECS = 3600
_SAMPLE = re.compile(r"^weir_gateway_(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_TROUBLE = re.compile(r"ERROR|CRITICAL|Traceback")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway and the key that it trusts."""

    server: Server
    key: Key

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def target(self) -> Target:
        return Target(self.url, self.token())

    def token(self, **claims: object) -> str:
        return make_token(self.key, **{"ttl": TOKEN_SECS, **claims})  # type: ignore[arg-type]

    def count_requests(self, **labels: str) -> int:
        """How many requests the gateway has counted under these labels."""
        return self._sum("requests_total", **labels)

    def count_live_readers(self) -> int:
        """How many long-polls and event streams wait."""
        return self._sum("live_readers")

    def _sum(self, metric: str, **labels: str) -> int:
        """Over all workers."""
        url = f"http://127.0.0.1:{self.server.admin_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            samples = _SAMPLE.findall(answer.read().decode())
        wanted = {f'{name}="{value}"' for name, value in labels.items()}
        found = [n for name, has, n in samples if name == metric and wanted <= set(has.split(","))]
        return sum(int(float(number)) for number in found)


@dataclass(frozen=True, slots=True)
class Edge:
    """Envoy before several gateways, all of them running."""

    envoy: Envoy
    gateways: Sequence[Gateway]

    @property
    def target(self) -> Target:
        return Target(self.envoy.url, self.gateways[0].token(), self.envoy.certificate)


@contextmanager
def gateway_before(
    origin_url: str,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    key: Key | None = None,
) -> Iterator[Gateway]:
    """Everything but `settings` is as in production: tokens are checked, the cache is on."""
    key = key or make_key()
    folder.mkdir(parents=True)
    jwks = {"DS_AUTH__JWKS": str(write_jwks(folder / "jwks.json", key))}
    with serving(
        launch_gateway(folder, origin_url, settings=jwks | dict(settings or {}))
    ) as server:
        yield Gateway(server, key)
        code = server.stop()
        assert code == 0 and not _TROUBLE.search(server.stderr), (code, server.stderr[-4000:])


@contextmanager
def edge_before(origin_url: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Edge]:
    """Two gateways, and Envoy in front of them."""
    settings = {"DS_GATEWAY__TRUSTED_HOPS": "1", **settings}
    key = make_key()
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(gateway_before(origin_url, folder / name, settings, key))
            for name in ("gateway-1", "gateway-2")
        ]
        jwks = str(folder / "gateway-1" / "jwks.json")
        config = GatewayConfig(auth=AuthConfig(jwks=jwks, issuer=ISSUER, audience=AUDIENCE))
        urls = [gateway.url for gateway in gateways]
        yield Edge(stack.enter_context(running_envoy(folder / "envoy", urls, config)), gateways)


@contextmanager
def running_reference(node: Node, folder: Path) -> Iterator[str]:
    """The URL of the reference server."""
    folder.mkdir(parents=True)
    stdout, stderr = folder / "stdout.log", folder / "stderr.log"
    command = [node.node, str(FOLDER / "reference.mjs"), str(LONG_POLL_MS)]
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    with serving(Server(process, stdout, stderr)) as server:
        yield server.url


def need_reference() -> None:
    try:
        ensure_reference()
    except UnavailableError as error:
        need(False, str(error))
