"""Connections count from the first moment, with TLS as without, and a lack of them is told."""

import os
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.rawhttp import Closed, Connection, wait_until
from tests.helpers.scripted_origin import ScriptedOrigin
from tests.helpers.server import Server, launch_gateway, serving
from tests.helpers.upstreams import make_certificate

LIMIT = 10


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[LocalGateway]:
    make_certificate(tmp_path)
    pem = str(tmp_path / "origin.pem")
    serving = {"tls_cert_path": pem, "tls_key_path": pem, "max_connections": LIMIT}
    serving |= {"header_timeout_secs": 1.0}
    with (
        ScriptedOrigin() as origin,
        LocalGateway(make_gateway_config(origin.url, gateway=serving)) as gateway,
    ):
        yield gateway


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def silent(gateway: LocalGateway, count: int, stack: ExitStack) -> list[socket.socket]:
    made = [socket.create_connection(("127.0.0.1", gateway.port), 5) for _ in range(count)]
    return [stack.enter_context(each) for each in made]


def is_ended(connected: socket.socket) -> bool:
    connected.settimeout(5)
    with suppress(ConnectionError):
        return connected.recv(1) == b""
    return True


def test_requests_are_answered_and_leave_nothing(gateway: LocalGateway) -> None:
    for _ in range(3 * LIMIT):
        with Connection(gateway.port, trusting()) as connection:
            assert connection.request("GET", "/healthz").status == 200
            assert connection.request("GET", "/healthz").status == 200
    wait_until(lambda: gateway.metric("connections") == 0)


def test_who_never_says_hello_counts_and_is_cut_off(gateway: LocalGateway) -> None:
    with ExitStack() as stack:
        waiting = silent(gateway, LIMIT, stack)
        wait_until(lambda: gateway.metric("connections") == LIMIT)
        (beyond,) = silent(gateway, 1, stack)
        began = time.monotonic()
        assert is_ended(beyond)
        assert all(map(is_ended, waiting))
        assert time.monotonic() - began < 5
    wait_until(lambda: gateway.metric("connections") == 0)
    with Connection(gateway.port, trusting()) as connection:
        assert connection.request("GET", "/healthz").status == 200


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_handshake_that_fails_leaves_nothing(gateway: LocalGateway, said: bytes) -> None:
    for _ in range(3 * LIMIT):
        with socket.create_connection(("127.0.0.1", gateway.port), 5) as connected:
            connected.sendall(said)
        wait_until(lambda: gateway.metric("connections") < LIMIT)
    wait_until(lambda: gateway.metric("connections") == 0)


def test_a_handshake_does_not_hold_up_a_stop(gateway: LocalGateway) -> None:
    with ExitStack() as stack:
        silent(gateway, 1, stack)
        wait_until(lambda: gateway.metric("connections") == 1)
        gateway.stop()


def test_a_lack_of_descriptors_is_told_now_and_then(tmp_path: Path) -> None:
    settings = {"DS_AUTH__MODE": "off"}
    with serving(launch_gateway(tmp_path, "http://127.0.0.1:1", settings=settings)) as server:
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        limit = used + 30
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with ExitStack() as stack:
            for _ in range(60):
                connected = socket.create_connection(("127.0.0.1", server.port), 5)
                stack.enter_context(connected)
            told = f"the limit of {limit} file descriptors is reached"
            wait_until(lambda: told in server.stderr, what=told)
            assert server.stderr.count(told) == 1
        wait_until(lambda: answers(server), what="an answer when they have left")
        assert server.stop() == 0


def answers(server: Server) -> bool:
    with suppress(OSError, Closed), Connection(server.port) as connection:
        return connection.request("GET", "/healthz").status == 200
    return False
