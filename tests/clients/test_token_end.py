"""Official clients whose token ends while they follow.

Their gateway rotates no connections, so that a token may live long enough for a slow start.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from durable_streams import DurableStream, DurableStreamError, stream

from tests.clients.conftest import GATEWAY, Ends, Scenario
from tests.conformance.stacks import Gateway, gateway_before
from tests.helpers.server import Server

SHORT_SECS = 6.0


@pytest.fixture(scope="module")
def gateway(origin_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("clients") / "lasting"
    settings = GATEWAY | {"DS_GATEWAY__SSE_ROTATION_SECS": "600"}
    with gateway_before(origin_server.url, folder, settings) as gateway:
        yield gateway


def test_sse_reader_goes_on_with_a_new_token(run: Scenario, gateway: Gateway, ends: Ends) -> None:
    """The first token is good for the catch-up read and one connection."""
    short, long = gateway.token(exp=time.time() + SHORT_SECS), gateway.token()
    seen = run("reconnect", token=long, tokens=[short, short, long])
    assert seen == {"complete": True, "asked": {"catch-up": 1, "sse": 2}}
    assert ends(2) == ["token-expired", "closed"]


def test_sse_reader_without_a_new_token_is_told(
    run: Scenario, gateway: Gateway, ends: Ends
) -> None:
    """The event that ends the stream is passed over; the client asks again and is refused."""
    short = gateway.token(exp=time.time() + SHORT_SECS)
    seen = run("outlive", token=short, writer=gateway.token())
    assert seen == {"messages": ["a"], "error": {"name": "FetchError", "status": 401}}
    assert ends(1) == ["token-expired"]


def test_python_sse_reader_whose_token_ends_is_let_go_cleanly(
    url: str, gateway: Gateway, ends: Ends
) -> None:
    """The event that says so is passed over; who comes back with the same token is refused."""
    writer: dict[str, Any] = {"Authorization": f"Bearer {gateway.token()}"}
    with DurableStream.create(url, content_type="application/json", headers=writer) as handle:
        handle.append("before")
        tail = handle.head().offset
    token = gateway.token(exp=time.time() + SHORT_SECS)
    headers: dict[str, Any] = {"Authorization": f"Bearer {token}"}
    with stream(url, headers=headers, offset="-1", live="sse") as reading:
        assert list(reading.iter_json()) == ["before"]
        assert reading.offset == tail
    with pytest.raises(DurableStreamError) as refused:
        stream(url, headers=headers, offset=reading.offset, live="sse")
    assert refused.value.status == 401
    assert ends(1) == ["token-expired"]
