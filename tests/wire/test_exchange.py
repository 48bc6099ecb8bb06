"""The way back to a client, on a transport that goes nowhere."""

import asyncio

import pytest

from tests.helpers.fronts import KeptTransport
from wire.exchange import Exchange

IDLE = 0.02


def make() -> tuple[KeptTransport, Exchange]:
    transport = KeptTransport()
    return transport, Exchange(transport, IDLE)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_response_is_complete_once(whole: bool) -> None:
    transport, exchange = make()
    completed: list[str] = []
    exchange.begin(lambda: completed.append("a"))
    if whole:
        exchange.send((b"head", b"body"))
    else:
        exchange.write(b"head")
        exchange.finish(b"body")
    exchange.finish()
    assert (transport.written, completed) == (b"headbody", ["a"])


async def test_whoever_answers_is_told_that_the_client_left_and_only_then() -> None:
    _, exchange = make()
    told: list[str] = []
    exchange.when_gone(lambda: told.append("answered in time"))
    exchange.send((b"answer",))
    exchange.when_gone(lambda: told.append("gone"))
    exchange.lost()
    exchange.lost()
    assert told == ["gone"]


async def test_nothing_is_written_to_a_client_that_left() -> None:
    transport, exchange = make()
    exchange.lost()
    exchange.write(b"x")
    exchange.send((b"x",))
    exchange.abort()
    assert (transport.written, transport.closing, exchange.backlog()) == (b"", False, 0)


async def test_all_who_wait_for_room_go_on_though_one_gives_up() -> None:
    _, exchange = make()
    exchange.pause()
    first, second = (asyncio.create_task(exchange.drain()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert exchange.is_full and not second.done()
    exchange.resume()
    await second
    assert not exchange.is_full


async def test_waiting_for_room_ends_with_the_connection() -> None:
    _, exchange = make()
    exchange.pause()
    waiting = asyncio.create_task(exchange.drain())
    await asyncio.sleep(0)
    exchange.lost()
    for late in (waiting, exchange.drain()):
        with pytest.raises(ConnectionError):
            await late


async def test_whoever_wants_to_write_is_called_once_when_there_is_room() -> None:
    _, exchange = make()
    called: list[str] = []
    for _ in range(2):
        exchange.pause()
        exchange.when_writable(lambda: called.append("now"))
        exchange.resume()
        exchange.pause()
        exchange.resume()
        await asyncio.sleep(0)
    assert called == ["now", "now"]


@pytest.mark.parametrize(("taken", "is_cut"), [(0, True), (10, False)])
async def test_a_client_must_take_something_now_and_then(taken: int, is_cut: bool) -> None:
    transport, exchange = make()
    transport.unread = 1000
    exchange.pause()
    for _ in range(8):
        await asyncio.sleep(IDLE / 2)
        transport.unread -= taken
    assert transport.closing == is_cut
    exchange.lost()
