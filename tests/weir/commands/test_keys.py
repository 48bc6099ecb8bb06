import tomllib
from pathlib import Path

import pytest

from gateway.config import load_config
from origin.config import load_config as load_origin_config
from tests.weir.conftest import Weir

URL = "https://issuer.example/jwks.json"


def read_all(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_private_key_is_kept_apart(weir: Weir, tmp_path: Path) -> None:
    shared, private = tmp_path / "shared", tmp_path / "private"
    done = weir("keys", str(shared), "--private", str(private))
    assert done.code == 0
    assert set(read_all(shared)) == {"dev-jwks.json", "dev-tls.pem", "origin-key", "secrets.toml"}
    assert b"PRIVATE" in read_all(private)["dev-key.pem"]
    assert b'"d"' not in read_all(shared)["dev-jwks.json"]
    assert "DEVELOPMENT KEY" in done.out[0] and str(private) in done.out[0]
    for name in ("dev-tls.pem", "origin-key", "secrets.toml"):
        assert (shared / name).stat().st_mode & 0o077 == 0


def test_a_second_run_changes_nothing(weir: Weir, tmp_path: Path) -> None:
    assert weir("keys", str(tmp_path)).code == 0
    before = read_all(tmp_path)
    assert weir("keys", str(tmp_path)).code == 0
    assert read_all(tmp_path) == before


def test_no_development_key_beside_the_keys_of_an_issuer(weir: Weir, tmp_path: Path) -> None:
    done = weir("keys", str(tmp_path), "--jwks", URL)
    assert (done.code, done.out) == (0, [f"weir: tokens are verified with the keys in {URL}"])
    assert set(read_all(tmp_path)) == {"dev-tls.pem", "origin-key", "secrets.toml"}


def test_the_secrets_are_settings_of_a_gateway(weir: Weir, tmp_path: Path) -> None:
    weir("keys", str(tmp_path))
    jwks = {"DS_AUTH__JWKS": str(tmp_path / "dev-jwks.json")}
    config = load_config({}, jwks, profile=None, config_file=str(tmp_path / "secrets.toml"))
    cache = tomllib.loads((tmp_path / "secrets.toml").read_text())["cache"]
    assert (config.cache.redis_key, config.cache.cursor_key) == tuple(cache.values())
    assert len(set(cache.values())) == 2 and all(len(secret) >= 32 for secret in cache.values())


def test_the_origin_asks_for_the_key_that_gateways_send(weir: Weir, tmp_path: Path) -> None:
    weir("keys", str(tmp_path))
    file = str(tmp_path / "secrets.toml")
    config = load_config({}, {"DS_AUTH__MODE": "off"}, config_file=file)
    key = load_origin_config({}, {}, config_file=file).server.access_key
    assert key and key == config.upstream.access_key
    assert (tmp_path / "origin-key").read_text() == f"{key}\n"


def test_secrets_of_an_older_version_stay_and_get_what_they_lack(
    weir: Weir, tmp_path: Path
) -> None:
    old = {"redis_key": "r" * 40, "cursor_key": "c" * 40}
    lines = "".join(f'{name} = "{value}"\n' for name, value in old.items())
    (tmp_path / "secrets.toml").write_text(f"[cache]\n{lines}")
    assert weir("keys", str(tmp_path)).code == 0
    found = tomllib.loads((tmp_path / "secrets.toml").read_text())
    assert found["cache"] == old and found["server"] == found["upstream"]


@pytest.mark.parametrize(
    "text",
    [
        '[cache]\nredis_key = "of-a-year-ago-and-long"',  # no end of line
        "[upstream]\nconnections = 300\n",
        '[server] # of the origin\nport = 4437\n\n[http]\npublic_url = "https://a.example"\n',
        "# access_key comes later\n",
        '[upstream]\naccess_key = "chosen-by-somebody"\n',
        '[server]\naccess_key = "chosen-by-somebody"\n[upstream]\nconnections = 300',
    ],
)
def test_what_else_somebody_wrote_there_stays_as_it_was(
    weir: Weir, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text(text)
    assert weir("keys", str(tmp_path)).code == 0
    found, before = tomllib.loads(file.read_text()), tomllib.loads(text)
    key = found["server"]["access_key"]
    assert key == found["upstream"]["access_key"]
    assert (tmp_path / "origin-key").read_text() == f"{key}\n"
    for section, settings in before.items():
        assert found[section] | settings == found[section]


def test_a_lost_file_of_the_origins_key_is_written_again(weir: Weir, tmp_path: Path) -> None:
    weir("keys", str(tmp_path))
    before = read_all(tmp_path)
    (tmp_path / "origin-key").unlink()
    weir("keys", str(tmp_path))
    assert read_all(tmp_path) == before
