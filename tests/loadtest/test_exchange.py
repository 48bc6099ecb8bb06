"""The loop against a small real server, because sockets are all it is about."""

import socket
import threading
from collections.abc import Iterator

import pytest

from loadtest.load.exchange import ExchangeFailedError, Script, run_scripts
from loadtest.load.replies import Reply

ECHO_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"


def serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Three bytes for each request, or `SIZE` many; `QUIT` gets half an answer, `HANG` none."""
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"QUIT"):
                connection.sendall(ECHO_HEAD + b"a")
                return
            if line.startswith(b"SIZE"):
                size = int(line[4:])
                head = ECHO_HEAD.replace(b"3", b"%d" % size)
                connection.sendall(head + b"x" * size)
            elif not line.startswith(b"HANG"):
                connection.sendall(ECHO_HEAD + line[:3])


@pytest.fixture
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    accepting = threading.Thread(target=serve, args=(listener,), daemon=True)
    accepting.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    accepting.join(60)


def count(sizes: list[int]) -> Script:
    """Ask for bodies of these sizes, keep none."""
    for size in sizes:
        reply: Reply = yield b"SIZE%d\n" % size
        assert reply.body_bytes == size


def ask(requests: list[bytes], answers: list[bytes]) -> Script:
    for request in requests:
        reply: Reply = yield request
        answers.append(bytes(reply.body))


def test_every_script_gets_its_own_answers(port: int) -> None:
    answers: list[list[bytes]] = [[] for _ in range(20)]
    scripts = [ask([b"%03d\n" % n, b"abc\n"], answers[n]) for n in range(20)]
    assert run_scripts(port, scripts, timeout_s=10, keep_bodies=True) > 0
    assert answers == [[b"%03d" % n, b"abc"] for n in range(20)]


def test_a_request_larger_than_the_socket_takes(port: int) -> None:
    answers: list[bytes] = []
    large = b"big" + b"x" * 20_000_000 + b"\n"
    run_scripts(port, [ask([large], answers)], timeout_s=20, keep_bodies=True)
    assert answers == [b"big"]


def test_bodies_that_are_only_counted(port: int) -> None:
    scripts = [count([10_000_000, 0, 1, 300_000]) for _ in range(5)]
    assert run_scripts(port, scripts, timeout_s=20) > 0


@pytest.mark.parametrize("request_line", [b"QUIT\n", b"HANG\n"])
def test_a_broken_exchange_is_an_error(port: int, request_line: bytes) -> None:
    with pytest.raises(ExchangeFailedError):
        run_scripts(port, [ask([request_line], [])], timeout_s=0.3)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = listener.getsockname()[1]
    with pytest.raises(ExchangeFailedError):
        run_scripts(free, [ask([b"x\n"], [])], timeout_s=1)
