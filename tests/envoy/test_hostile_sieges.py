"""Many clients at once against a gateway in a process of its own, behind Envoy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.envoy.repeated import repeated
from tests.helpers.envoy import running_envoy
from tests.helpers.gateway import make_gateway_config
from tests.helpers.server import Server
from tests.hostile.gateway import test_sieges as attacks

globals().update(repeated(attacks))


@pytest.fixture
def port(gateway: Server, tmp_path: Path) -> Iterator[int]:
    config = make_gateway_config("http://127.0.0.1:9")  # for its tokens
    with running_envoy(tmp_path / "envoy", [gateway.url], config) as envoy:
        yield envoy.plain_port
