"""Many connections at once, each following a script: yield a request, get its `Reply`.

One epoll loop over plain sockets: cheap enough that the server under test stays the bottleneck,
and the same for every server.
"""

import select
import socket
import time
from collections.abc import Generator, Sequence

from loadtest.errors import RunFailedError
from loadtest.load.replies import Reply, ReplyReader

Script = Generator[bytes, Reply, None]

RECEIVE_BYTES = 4 << 20


class ExchangeFailedError(RunFailedError):
    """A connection broke, took too long, or was refused."""


class _Connection:
    def __init__(self, sock: socket.socket, script: Script, keep_bodies: bool) -> None:
        self.sock = sock
        self.unsent = memoryview(b"")
        self._script = script
        self._keep_bodies = keep_bodies
        self._reader = ReplyReader()

    def begin(self) -> bool:
        """Send the first request; False when the script has none."""
        return self._request(next(self._script, None))

    def receive(self, buffer: memoryview) -> bool:
        """Take what has come, send the next request when a reply is whole; False at the end."""
        unwanted = min(self._reader.skippable, len(buffer))
        if unwanted:  # the kernel drops and counts these bytes: no copy for a body we only count
            count = self.sock.recv_into(buffer, unwanted, socket.MSG_TRUNC)
        else:
            count = self.sock.recv_into(buffer)
        if not count:
            raise ExchangeFailedError("the server closed a connection before the end of a reply")
        whole = self._reader.skip(count) if unwanted else self._reader.feed(buffer[:count])
        return self._next() if whole else True

    def _next(self) -> bool:
        try:
            return self._request(self._script.send(self._reader.reply))
        except StopIteration:
            return False

    def flush(self) -> None:
        try:
            self.unsent = self.unsent[self.sock.send(self.unsent) :]
        except BlockingIOError:
            pass

    def _request(self, request: bytes | None) -> bool:
        if request is None:
            return False
        head_only = request.startswith(b"HEAD ")
        self._reader = ReplyReader(head_only=head_only, keep_body=self._keep_bodies)
        self.unsent = memoryview(request)
        self.flush()
        return True


def run_scripts(
    port: int, scripts: Sequence[Script], *, timeout_s: float, keep_bodies: bool = False
) -> float:
    """Connect all, start the clock, follow all scripts; seconds until the last one has ended."""
    connections = [_Connection(connect(port), script, keep_bodies) for script in scripts]
    poll = select.epoll()
    try:
        return _follow(poll, {c.sock.fileno(): c for c in connections}, timeout_s)
    finally:
        poll.close()
        for connection in connections:
            connection.sock.close()


def connect(port: int) -> socket.socket:
    try:
        sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    except OSError as error:
        raise ExchangeFailedError(f"cannot connect: {error}") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


def _follow(poll: select.epoll, open_: dict[int, _Connection], timeout_s: float) -> float:
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    start = time.perf_counter()
    for number, connection in list(open_.items()):
        if connection.begin():
            poll.register(number, _interest(connection))
        else:
            del open_[number]
    while open_:
        left_s = start + timeout_s - time.perf_counter()
        if left_s <= 0:
            raise ExchangeFailedError(f"{len(open_)} connections not done after {timeout_s:g} s")
        for number, event in poll.poll(left_s):
            connection = open_[number]
            if not _serve(connection, event, buffer):
                poll.unregister(number)
                del open_[number]
            elif connection.unsent or event & select.EPOLLOUT:
                poll.modify(number, _interest(connection))
    return time.perf_counter() - start


def _interest(connection: _Connection) -> int:
    return select.EPOLLIN | select.EPOLLOUT if connection.unsent else select.EPOLLIN


def _serve(connection: _Connection, event: int, buffer: memoryview) -> bool:
    try:
        if event & select.EPOLLOUT:
            connection.flush()
        if not event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return True
        return connection.receive(buffer)
    except OSError as error:
        raise ExchangeFailedError(f"connection broke: {error}") from error
