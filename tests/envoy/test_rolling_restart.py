"""Gateways replaced one after another under load: nobody notices.

Real processes. Writers do not repeat themselves (no producer headers, no retry), so that each
request must succeed the first time; readers of events come back by themselves, as browsers do.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from protocol.sse import Decoder
from tests.helpers.envoy import Envoy, running_envoy
from tests.helpers.gateway import KEY, bearer, key_set, make_gateway_config
from tests.helpers.http2 import Http2
from tests.helpers.keys import make_token
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import PREFIX, control, wait_until
from tests.helpers.server import Server, launch_gateway

TEXT = {"Content-Type": "text/plain"}
SETTINGS = {
    "DS_AUTH__JWKS": str(key_set()),
    "DS_GATEWAY__LEAVE_SECS": "1",  # Envoy looks ten times in it
    "DS_GATEWAY__DRAIN_SECS": "5",
    "DS_GATEWAY__TRUSTED_HOPS": "1",
    "DS_GATEWAY__LONG_POLL_TIMEOUT_SECS": "2",
}
STREAMS = 4
PAUSE_S = 0.02  # a writer's, so that the machine has time for starting gateways


class Load:
    """Threads with a connection each, until they are told to stop; what went wrong is kept."""

    def __init__(self, envoy: Envoy) -> None:
        self._envoy = envoy
        self.headers = bearer(make_token(KEY))
        self.stopping = threading.Event()
        self.failures: list[str] = []
        self.requests = 0
        self.written: dict[str, list[str]] = {}
        self.seen: dict[str, list[str]] = {}
        self.returns = 0  # of readers, to a stream they had been following
        self._threads: list[tuple[Callable[[Http2, str], None], threading.Thread]] = []

    def start(self, work: Callable[[Http2, str], None], path: str) -> None:
        def run() -> None:
            try:
                with Http2(self._envoy.port, self._envoy.tls("h2")) as client:
                    work(client, path)
            except BaseException as error:
                self.failures.append(f"{work.__name__} {path}: {error!r}")

        self._threads.append((work, threading.Thread(target=run)))
        self._threads[-1][1].start()

    def wait(self, *works: Callable[[Http2, str], None]) -> None:
        """For the end of these."""
        for work, thread in self._threads:
            if work in works:
                thread.join()

    def write(self, client: Http2, path: str) -> None:
        """Append and read back, again and again."""
        words = self.written[path] = []
        while not self.stopping.wait(PAUSE_S):
            word = f"{len(words)},"
            reply = client.request("POST", path, self.headers | TEXT, word.encode())
            assert reply.status == 204, reply
            words.append(word)
            reply = client.request("GET", path, self.headers)
            assert reply.status == 200 and reply.body.decode() == "".join(words), reply
            self.requests += 2

    def poll(self, client: Http2, path: str) -> None:
        """Wait for news at the tail."""
        offset = "-1"
        while not self.stopping.is_set():
            target = f"{path}?offset={offset}&live=long-poll"
            reply = client.request("GET", target, self.headers)
            assert reply.status in (200, 204), reply
            offset = reply.next_offset
            self.requests += 1

    def follow(self, client: Http2, path: str) -> None:
        """Read events; when they end, go on where they ended. The last word is `end`."""
        words, offset = self.seen.setdefault(path, []), "-1"
        while words[-1:] != ["end"]:
            reader = client.send("GET", f"{path}?offset={offset}&live=sse", self.headers)
            decoder, taken = Decoder(), 0
            while not reader.ended and words[-1:] != ["end"]:
                client.wait_for(lambda r=reader, t=taken: r.ended or len(r.body) > t)  # type: ignore[misc]
                assert reader.status == 200 and reader.reset is None, reader
                piece, taken = bytes(reader.body[taken:]), len(reader.body)
                for event in decoder.feed(piece):
                    if event.kind == "data":
                        words += event.data.replace(",", ", ").split()
                    else:
                        offset = control(event)["streamNextOffset"]
            self.returns += reader.ended


@contextmanager
def gateways(origin: LocalOrigin, folder: Path) -> Iterator[list[Server]]:
    running = [start_gateway(origin, folder / str(number)) for number in range(2)]
    try:
        for server in running:
            server.wait_until_ready()
        yield running
    finally:
        for server in running:
            server.kill()


def start_gateway(origin: LocalOrigin, folder: Path, port: int = 0) -> Server:
    url = f"http://127.0.0.1:{origin.port}"
    return launch_gateway(folder, url, settings=SETTINGS, arguments=["--port", str(port)])


@pytest.mark.slow
def test_gateways_are_replaced_under_load_without_one_failed_request(
    origin: LocalOrigin, tmp_path: Path
) -> None:
    config = make_gateway_config("http://127.0.0.1:1")
    with gateways(origin, tmp_path) as fleet:
        urls = [server.url for server in fleet]
        with running_envoy(tmp_path / "envoy", urls, config) as envoy:
            load = Load(envoy)
            paths = [f"{PREFIX}rolling/{number}" for number in range(STREAMS)]
            with Http2(envoy.port, envoy.tls("h2")) as client:
                for path in paths:
                    assert client.request("PUT", path, load.headers | TEXT).status == 201
                for path in paths:
                    for work in (load.write, load.poll, load.follow):
                        load.start(work, path)
                try:
                    for number in range(len(fleet)):
                        replace_gateway(origin, tmp_path, envoy, fleet, number)
                        go_on(load)
                finally:
                    load.stopping.set()
                    load.wait(load.write, load.poll)
                    for path in paths:
                        with suppress(AssertionError):
                            client.request("POST", path, load.headers | TEXT, b"end")
                    load.wait(load.follow)
            assert load.failures == []
            for path in paths:
                assert load.seen[path] == [*load.written[path], "end"]
            assert load.returns >= len(paths)  # each gateway had some of the readers
            assert {line["status"] for line in envoy.log()} <= {200, 201, 204}


def replace_gateway(
    origin: LocalOrigin, folder: Path, envoy: Envoy, fleet: list[Server], number: int
) -> None:
    """As an operator does it: SIGTERM, wait for the end, start the next at the same address."""
    old = fleet[number]
    assert old.stop() == 0, old.stderr
    fleet[number] = start_gateway(origin, folder / str(number), old.port)
    fleet[number].wait_until_ready()
    wait_until(lambda: envoy.healthy_gateways() == len(fleet), what="the new gateway")


def go_on(load: Load) -> None:
    """Until the load has gone on for a while."""
    goal = load.requests + 20
    wait_until(lambda: load.requests > goal or bool(load.failures), what="load")
