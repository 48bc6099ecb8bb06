from dataclasses import replace

import pytest

from loadtest.errors import RunFailedError
from loadtest.load.wrk import WrkResult, check_result, parse_result

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


def test_errors_are_failures() -> None:
    check_result(GOOD)
    for bad in (
        replace(GOOD, bad_statuses=1),
        replace(GOOD, broken=1),
        replace(GOOD, requests=0),
    ):
        with pytest.raises(RunFailedError):
            check_result(bad)
