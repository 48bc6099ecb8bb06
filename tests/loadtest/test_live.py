"""The waiting crowd against a real origin; what it must notice, against bytes made up."""

import os
from collections.abc import Sequence

import pytest

from loadtest.load import live
from loadtest.load.client import WrongAnswerError
from loadtest.load.exchange import ExchangeFailedError
from loadtest.load.live import (
    Crowd,
    Fan,
    Scene,
    Writer,
    build_message,
    check_answer,
    create_stream,
    open_events,
    run_fanout,
    run_idle,
    run_polls,
)
from tests.helpers.origin import LocalOrigin

READERS = 20


@pytest.fixture
def scene(origin: LocalOrigin, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(live, "ARRIVAL_S", 0.1)
    monkeypatch.setattr(live, "IDLE_LIMIT_S", 0.5)
    return Scene(origin.port, origin.port, os.getpid(), "bench/a", READERS, ["one", "two"])


class Canned(Crowd):
    """Two readers who receive what the test says."""

    def __init__(self, *batches: Sequence[tuple[int, bytes]]) -> None:
        self._batches = iter(batches)

    @property
    def numbers(self) -> list[int]:
        return [1, 2]

    def receive(self, timeout_s: float = 0) -> list[tuple[int, bytes]]:
        return list(next(self._batches, []))


class Silent(Writer):
    def __init__(self) -> None:
        pass

    def append(self, message: bytes) -> None:
        pass


def fan_out(*batches: Sequence[tuple[int, bytes]]) -> Fan:
    fan = Fan(Canned(*batches), Silent())
    fan.run(0.0, 1)
    return fan


def test_readers_take_turns_with_the_tokens() -> None:
    scene = Scene(1, 1, 1, "a", 3, ["one", "two"])
    tokens = [request.split(b"Bearer ")[1].split()[0] for request in scene.reads("?x")]
    assert tokens == [b"one", b"two", b"one"]


def test_long_polls_end_with_the_append(scene: Scene) -> None:
    result = run_polls(scene)
    assert 0 < result["took_s"] < 5
    assert result["client_cpu_s"] > 0


def test_messages_reach_every_event_stream(scene: Scene) -> None:
    result = run_fanout(scene, 0.2)
    assert READERS < result["events"] <= result["messages"]
    assert result["window"] in (1, 2)


def test_idle_readers_are_alive(scene: Scene) -> None:
    assert run_idle(scene)["before"] > 0


def test_no_event_stream_is_an_error(scene: Scene) -> None:
    with pytest.raises(WrongAnswerError, match="404"):
        with open_events(scene):
            pass


def test_a_refused_append_is_an_error(scene: Scene) -> None:
    writer = Writer(scene.write_port, "bench/missing")
    writer.append(b"x")
    with pytest.raises(WrongAnswerError, match="0 of 1"):
        writer.close()


def test_a_reader_who_is_cut_off_is_an_error(scene: Scene, origin: LocalOrigin) -> None:
    offset = create_stream(scene.write_port, scene.path)
    with Crowd(scene.port, scene.reads(f"?offset={offset}&live=long-poll")) as crowd:
        origin.stop()
        with pytest.raises(ExchangeFailedError):
            crowd.gather(lambda data: False)


def test_answers_are_looked_at() -> None:
    message = build_message(1)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(message)
    check_answer(head + message, message)
    with pytest.raises(WrongAnswerError):
        check_answer(head + build_message(2), message)
    with pytest.raises(WrongAnswerError):
        check_answer(head.replace(b"200", b"500") + message, message)


def test_marks_are_counted_in_any_pieces() -> None:
    message = build_message(1)
    fan = fan_out([(1, message[:4]), (2, message)], [(1, message[4:])])
    assert fan.received == 2
    fan.check()


def test_messages_in_one_event_are_one_event() -> None:
    data = b"event: data\ndata:" + build_message(1) + build_message(2) + b"\n\n"
    fan = Fan(Canned([(1, data), (2, data)]), Silent())
    fan.published = 1
    fan.run(0.0, 1)
    fan.check()
    assert (fan.published, fan.events) == (2, 1)


def test_events_of_other_servers_are_events_too() -> None:
    data = b"id: 1\ndata: " + build_message(1) + b"\n\n"
    assert fan_out([(1, data), (2, data)]).events == 1


def test_too_many_messages_are_noticed() -> None:
    data = build_message(1) + build_message(2)
    with pytest.raises(WrongAnswerError):
        fan_out([(1, data), (2, data)]).check()


def test_a_message_twice_to_one_is_not_one_to_each() -> None:
    message = build_message(1)
    fan = fan_out([(1, message + message)])
    with pytest.raises(WrongAnswerError, match="another number"):
        fan.check()


def test_another_message_is_noticed() -> None:
    fan = fan_out([(1, build_message(2)), (2, build_message(2))])
    with pytest.raises(WrongAnswerError, match="order"):
        fan.check()


def test_messages_that_do_not_arrive_are_an_error() -> None:
    with pytest.raises(ExchangeFailedError):
        fan_out([(1, build_message(1))])
