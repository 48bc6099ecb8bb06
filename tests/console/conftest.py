"""One origin, one gateway with a development key and one browser for all tests of the console.

Whatever a test does, no script may have complained at its end, and nothing may have been asked for
elsewhere.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.console.driver import Driver, make_gateway
from tests.helpers.chromium import Chromium
from tests.helpers.gateway import LocalGateway
from tests.helpers.origin import MIB, LocalOrigin, make_config


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrigin]:
    folder = tmp_path_factory.mktemp("console-origin")
    limits, storage = {"max_body_bytes": 16 * MIB}, {"journal_bytes": 32 * MIB}
    origin = LocalOrigin(make_config(folder, limits=limits, storage=storage))
    origin.start()
    yield origin
    origin.stop()


@pytest.fixture(scope="module")
def gateway(
    origin: LocalOrigin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalGateway]:
    with make_gateway(origin, tmp_path_factory.mktemp("console-keys")) as gateway:
        # A gateway that is started again comes back to its port.
        serving = replace(gateway.config.gateway, port=gateway.port)
        gateway.config = replace(gateway.config, gateway=serving)
        yield gateway


@pytest.fixture
def driver_of(
    browser: Chromium, origin: LocalOrigin, tmp_path: Path
) -> Iterator[Callable[..., Driver]]:
    """A page of a gateway of its own, with these settings of `[auth]`."""
    with ExitStack() as stack:

        def make(**auth: Any) -> Driver:
            driver = Driver(browser, stack.enter_context(make_gateway(origin, tmp_path, **auth)))
            stack.callback(driver.close)
            stack.callback(driver.check)
            return driver

        yield make


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
