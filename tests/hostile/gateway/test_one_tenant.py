"""One tenant against all others: what it asks for costs them neither time nor room."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from loadtest.peers.memory import watch_memory
from tests.helpers.gateway import KEY, bearer, key_set
from tests.helpers.keys import make_token
from tests.helpers.neighbours import ROUNDS, check_spared, grown_bytes, neighbour
from tests.helpers.rawhttp import PREFIX, Client, Closed, Connection, encode_request, wait_until
from tests.helpers.server import Server, launch_gateway, serving, started

MIB = 1024 * 1024
MAX_GROWTH_BYTES = 64 * MIB
CROWD = 100  # as many as there are connections to the origin
WINDOW_BYTES = 4096
LARGE_BYTES = 6 * MIB
GREEDY = bearer(make_token(KEY, sub="greedy"))
MODEST = bearer(make_token(KEY, sub="modest"))
SETTINGS = {
    "DS_CACHE__MAX_OBJECT_BYTES": str(MIB),  # what is larger is not kept
    "DS_UPSTREAM__FIRST_BYTE_TIMEOUT_SECS": "8",
}


@pytest.fixture(scope="module")
def origin_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """With a stream that is large, and a small one of somebody else."""
    with started(tmp_path_factory.mktemp("origin"), "memory") as server:
        with Client(server.port) as client:
            client.create("large", body=b"x" * LARGE_BYTES)
            client.create("small", body=b"y")
        yield server.url


@contextmanager
def gateway(folder: Path, origin_url: str, **settings: str) -> Iterator[Server]:
    settings = {"DS_AUTH__JWKS": str(key_set()), **SETTINGS, **settings}
    with serving(launch_gateway(folder, origin_url, settings=settings)) as server:
        yield server


class SlowReader(Connection):
    """Has room for 4 KB, and takes in what it is told to."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", port))
        self._buffer = b""

    def begin(self) -> int:
        """The status."""
        status, self._fields = self.read_head()
        return status

    def body_bytes(self) -> int:
        """To its clean end."""
        length = dict(self._fields).get("content-length")
        pieces = self.chunks() if length is None else [self.take(int(length))]
        return sum(map(len, pieces))


def ask_slowly(port: int, target: str, who: dict[str, str] = GREEDY) -> SlowReader:
    reader = SlowReader(port)
    reader.send(encode_request("GET", target, who))
    return reader


@pytest.mark.parametrize(
    ("target", "kept_bytes"),
    [("large/bootstrap", MIB), ("large?offset=-1&max_bytes=1000", 32 * MIB)],
    ids=["connections", "memory"],
)
def test_slow_readers_hold_neither_connections_nor_memory(
    tmp_path: Path, origin_url: str, target: str, kept_bytes: int
) -> None:
    """A hundred of them held all, and everybody else got 503 for as long as they liked."""
    requests = [encode_request(method, f"{PREFIX}small", MODEST) for method in ("HEAD", "GET")]
    with (
        gateway(tmp_path, origin_url, DS_CACHE__MAX_OBJECT_BYTES=str(kept_bytes)) as server,
        neighbour(server.port, *requests) as other,
        ExitStack() as crowd,
    ):
        quiet = [other.ask(150) for _ in range(ROUNDS)]
        with watch_memory(server.process.pid) as memory:
            for _ in range(CROWD):
                reader = crowd.enter_context(ask_slowly(server.port, PREFIX + target))
                assert reader.begin() == 200
            busy = [other.ask(150) for _ in range(ROUNDS)]
        check_spared(quiet, busy)
        assert grown_bytes(memory) < MAX_GROWTH_BYTES
        assert reader.body_bytes() >= LARGE_BYTES  # who does read on gets all of it


@pytest.mark.parametrize("live", ["", "&live=long-poll"], ids=["catch-up", "long-poll"])
def test_slow_readers_of_many_kept_answers_hold_no_memory(
    tmp_path: Path, origin_url: str, live: str
) -> None:
    """What a cache has given up stays as long as anyone has yet to take it."""
    kept = {
        "DS_CACHE__MAX_OBJECT_BYTES": str(2 * MIB),
        "DS_CACHE__MAX_BYTES": str(4 * MIB),
        "DS_GATEWAY__MAX_UNSENT_BYTES_PER_SUBJECT": str(4 * MIB),
    }
    names = [f"kept-{number}-{len(live)}" for number in range(60)]
    with Client(int(origin_url.rpartition(":")[2])) as client:
        for name in names:
            client.create(name, body=b"x" * 2 * MIB)
    with gateway(tmp_path, origin_url, **kept) as server, ExitStack() as crowd:
        with watch_memory(server.process.pid) as memory:
            for name in names:
                target = f"{PREFIX}{name}?offset=-1{live}"
                reader = crowd.enter_context(ask_slowly(server.port, target))
                assert reader.begin() == 200
        assert grown_bytes(memory) < MAX_GROWTH_BYTES
        assert reader.body_bytes() == 2 * MIB  # who does read on gets all of it


def test_who_leaves_large_answers_unread_gets_no_more_of_them(
    tmp_path: Path, origin_url: str
) -> None:
    """Before they begin; and others do."""
    room = {"DS_GATEWAY__MAX_SPOOL_BYTES_PER_SUBJECT": str(LARGE_BYTES + MIB)}
    target = f"{PREFIX}large?offset=-1"

    def status(who: dict[str, str]) -> int:
        with Connection(server.port) as connection:
            return connection.request("GET", target, who).status

    with gateway(tmp_path, origin_url, **room) as server:
        with ask_slowly(server.port, target) as slow, Connection(server.port) as connection:
            assert slow.begin() == 200
            refused = connection.request("GET", target, GREEDY)
            assert refused.status == 429 and "Retry-After" in refused
            assert refused.json()["code"] == "too-much-unread-of-subject"
            assert status(MODEST) == 200
            assert slow.body_bytes() == LARGE_BYTES
        wait_until(lambda: status(GREEDY) == 200)


def test_what_finds_no_more_room_is_cut_and_never_looks_whole(
    tmp_path: Path, origin_url: str
) -> None:
    """The length of a bootstrap is not known before its end."""
    room = {"DS_GATEWAY__MAX_SPOOL_BYTES_PER_SUBJECT": str(MIB)}
    with gateway(tmp_path, origin_url, **room) as server:
        with ask_slowly(server.port, f"{PREFIX}large/bootstrap") as slow:
            assert slow.begin() == 200
            wait_until(lambda: metric(server, "spool_bytes") == 0)
            with pytest.raises(Closed):
                slow.body_bytes()


def metric(server: Server, name: str) -> float:
    with Connection(server.admin_port) as connection:
        text = connection.request("GET", "/metrics").body.decode()
    (found,) = re.findall(rf"^weir_gateway_{name} (\S+)$", text, re.MULTILINE)
    return float(found)
