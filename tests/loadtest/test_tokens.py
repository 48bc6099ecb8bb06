from pathlib import Path

import jwt
import pytest

from loadtest.peers.tokens import AUDIENCE, ISSUER, SCOPE, TokenFiles, read_tokens, write_tokens


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TokenFiles:
    return write_tokens(tmp_path_factory.mktemp("tokens"), 5)


def verify(token: str, jwks: Path) -> dict[str, str]:
    keys = jwt.PyJWKSet.from_json(jwks.read_text())
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims: dict[str, str] = jwt.decode(
        token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=ISSUER
    )
    return claims


def test_every_token_is_of_another_subject_and_fits_the_key_set(files: TokenFiles) -> None:
    claims = [verify(token, files.jwks) for token in read_tokens(files.tokens)]
    assert [claim["sub"] for claim in claims] == [f"reader-{number}" for number in range(5)]
    assert {claim["scope"] for claim in claims} == {SCOPE}


def test_key_set_holds_no_private_part(files: TokenFiles) -> None:
    assert '"d"' not in files.jwks.read_text()
