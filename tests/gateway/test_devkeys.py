import json
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.config import AuthConfig
from gateway.devkeys import (
    DEV_AUDIENCE,
    DEV_ISSUER,
    ensure_dev_key,
    load_private_key,
    make_jwks,
    sign_token,
    thumbprint,
)
from gateway.jwks import FileSource, Keys, parse_jwks
from gateway.rules.access import Principal, Scopes
from gateway.tokens import Tokens
from tests.helpers.keys import make_key
from wire.settings import SettingsError

AUTH = AuthConfig(issuer=DEV_ISSUER, audience=DEV_AUDIENCE)


def sign(path: Path, sub: str = "dev", ttl_s: float = 60) -> str:
    return sign_token(path, sub, "read:a", ttl_s, DEV_AUDIENCE, DEV_ISSUER, time.time())


async def verify(token: str, jwks: Path) -> Principal:
    keys = Keys(FileSource(str(jwks), 300, 30))
    await keys.start()
    try:
        return await Tokens(AUTH, keys).verify(token, time.time())
    finally:
        await keys.stop()


async def test_a_development_token_is_taken_by_a_gateway_with_its_jwks(tmp_path: Path) -> None:
    key, jwks = ensure_dev_key(tmp_path / "deep" / "keys")
    principal = await verify(sign(key), jwks)
    assert (principal.subject, principal.scopes) == ("dev", Scopes.parse("read:a"))
    assert principal.token_id and principal.key == parse_jwks(jwks.read_bytes()).keys[0].identity


def test_the_key_is_made_once_and_kept(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in ensure_dev_key(tmp_path)]
    assert [path.read_bytes() for path in ensure_dev_key(tmp_path)] == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev-jwks.json", "dev-key.pem"]


def test_the_private_key_is_for_its_owner_only(tmp_path: Path) -> None:
    key, jwks = ensure_dev_key(tmp_path / "keys")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    assert not {"d", "k"} & set(json.loads(jwks.read_text())["keys"][0])


def test_many_starts_at_once_agree_on_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ensure_dev_key(tmp_path)[0].read_bytes(), range(16)))
    assert len(set(made)) == 1
    key, jwks = ensure_dev_key(tmp_path)
    assert json.loads(jwks.read_text()) == make_jwks(load_private_key(key))


def test_a_lost_half_is_made_anew(tmp_path: Path) -> None:
    key, jwks = ensure_dev_key(tmp_path)
    jwks.unlink()
    ensure_dev_key(tmp_path)
    assert json.loads(jwks.read_text()) == make_jwks(load_private_key(key))
    key.unlink()
    ensure_dev_key(tmp_path)
    assert json.loads(jwks.read_text()) == make_jwks(load_private_key(key))


@pytest.mark.parametrize("kind", ["EdDSA", "ES256", "RS256"])
async def test_any_kind_of_private_key_signs(tmp_path: Path, kind: str) -> None:
    path, jwks = tmp_path / "key.pem", tmp_path / "jwks.json"
    path.write_bytes(make_key(kind).private_pem())
    jwks.write_text(json.dumps(make_jwks(load_private_key(path))))
    assert (await verify(sign(path, "bob"), jwks)).subject == "bob"


def test_no_two_tokens_are_alike(tmp_path: Path) -> None:
    key, _ = ensure_dev_key(tmp_path)
    assert sign(key) != sign(key)


def test_key_id_is_the_thumbprint_of_the_standard() -> None:
    # RFC 8037 A.3 and RFC 7638 3.1
    okp = {"crv": "Ed25519", "kty": "OKP", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    assert thumbprint(okp | {"use": "sig"}) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@pytest.mark.parametrize("content", [None, b"", b"nonsense", make_key().public_pem()])
def test_what_is_no_private_key_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match="key.pem: (cannot be read|is not a private key)"):
        sign(path)


@pytest.mark.parametrize("sub", ["", "a b", "a\n", "é"])
def test_a_subject_that_would_be_refused_is_not_signed(tmp_path: Path, sub: str) -> None:
    key, _ = ensure_dev_key(tmp_path)
    with pytest.raises(SettingsError, match="^sub: "):
        sign(key, sub)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot hold the key"):
        ensure_dev_key(tmp_path / "file" / "keys")
