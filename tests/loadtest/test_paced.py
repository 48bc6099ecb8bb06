import time

import pytest

from loadtest.load.client import WrongAnswerError, create_streams
from loadtest.load.exchange import ExchangeFailedError
from loadtest.load.lanes import Lane, build_reads, run_lanes, run_paced
from tests.helpers.origin import LocalOrigin


def test_both_ways_are_measured(origin: LocalOrigin) -> None:
    result = run_paced(origin.port, origin.port, "bench/a", 20, 200.0, ["token"])
    assert 0 < result["p50_ms"] <= result["p99_ms"]
    assert result["direct_p50_ms"] > 0


def test_the_rate_is_kept(origin: LocalOrigin) -> None:
    create_streams(origin.port, ["a"], b"x" * 1024, closed=True)
    lane = Lane(origin.port, list(build_reads(["a"] * 10, ["token"])))
    start = time.perf_counter()
    run_lanes([lane], 10, 50.0)
    lane.close()
    assert time.perf_counter() - start >= 9 / 50
    assert len(lane.times_s) == 10


def test_another_body_is_an_error(origin: LocalOrigin) -> None:
    create_streams(origin.port, ["a"], b"short", closed=True)
    lane = Lane(origin.port, list(build_reads(["a"], ["token"])))
    with pytest.raises(WrongAnswerError, match="5 bytes read"):
        run_lanes([lane], 1, 100.0)
    lane.close()


def test_a_server_that_goes_is_an_error(origin: LocalOrigin) -> None:
    lane = Lane(origin.port, [])
    origin.stop()
    with pytest.raises(ExchangeFailedError):
        lane.receive(lane.numbers[0])
    lane.close()


def test_each_stream_is_read_once_with_tokens_in_turn() -> None:
    requests = list(build_reads(["a", "b", "c"], ["one", "two"]))
    assert [request.split(b" ")[1] for request in requests] == [
        b"/v1/stream/a?offset=-1",
        b"/v1/stream/b?offset=-1",
        b"/v1/stream/c?offset=-1",
    ]
    assert b"Bearer one\r\n" in requests[2]
