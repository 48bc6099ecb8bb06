"""Counting, keeping and summing up: everything between a request and a chart."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.load.connection import Target
from loadtest.load.histogram import bin_of, nearest_rank, percentile, top_of, total
from loadtest.load.meter import Meter
from loadtest.load.records import Ended, Gauges, Run, Second, Started, decode, encode, read_run
from loadtest.load.replies import Reply, verdict_of
from loadtest.load.summary import describe_knobs, summarise
from loadtest.load.view import View, sparkline

STARTED = Started("zipf", "weir", "http://127.0.0.1:1", 0.0, {"seconds": 2.0}, {"cores": "2"})
ENDED = Ended(seconds=2.0, generator_cores=0.2, late_ms=1.0)


def make_run(*records: Second | Gauges, ended: Ended | None = ENDED) -> Run:
    return Run([STARTED, *records, *([ended] if ended else [])])


@given(st.floats(min_value=1e-5, max_value=1e4))
def test_a_bin_holds_its_time_within_five_percent(seconds: float) -> None:
    top = top_of(bin_of(seconds))
    assert seconds <= top * 1.000001 and top <= seconds * 1.0501


@given(st.lists(st.floats(min_value=1e-4, max_value=100), min_size=1), st.floats(0.01, 1))
def test_percentiles_are_those_of_the_sorted_times(times: list[float], share: float) -> None:
    meter = Meter()
    for took_s in times:
        meter.done("read", took_s)
    found = percentile(meter.take(0)[0].times, share)
    exact = sorted(times)[math.ceil(share * len(times)) - 1]
    assert exact <= found * 1.000001 and found <= exact * 1.0501


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)]
)
def test_the_nearest_rank_is_a_sample(share: float, expected: float) -> None:
    assert nearest_rank(list(range(100, 0, -1)), share) == expected


def test_no_times_have_no_percentile() -> None:
    assert math.isnan(percentile({}, 0.5))
    assert total([{1: 2}, {1: 1, 3: 1}]) == {1: 3, 3: 1}


def test_taking_a_second_empties_the_meter() -> None:
    meter = Meter()
    meter.done("read", 0.1, 10, "hit")
    meter.failed("read", "503")
    (second,) = meter.take(4)
    assert (second.second, second.done, second.bytes) == (4, 1, 10)
    assert (second.failed, second.verdicts) == ({"503": 1}, {"hit": 1})
    assert meter.take(5) == []


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    second = Second(0, "read", 3, 30, {"reset": 1}, {"hit": 2}, {7: 3})
    path = tmp_path / "run.jsonl"
    gauges = Gauges(0, {"upstream": 1})
    path.write_bytes(encode(STARTED) + encode(second) + encode(gauges) + encode(ENDED))
    run = read_run(path)
    assert (run.started, run.seconds, run.ended) == (STARTED, [second], ENDED)
    assert run.gauge("upstream") == [(0, 1.0)]


def test_a_killed_run_is_read_up_to_its_last_whole_line() -> None:
    lines = [encode(STARTED), encode(Second(0, "read", 1)), b'{"kind":"seco']
    run = Run(decode(lines))
    assert run.done("read") == 1 and run.ended is None
    assert summarise(run, "read").limits == ("the run broke off",)


def test_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="no run"):
        Run([Second(0, "read")])


def test_a_summary_counts_what_the_origin_was_spared() -> None:
    run = make_run(
        Second(0, "read", 30, times={0: 30}),
        Second(1, "long-poll", 70),
        Gauges(0, {"upstream": 1.0}),
        Gauges(1, {"upstream": 4.0, "memory_mb": 80.0}),
    )
    summary = summarise(run, "read")
    assert (summary.done, summary.rate, summary.asked) == (30, 15.0, 100)
    assert (summary.upstream, summary.collapse, summary.peak_mb) == (4.0, 25.0, 80.0)
    assert summary.limits == ()


@pytest.mark.parametrize(
    ("ended", "word"),
    [
        (Ended(seconds=2.0, generator_cores=0.97, late_ms=1.0), "0.97 of a core"),
        (Ended(seconds=2.0, generator_cores=0.1, late_ms=300.0), "300 ms late"),
        (Ended(seconds=2.0, generator_cores=0.1, late_ms=0.0, lag_ms=3.0), "up to 3.0 ms"),
        (Ended(seconds=2.0, generator_cores=0.1, late_ms=0.0, notes=["few tokens"]), "few tokens"),
    ],
)
def test_a_generator_that_is_the_limit_says_so(ended: Ended, word: str) -> None:
    times = {bin_of(0.01): 10}
    (limit,) = summarise(make_run(Second(0, "read", 10, times=times), ended=ended), "read").limits
    assert word in limit


def test_a_clock_that_goes_by_milliseconds_is_no_limit() -> None:
    ended = Ended(seconds=2.0, generator_cores=0.1, late_ms=0.0, lag_ms=1.2)
    run = make_run(Second(0, "read", 10, times={bin_of(0.001): 10}), ended=ended)
    assert summarise(run, "read").limits == ()


def test_a_loop_that_stood_still_kept_everyone_waiting() -> None:
    meter = Meter()
    for _ in range(90):
        meter.lagged(0.0001, 0.005)
    meter.lagged(0.05, 0.005)  # as long as ten looks, the latest of which hardly waited
    assert sum(meter.lag.values()) == 100
    assert percentile(meter.lag, 0.99) == pytest.approx(0.045, rel=0.06)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("weir; hit", "hit"),
        ("weir; fwd=miss; detail=collapsed", "collapsed"),
        ("weir; fwd=uri-miss; stored", "uri-miss"),
        ("inner; fwd=miss, edge; hit", "hit"),
        ("", ""),
    ],
)
def test_verdicts_are_the_last_caches(status: str, verdict: str) -> None:
    assert verdict_of(Reply(200, {"cache-status": status})) == verdict


def test_the_board_shows_rates_failures_and_sharing() -> None:
    view = View(STARTED, "read", "reads")
    view.take([Second(0, "read", 10, times={0: 10})], Gauges(0, {"upstream": 2.0}))
    second = Second(1, "read", 20, failed={"503": 3}, verdicts={"hit": 19}, times={0: 20})
    view.take([second], Gauges(1, {"upstream": 3.0}))
    board = "\n".join(view.board())
    assert "2 of 2 s" in board and "hit 19" in board and "3 failed" in board
    assert "one read at the origin for 10.0 requests" in board
    assert "read 20/s" in view.line() and "for 10.0 requests" in view.line()


def test_sparklines_scale_to_the_highest() -> None:
    assert sparkline([0, 4, 8, math.nan]) == " ▄█ "


def test_knobs_are_told_in_words() -> None:
    knobs = {"seconds": 20.0, "readers": 1000.0, "streams": 0.0, "rate": 0.5, "size": 256.0}
    assert describe_knobs(knobs) == "20 s, 1,000 readers, 0.5 a second, 256 bytes"


@pytest.mark.parametrize("url", ["ftp://a", "127.0.0.1:80", "http://a/path", "http://"])
def test_targets_are_servers(url: str) -> None:
    with pytest.raises(ValueError, match="what a target looks like"):
        Target.parse(url)


def test_ports_of_targets_have_defaults() -> None:
    assert Target.parse("http://a").port == 80
    secure = Target.parse("https://a", insecure=True)
    assert secure.port == 443 and secure.tls is not None
