"""One origin, one gateway with a development key and one browser for all tests of the console.

Whatever a test does, no script may have complained at its end, and nothing may have been asked for
elsewhere.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gateway.console.minting import MintKey
from gateway.devkeys import ensure_dev_key
from tests.console.driver import Driver
from tests.helpers.chromium import Chromium
from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.origin import LocalOrigin, make_config


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrigin]:
    origin = LocalOrigin(make_config(tmp_path_factory.mktemp("console-origin")))
    origin.start()
    yield origin
    origin.stop()


@pytest.fixture(scope="module")
def gateway(
    origin: LocalOrigin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalGateway]:
    key, jwks = ensure_dev_key(tmp_path_factory.mktemp("console-keys"))
    config = make_gateway_config(
        f"http://127.0.0.1:{origin.port}", jwks_path=jwks, gateway={"drain_secs": 1.0}
    )
    with LocalGateway(config, mint_key=MintKey(key, "secret-of_1-run")) as gateway:
        # A gateway that is started again comes back to its port.
        gateway.config = replace(config, gateway=replace(config.gateway, port=gateway.port))
        yield gateway


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture
def driver(browser: Chromium, gateway: LocalGateway) -> Iterator[Driver]:
    """A page of the test's own, to be opened."""
    driver = Driver(browser, gateway)
    yield driver
    driver.check()
    driver.close()


@pytest.fixture(scope="module")
def shared(browser: Chromium, gateway: LocalGateway) -> Iterator[Driver]:
    driver = Driver(browser, gateway)
    driver.open()
    driver.mint()
    yield driver
    driver.close()


@pytest.fixture
def console(shared: Driver) -> Iterator[Driver]:
    """A page that others had before, with a token that may do everything."""
    shared.reset()
    yield shared
    shared.check()
    shared.hang_up()
