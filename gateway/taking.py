"""An answer of the origin, taken in: its head checked, its body whole."""

import asyncio
from http import HTTPStatus
from io import BytesIO
from typing import NamedTuple

import aiohttp

from gateway.asking import TooLarge, UpstreamRequest
from gateway.connections import AnswerHead, Connection
from gateway.rules.forwarding import BadAnswer, response_headers
from protocol.names import ACCESS_KEY

PROGRESS_BYTES = 1024  # a whole body brings at least this much in each idle time

_STATUSES = frozenset(s.value for s in HTTPStatus if s.value >= 200) - {206}  # no Range is asked
NO_BODY = frozenset({204, 304})


class BegunAnswer(NamedTuple):
    """A response whose head was read and checked; `length` is None where nobody has said."""

    connection: Connection
    status: int
    headers: dict[str, str]
    length: int | None
    body: aiohttp.StreamReader


def check_head(
    request: UpstreamRequest, connection: Connection, answer: AnswerHead, origin_path: str
) -> BegunAnswer:
    status, told = answer.message.code, answer.message.headers
    if status not in _STATUSES:
        raise BadAnswer(f"status {status} was not asked for")
    if status == 401 and told.get("WWW-Authenticate") == ACCESS_KEY:
        raise BadAnswer("it wants another upstream.access_key than this gateway has")
    if status == 421:
        raise BadAnswer("it does not go by the name in gateway.origin_url")
    if status == 304 and "if-none-match" not in request.headers:
        raise BadAnswer("304 without a condition")
    length = told.get("Content-Length")
    framed = length is not None or answer.message.chunked
    if not framed and request.method != "HEAD" and status not in NO_BODY:
        raise BadAnswer("without a length, a whole body looks like half of one")
    headers = response_headers(told.items(), origin_path)
    if request.of_stream and status in (200, 204) and "stream-next-offset" not in headers:
        raise BadAnswer("it does not say where it ends")
    return BegunAnswer(
        connection, status, headers, None if length is None else int(length), answer.body
    )


async def gather_body(content: aiohttp.StreamReader, max_bytes: int, idle_s: float) -> bytes:
    if content.is_eof():  # it came with the head, and needs no clock
        return _within(content.read_nowait(), max_bytes)
    whole = BytesIO()  # which a join of all parts would hold twice
    size = mark = 0
    now = asyncio.get_running_loop().time
    async with asyncio.timeout(idle_s) as timeout:
        while part := await content.readany():
            size += whole.write(part)
            if size > max_bytes:
                raise TooLarge
            if size - mark >= PROGRESS_BYTES:
                mark = size
                timeout.reschedule(now() + idle_s)
    return whole.getvalue()


def _within(body: bytes, max_bytes: int) -> bytes:
    if len(body) > max_bytes:
        raise TooLarge
    return body
