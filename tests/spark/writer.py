"""Writes streams, so that tests have something to read."""

from protocol.paths import stream_url
from tests.helpers.rawhttp import Connection, Response

JSON = "application/json"


class Writer:
    """Writes streams by their names; everything must succeed."""

    def __init__(self, port: int) -> None:
        self._port = port

    def bucket(self, name: str) -> None:
        self._ask("PUT", f"/ds/{name}")

    def create(self, name: str, kind: str = JSON) -> None:
        self._ask("PUT", stream_url(name), kind)

    def append(self, name: str, body: bytes | str, kind: str = JSON) -> str:
        """The new tail."""
        data = body.encode() if isinstance(body, str) else body
        return self._ask("POST", stream_url(name), kind, data).next_offset

    def lay(self, name: str, *bodies: bytes | str, kind: str = JSON) -> list[str]:
        """A new stream of these appends; the offsets after each."""
        self.create(name, kind)
        return [self.append(name, body, kind) for body in bodies]

    def publish(self, name: str, offset: str, body: bytes, kind: str = JSON) -> None:
        self._ask("PUT", f"{stream_url(name)}/snapshot/{offset}", kind, body)

    def delete(self, name: str) -> None:
        self._ask("DELETE", stream_url(name))

    def _ask(self, method: str, path: str, kind: str = "", body: bytes = b"") -> Response:
        headers = {"Content-Type": kind} if kind else {}
        with Connection(self._port) as connection:  # tests wait longer than servers keep one open
            reply = connection.request(method, path, headers, body)
        assert reply.status < 300, (method, path, reply)
        return reply
