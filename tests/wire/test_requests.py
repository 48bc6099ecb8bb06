"""Bodies of requests that aiohttp has parsed."""

import asyncio

import pytest
from aiohttp import web

from origin.config import LimitsConfig
from protocol.errors import ProtocolError
from tests.helpers.fronts import AnswersAll, KeptTransport, connect_front
from tests.helpers.rawhttp import encode_request
from wire.requests import read_body, unique_headers


async def test_a_client_that_left_before_it_was_asked_for_its_body_is_no_mistake_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport, told = KeptTransport(), asyncio.get_running_loop().create_future()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        transport.closing = True
        with pytest.raises(ProtocolError) as refused:
            await read_body(request, unique_headers(request), LimitsConfig())
        told.set_result(refused.value.status)
        return web.Response()

    front = connect_front(transport, AnswersAll(), handle)
    front.data_received(encode_request("PUT", "/", {"Expect": "100-continue"}, b"later")[:-5])
    assert await told == 400  # so that it is logged and counted
    front.connection_lost(None)
    assert (transport.written, caplog.records) == (b"", [])
