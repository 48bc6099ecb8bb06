import sys
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.peers.process import Server, Start, run_process
from loadtest.peers.servers import free_port

LISTEN = """
import os, socket, sys, time
time.sleep(0.1)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
if os.environ.get("SAY"):
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]} now", flush=True)
time.sleep(60)
"""


def listen(port: int, **environment: str) -> Start:
    command = [sys.executable, "-c", LISTEN, str(port)]
    return Start(command, port, environment)


def test_a_server_that_was_told_its_port(tmp_path: Path) -> None:
    port = free_port()
    with run_process(listen(port), tmp_path / "log", 18081) as server:
        assert (server.port, server.write_port) == (port, 18081)


def test_a_server_that_says_its_port(tmp_path: Path) -> None:
    with run_process(listen(0, SAY="1"), tmp_path / "log") as server:
        assert server.port > 0
        assert server.write_port == server.port


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    start = Start([sys.executable, "-c", "import sys; sys.exit('no such option')"])
    with pytest.raises(RunFailedError, match="no such option"):
        with run_process(start, tmp_path / "log"):
            pass


def test_a_plain_server_is_its_own_origin() -> None:
    assert Server(1, 80, 0.0).write_port == 80
