import pytest

from loadtest.load.client import WrongAnswerError, create_streams
from loadtest.load.gateway import (
    CONTENT,
    count_origin_reads,
    new_path,
    parse_reads,
    read_once,
)
from loadtest.peers.process import Server
from tests.helpers.origin import LocalOrigin

METRICS = """\
# TYPE weir_origin_requests_total counter
weir_origin_requests_total{method="GET",status="200"} 3.0
weir_origin_requests_total{method="GET",status="204"} 2.0
weir_origin_requests_total{method="POST",status="204"} 9.0
"""


def test_only_reads_are_counted() -> None:
    assert parse_reads(METRICS) == 5
    assert parse_reads("") == 0


def test_reads_since_the_last_look(origin: LocalOrigin) -> None:
    server = Server(1, origin.port, 0.0, origin_port=origin.port)
    before = count_origin_reads(server)
    assert count_origin_reads(server, before) == 0
    create_streams(origin.port, ["a"], CONTENT)
    before = count_origin_reads(server)
    read_once(server, ["a", "a"])
    assert count_origin_reads(server, before) == 2


def test_a_server_without_an_origin_sends_nothing_there() -> None:
    assert count_origin_reads(Server(1, 1, 0.0)) == 0


def test_wrong_bytes_are_noticed(origin: LocalOrigin) -> None:
    create_streams(origin.port, ["a"], CONTENT[:-1] + b"?")
    with pytest.raises(WrongAnswerError):
        read_once(Server(1, origin.port, 0.0), ["a"])


def test_no_path_comes_twice() -> None:
    assert len({new_path("x") for _ in range(10)}) == 10
