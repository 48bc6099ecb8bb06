"""A fleet behind the real Envoy, and the hostile tests' arena with Envoy in front of it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.helpers.envoy import Envoy, running_envoy
from tests.helpers.gateway import KEY, LocalGateway, bearer, make_gateway_config
from tests.helpers.http2 import Http2
from tests.helpers.keys import make_token
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import Response, wait_until
from tests.hostile.gateway.arena import Arena
from tests.hostile.gateway.conftest import arena, quick
from weir.edge.listeners import LOG_FIELDS

__all__ = ["arena", "quick"]  # the same fixtures, of another class


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a repeated module does without (see repeated.py)."""
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        items[:] = [item for item in items if not is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


def is_left_out(item: pytest.Item) -> bool:
    without = getattr(getattr(item, "module", None), "WITHOUT", {})
    return item.name in without or item.name.partition("[")[0] in without


@pytest.fixture(scope="module")
def arena_class() -> type[Arena]:
    return EdgeArena


class EdgeArena(Arena):
    """Attackers know Envoy's port only; what it logs must be free of tokens, too."""

    def __init__(self, folder: Path, origin_url: str = "", **sections: dict[str, Any]) -> None:
        gateway = {"trusted_hops": 1, **sections.pop("gateway", {})}
        super().__init__(folder, origin_url, gateway=gateway, **sections)
        self._edge_folder = folder / "envoy"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            front = running_envoy(self._edge_folder, [self.gateway.url], self.gateway.config)
            self.envoy: Envoy = self._stack.enter_context(front)
        except BaseException as error:
            super().__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)
        if kind is None:
            self.check_log()

    @property
    def port(self) -> int:
        return self.envoy.plain_port

    def pulse(self) -> None:
        super().pulse()
        self.envoy.ask("/ready")

    def check_log(self) -> None:
        """Whatever was sent, a line of Envoy's log is a line, with each field once."""
        assert self.envoy.access_log.read_bytes().endswith(b"\n")
        for line in self.envoy.log():
            assert line.keys() == LOG_FIELDS.keys(), line

    def log_files(self) -> list[Path]:
        return [*super().log_files(), self.envoy.access_log, self._edge_folder / "stderr.log"]


@dataclass(slots=True)
class Fleet:
    """An origin, gateways before it, Envoy before them."""

    origin: LocalOrigin
    gateways: list[LocalGateway]
    envoy: Envoy

    @property
    def headers(self) -> dict[str, str]:
        """Of someone who may do everything."""
        return bearer(make_token(KEY))

    def http2(self) -> Http2:
        return Http2(self.envoy.port, self.envoy.tls("h2"))

    def take_out(self, number: int) -> None:
        """Stop a gateway, and wait until Envoy knows."""
        self.gateways[number].stop()
        wait_until(lambda: self.envoy.healthy_gateways() < len(self.gateways), what="ejection")

    def bring_back(self, number: int) -> None:
        """At the address where it was."""
        old = self.gateways[number]
        serving = replace(old.config.gateway, port=old.port)
        self.gateways[number] = LocalGateway(replace(old.config, gateway=serving))
        self.gateways[number].start()
        wait_until(lambda: self.envoy.healthy_gateways() == len(self.gateways), what="return")

    def gateways_of(self, *replies: Response) -> list[str]:
        """Who gave each of them, by Envoy's log."""
        wanted = [reply["X-Request-Id"] for reply in replies]
        found: dict[str, str] = {}

        def is_complete() -> bool:
            found.update((line["request_id"], line["gateway"]) for line in self.envoy.log())
            return found.keys() >= {*wanted}

        wait_until(is_complete, what="Envoy's log")
        return [found[request_id] for request_id in wanted]


def stop_all(gateways: Sequence[LocalGateway]) -> None:
    for gateway in gateways:
        gateway.stop()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two gateways; whoever is taken out must be brought back."""
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        origin = LocalOrigin(make_config(folder / "data"))
        origin.start()
        stack.callback(origin.stop)
        serving = {"trusted_hops": 1, "header_timeout_secs": 0.5}
        config = make_gateway_config(f"http://127.0.0.1:{origin.port}", gateway=serving)
        gateways = [LocalGateway(config), LocalGateway(config)]
        for gateway in gateways:
            gateway.start()
        stack.callback(lambda: stop_all(gateways))
        urls = [gateway.url for gateway in gateways]
        envoy = stack.enter_context(running_envoy(folder / "envoy", urls, config))
        yield Fleet(origin, gateways, envoy)
        assert [error for gateway in gateways for error in gateway.errors.found] == []
