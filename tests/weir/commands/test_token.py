"""`weir token` as scripts use it: one token on standard output and nothing else."""

import json
import time
from pathlib import Path

import jwt
import pytest

from gateway.config import AuthConfig
from gateway.devkeys import ensure_dev_key
from gateway.rules.challenges import AuthError
from gateway.rules.claims import read_claims
from tests.helpers.server import run_weir
from weir.commands.token import parse_duration
from wire.settings import SettingsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ensure_dev_key(tmp_path)
    return tmp_path


def claims_of(folder: Path, token: str) -> dict[str, object]:
    [key] = jwt.PyJWKSet.from_dict(json.loads((folder / "dev-jwks.json").read_text())).keys
    found: dict[str, object] = jwt.decode(
        token, key, algorithms=["EdDSA"], options={"verify_aud": False}
    )
    return found


def test_one_line_with_a_token_for_everything(folder: Path) -> None:
    result = run_weir("token", "--key", str(folder / "dev-key.pem"))
    assert (result.returncode, result.stderr) == (0, "")
    [token] = result.stdout.splitlines()
    claims = claims_of(folder, token)
    assert (claims["sub"], claims["iss"], claims["aud"]) == ("dev", "weir-dev", "weir")
    assert claims["scope"] == "read:* write:* create:* delete:* snapshot:*"
    assert isinstance(claims["exp"], int) and isinstance(claims["iat"], int)
    assert claims["exp"] - claims["iat"] == 3600


def test_flags_set_the_claims(folder: Path) -> None:
    flags = {"sub": "alice", "scope": "read:a write:b/*", "ttl": "15m", "aud": "x", "iss": "me"}
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    result = run_weir("token", "--key", str(folder / "dev-key.pem"), *words)
    claims = claims_of(folder, result.stdout.strip())
    assert {name: claims[name] for name in ("sub", "scope", "aud", "iss")} == {
        name: flags[name] for name in ("sub", "scope", "aud", "iss")
    }
    assert claims["exp"] == int(str(claims["iat"])) + 900


def test_a_token_can_be_expired_from_the_start(folder: Path) -> None:
    key = str(folder / "dev-key.pem")
    token = run_weir("token", "--key", key, "--ttl", "15m", "--expired").stdout.strip()
    with pytest.raises(jwt.ExpiredSignatureError):
        claims_of(folder, token)
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 900
    with pytest.raises(AuthError) as refused:
        read_claims(json.dumps(claims).encode(), b"k", AuthConfig(leeway_secs=300.0), time.time())
    assert refused.value.reason == "expired"


def test_scopes_go_where_the_gateway_looks_for_them(folder: Path) -> None:
    key = str(folder / "dev-key.pem")
    result = run_weir("token", "--key", key, "--scope", "read:a", "--scope-claim", "scp")
    claims = claims_of(folder, result.stdout.strip())
    assert (claims["scp"], claims.get("scope")) == ("read:a", None)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--key", "missing.pem"], "missing.pem not found; `weir up` makes one"),
        (["--key", __file__], "is not a private key"),
        (["--ttl", "soon"], "--ttl: 'soon' is not a duration"),
        (["--sub", "a b"], "sub: 'a b' is not a valid subject"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(folder: Path, arguments: list[str], names: str) -> None:
    result = run_weir("token", "--key", str(folder / "dev-key.pem"), *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("weir: ") and names in line


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("900", 900), ("30s", 30), ("15m", 900), ("2h", 7200), ("7d", 604_800), ("1", 1)],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration("--ttl", text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0h", "-1", "1.5h", "1w", "h", "1 h", "9" * 10, "٣"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^--ttl: "):
        parse_duration("--ttl", text)
    with pytest.raises(SettingsError, match=r"^--every: "):
        parse_duration("--every", text)
