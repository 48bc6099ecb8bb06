"""A gateway that is asked to stop behind a balancer: first it says so, then it stops listening."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.rawhttp import PREFIX, Closed, wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, SimpleStream

LEAVE_S = 3.0


@contextmanager
def leaving(origin: ScriptedOrigin) -> Iterator[LocalGateway]:
    """A gateway that has been asked to stop, and not yet stopped listening."""
    config = make_gateway_config(origin.url, gateway={"leave_secs": LEAVE_S})
    with LocalGateway(config) as gateway:
        stopping = threading.Thread(target=gateway.stop)
        with gateway.events("a") as events:
            events.next_write()
            stopping.start()
            wait_until(lambda: readiness(gateway) == 503, what="not being ready")
            yield gateway
            assert events.rest() == []  # a clean end, once it is over
        stopping.join()


def readiness(gateway: LocalGateway) -> int:
    with gateway.connect() as connection:
        return connection.request("GET", "/readyz").status


def test_whoever_still_comes_is_served_and_told_to_leave() -> None:
    with ScriptedOrigin() as origin:
        stream = SimpleStream(origin, PREFIX + "a")
        stream.append(b"hello")
        with leaving(origin) as gateway:
            with gateway.client() as client:
                reply = client.read("a")
                assert (reply.body, reply["Connection"]) == (b"hello", "close")
                with pytest.raises((Closed, ConnectionError)):
                    client.read("a")
            with gateway.events("a") as late:  # also to live readers
                assert [event.kind for event in late.next_write()] == ["data", "control"]
        with pytest.raises(ConnectionRefusedError):
            readiness(gateway)


@pytest.mark.parametrize(("hops", "scheme"), [(0, "http"), (1, "https")])
def test_only_a_trusted_proxy_says_how_a_client_came(hops: int, scheme: str) -> None:
    with ScriptedOrigin() as origin:
        path = PREFIX + "a"
        origin.on("PUT", path, Answer(201, {"Location": f"{origin.url}{path}"}))
        config = make_gateway_config(origin.url, gateway={"trusted_hops": hops})
        with LocalGateway(config) as gateway, gateway.client() as client:
            for told, expected in (("https", scheme), ("javascript", "http")):
                reply = client("PUT", "a", {"X-Forwarded-Proto": told})
                assert reply["Location"] == f"{expected}://weir.test{path}"
