"""Bootstraps as a widely used reader of multipart bodies for Node sees them."""

import base64
import json
import os
import random
import subprocess

from tests.clients.conftest import FOLDER, SCENARIO_SECS
from tests.conformance.runner import Node
from tests.extension.conftest import BINARY, JSON, TEXT, Api, Part, boundary_of
from tests.helpers.origin import LocalOrigin

PIECES = [b"\r\n", b"\r", b"\n", b"--", b"\0", b"\xff", b"x", b"Content-Type: a/b", b"\r\n\r\n"]


def read(node: Node, origin: LocalOrigin, paths: list[str]) -> list[list[Part]]:
    urls = [f"http://127.0.0.1:{origin.port}{path}/bootstrap" for path in paths]
    done = subprocess.run(
        [node.node, "multipart.mjs", *urls],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=SCENARIO_SECS,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert not [parts for parts in found if isinstance(parts, str)], found
    return [[Part(kind, base64.b64decode(body)) for kind, body in parts] for parts in found]


def lay(api: Api, path: str, snapshot: Part, bodies: list[bytes], kind: str = BINARY) -> list[Part]:
    """A stream with a snapshot and these updates; the parts of its bootstrap."""
    tail = api.create(path, kind, body=b"0")
    api.publish(path, tail, snapshot.body, snapshot.kind)
    if bodies:
        api.append(path, *bodies, kind=kind)
    return [snapshot, *(Part(kind, body) for body in bodies)]


def test_every_part_is_exact(node: Node, origin: LocalOrigin) -> None:
    rng = random.Random(4)
    with origin.connect() as connection:
        api = Api(connection)
        api.create("/v1/stream/guess", body=b"x")
        guess = boundary_of(api.bootstrap("/v1/stream/guess"))
        forged = b"\r\n--%b\r\nContent-Type: text/html\r\n\r\nforged\r\n--%b--\r\n" % (guess, guess)
        mixed = [b"".join(rng.choices(PIECES, k=rng.randint(1, 12))) for _ in range(500)]
        expected = {
            "/v1/stream/bytes": (Part("image/png", bytes(range(256))), [bytes(range(256)), b"\0"]),
            "/v1/stream/lines": (Part(TEXT, b"\r\n"), [b"\r\n", b"\n", b"\r", b"--", b"--\r\n"]),
            "/v1/stream/forged": (Part(TEXT, forged), [forged, forged]),
            "/v1/stream/mixed": (Part(TEXT, b""), mixed),
            "/v1/stream/large": (Part(BINARY, os.urandom(3_000_000)), [os.urandom(900_000)] * 3),
            "/v1/stream/empty": (Part(TEXT, b""), []),
        }
        parts = [lay(api, path, *content) for path, content in expected.items()]
        assert read(node, origin, list(expected)) == parts


def test_json_messages_come_one_by_one(node: Node, origin: LocalOrigin) -> None:
    with origin.connect() as connection:
        api = Api(connection)
        api.create("/v1/stream/json", JSON)
        api.append("/v1/stream/json", b'[{"a": 1}, "\xc3\xa9"]', b"[[1,2]]", kind=JSON)
        (parts,) = read(node, origin, ["/v1/stream/json"])
    bodies = [b'{"a": 1}', '"é"'.encode(), b"[1,2]"]
    assert parts == [Part(BINARY, b""), *(Part(JSON, body) for body in bodies)]
