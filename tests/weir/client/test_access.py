"""Where commands find the secret that an origin asks for, and whom they send it to."""

from pathlib import Path

import pytest

from tests.conftest import StartOrigin
from tests.weir.conftest import Weir
from weir.client.access import FILE_VARIABLE, access_headers, key_beside
from wire.settings import SettingsError

KEY = "the-key-of-this-run"
JSON = b'[{"type":"user","key":"1","value":1,"headers":{"operation":"insert"}}]'


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys/origin-key"
    path.parent.mkdir()
    path.write_text(f"{KEY}\n")
    return path


def test_nothing_is_sent_unless_a_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    assert access_headers() == {}


def test_the_key_of_a_named_file_is_sent(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE_VARIABLE, str(key_file))
    assert access_headers() == {"Weir-Access-Key": KEY}


@pytest.mark.parametrize("data", [None, b"two words", b"a\nb", b"\xff"])
def test_a_file_that_holds_no_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None
) -> None:
    path = tmp_path / "file"
    if data is not None:
        path.write_bytes(data)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    with pytest.raises(SettingsError, match=str(path)):
        access_headers()


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://localhost:4437", KEY),
        ("http://127.0.0.1:4437", KEY),
        ("http://[::1]:4437", KEY),
        ("http://origin.example:4437", ""),
        ("http://localhost.example", ""),
        ("", ""),
    ],
)
def test_the_key_beside_a_log_is_for_this_machine_alone(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, found: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert key_beside(Path("access"), url) == found
    assert key_beside(tmp_path / "elsewhere/access", url) == ""


@pytest.mark.parametrize("logs", ["data/access", "logs", "elsewhere/logs"])
def test_the_key_of_the_usual_folder_is_found_from_every_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: str
) -> None:
    (tmp_path / "data/keys").mkdir(parents=True)
    (tmp_path / "data/keys/origin-key").write_text(KEY)
    monkeypatch.chdir(tmp_path)
    assert key_beside(Path(logs), "http://localhost:4437") == KEY


def test_commands_reach_an_origin_that_asks_for_its_key(
    weir: Weir, start_origin: StartOrigin, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = start_origin(server={"access_key": KEY, "allowed_hosts": ()})
    with origin.client() as client:
        client.create("s", "application/json", JSON, weir_access_key=KEY, host="localhost")
    url = f"http://127.0.0.1:{origin.port}/v1/stream/s"
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    code, _, [line] = weir("state", url)
    assert code == 4 and "401" in line and "Weir-Access-Key" in line
    monkeypatch.setenv(FILE_VARIABLE, str(key_file))
    assert weir("state", url, "--json").code == 0
    assert weir("compact", url).code == 0
    assert weir("produce", f"{url}2", "--count", "1").code == 0
