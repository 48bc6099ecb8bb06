"""Readers who wait for what is appended next: long-polls and Server-Sent Events, by the thousand.

`python -m loadtest.live polls|fanout|idle ...` prints one JSON line. One epoll loop over plain
sockets that does next to nothing for a reader while the clock runs: answers are kept as bytes
and checked afterwards. It is a process of its own and notes how much of a core it used.
"""

import argparse
import json
import re
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.load.client import NEXT_OFFSET, WrongAnswerError, build_request, expect
from loadtest.load.exchange import ExchangeFailedError, Script, connect, run_scripts
from loadtest.load.replies import ReplyReader
from loadtest.peers.memory import await_idle, resident_bytes
from loadtest.peers.tokens import read_tokens

TEXT = "text/plain"
MARK = b"#"
"""The end of every message and nowhere else: what a reader has received is counted by it."""
MESSAGE_BYTES = 256
RECEIVE_BYTES = 1 << 16
ARRIVAL_S = 1.0
"""Long-polls arrive spread over this, as in life: nginx looks every 0.5 s from each one's arrival,
and readers who all came in one instant would meet it in luck or out of luck together."""
IDLE_LIMIT_S = 10.0
REPLY_TIMEOUT_S = 30.0
EVENT = re.compile(rb"data: ?\d{9}x")
"""How an event begins. Messages that come close together may share one."""
STATUS_LINE = b"HTTP/1.1 "
LAST_CHUNK = b"\r\n0\r\n\r\n"
SSE_QUERY, SSE_ACCEPT = "?offset=-1&live=sse", "Accept: text/event-stream"


@dataclass(frozen=True, slots=True)
class Scene:
    """Who reads what: a server and its process, where to write, a new stream, the tokens."""

    port: int
    write_port: int
    pid: int
    path: str
    readers: int
    tokens: Sequence[str]

    def reads(self, query: str, *lines: str) -> list[bytes]:
        """One request for each reader, tokens in turn."""
        tokens = islice(cycle(self.tokens), self.readers)
        heads = ([f"Authorization: Bearer {token}", *lines] for token in tokens)
        return [build_request("GET", self.path, query=query, lines=head) for head in heads]


class Crowd(AbstractContextManager["Crowd"]):
    """Connections that have each sent one request."""

    def __init__(self, port: int, requests: Sequence[bytes], within_s: float = 0.0) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        start = time.perf_counter()
        for count, request in enumerate(requests):
            await_time(start + within_s * count / len(requests))
            sock = connect(port)
            self._sockets[sock.fileno()] = sock
            self._poll.register(sock, select.EPOLLIN)
            sock.send(request)

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for sock in self._sockets.values():
            sock.close()

    @property
    def numbers(self) -> list[int]:
        return list(self._sockets)

    def receive(self, timeout_s: float = REPLY_TIMEOUT_S) -> list[tuple[int, bytes]]:
        """What has come for whom; an empty list when nothing did in time."""
        sockets, events = self._sockets, self._poll.poll(timeout_s)
        try:
            came = [(number, sockets[number].recv(RECEIVE_BYTES)) for number, _ in events]
        except OSError as error:
            raise ExchangeFailedError(f"connection broke: {error}") from error
        if not all(data for _, data in came):
            raise ExchangeFailedError("the server closed the connection of a waiting reader")
        return came

    def gather(self, is_whole: Callable[[bytes], bool]) -> dict[int, bytes]:
        """What each reader has received once it is whole for all."""
        received = dict.fromkeys(self._sockets, b"")
        missing = set(received)
        while missing:
            came = self.receive()
            if not came:
                raise ExchangeFailedError(f"{len(missing)} readers waited in vain")
            for number, data in came:
                received[number] += data
                if is_whole(received[number]):
                    missing.discard(number)
        return received


class Writer:
    """Appends to one stream without waiting for the answers, which are looked at later."""

    def __init__(self, port: int, path: str) -> None:
        self._sock = connect(port)
        self._path = path
        self._sent = 0
        self._answers = bytearray()

    def append(self, message: bytes) -> None:
        self._drain()
        self._sock.send(build_request("POST", self._path, message, content_type=TEXT))
        self._sent += 1

    def close(self) -> None:
        """Every append must have been taken."""
        deadline = time.perf_counter() + REPLY_TIMEOUT_S
        while self._answers.count(STATUS_LINE) < self._sent and time.perf_counter() < deadline:
            self._drain()
            time.sleep(0.001)
        self._sock.close()
        taken = self._answers.count(STATUS_LINE + b"2")
        if taken < self._sent:
            raise WrongAnswerError(f"{taken} of {self._sent} appends were taken")

    def _drain(self) -> None:
        try:
            self._answers += self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            pass


class Clock:
    """How long something takes, and how much CPU time we ourselves use meanwhile."""

    def __init__(self) -> None:
        self._cpu_s = time.process_time()
        self._start = time.perf_counter()

    def read(self) -> dict[str, float]:
        took_s = time.perf_counter() - self._start
        return {"took_s": took_s, "client_cpu_s": time.process_time() - self._cpu_s}


class Fan:
    """Messages published to a crowd of event streams and counted by their marks."""

    def __init__(self, crowd: Crowd, writer: Writer) -> None:
        self._crowd = crowd
        self._writer = writer
        self._counts = dict.fromkeys(crowd.numbers, 0)
        self._witness = crowd.numbers[0]
        self._seen = bytearray()
        self.published = 0
        self.received = 0

    def run(self, seconds: float, window: int) -> None:
        """Publish once at least and until the time is over; return when everything arrived.

        With a window of 1 the next message waits until the last one has reached everyone.
        """
        readers = len(self._counts)
        deadline = time.perf_counter() + seconds
        self._publish()
        while True:
            under_way = self.published * readers - self.received
            if under_way <= (window - 1) * readers and time.perf_counter() < deadline:
                self._publish()
            elif under_way > 0:
                self._take()
            else:
                return

    def _publish(self) -> None:
        self.published += 1
        self._writer.append(build_message(self.published))

    def _take(self) -> None:
        came = self._crowd.receive()
        if not came:
            raise ExchangeFailedError("messages did not arrive")
        for number, data in came:
            marks = data.count(MARK)
            self._counts[number] += marks
            self.received += marks
            if number == self._witness:
                self._seen += data

    @property
    def events(self) -> int:
        """How many events the witness got: at most as many as messages."""
        return len(EVENT.findall(self._seen))

    def check(self) -> None:
        """Everyone got as many as were published, and one of them in order."""
        if set(self._counts.values()) != {self.published}:
            raise WrongAnswerError("readers received another number of messages than was published")
        numbers = [int(number) for number in re.findall(rb"(\d{9})x+#", self._seen)]
        if numbers != list(range(1, self.published + 1)):
            raise WrongAnswerError("a reader received messages out of order")


def await_time(at: float) -> None:
    if (left_s := at - time.perf_counter()) > 0:
        time.sleep(left_s)


def build_message(number: int) -> bytes:
    return (b"%09d" % number).ljust(MESSAGE_BYTES - 1, b"x") + MARK


def create_stream(port: int, path: str) -> str:
    """A new and empty stream; the offset of its tail."""
    offsets: list[str] = []
    run_scripts(port, [_create(path, offsets)], timeout_s=REPLY_TIMEOUT_S)
    return offsets[0]


def _create(path: str, offsets: list[str]) -> Script:
    reply = yield build_request("PUT", path, b"", content_type=TEXT)
    expect(reply, 200, 201, 202)  # nchan has no streams to create, but does not mind
    offsets.append(reply.headers.get(NEXT_OFFSET, ""))


def run_polls(scene: Scene) -> dict[str, float]:
    """All wait at the tail, one message is appended: seconds until the last has its answer."""
    offset = create_stream(scene.write_port, scene.path)
    message = build_message(1)
    writer = Writer(scene.write_port, scene.path)
    requests = scene.reads(f"?offset={offset}&live=long-poll")
    with Crowd(scene.port, requests, ARRIVAL_S) as crowd:
        await_idle(scene.pid, IDLE_LIMIT_S)
        if crowd.receive(0):
            raise WrongAnswerError("a long-poll was answered before there was anything")
        clock = Clock()
        writer.append(message)
        received = crowd.gather(lambda data: data.endswith((message, LAST_CHUNK)))
        times = clock.read()
    writer.close()
    for data in received.values():
        check_answer(data, message)
    return times


def check_answer(data: bytes, message: bytes) -> None:
    reader = ReplyReader(keep_body=True)
    reader.feed(memoryview(data))
    expect(reader.reply, 200)
    if reader.reply.body != message:
        raise WrongAnswerError("a long-poll was answered with something else")


@contextmanager
def open_events(scene: Scene) -> Iterator[Crowd]:
    """Event streams that have all begun."""
    with Crowd(scene.port, scene.reads(SSE_QUERY, SSE_ACCEPT)) as crowd:
        for head in crowd.gather(lambda data: b"\r\n\r\n" in data).values():
            if not head.startswith(STATUS_LINE + b"200") or b"text/event-stream" not in head:
                raise WrongAnswerError(f"no event stream: {head[:80]!r}")
        await_idle(scene.pid, IDLE_LIMIT_S)
        yield crowd


def run_fanout(scene: Scene, seconds: float) -> dict[str, float]:
    """Messages to everyone, as many a second as arrive: one at a time or two under way.

    The better counts: two keep a gateway and its origin busy at once, one suits a single server.
    A server may put two messages into one event: what counts is messages that reached a reader,
    and the rate of events stands beside it.
    """
    create_stream(scene.write_port, scene.path)
    writer = Writer(scene.write_port, scene.path)
    with open_events(scene) as crowd:
        fan = Fan(crowd, writer)
        fan.run(0.0, 1)  # not measured: everyone is there
        runs = [measure_fan(fan, seconds / 2, window) for window in (1, 2)]
        fan.check()
    writer.close()
    return max(runs, key=lambda run: run["messages"])


def measure_fan(fan: Fan, seconds: float, window: int) -> dict[str, float]:
    published, received, events = fan.published, fan.received, fan.events
    clock = Clock()
    fan.run(seconds, window)
    times = clock.read()
    rate = (fan.received - received) / times["took_s"]
    share = (fan.events - events) / (fan.published - published)
    return {**times, "messages": rate, "events": rate * share, "window": window}


def run_idle(scene: Scene) -> dict[str, float]:
    """What event streams without events cost in resident memory; they must all be alive."""
    create_stream(scene.write_port, scene.path)
    writer = Writer(scene.write_port, scene.path)
    before = resident_bytes(scene.pid)
    with open_events(scene) as crowd:
        after = resident_bytes(scene.pid)
        fan = Fan(crowd, writer)
        fan.run(0.0, 1)
        fan.check()
    writer.close()
    return {"bytes_each": (after - before) / scene.readers, "before": before, "after": after}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.live")
    parser.add_argument("kind", choices=("polls", "fanout", "idle"))
    for name in ("port", "write_port", "pid"):
        parser.add_argument(name, type=int)
    parser.add_argument("path")
    parser.add_argument("readers", type=int)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args(arguments)
    try:
        print(json.dumps(run_kind(options)))
    except RunFailedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run_kind(options: argparse.Namespace) -> dict[str, float]:
    scene = Scene(
        options.port,
        options.write_port,
        options.pid,
        options.path,
        options.readers,
        read_tokens(options.tokens),
    )
    match options.kind:
        case "polls":
            return run_polls(scene)
        case "fanout":
            return run_fanout(scene, options.seconds)
        case _:
            return run_idle(scene)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
