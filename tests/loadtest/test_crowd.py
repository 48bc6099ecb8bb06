"""The waiting crowd against a real origin; what it must notice, against bytes made up."""

import asyncio

import pytest

from loadtest.load.client import TEXT, Client, WrongAnswerError
from loadtest.load.connection import Broken, Target
from loadtest.load.crowd import (
    Came,
    Crowd,
    Fan,
    Writer,
    build_message,
    check_answer,
    open_crowd,
    open_events,
)
from tests.helpers.origin import LocalOrigin


class Silent(Writer):
    def __init__(self) -> None:
        pass

    def append(self, message: bytes) -> None:
        pass


async def fan_out(arrivals: Came, published: int = 0) -> Fan:
    """Two readers who receive this."""
    crowd = Crowd(2)
    fan = Fan(crowd, Silent())
    fan.published = published
    running = asyncio.create_task(fan.run(0.0, 1))
    await asyncio.sleep(0)
    crowd.arrive(arrivals)
    await running
    crowd.close()
    return fan


async def test_no_event_stream_is_an_error(origin: LocalOrigin) -> None:
    async with Client(Target.local(origin.port)) as client:
        with pytest.raises(WrongAnswerError, match="404"):
            async with open_events(client, "missing", 3):
                pass


async def test_a_refused_append_is_an_error(origin: LocalOrigin) -> None:
    async with Client(Target.local(origin.port)) as client:
        writer = await Writer.open(client, "missing")
        writer.append(b"x")
        with pytest.raises(WrongAnswerError, match="0 of 1"):
            await writer.finish()


async def test_a_reader_who_is_cut_off_is_an_error(origin: LocalOrigin) -> None:
    async with Client(Target.local(origin.port), content_type=TEXT) as client:
        offset = await client.create("a")
        request = client.request("GET", "a", f"?offset={offset}&live=long-poll")
        async with open_crowd(client.target, [request] * 3) as crowd:
            gathering = asyncio.create_task(crowd.gather(lambda data: False))
            await asyncio.to_thread(origin.stop)
            with pytest.raises(Broken, match="waiting reader"):
                await gathering
            with pytest.raises(Broken, match="waiting reader"):
                await crowd.gather(lambda data: False)


def test_answers_are_looked_at() -> None:
    message = build_message(1)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(message)
    check_answer(head + message, message)
    with pytest.raises(WrongAnswerError):
        check_answer(head + build_message(2), message)
    with pytest.raises(WrongAnswerError):
        check_answer(head.replace(b"200", b"500") + message, message)


async def test_marks_are_counted_in_any_pieces() -> None:
    message = build_message(1)
    fan = await fan_out([(0, message[:4]), (1, message), (0, message[4:])])
    assert fan.received == 2
    fan.check()


async def test_messages_in_one_event_are_one_event() -> None:
    data = b"event: data\ndata:" + build_message(1) + build_message(2) + b"\n\n"
    fan = await fan_out([(0, data), (1, data)], published=1)
    fan.check()
    assert (fan.published, fan.events) == (2, 1)


async def test_events_of_other_servers_are_events_too() -> None:
    data = b"id: 1\ndata: " + build_message(1) + b"\n\n"
    assert (await fan_out([(0, data), (1, data)])).events == 1


async def test_too_many_messages_are_noticed() -> None:
    data = build_message(1) + build_message(2)
    fan = await fan_out([(0, data), (1, data)])
    with pytest.raises(WrongAnswerError):
        fan.check()


async def test_a_message_twice_to_one_is_not_one_to_each() -> None:
    message = build_message(1)
    fan = await fan_out([(0, message + message)])
    with pytest.raises(WrongAnswerError, match="another number"):
        fan.check()


async def test_another_message_is_noticed() -> None:
    fan = await fan_out([(0, build_message(2)), (1, build_message(2))])
    with pytest.raises(WrongAnswerError, match="order"):
        fan.check()


async def test_messages_that_do_not_arrive_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.load.crowd.REPLY_TIMEOUT_SECS", 0.1)
    with pytest.raises(Broken, match="in vain"):
        await fan_out([(0, build_message(1))])
