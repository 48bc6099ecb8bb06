import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.peers.process import SERVER_PORTS, Process, Server, Start, free_ports, run_process
from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until

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
    [port] = free_ports(1)
    with run_process(listen(port), tmp_path / "log", 18081) as server:
        assert (server.port, server.write_port) == (port, 18081)


def test_a_server_that_says_its_port(tmp_path: Path) -> None:
    with run_process(listen(0, SAY="1"), tmp_path / "log") as server:
        assert server.port > 0
        assert server.write_port == server.port


def test_a_server_can_be_started_again(tmp_path: Path) -> None:
    process = Process(listen(0, SAY="1"), tmp_path / "log")
    first, before = process.start(), process.pid
    process.kill()
    assert is_gone(before) and process.pid == 0
    second = process.start()
    assert (tmp_path / "log").read_text().count("listening") == 2
    assert first > 0 and second > 0
    process.stop()


def test_a_server_is_ready_when_it_says_so(tmp_path: Path) -> None:
    looks: list[int] = []

    def is_ready() -> bool:
        looks.append(1)
        if len(looks) == 1:
            raise OSError("not yet")
        return len(looks) > 2

    with run_process(replace(listen(18081), is_ready=is_ready), tmp_path / "log") as server:
        assert (server.port, len(looks)) == (18081, 3)


FAMILY = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
def stop(*_):
    print("the child", "runs" if child.poll() is None else "has ended", flush=True)
    child.kill()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("listening on http://127.0.0.1:1 now", flush=True)
time.sleep(60)
"""


def test_a_parent_may_stop_its_children_itself(tmp_path: Path) -> None:
    start = Start([sys.executable, "-c", FAMILY], stops_children=True)
    process = Process(replace(start, is_ready=lambda: True, port=1), tmp_path / "log")
    process.start()
    wait_until(lambda: "listening" in (tmp_path / "log").read_text())
    process.stop()
    assert "the child runs" in (tmp_path / "log").read_text()


async def test_a_server_has_the_process_that_runs(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with run_process(listen(port), tmp_path / "log") as server:
        before = server.pid
        await server.restart()
        assert server.pid not in (0, before) and is_gone(before)


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    start = Start([sys.executable, "-c", "import sys; sys.exit('no such option')"])
    with pytest.raises(RunFailedError, match=r"exit code 1.*part\.log: no such option"):
        with run_process(start, tmp_path / "part.log"):
            pass


def test_nobodys_settings_are_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_GATEWAY__PORT", "1")
    program = "import os; raise SystemExit(str([n for n in os.environ if n.startswith('DS_')]))"
    start = Start([sys.executable, "-c", program], environment={"DS_LOG__LEVEL": "info"})
    with pytest.raises(RunFailedError, match=r"\['DS_LOG__LEVEL'\]"):
        Process(start, tmp_path / "log").start()


def test_a_plain_server_is_its_own_origin() -> None:
    assert Server(1, 80, 0.0).write_port == 80


def test_ports_are_none_that_a_client_could_be_given() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(SERVER_PORTS[0] <= port < SERVER_PORTS[1] for port in ports)
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert SERVER_PORTS[1] <= first
