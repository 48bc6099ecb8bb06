"""`weir up`: what it decides, and the processes as a newcomer meets them."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.console.minting import MintKey
from gateway.devkeys import ensure_dev_key
from tests.crash.http import call
from tests.helpers.processes import children_of, is_gone
from tests.helpers.rawhttp import Connection, encode_request, wait_until
from tests.helpers.server import Server, launch_up, serving
from weir.cli import make_parser
from weir.commands.fleet import in_a_fleet
from weir.commands.up import Plan, make_plan, point_at_origin, welcome

NOW = 1_000_000.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*arguments: str, environ: Mapping[str, str] | None = None) -> Plan:
    return make_plan(make_parser().parse_args(["up", *arguments]), environ or {})


def test_everything_lies_in_the_data_directory(folder: Path) -> None:
    made = plan("--data-dir", "d", "--storage", "acid")
    assert (made.origin.storage.data_dir, made.origin.storage.mode) == ("d", "acid")
    assert made.keys == Path("d/keys")
    assert made.gateway.auth.jwks == "d/keys/dev-jwks.json"
    assert (made.gateway.auth.issuer, made.gateway.auth.audience) == ("weir-dev", "weir")
    assert made.gateway.gateway.access_log == "d/access"


@pytest.mark.parametrize("flag", ["--gateway-port", "--port"])
def test_flags_reach_the_right_service(folder: Path, flag: str) -> None:
    made = plan("--host", "0.0.0.0", flag, "1", "--origin-port", "2")
    assert (made.gateway.gateway.host, made.gateway.gateway.port) == ("0.0.0.0", 1)
    # The origin asks for no token: it stays where the configuration put it.
    assert (made.origin.server.host, made.origin.server.port) == ("127.0.0.1", 2)


def test_the_default_file_does_not_undo_the_key(folder: Path) -> None:
    (folder / "configs/default.toml").write_text('[auth]\njwks = ""\nissuer = ""\n')
    made = plan()
    assert made.keys == Path("data/keys")
    assert made.gateway.auth.issuer == "weir-dev"


def test_one_person_with_the_development_key_may_have_all_there_is(folder: Path) -> None:
    """A load tool against `make run` meets no limit of subjects; others' keys bring them back."""
    made = plan().gateway
    assert made.gateway.requests_per_second == 0
    total = made.gateway.max_live_readers
    assert made.per_subject(made.gateway.max_live_readers_per_subject, total) == total
    assert made.upstream.subject_share == 1
    usual = plan(environ={"DS_AUTH__JWKS": "https://issuer/keys"}).gateway
    assert usual.gateway.requests_per_second > 0 and usual.upstream.subject_share < 1
    limited = plan(environ={"DS_GATEWAY__REQUESTS_PER_SECOND": "7"}).gateway
    assert limited.gateway.requests_per_second == 7


def test_configured_keys_win_and_bring_their_own_issuer(folder: Path) -> None:
    made = plan(environ={"DS_AUTH__JWKS": "https://issuer/keys"})
    assert made.keys is None
    assert (made.gateway.auth.issuer, made.gateway.auth.audience) == ("", "")
    assert made.gateway.gateway.access_log == "data/access"


def test_what_a_file_says_wins_over_the_defaults_of_up(folder: Path) -> None:
    text = '[gateway]\naccess_log = ""\n[auth]\nissuer = "me"\n'
    (folder / "configs/local.toml").write_text(text)
    made = plan()
    assert made.gateway.gateway.access_log == ""
    assert (made.gateway.auth.issuer, made.keys) == ("me", Path("data/keys"))


def test_no_key_is_made_when_tokens_are_off(folder: Path) -> None:
    assert plan(environ={"DS_AUTH__MODE": "off"}).keys is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:5"),
        ("0.0.0.0", "http://127.0.0.1:5"),
        ("::", "http://[::1]:5"),
        ("::1", "http://[::1]:5"),
    ],
)
def test_the_gateway_is_pointed_at_the_real_port(folder: Path, host: str, url: str) -> None:
    made = plan(environ={"DS_SERVER__HOST": host, "DS_GATEWAY__ORIGIN_URL": "http://other"})
    assert point_at_origin(made, 5).gateway.origin_url == url


def test_the_origin_listens_to_its_gateway_alone(folder: Path) -> None:
    made, other = plan(), plan()
    key = made.origin.server.access_key
    assert len(key) >= 32 and key != other.origin.server.access_key  # of this run
    assert point_at_origin(made, 5).upstream.access_key == key
    assert made.origin.cors_origins == ()
    assert made.gateway.cors_origins == ("*",)


def test_a_key_that_somebody_chose_stays(folder: Path) -> None:
    chosen = {"DS_SERVER__ACCESS_KEY": "k" * 20, "DS_UPSTREAM__ACCESS_KEY": "other" * 5}
    made = plan(environ=chosen | {"DS_HTTP__CORS_ORIGINS": "https://app.example"})
    assert point_at_origin(made, 5).upstream.access_key == "k" * 20
    assert made.gateway.cors_origins == ("https://app.example",)
    assert made.origin.cors_origins == ()  # pages talk to the gateway


def curls(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("curl ")]


def test_words_without_tokens(folder: Path) -> None:
    text = welcome(plan(environ={"DS_AUTH__MODE": "off"}), "http://0.0.0.0:1", NOW)
    assert "Authorization" not in text and "token" not in text
    assert all("http://127.0.0.1:1/v1/stream/" in line for line in curls(text))


def test_the_console_is_named_where_there_is_one(folder: Path) -> None:
    off = {"DS_AUTH__MODE": "off"}
    assert "http://127.0.0.1:1/console/" in welcome(plan(environ=off), "http://0.0.0.0:1", NOW)
    off["DS_GATEWAY__CONSOLE"] = "false"
    assert "console" not in welcome(plan(environ=off), "http://0.0.0.0:1", NOW)


def test_the_consoles_address_brings_the_secret(folder: Path) -> None:
    ensure_dev_key(Path("data/keys"))
    made = plan()
    text = welcome(made, "http://0.0.0.0:1", NOW, mint_key=made.mint_key("s3cret"))
    assert "Open the console: http://127.0.0.1:1/console/#mint=s3cret\n" in text


def test_the_console_signs_nothing_behind_a_proxy_or_without_the_key(folder: Path) -> None:
    made = plan()
    assert made.mint_key("s") == MintKey(Path("data/keys/dev-key.pem"), "s")
    assert replace(made, gateway=in_a_fleet(made.gateway)).mint_key("s") is None
    assert plan(environ={"DS_GATEWAY__TRUSTED_HOPS": "1"}).mint_key("s") is None
    assert plan(environ={"DS_AUTH__MODE": "off"}).mint_key("s") is None


def test_words_for_a_foreign_issuer(folder: Path) -> None:
    text = welcome(plan(environ={"DS_AUTH__JWKS": "https://a/b"}), "http://[::]:1", NOW)
    assert all('-H "Authorization: Bearer $TOKEN"' in line for line in curls(text))
    assert all("http://[::1]:1/" in line for line in curls(text))


def test_words_name_the_key_and_how_long_the_token_lives(folder: Path) -> None:
    ensure_dev_key(Path("data/keys"))
    assert "12 hours; `weir token` makes" in welcome(plan(), "http://a:1", NOW)
    ensure_dev_key(Path("my data/keys"))
    made = plan("--data-dir", "my data", environ={"DS_AUTH__MAX_LIFETIME_SECS": "7200"})
    text = welcome(made, "http://a:1", NOW)
    assert "2 hours; `weir token --key 'my data/keys/dev-key.pem'` makes" in text
    text = welcome(plan(environ={"DS_AUTH__SCOPE_CLAIM": "roles"}), "http://a:1", NOW)
    assert "`weir token --scope-claim roles` makes" in text


@pytest.mark.parametrize(("path", "shown"), [("", ".venv/bin/weir"), (".venv/bin", "weir")])
def test_words_can_be_typed_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: str, shown: str
) -> None:
    program = folder / ".venv/bin/weir"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [".venv/bin/weir", "up"])
    monkeypatch.setenv("PATH", path)
    ensure_dev_key(Path("data/keys"))
    assert f"; `{shown} token` makes" in welcome(plan(), "http://a:1", NOW)


# -- processes ---------------------------------------------------------------------------------


def paste(line: str) -> str:
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_printed_lines_work_when_pasted_and_survive_a_restart(tmp_path: Path) -> None:
    with serving(launch_up(tmp_path, "file-durable")) as server:
        create, append, read = curls(server.stdout)
        assert paste(create).startswith("HTTP/1.1 201 ")
        assert paste(append).startswith("HTTP/1.1 204 ")
        assert paste(read).endswith("\n\nhello")
        assert server.stop() == 0
        assert server.stderr == ""
    logged = b"".join(path.read_bytes() for path in (tmp_path / "data/access").iterdir())
    assert logged.count(b"\n") == 3 and b"demo" in logged
    arguments = ["--port", str(server.port)]
    with serving(launch_up(tmp_path, "file-durable", arguments=arguments)) as again:
        assert mint(again, secret_in(again)) == 200
        assert mint(again, secret_in(server)) == 403  # each run has its own
        assert paste(read).endswith("\n\nhello")  # the old token, the old data
        assert again.stop() == 0


ORIGIN = re.compile(r"weir origin listening on (http://\S+)")


def test_a_page_beside_it_gets_nothing_from_the_origin(tmp_path: Path) -> None:
    """What any page that is open in a browser of this machine could send to its port."""
    with serving(launch_up(tmp_path)) as server:
        create, append, read = curls(server.stdout)
        assert paste(create).startswith("HTTP/1.1 201 ") and paste(append)
        found = ORIGIN.search(server.stdout)
        assert found
        url = f"{found[1]}/v1/stream/demo"
        attempts = [
            call(method, url, headers)
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
            for headers in ({}, {"Origin": "https://evil.example"}, {"Host": "evil.example"})
        ]
        assert {attempt.status for attempt in attempts} == {401, 403, 421}
        assert not any("Access-Control-Allow-Origin" in attempt.headers for attempt in attempts)
        assert paste(read).endswith("\n\nhello")
        path = tmp_path / "data/keys/origin-key"
        assert path.stat().st_mode & 0o077 == 0
        key = {"Weir-Access-Key": path.read_text().strip()}
        assert call("GET", url, key).body == b"hello"
        assert call("GET", url, key | {"Origin": "https://evil.example"}).status == 403
        assert f"key in {Path('data/keys/origin-key')})" in server.stdout
        assert key["Weir-Access-Key"] not in server.stdout + server.stderr


def secret_in(server: Server) -> str:
    return server.stdout.partition("/console/#mint=")[2].split()[0]


def mint(server: Server, secret: str) -> int:
    headers = {"Origin": server.url, "Content-Type": "application/json", "Weir-Mint": secret}
    with Connection(server.port) as connection:
        headers["Host"] = server.url.removeprefix("http://")
        return connection.request("POST", "/console/token", headers, b'{"scope": ""}').status


def test_readers_get_a_clean_end_from_a_stop(tmp_path: Path) -> None:
    settings = {"DS_GATEWAY__WORKERS": "2"}
    with serving(launch_up(tmp_path, settings=settings)) as server:
        create, _, read = curls(server.stdout)
        paste(create)
        token = read.partition("Bearer ")[2].partition("'")[0]
        headers = {"Authorization": f"Bearer {token}"}
        with Connection(server.port) as reader:
            target = "/v1/stream/demo?offset=-1&live=sse"
            reader.send(encode_request("GET", target, headers))
            assert reader.read_head()[0] == 200
            pids = all_below(server)
            assert server.stop() == 0
            assert b"".join(reader.chunks()).endswith(b"\n\n")
        assert len(pids) == 4 and all(map(is_gone, pids))


def all_below(server: Server) -> list[int]:
    children = children_of(server.process.pid)
    return children + [pid for child in children for pid in children_of(child)]


def test_an_interrupt_from_the_terminal_reaches_all_and_stops_in_order(tmp_path: Path) -> None:
    with serving(launch_up(tmp_path)) as server:
        pids = all_below(server)
        for pid in (*pids, server.process.pid):  # as a terminal does
            os.kill(pid, signal.SIGINT)
        assert server.wait() == 0
        assert all(map(is_gone, pids))
        assert server.stderr == ""


@pytest.mark.parametrize(("which", "name"), [(0, "origin"), (1, "gateway")])
def test_when_one_dies_the_other_is_stopped(tmp_path: Path, which: int, name: str) -> None:
    with serving(launch_up(tmp_path)) as server:
        pids = children_of(server.process.pid)
        os.kill(pids[which], signal.SIGKILL)
        assert server.wait() == 1
        assert all(map(is_gone, pids))
        assert server.stderr.splitlines()[-1] == f"weir: the {name} died (signal 9 (Killed))"


def test_both_go_with_a_killed_parent(tmp_path: Path) -> None:
    with serving(launch_up(tmp_path, settings={"DS_GATEWAY__WORKERS": "2"})) as server:
        pids = all_below(server)
        server.kill()
        wait_until(lambda: all(map(is_gone, pids)), what="end of the children")


def test_configured_keys_leave_no_development_key(tmp_path: Path) -> None:
    _, jwks = ensure_dev_key(tmp_path)
    settings = {"DS_AUTH__JWKS": str(jwks)}
    with serving(launch_up(tmp_path, settings=settings)) as server:
        assert "$TOKEN" in server.stdout
        assert call("GET", f"{server.url}/v1/stream/x").status == 401
        assert [path.name for path in (tmp_path / "data/keys").iterdir()] == ["origin-key"]


def test_a_start_that_fails_is_one_line_and_leaves_nothing_running(tmp_path: Path) -> None:
    with serving(launch_up(tmp_path)) as server:
        origin_port = int(server.stdout.split("//127.0.0.1:")[1].split()[0])
        for flag, port, key in (
            ("--origin-port", origin_port, "server.port"),
            ("--gateway-port", server.port, "gateway.port"),
        ):
            other = launch_up(tmp_path, arguments=[flag, str(port)])
            assert other.wait() == 2
            [line] = other.stderr.splitlines()
            assert line.startswith(f"weir: {key}: ")
            assert "curl" not in other.stdout
