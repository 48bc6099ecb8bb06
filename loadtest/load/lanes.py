"""Requests at a fixed rate, whatever the server does: how much later than the origin a proxy is.

`python -m loadtest.paced PORT ORIGIN_PORT PATH COUNT RATE TOKENS` prints one JSON line. Turn by
turn one stream is read through the proxy and another at the origin itself, so that both meet the
same noise. No stream is read twice: every answer of the proxy is a miss.
"""

import argparse
import json
import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, cycle
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.load.client import WrongAnswerError, build_request, create_streams, expect
from loadtest.load.exchange import ExchangeFailedError, connect
from loadtest.load.metrics import percentile
from loadtest.load.replies import ReplyReader
from loadtest.peers.tokens import read_tokens

BODY_BYTES = 1024
CONNECTIONS = 200  # a server that stalls for a second finds all of it waiting, as in life
REPLY_TIMEOUT_S = 10.0


class Lane:
    """Kept-alive connections to one server, and how long its answers took."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self._requests = iter(requests)
        self._free = [connect(port) for _ in range(CONNECTIONS)]
        self.numbers = [sock.fileno() for sock in self._free]
        self._busy: dict[int, tuple[socket.socket, float, ReplyReader]] = {}
        self.times_s: list[float] = []

    @property
    def waiting(self) -> bool:
        return bool(self._busy)

    def send(self) -> None:
        if not self._free:
            raise ExchangeFailedError(f"all {CONNECTIONS} connections wait for answers")
        sock = self._free.pop()
        request = next(self._requests)
        self._busy[sock.fileno()] = (sock, time.perf_counter(), ReplyReader())
        sock.send(request)

    def receive(self, number: int) -> None:
        if number not in self._busy:
            raise ExchangeFailedError("the server closed a connection")
        sock, sent_at, reader = self._busy[number]
        data = sock.recv(1 << 16)
        if not data:
            raise ExchangeFailedError("the server closed a connection before its answer")
        if reader.feed(memoryview(data)):
            self.times_s.append(time.perf_counter() - sent_at)
            self._check(reader)
            del self._busy[number]
            self._free.append(sock)

    def _check(self, reader: ReplyReader) -> None:
        expect(reader.reply, 200)
        if reader.reply.body_bytes != BODY_BYTES:
            raise WrongAnswerError(f"{reader.reply.body_bytes} bytes read, {BODY_BYTES} written")

    def close(self) -> None:
        for sock in chain(self._free, (sock for sock, _, _ in self._busy.values())):
            sock.close()


def run_lanes(lanes: Sequence[Lane], count: int, rate: float) -> None:
    """`count` requests on each lane, `rate` a second, the lanes' turns evenly apart."""
    poll = select.epoll()
    owner = {number: lane for lane in lanes for number in lane.numbers}
    for number in owner:
        poll.register(number, select.EPOLLIN)
    try:
        _follow(poll, owner, list(lanes) * count, 1 / rate / len(lanes))
    finally:
        poll.close()


def _follow(poll: select.epoll, owner: dict[int, Lane], turns: list[Lane], every_s: float) -> None:
    start = time.perf_counter()
    for turn, lane in enumerate(turns):
        while (left_s := start + turn * every_s - time.perf_counter()) > 0:
            _receive(poll, owner, left_s)
        lane.send()
    deadline = time.perf_counter() + REPLY_TIMEOUT_S
    while any(lane.waiting for lane in owner.values()):
        if time.perf_counter() > deadline:
            raise ExchangeFailedError(f"no answer in {REPLY_TIMEOUT_S:g} s")
        _receive(poll, owner, 0.1)


def _receive(poll: select.epoll, owner: dict[int, Lane], timeout_s: float) -> None:
    for number, _ in poll.poll(timeout_s):
        owner[number].receive(number)


def run_paced(
    port: int, origin_port: int, path: str, count: int, rate: float, tokens: Sequence[str]
) -> dict[str, float]:
    """Half of the new streams are read through the proxy, the other half directly."""
    paths = [[f"{path}-{way}-{number}" for number in range(count)] for way in ("by", "direct")]
    create_streams(origin_port, [*paths[0], *paths[1]], b"x" * BODY_BYTES, closed=True)
    lanes = [
        Lane(to, list(build_reads(names, tokens)))
        for to, names in zip((port, origin_port), paths, strict=True)
    ]
    cpu_before = time.process_time()
    start = time.perf_counter()
    try:
        run_lanes(lanes, count, rate)
    finally:
        for lane in lanes:
            lane.close()
    by, direct = (lane.times_s for lane in lanes)
    return {
        "p50_ms": percentile(by, 0.5) * 1000,
        "p99_ms": percentile(by, 0.99) * 1000,
        "direct_p50_ms": percentile(direct, 0.5) * 1000,
        "took_s": time.perf_counter() - start,
        "client_cpu_s": time.process_time() - cpu_before,
    }


def build_reads(paths: Sequence[str], tokens: Sequence[str]) -> Iterator[bytes]:
    for path, token in zip(paths, cycle(tokens), strict=False):
        lines = [f"Authorization: Bearer {token}"]
        yield build_request("GET", path, query="?offset=-1", lines=lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.paced")
    parser.add_argument("port", type=int)
    parser.add_argument("origin_port", type=int)
    parser.add_argument("path")
    parser.add_argument("count", type=int)
    parser.add_argument("rate", type=float)
    parser.add_argument("tokens", type=lambda path: read_tokens(Path(path)))
    try:
        print(json.dumps(run_paced(**vars(parser.parse_args(arguments)))))
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
