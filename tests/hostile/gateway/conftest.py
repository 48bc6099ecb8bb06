"""One attacked gateway for the tests of a module; it must not log an error nor let a token out."""

from collections.abc import Iterator

import pytest

from tests.helpers.rawhttp import PREFIX
from tests.helpers.scripted_origin import SimpleStream
from tests.hostile.gateway.arena import Arena
from tests.hostile.oracle import TEXT

SECRET_BYTES = b"the bytes that nobody else may see"
LIMITS = {
    "max_header_bytes": 8192,
    "max_body_bytes": 64 * 1024,
    "header_timeout_secs": 0.4,
    "body_timeout_secs": 0.4,
    "max_reader_backlog_bytes": 100_000,
    "long_poll_timeout_secs": 5.0,
}
VICTIM = b"precious"


@pytest.fixture(scope="module")
def arena_class() -> type[Arena]:
    """Another folder may put something in front of the gateway, and repeat the tests."""
    return Arena


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory, arena_class: type[Arena]) -> Iterator[Arena]:
    """With a stream `secret` whose first chunk is cached, and an open one, `live`."""
    with arena_class(tmp_path_factory.mktemp("hostile")) as arena:
        secret = SimpleStream(arena.origin, PREFIX + "secret", chunk_bytes=len(SECRET_BYTES))
        secret.append(SECRET_BYTES)
        secret.append(b"and the rest")
        SimpleStream(arena.origin, PREFIX + "live").append(b"hello")
        assert arena.ask("secret", "offset=-1").body == SECRET_BYTES
        assert arena.ask("secret", "offset=-1")["Cache-Status"] == "weir; hit"
        yield arena


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, arena_class: type[Arena]) -> Iterator[Arena]:
    """Small limits, and an origin that keeps count of what is done to the victim."""
    with arena_class(tmp_path_factory.mktemp("http"), gateway=LIMITS) as arena:
        SimpleStream(arena.origin, PREFIX + TEXT).append(VICTIM)
        yield arena


def check_victim(arena: Arena) -> None:
    assert arena.ask(TEXT).body == VICTIM
    assert not arena.origin.find("DELETE")
    arena.check_alive()
