"""What must hold after any request, however hostile."""

from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import PREFIX, Closed, Connection, Response

# Sent inside header values: an error answer must never give it back.
CANARY = "cAnArY7"

TEXT, JSON, BINARY = "victim/text", "victim/json", "victim/binary"
VICTIMS = {
    TEXT: ("text/plain", b"precious \xc3\xa9 text"),
    JSON: ("application/json", b'[{"precious":1},2]'),
    BINARY: ("application/octet-stream", bytes(range(256))),
}
# The body an unchanged victim is read as.
READ_AS = {name: body for name, (_, body) in VICTIMS.items()}


class Arena:
    def __init__(self, origin: LocalOrigin) -> None:
        self.origin = origin
        self._checker = origin.client()
        for name, (kind, body) in VICTIMS.items():
            self._checker.create(name, kind, body)
        self._heads = {name: self._head(name) for name in VICTIMS}

    @property
    def port(self) -> int:
        return self.origin.port

    def close(self) -> None:
        self._checker.close()

    def connect(self) -> Connection:
        return self.origin.connect()

    def ask(self, data: bytes, *, half_close: bool = False) -> list[Response]:
        """Send bytes on a connection of their own; every response until it ends or rests."""
        with self.connect() as connection:
            replies: list[Response] = []
            method = data[:4].decode("latin-1").strip()
            try:
                connection.send(data)
                if half_close:
                    connection.half_close()
                # The last request is one whose answer closes, so that the end is certain.
                if b"Connection: close" not in data:
                    connection.send(LAST)
            except ConnectionError:
                pass  # refused already: the answer may still be read
            try:
                while not connection.rests(1.5, self.pulse):
                    replies.append(connection.read_response(method))
                    method = "GET"
            except (Closed, ConnectionError):
                pass
        self.check(*replies)
        return replies

    def pulse(self) -> None:
        self.origin.call(lambda: None)

    def check(self, *replies: Response) -> None:
        """The oracle: no 5xx, no echo, no traceback, no victim changed, still serving."""
        for reply in replies:
            assert reply.status < 500, reply
            if reply.status >= 400:
                assert CANARY.encode() not in reply.body, reply
                assert b"Traceback" not in reply.body
                assert not [value for _, value in reply.fields if CANARY in value], reply
                assert reply["X-Content-Type-Options"] == "nosniff"
        errors, self.origin.errors.found = self.origin.errors.found, []
        assert errors == []  # of this request, not of those before it
        for name in VICTIMS:
            assert self._head(name) == self._heads[name], f"{name} has changed"
            assert self._checker.read(name).body == READ_AS[name], f"{name} has changed"

    def _head(self, name: str) -> tuple[tuple[str, str], ...]:
        reply = self._checker("HEAD", name)
        assert reply.status == 200
        return tuple(field for field in reply.fields if field[0] != "date")


LAST = f"GET {PREFIX}end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()
