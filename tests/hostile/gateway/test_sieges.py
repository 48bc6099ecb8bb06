"""Many clients at once who send or hold more than they should, against a gateway in a process of
its own: what it costs that process in memory, and another tenant in time."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from loadtest.peers.memory import watch_memory
from tests.helpers.gateway import KEY, bearer, key_set
from tests.helpers.keys import AUDIENCE, ISSUER, make_token
from tests.helpers.neighbours import ROUNDS, check_spared, grown_bytes, neighbour
from tests.helpers.origin import MIB, LocalOrigin, make_config
from tests.helpers.rawhttp import PREFIX, Connection, encode_request
from tests.helpers.server import Server, launch_gateway, serving

MOST_GROWN = 64 * MIB
REQUESTS = 100  # of the other tenant, a round
BODIES = 40
BODY_BYTES = 16 * MIB
PIECE = b"x" * (256 * 1024)
CALLBACK = f"{PREFIX}__ds/subscriptions/x/callback"
PLAIN = {"Content-Type": "text/plain"}

Attack = Callable[[ExitStack], None]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrigin]:
    limits, storage = {"max_body_bytes": 16 * MIB}, {"journal_bytes": 32 * MIB}
    config = make_config(tmp_path_factory.mktemp("origin"), limits=limits, storage=storage)
    origin = LocalOrigin(config)
    origin.start()
    with origin.client() as client:
        client.create("theirs", body=b"x" * 1000)
    yield origin
    origin.stop()


@pytest.fixture
def gateway(origin: LocalOrigin, tmp_path: Path) -> Iterator[Server]:
    settings = {
        "DS_AUTH__JWKS": str(key_set()),
        "DS_AUTH__ISSUER": ISSUER,
        "DS_AUTH__AUDIENCE": AUDIENCE,
    }
    url = f"http://127.0.0.1:{origin.port}"
    with serving(launch_gateway(tmp_path, url, settings=settings)) as server:
        yield server


@pytest.fixture
def port(gateway: Server) -> int:
    """That everybody knows; another folder may put something in front of the gateway."""
    return gateway.port


def holder(sub: str, scope: str) -> dict[str, str]:
    return bearer(make_token(KEY, sub=sub, scope=scope))


@contextmanager
def spared(gateway: Server, port: int, most_grown: int = MOST_GROWN) -> Iterator[ExitStack]:
    """Attacks in this block, which the stack ends, cost little memory and another tenant little
    time."""
    headers = holder("other", "read:theirs write:theirs") | PLAIN
    read = encode_request("GET", f"{PREFIX}theirs?offset=-1", headers)
    append = encode_request("POST", f"{PREFIX}theirs", headers, b"y")
    with neighbour(port, read, append) as other:
        quiet = [other.ask(REQUESTS) for _ in range(ROUNDS)]
        with watch_memory(gateway.process.pid) as memory, ExitStack() as attack:
            yield attack
            busy = [other.ask(REQUESTS) for _ in range(2 * ROUNDS)]
    print(f"grown by {grown_bytes(memory) / MIB:.1f} MiB")
    assert grown_bytes(memory) < most_grown, f"{grown_bytes(memory) / MIB:.1f} MiB"
    check_spared(quiet, busy)


# -- bodies --------------------------------------------------------------------------------------


def upload(attack: ExitStack, port: int, target: str, headers: dict[str, str], framing: str) -> int:
    """A body without its end is sent, as far as anyone takes it; the status, 0 for none."""
    connection = attack.enter_context(Connection(port))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    chunk = b"%x\r\n%b\r\n" % (len(PIECE), PIECE)
    piece = chunk if framing == "chunked" else PIECE
    size = "Transfer-Encoding: chunked" if framing == "chunked" else f"Content-Length: {BODY_BYTES}"
    connection.send(f"POST {target} HTTP/1.1\r\nHost: h\r\n{lines}{size}\r\n\r\n".encode())
    connection.socket.settimeout(0.2)
    with suppress(OSError):
        for _ in range(BODY_BYTES // len(PIECE) - 1):
            connection.send(piece)
    return answered(connection)


def answered(connection: Connection) -> int:
    with suppress(OSError, socket.timeout):
        head = connection.socket.recv(65536)
        return int(head.split(b" ")[1])
    return 0


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("who", ["nobody", "reader"])
def test_bodies_of_those_who_may_not_write_are_not_taken_in(
    gateway: Server, port: int, who: str, framing: str
) -> None:
    target = CALLBACK if who == "nobody" else f"{PREFIX}theirs"
    headers = {} if who == "nobody" else holder("reader", "read:*")
    with spared(gateway, port) as attack:
        for _ in range(BODIES):
            upload(attack, port, target, headers | PLAIN, framing)


# -- events --------------------------------------------------------------------------------------

READERS = 50
MESSAGE = 15 * MIB


def write_large(origin: LocalOrigin, name: str, kind: str = "text/plain") -> None:
    with origin.client() as client:
        if client("HEAD", name).status == 404:
            client.create(name, kind)
        client.append(name, b"x" * MESSAGE, kind)


def follow(attack: ExitStack, port: int, name: str, headers: dict[str, str]) -> Connection:
    """A reader who never takes what it is sent, once it is welcome."""
    connection = attack.enter_context(Connection(port))
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    target = f"{PREFIX}{name}?offset=-1&live=sse"
    connection.send(encode_request("GET", target, headers))
    assert connection.read_head()[0] == 200
    return connection


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_readers_who_do_not_read_share_the_event_that_waits_for_them(
    gateway: Server, port: int, origin: LocalOrigin, when: str, kind: str
) -> None:
    """Whether it was there when they came, or comes while they are there."""
    name = f"large-{when}-{kind.partition('/')[0]}"
    if when == "before":
        write_large(origin, name, kind)
    else:
        with origin.client() as client:
            client.create(name, kind, b"small")
    headers = holder("idle", "read:*")
    with spared(gateway, port) as attack:
        for _ in range(READERS):
            follow(attack, port, name, headers)
        if when == "after":
            write_large(origin, name, kind)


def test_readers_who_do_not_read_do_not_each_keep_an_event_of_their_own(
    gateway: Server, port: int, origin: LocalOrigin
) -> None:
    """Of as many streams as one likes: a subject's readers have a share of what may wait."""
    names = [f"own-{number}" for number in range(20)]
    for name in names:
        with origin.client() as client:
            if client("HEAD", name).status == 404:
                client.create(name, body=b"small")
    headers = holder("idle", "read:*")
    with spared(gateway, port, 2 * MOST_GROWN) as attack:
        for name in names:
            follow(attack, port, name, headers)
        for name in names:
            write_large(origin, name)
