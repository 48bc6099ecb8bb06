"""`weir origin` as an operator meets it: one line and an exit code when it cannot start."""

from pathlib import Path

import pytest

from tests.helpers.rawhttp import Client
from tests.helpers.server import launch, run_weir, started


def refused(folder: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    """Exit code and the one line on stderr of a start that must fail."""
    server = launch(folder, "file-durable", settings=settings, arguments=arguments)
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
        (["--storage", "disk"], {}, "storage.mode"),
        (["--port", "http"], {}, "server.port"),
        (["--profile", "missing"], {}, "missing"),
        (["--config", "missing.toml"], {}, "missing.toml"),
        ([], {"DS_SERVER__PORTT": "1"}, "DS_SERVER__PORTT"),
        ([], {"DS_LIMITS__MAX_BODY_BYTES": "many"}, "DS_LIMITS__MAX_BODY_BYTES"),
        ([], {"DS_NOWHERE__X": "1"}, "DS_NOWHERE__X"),
    ],
    ids=["mode", "port", "profile", "file", "unknown-key", "bad-value", "unknown-section"],
)
def test_a_configuration_error_is_one_line_and_exit_2(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], names: str
) -> None:
    code, line = refused(tmp_path, *arguments, **environ)
    assert code == 2
    assert line.startswith("weir: ")
    assert names in line


@pytest.mark.parametrize(
    "text", ["[server]\nprt = 1\n", "[server\n", "[server]\nport = 'x'\n", "server = 1\n"]
)
def test_a_bad_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    code, line = refused(tmp_path, "--config", "bad.toml")
    assert code == 2
    assert "bad.toml" in line


@pytest.mark.parametrize("mode", ["file-durable", "acid"])
def test_a_second_process_on_the_same_data_is_refused(tmp_path: Path, mode: str) -> None:
    with started(tmp_path, mode) as server:
        code, line = refused(tmp_path, "--data-dir", "data", "--storage", mode)
        assert code == 3
        assert "another process" in line and "data" in line
        assert "damaged" not in line
        with Client(server.port) as client:
            client.create("s")
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [("file-durable", "acid"), ("file-fast", "acid"), ("acid", "file-durable")],
)
def test_data_of_another_engine_is_refused(tmp_path: Path, first: str, second: str) -> None:
    with started(tmp_path, first) as server:
        assert server.stop() == 0
    code, line = refused(tmp_path, "--data-dir", "data", "--storage", second)
    assert code == 3
    assert second in line


def test_file_modes_share_their_data(tmp_path: Path) -> None:
    with started(tmp_path, "file-fast") as server:
        with Client(server.port) as client:
            client.create("s", body=b"data")
        assert server.stop() == 0
    with started(tmp_path, "file-durable") as server, Client(server.port) as client:
        assert client.read("s").body == b"data"


def test_a_taken_port_is_a_configuration_error(tmp_path: Path) -> None:
    with started(tmp_path, "memory") as server:
        code, line = refused(tmp_path, "--port", str(server.port), "--storage", "memory")
        assert code == 2
        assert "server.port" in line and str(server.port) in line


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = refused(tmp_path, "--data-dir", "file/data")
    assert code == 3
    assert "file" in line


@pytest.mark.parametrize("missing", ["cert", "key", "nonsense"])
def test_a_certificate_that_cannot_be_read_is_one_line(tmp_path: Path, missing: str) -> None:
    for name in ("cert", "key"):
        if name != missing:
            (tmp_path / name).write_text("not PEM")
    environ = {"DS_TLS__CERT_PATH": "cert", "DS_TLS__KEY_PATH": "key"}
    code, line = refused(tmp_path, "--storage", "memory", **environ)
    assert code == 2
    assert "cert" in line or "key" in line or "tls" in line.lower()


def test_usage_errors_exit_2() -> None:
    for arguments in ((), ("nonsense",), ("origin", "--nonsense")):
        result = run_weir(*arguments)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
