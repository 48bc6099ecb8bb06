from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.load.wrk import Lane, Load, WrkResult, check_result, parse_result

OUTPUT = (
    "Running 2s test @ http://127.0.0.1:1\n"
    "  1 threads and 64 connections\n"
    "RESULT requests=3000 duration_us=2000000 bytes=9000 p50_us=1500 p99_us=20500 max_us=90000"
    " status=0 broken=0\n"
)
GOOD = WrkResult(3000, 2.0, 9000, 1.5, 20.5, 90.0, 0, 0)


def test_result_line_among_other_output() -> None:
    assert parse_result(OUTPUT) == GOOD
    assert GOOD.rate == 1500


def test_output_without_a_result() -> None:
    with pytest.raises(RunFailedError, match="unable to connect"):
        parse_result("unable to connect to 127.0.0.1:1 Connection refused")


def test_requests_in_lanes() -> None:
    lanes = (Lane(18001, ("a", "b")), Lane(18002, ("c",)))
    load = Load("POST", "-", 0, 64, 100, lanes=lanes, access_key="key")
    assert load.words == ["POST", "-", "0", "100", "lanes", "key", "18001:a,b", "18002:c"]
    assert load.threads == 2
    assert replace(load, connections=1).threads == 1


def test_requests_of_numbered_streams() -> None:
    load = Load("GET", "p", 3, 64)
    assert (load.words, load.threads) == (["GET", "p", "3", "0"], 1)
    assert replace(load, unlike=True).words[-1] == "unlike"
    assert replace(load, tokens=Path("/t")).words[-1] == "/t"


def test_errors_are_failures() -> None:
    check_result(GOOD)
    for bad in (
        replace(GOOD, bad_statuses=1),
        replace(GOOD, broken=1),
        replace(GOOD, requests=0),
    ):
        with pytest.raises(RunFailedError):
            check_result(bad)
