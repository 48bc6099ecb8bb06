"""Bodies of requests that aiohttp has parsed."""

from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp import ClientConnectionResetError, HttpVersion11

from origin.config import LimitsConfig
from protocol.errors import ProtocolError
from wire.requests import read_body


async def test_a_client_that_left_before_it_was_asked_for_its_body_is_no_mistake_of_ours() -> None:
    gone = ClientConnectionResetError("Cannot write to closing transport")
    writer = Mock(write=AsyncMock(side_effect=gone))
    request = Mock(version=HttpVersion11, content_length=5, writer=writer)
    with pytest.raises(ProtocolError) as caught:
        await read_body(request, {"expect": "100-continue"}, LimitsConfig())
    assert caught.value.status == 400
