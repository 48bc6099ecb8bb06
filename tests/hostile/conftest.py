"""One server with its victims for all hostile tests; it must not log a single error."""

from collections.abc import Iterator

import pytest

from tests.helpers.origin import LocalOrigin, make_config
from tests.hostile.oracle import Arena


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    limits = {
        "max_header_bytes": 8192,
        "max_body_bytes": 64 * 1024,
        "header_timeout_secs": 0.5,
        "body_timeout_secs": 0.5,
    }
    server = {"long_poll_timeout_secs": 0.2, "sse_reconnect_interval_secs": 0.5}
    folder = tmp_path_factory.mktemp("hostile")
    origin = LocalOrigin(make_config(folder, "file-fast", limits=limits, server=server))
    origin.start()
    try:
        arena = Arena(origin)
        yield arena
        arena.close()
    finally:
        origin.stop()
    assert origin.errors.found == []
