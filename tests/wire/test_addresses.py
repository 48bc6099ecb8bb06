"""Which addresses only this machine can reach."""

import pytest

from wire.addresses import is_every_address, is_loopback


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"]
)
def test_these_are_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "10.0.0.1", "fe80::1", "localhost.example", "origin", "127.0.0.1.x"],
)
def test_these_are_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "is_every"),
    [("0.0.0.0", True), ("::", True), ("[::]", True), ("127.0.0.1", False), ("origin", False)],
)
def test_who_listens_on_all_addresses_is_known(host: str, is_every: bool) -> None:
    assert is_every_address(host) == is_every
