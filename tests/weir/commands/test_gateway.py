"""`weir gateway` as an operator meets it: its first lines, its workers, its end."""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.devkeys import ensure_dev_key
from tests.crash.http import call
from tests.helpers.processes import children_of, is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import Server, launch_gateway, serving
from weir.cli import main

NO_ORIGIN = "http://127.0.0.1:1"


def settings_for(folder: Path, **more: str) -> dict[str, str]:
    _, jwks = ensure_dev_key(folder)
    return {"DS_AUTH__JWKS": str(jwks)} | more


@contextmanager
def gateway(folder: Path, workers: int = 1, **settings: str) -> Iterator[Server]:
    settings = settings_for(folder, DS_GATEWAY__WORKERS=str(workers), **settings)
    with serving(launch_gateway(folder, NO_ORIGIN, settings=settings)) as server:
        yield server


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for sockets: the path of one must stay short."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def answers(server: Server) -> bool:
    return call("GET", f"{server.url}/v1/stream/x").status == 401


def metrics(server: Server) -> str:
    return call("GET", f"http://127.0.0.1:{server.admin_port}/metrics").body.decode()


@pytest.mark.parametrize(("workers", "shown"), [(1, "1 worker"), (2, "2 workers")])
def test_life_from_the_ready_line_to_exit_0(
    tmp_path: Path, short_folder: Path, workers: int, shown: str
) -> None:
    with gateway(tmp_path, workers, TMPDIR=str(short_folder)) as server:
        assert answers(server)
        assert "\nweir_gateway_workers_up " in metrics(server)
        assert call("GET", f"http://127.0.0.1:{server.admin_port}/readyz").status == 200
        pids = children_of(server.process.pid)
        assert len(pids) == (0 if workers == 1 else workers)
        assert server.stop() == 0
        assert all(map(is_gone, pids))
        assert list(short_folder.iterdir()) == []
        first, second = server.stdout.splitlines()
        about = f"(origin {NO_ORIGIN}, auth jwt, {shown})"
        assert first == f"weir gateway listening on {server.url} {about}"
        assert re.fullmatch(r"weir gateway admin on http://127\.0\.0\.1:\d+", second)
        assert server.stderr == ""


def test_an_interrupt_stops_it_too(tmp_path: Path) -> None:
    with gateway(tmp_path, 2) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0


def test_a_killed_worker_is_replaced_while_the_port_answers(tmp_path: Path) -> None:
    with gateway(tmp_path, 2) as server:
        victim = children_of(server.process.pid)[1]
        os.kill(victim, signal.SIGKILL)
        # Reaped, not only dead: until its last thread has ended, its socket takes connections.
        wait_until(lambda: not Path(f"/proc/{victim}").exists())
        assert all(answers(server) for _ in range(20))
        again = 'weir_gateway_worker_restarts_total{worker="1"} 1.0'
        wait_until(lambda: again in metrics(server), what=again)
        both = "weir_gateway_workers_up 2.0"
        wait_until(lambda: both in metrics(server), what=both)
        assert server.stop() == 0


def test_workers_go_with_a_killed_parent_and_leave_nothing(
    tmp_path: Path, short_folder: Path
) -> None:
    with gateway(tmp_path, 2, TMPDIR=str(short_folder)) as server:
        pids = children_of(server.process.pid)
        assert len(list(short_folder.glob("weir-*/*.sock"))) >= 2
        server.kill()
        wait_until(lambda: all(map(is_gone, pids)), what="end of the workers")
        assert list(short_folder.iterdir()) == []


@pytest.mark.parametrize("workers", ["1", "3"])
def test_without_tokens_it_says_so_once_and_loudly(tmp_path: Path, workers: str) -> None:
    settings = {"DS_AUTH__MODE": "off", "DS_GATEWAY__WORKERS": workers}
    with serving(launch_gateway(tmp_path, NO_ORIGIN, settings=settings)) as server:
        assert "auth off" in server.stdout
        assert server.stop() == 0
        [line] = server.stderr.splitlines()
        assert line.startswith("weir: WARNING: auth.mode is off")


def test_several_origins_are_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    """Given with commas, or one by one."""
    nodes, settings = [f"http://127.0.0.1:{port}" for port in (1, 2, 3)], {"DS_AUTH__MODE": "off"}
    launched = launch_gateway(
        tmp_path, ",".join(nodes[:2]), settings=settings, arguments=("--origin", nodes[2])
    )
    with serving(launched) as server:
        assert f"(cluster {', '.join(nodes)}, auth off, 1 worker)" in server.stdout


def refused(folder: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    """Exit code and the one line on stderr of a start that must fail."""
    server = launch_gateway(folder, NO_ORIGIN, settings=settings, arguments=arguments)
    try:
        code = server.wait()
    finally:
        server.kill()
    assert server.stdout == ""
    [line] = server.stderr.splitlines()
    return code, line


@pytest.mark.parametrize(
    ("arguments", "environ", "names"),
    [
        ([], {}, "auth.jwks: must name a file or URL"),
        (["--origin", "nowhere"], {"DS_AUTH__MODE": "off"}, "command line: gateway.origin_url"),
        (["--port", "http"], {"DS_AUTH__MODE": "off"}, "command line: gateway.port"),
        (["--host", ""], {"DS_AUTH__MODE": "off"}, "command line: gateway.host"),
        (["--profile", "missing"], {}, "missing"),
        (["--config", "missing.toml"], {}, "missing.toml"),
        ([], {"DS_GATEWAY__PROT": "1"}, "DS_GATEWAY__PROT: unknown key (did you mean port?)"),
    ],
    ids=["no-keys", "origin", "port", "host", "profile", "file", "unknown"],
)
def test_a_configuration_error_is_one_line_and_exit_2(
    arguments: list[str],
    environ: dict[str, str],
    names: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"\A2\Z"):
        main(["gateway", *arguments])
    printed, complained = capsys.readouterr()
    [line] = complained.splitlines()
    assert printed == ""
    assert line.startswith("weir: ") and names in line


@pytest.mark.parametrize("workers", ["1", "3"])
def test_keys_that_cannot_be_read_are_one_line_too(tmp_path: Path, workers: str) -> None:
    settings = {"DS_AUTH__JWKS": "missing.json", "DS_GATEWAY__WORKERS": workers}
    server = launch_gateway(tmp_path, NO_ORIGIN, settings=settings)
    assert server.wait() == 2
    [line] = [line for line in server.stderr.splitlines() if line.startswith("weir: ")]
    assert "missing.json: cannot be read" in line
    assert "Traceback" not in server.stderr  # log lines of the keys may stand above it


@pytest.mark.parametrize(("first", "second"), [(1, "2"), (2, "1"), (2, "2")])
def test_a_taken_port_is_never_shared_by_accident(tmp_path: Path, first: int, second: str) -> None:
    with gateway(tmp_path, first) as server:
        settings = settings_for(tmp_path, DS_GATEWAY__WORKERS=second)
        code, line = refused(tmp_path, "--port", str(server.port), **settings)
        assert code == 2
        assert "gateway.port" in line and str(server.port) in line
        settings["DS_GATEWAY__ADMIN_PORT"] = str(server.admin_port)
        code, line = refused(tmp_path, **settings)
        assert code == 2
        assert "gateway.admin_port" in line and str(server.admin_port) in line
