"""The official Python client through the gateway, with tokens.

Version 0.1.0 knows no producers, no closing, and does not reconnect by itself.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import pytest
from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    DurableStreamError,
    SeqConflictError,
    StreamNotFoundError,
    stream,
)

from gateway.config import ServingConfig
from tests.clients.conftest import WAIT_SECS, Ends
from tests.conformance.stacks import Gateway
from tests.helpers.rawhttp import wait_until

JSON = "application/json"


@pytest.fixture
def headers(gateway: Gateway) -> dict[str, Any]:
    return {"Authorization": f"Bearer {gateway.token()}"}


@pytest.fixture
def handle(url: str, headers: dict[str, Any]) -> Iterator[DurableStream]:
    with DurableStream.create(url, content_type=JSON, headers=headers) as handle:
        yield handle


def close(url: str, headers: dict[str, str]) -> None:
    """What the client cannot do."""
    reply = httpx.post(url, headers=headers | {"Stream-Closed": "true"})
    assert reply.status_code == 204, reply.text


@contextmanager
def appending(handle: DurableStream, gateway: Gateway, *messages: object) -> Iterator[None]:
    """Append each message when a reader waits at the gateway."""

    def work() -> None:
        for message in messages:
            wait_until(lambda: gateway.count_live_readers() > 0, WAIT_SECS)
            handle.append(message)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT_SECS)
    assert not thread.is_alive()


def test_catch_up_reads_every_chunk(
    url: str, headers: dict[str, Any], handle: DurableStream, gateway: Gateway
) -> None:
    messages = [{"number": number, "text": "x" * 100} for number in range(50)]
    for message in messages:
        handle.append(message)
    hits = gateway.count_requests(mode="catch-up", verdict="hit")
    for _ in range(2):
        with stream(url, headers=headers, offset="-1", live=False) as reading:
            assert list(reading.iter_json()) == messages
            assert reading.up_to_date
    assert gateway.count_requests(mode="catch-up", verdict="hit") > hits


def test_read_to_the_tail_goes_by_long_polls_that_find_stored_chunks(
    url: str, headers: dict[str, Any], handle: DurableStream
) -> None:
    """What the client does unless it is told otherwise."""
    messages = ["x" * 100] * 50
    for message in messages:
        handle.append(message)
    for _ in range(2):
        with stream(url, headers=headers) as reading:
            assert reading.read_json() == messages


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_live_reader_sees_each_message(
    url: str, headers: dict[str, Any], handle: DurableStream, gateway: Gateway, live: Any
) -> None:
    handle.append(0)
    with (
        stream(url, headers=headers, offset="-1", live=live) as reading,
        appending(handle, gateway, 1, 2, 3),
    ):
        assert list(islice(reading.iter_json(), 4)) == [0, 1, 2, 3]


def test_idle_long_poll_is_answered_before_the_client_loses_patience(url: str) -> None:
    """A read timeout of the client's ends its reader; both were 30 s, and the client won."""
    with DurableStream(url) as handle:
        assert isinstance(handle._timeout, float)
        assert ServingConfig().long_poll_timeout_secs <= handle._timeout - 5


def test_sse_reader_ends_when_the_stream_is_closed(
    url: str, headers: dict[str, Any], handle: DurableStream
) -> None:
    with stream(url, headers=headers, offset="-1", live="sse") as reading:
        handle.append("last")
        close(url, headers)
        assert list(reading.iter_json()) == ["last"]
        assert reading.offset == handle.head().offset


def test_sse_reader_goes_on_where_a_connection_ended(
    url: str, headers: dict[str, Any], handle: DurableStream, ends: Ends
) -> None:
    """The connection rotates; the client leaves it to the application to come back."""
    handle.append("before")
    with stream(url, headers=headers, offset="-1", live="sse") as reading:
        assert list(reading.iter_json()) == ["before"]
    handle.append("after")
    close(url, headers)
    with stream(url, headers=headers, offset=reading.offset, live="sse") as reading:
        assert list(reading.iter_json()) == ["after"]
    assert ends(2) == ["rotated", "closed"]


def test_every_request_asks_for_the_token(
    url: str, handle: DurableStream, gateway: Gateway
) -> None:
    """The client's way to renew it."""
    subjects: list[str] = []

    def authorization() -> str:
        subjects.append(f"reader-{len(subjects)}")
        return f"Bearer {gateway.token(sub=subjects[-1])}"

    headers: dict[str, Any] = {"Authorization": authorization}
    with (
        stream(url, headers=headers, offset="-1", live="long-poll") as reading,
        appending(handle, gateway, 0, 1, 2),
    ):
        assert list(islice(reading.iter_json(), 3)) == [0, 1, 2]
    assert len(subjects) >= 2


def test_append_below_the_last_sequence_is_refused(handle: DurableStream) -> None:
    handle.append("first", seq="b")
    with pytest.raises(SeqConflictError):
        handle.append("second", seq="a")


def test_closed_stream_refuses_appends(
    url: str, headers: dict[str, Any], handle: DurableStream
) -> None:
    handle.append("only")
    close(url, headers)
    with pytest.raises(SeqConflictError):  # what it makes of every 409
        handle.append("late")
    with stream(url, headers=headers, live=False) as reading:
        assert reading.read_json() == ["only"]


def test_deleted_stream_is_gone(url: str, headers: dict[str, Any], handle: DurableStream) -> None:
    handle.append("x")
    with stream(url, headers=headers, live=False) as reading:
        assert reading.read_json() == ["x"]
    handle.delete()
    with pytest.raises(StreamNotFoundError):
        stream(url, headers=headers, live=False)


def test_refusals_reach_the_application(url: str, handle: DurableStream, gateway: Gateway) -> None:
    refusals = {401: [gateway.token(ttl=-60), "x.y.z"], 403: [gateway.token(scope="write:*")]}
    for status, tokens in refusals.items():
        for token in tokens:
            with pytest.raises(DurableStreamError) as refused:
                stream(url, headers={"Authorization": f"Bearer {token}"}, live=False)
            assert refused.value.status == status


async def test_asynchronous_client_writes_and_follows(url: str, headers: dict[str, Any]) -> None:
    async with await AsyncDurableStream.create(url, content_type=JSON, headers=headers) as handle:
        async with handle.stream(offset="-1", live="sse") as reading:
            items = reading.iter_json()
            for number in range(3):
                await handle.append(number)
                assert await anext(items) == number
            close(url, headers)
            assert [item async for item in items] == []


def test_unknown_events_and_comments_are_passed_over(strange_events: str) -> None:
    with stream(strange_events, offset="-1", live="sse") as reading:
        assert list(reading.iter_json()) == ["a", "b"]
        assert reading.offset == "2"
