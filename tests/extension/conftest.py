"""What the tests of the extension share: requests by whole path, on both surfaces, and readers of
multipart bodies.

The files follow the document's sections, and so do the names of the tests.
"""

import asyncio
import email
import email.policy
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from protocol.paths import stream_url
from tests.conftest import StartOrigin
from tests.helpers.offsets import nameless
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import TIMEOUT_S, Connection, Response, header_names, wait_until

JSON = "application/json"
TEXT = "text/plain"
BINARY = "application/octet-stream"
BUCKET = "/ds/buck"
FLAT, BUCKETED = "/v1/stream/a/s", f"{BUCKET}/s"

# Where it matters how bytes are kept: nowhere, in journal and segments, in a database.
STORAGES = ("memory", "file-durable", "acid", "cluster")
PERSISTENT = STORAGES[1:]
KEPT_ANYHOW = pytest.mark.parametrize("mode", STORAGES)
KEPT_FOR_GOOD = pytest.mark.parametrize("mode", PERSISTENT)

AT = nameless


@dataclass(frozen=True)
class Part:
    kind: str
    body: bytes


class Api:
    """Requests over one connection. A path names a stream on either surface."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        return self.connection.request(method, path, headers, body)

    def make_bucket(self, path: str = BUCKET) -> None:
        reply = self("PUT", path)
        assert reply.status == 201, reply

    def create(self, path: str, kind: str = TEXT, body: bytes = b"", **more: str) -> str:
        """Create a stream that must be new; its tail."""
        reply = self("PUT", path, {"Content-Type": kind, **header_names(more)}, body)
        assert reply.status == 201, reply
        return reply.next_offset

    def append(self, path: str, *bodies: bytes, kind: str = TEXT, **more: str) -> str:
        """Append what must be accepted, in as many requests; the tail."""
        for body in bodies:
            reply = self("POST", path, {"Content-Type": kind, **header_names(more)}, body)
            assert reply.status in (200, 204), reply
        return reply.next_offset

    def close(self, path: str) -> None:
        assert self("POST", path, {"Stream-Closed": "true"}).status == 204

    def read(self, path: str, offset: str = "-1", more: str = "", **headers: str) -> Response:
        return self("GET", f"{path}?offset={offset}{more}", header_names(headers))

    def head(self, path: str, **headers: str) -> Response:
        return self("HEAD", path, header_names(headers))

    def fork(self, path: str, source: str, **more: str) -> Response:
        return self("PUT", path, {"Stream-Forked-From": source, **header_names(more)})

    def try_publish(
        self, path: str, offset: str, body: bytes = b"snapshot", kind: str | None = TEXT
    ) -> Response:
        headers = {} if kind is None else {"Content-Type": kind}
        return self("PUT", f"{path}/snapshot/{offset}", headers, body)

    def publish(
        self, path: str, offset: str, body: bytes = b"snapshot", kind: str | None = TEXT
    ) -> None:
        reply = self.try_publish(path, offset, body, kind)
        assert reply.status == 204, reply

    def snapshot(self, path: str, offset: str, **headers: str) -> Response:
        return self("GET", f"{path}/snapshot/{offset}", header_names(headers))

    def bootstrap(self, path: str, query: str = "", **headers: str) -> Response:
        return self("GET", f"{path}/bootstrap{query}", header_names(headers))

    def parts(self, path: str) -> list[Part]:
        """What a bootstrap brings, in order."""
        reply = self.bootstrap(path)
        assert reply.status == 200, reply
        return parts_by_hand(reply)

    def listing(self, path: str = BUCKET, query: str = "") -> Any:
        reply = self("GET", f"{path}/streams{query}")
        assert reply.status == 200, reply
        return reply.json()


class Held:
    """Holds back one call of an origin's storage until the test lets it go."""

    def __init__(self, origin: LocalOrigin, method: str) -> None:
        self._origin, self._method = origin, method
        self.storage: Any = origin.call(lambda: origin.origin.shards.of("a/s")).storage
        self._call = getattr(self.storage, method)
        self._come, self._gate = threading.Event(), asyncio.Event()
        setattr(self.storage, method, self._call_when_told)

    async def _call_when_told(self, *arguments: Any) -> Any:
        self._come.set()
        await self._gate.wait()
        return await self._call(*arguments)

    def wait_for_it(self) -> None:
        """All that come later pass."""
        assert self._come.wait(TIMEOUT_S)
        setattr(self.storage, self._method, self._call)

    def let_go(self) -> None:
        self._origin.call(self.let_go_now)

    def let_go_now(self) -> None:
        """On the origin's loop."""
        self._gate.set()


def problem(reply: Response) -> tuple[int, str]:
    """Status and code of a refusal."""
    assert reply["Content-Type"] == "application/problem+json", reply
    return reply.status, reply.json()["code"]


def boundary_of(reply: Response) -> bytes:
    found = re.fullmatch(
        r"multipart/mixed; boundary=([\w'()+,./:=?-]{1,70})", reply["Content-Type"]
    )
    assert found, reply["Content-Type"]
    return found[1].encode()


def parts_by_hand(reply: Response) -> list[Part]:
    """RFC 2046 to the letter: a part ends where a line begins with the boundary."""
    pieces = (b"\r\n" + reply.body).split(b"\r\n--" + boundary_of(reply))
    assert pieces[0] == b"" and pieces[-1] in (b"--", b"--\r\n"), reply.body[-200:]
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> Part:
    assert piece.startswith(b"\r\n")
    head, blank, body = piece[2:].partition(b"\r\n\r\n")
    assert blank, piece
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n"))
    assert [name.lower() for name in fields] == [b"content-type"], head
    (kind,) = fields.values()
    return Part(kind.decode("ascii"), body)


def parts_by_email(reply: Response) -> list[Part]:
    """Python's own reader of MIME."""
    head = f"MIME-Version: 1.0\r\nContent-Type: {reply['Content-Type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + reply.body, policy=email.policy.HTTP)
    assert message.is_multipart() and not message.defects, message.defects
    parts = []
    for part in message.get_payload():
        assert isinstance(part, email.message.Message)
        body = part.get_payload(decode=True)
        assert isinstance(body, bytes) and not part.defects, part.defects
        parts.append(Part(str(part["Content-Type"]), body))
    return parts


Connect = Callable[[LocalOrigin], Api]
StartApi = Callable[..., Api]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Another connection to an origin."""
    with ExitStack() as stack:
        yield lambda origin: Api(stack.enter_context(origin.connect()))


@pytest.fixture(scope="module")
def memory_origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrigin]:
    origin = LocalOrigin(make_config(tmp_path_factory.mktemp("extension")))
    origin.start()
    yield origin
    origin.stop()
    assert origin.errors.found == []


@pytest.fixture
def origin(memory_origin: LocalOrigin, connect: Connect) -> Iterator[LocalOrigin]:
    """One for all tests of a file that need no other: a start takes longer than most of them."""
    yield memory_origin
    wipe(memory_origin, connect(memory_origin))


def wipe(origin: LocalOrigin, api: Api) -> None:
    """Delete everything, streams first."""

    def paths(of: Callable[[str], bool]) -> list[str]:
        names = origin.call(lambda: list(origin.origin.shard.registry.by_name))
        return [stream_url(name) for name in names if of(name)]

    for path in paths(lambda name: not _is_bucket(name)):
        api("DELETE", path)
    wait_until(lambda: all(map(_is_bucket, paths(lambda _: True))))
    for path in paths(_is_bucket):
        assert api("DELETE", path).status == 204


def _is_bucket(name: str) -> bool:
    return name.startswith("/ds/") and name.count("/") == 2


@pytest.fixture
def start_api(start_origin: StartOrigin, connect: Connect) -> StartApi:
    """Start an origin as `start_origin` does; a connection to it, with a bucket made."""

    def start(mode: str = "memory", **sections: Any) -> Api:
        api = connect(start_origin(mode, **sections))
        api.make_bucket()
        return api

    return start


@pytest.fixture
def api(origin: LocalOrigin, connect: Connect) -> Api:
    """With a bucket made."""
    api = connect(origin)
    api.make_bucket()
    return api


@pytest.fixture(params=[FLAT, BUCKETED], ids=["flat", "bucketed"])
def path(request: pytest.FixtureRequest) -> str:
    """Of a stream that is not there yet, on each surface."""
    return str(request.param)
