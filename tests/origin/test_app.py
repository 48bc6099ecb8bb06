"""Start and stop of the real process; TLS."""

import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import StartOrigin
from tests.helpers.origin import PERSISTENT_MODES
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    Closed,
    Connection,
    EventStream,
    control,
    encode_request,
    wait_until,
)
from tests.helpers.require import need
from tests.helpers.server import started

KIND = {"Content-Type": "text/plain"}


def live_readers(port: int) -> float:
    with Connection(port) as connection:
        text = connection.request("GET", "/metrics").body.decode()
    return float(re.search(r"^weir_origin_live_readers (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]


# -- starting ------------------------------------------------------------------------------------


def test_an_origin_on_a_network_says_loudly_that_it_asks_for_no_token(tmp_path: Path) -> None:
    with started(tmp_path, "memory", settings={"DS_SERVER__HOST": "0.0.0.0"}) as server:
        assert server.stop() == 0
    [line] = server.stderr.splitlines()
    assert "WARNING" in line and "listens on 0.0.0.0" in line and "without authentication" in line


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_origin_on_loopback_has_nothing_to_warn_of(tmp_path: Path, host: str) -> None:
    with started(tmp_path, "memory", settings={"DS_SERVER__HOST": host}) as server:
        assert server.stop() == 0
    assert server.stderr == ""


# -- stopping ------------------------------------------------------------------------------------


def test_live_readers_end_cleanly(tmp_path: Path) -> None:
    with started(tmp_path, "file-durable") as server:
        with Client(server.port) as client:
            tail = client.create("s", body=b"data")
        readers = [EventStream(server.port, "s") for _ in range(5)]
        polls = [Connection(server.port) for _ in range(5)]
        for poll in polls:
            poll.send(encode_request("GET", f"{PREFIX}s?offset={tail}&live=long-poll"))
        for reader in readers:
            reader.next_write()
        wait_until(lambda: live_readers(server.port) == 10, what="all readers wait")
        begun = time.monotonic()
        code = server.stop()
        assert time.monotonic() - begun < 20
        for reader in readers:
            with reader:
                assert reader.rest() == []  # the chunked terminator came
        for poll in polls:
            with poll:
                reply = poll.read_response()
                assert (reply.status, reply.next_offset) == (204, tail)
    assert (code, server.stderr.count("Traceback")) == (0, 0), server.stderr


def test_an_idle_connection_does_not_hold_the_stop_up(tmp_path: Path) -> None:
    with started(tmp_path, "memory") as server:
        with Connection(server.port), Connection(server.port) as used:
            assert used.request("GET", "/healthz").status == 200
            begun = time.monotonic()
            code = server.stop()
        assert (code, server.stderr) == (0, "")
        assert time.monotonic() - begun < 20


class Writer(threading.Thread):
    """Appends its own numbers until the server ends; remembers what was acknowledged."""

    def __init__(self, port: int, label: str, *, closing: bool) -> None:
        super().__init__()
        self._port = port
        self._headers = KIND | ({"Connection": "close"} if closing else {})
        self._appends_a_connection = 1 if closing else 1_000_000
        self.label = label
        self.acknowledged: list[int] = []
        self.torn: list[str] = []  # half an answer, or one that is neither yes nor no

    def run(self) -> None:
        with suppress(OSError):
            while self._use(Connection(self._port)):
                pass

    def _use(self, connection: Connection) -> bool:
        with connection:
            for _ in range(self._appends_a_connection):
                number = len(self.acknowledged)
                body = f"{self.label}:{number}\n".encode()
                connection.send(encode_request("POST", PREFIX + "s", self._headers, body))
                try:
                    reply = connection.read_response("POST")
                except Closed as end:
                    if str(end) != "after b''" and "Reset" not in str(end):
                        self.torn.append(str(end))
                    return False
                if reply.status != 204:
                    self.torn += [] if reply.status == 503 else [str(reply)]
                    return False
                self.acknowledged.append(number)
        return True


@pytest.mark.parametrize("mode", PERSISTENT_MODES)
def test_no_acknowledged_append_is_lost_by_a_stop(tmp_path: Path, mode: str) -> None:
    with started(tmp_path, mode) as server:
        with Client(server.port) as client:
            client.create("s")
        writers = [Writer(server.port, f"w{n}", closing=n % 2 == 1) for n in range(6)]
        for writer in writers:
            writer.start()
        wait_until(lambda: all(len(writer.acknowledged) > 10 for writer in writers))
        code = server.stop()
        for writer in writers:
            writer.join(60)
    assert (code, server.stderr) == (0, "")
    assert [torn for writer in writers for torn in writer.torn] == []
    with started(tmp_path, mode) as server, Client(server.port) as client:
        lines = client.read("s").body.decode().splitlines()
    assert len(set(lines)) == len(lines)
    for writer in writers:
        mine = [line for line in lines if line.startswith(writer.label + ":")]
        stored = [int(line.partition(":")[2]) for line in mine]
        assert len(writer.acknowledged) > 10
        assert stored[: len(writer.acknowledged)] == writer.acknowledged
        assert len(stored) <= len(writer.acknowledged) + 1  # the one in flight may be there too


def test_a_second_start_finds_everything(tmp_path: Path) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "3", "Producer-Seq": "0"}
    for mode in PERSISTENT_MODES:
        folder = tmp_path / mode
        with started(folder, mode) as server, Client(server.port) as client:
            client.create("open", stream_ttl="3600")
            client("POST", "open", KIND | producer | {"Stream-Seq": "b"}, b"data")
            client.create("closed", "application/json", b"[1,2]", stream_closed="true")
            client.create("deleted", body=b"x")
            assert client("DELETE", "deleted").status == 204
            tags = [client.read(name)["ETag"] for name in ("open", "closed")]
            assert server.stop() == 0
        with started(folder, mode) as server, Client(server.port) as client:
            assert [client.read(name)["ETag"] for name in ("open", "closed")] == tags
            assert client.read("deleted").status == 404
            assert client("POST", "open", KIND | producer, b"data").status == 204
            assert client("POST", "open", KIND | {"Stream-Seq": "a"}, b"x").status == 409
            assert client("HEAD", "open")["Stream-TTL"] == "3600"
            assert client("HEAD", "closed").closed


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    openssl = shutil.which("openssl")
    need(openssl, "no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subprocess.run(
        [str(openssl), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost"],
        check=True,
        capture_output=True,
    )
    yield cert, key


def test_tls(start_origin: StartOrigin, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    origin = start_origin(tls={"cert_path": cert, "key_path": key})
    trusting = ssl.create_default_context(cafile=cert)
    with Connection(origin.port, trusting) as connection:
        created = connection.request("PUT", PREFIX + "s", KIND, b"secret")
        assert created["Location"] == f"https://weir.test{PREFIX}s"
        assert connection.request("POST", PREFIX + "s", KIND, b"!" * 100_000).status == 204
        assert connection.request("GET", PREFIX + "s").body == b"secret" + b"!" * 100_000
        connection.send(encode_request("GET", f"{PREFIX}s?offset=now&live=sse"))
        assert connection.read_head()[0] == 200
        assert b"upToDate" in next(connection.chunks())


def test_plain_http_to_a_tls_port_gets_nothing(
    start_origin: StartOrigin, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    origin = start_origin(tls={"cert_path": cert, "key_path": key})
    with origin.connect() as connection:
        connection.send(encode_request("GET", "/healthz"))
        assert b"200" not in connection.wait_closed()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(start_origin: StartOrigin, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    origin = start_origin(tls={"cert_path": cert, "key_path": key})
    old = ssl.create_default_context(cafile=cert)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with origin.connect() as connection, pytest.raises(ssl.SSLError):
        connection.socket = old.wrap_socket(connection.socket, server_hostname="localhost")


def test_a_process_says_https(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    settings = {"DS_TLS__CERT_PATH": cert, "DS_TLS__KEY_PATH": key}
    with started(tmp_path, "memory", settings=settings) as server:
        with Connection(server.port, ssl.create_default_context(cafile=cert)) as connection:
            assert connection.request("GET", "/healthz").status == 200
        assert server.stop() == 0


def test_sse_reader_gets_a_last_control_it_can_resume_from(tmp_path: Path) -> None:
    with started(tmp_path, "file-fast") as server:
        with Client(server.port) as client:
            client.create("s", body=b"before")
            with EventStream(server.port, "s") as reader:
                last = control(reader.next_write()[-1])
                assert server.stop() == 0
                assert reader.rest() == []
    with started(tmp_path, "file-fast") as server, Client(server.port) as client:
        client.append("s", b"after")
        assert client.read("s", last["streamNextOffset"]).body == b"after"


WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("nats", "obstore"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
IMPORTS = "import weir.commands.origin, weir.commands.up"
NODE = """
from origin.app import Origin
from origin.config import ClusterConfig, ColdConfig, OriginConfig, ServerConfig, StorageConfig
Origin(OriginConfig(
    server=ServerConfig(node_id="a"),
    storage=StorageConfig(mode="cluster"),
    cluster=ClusterConfig(nats_urls=("nats://x",)),
    cold=ColdConfig(backend="fs", fs_path="x"),
))
"""


@pytest.mark.parametrize(("program", "said"), [(IMPORTS, ""), (NODE, "extra `cluster`")])
def test_only_a_cluster_needs_its_libraries(program: str, said: str) -> None:
    """`make run` installs the package without extras."""
    command = [sys.executable, "-c", WITHOUT_EXTRAS + program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) is (said == ""), ended.stderr
    assert said in ended.stderr
