"""The issuer of a run."""

import json

import jwt
import pytest

from gateway.rules.access import Scopes
from loadtest.verify.keyring import INTRUDER, SCOPES, WRITER, Keyring, may_read
from loadtest.verify.run import STREAMS


def published(keys: Keyring) -> list[str]:
    return [key["kid"] for key in json.loads(keys.jwks())["keys"]]


def signer(keys: Keyring) -> str:
    return str(jwt.get_unverified_header(keys.token(WRITER).text)["kid"])


async def test_a_key_is_published_before_it_signs_and_gone_after_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = Keyring()
    seen = []

    async def look(seconds: float) -> None:
        seen.append((published(keys), signer(keys)))

    monkeypatch.setattr("loadtest.verify.keyring.asyncio.sleep", look)
    told: list[str] = []
    assert await keys.rotate(told.append) == "key-1"
    assert told == ["key-2"] == [keys.signing]
    assert seen == [(["key-1", "key-2"], "key-1"), (["key-1", "key-2"], "key-2")]
    assert (published(keys), signer(keys)) == (["key-2"], "key-2")


def test_a_token_says_which_key_it_is_of() -> None:
    keys = Keyring()
    assert keys.token(WRITER) is keys.token(WRITER)
    assert keys.token(WRITER).key == signer(keys) == "key-1"


@pytest.mark.parametrize("subject", SCOPES)
@pytest.mark.parametrize("stream", STREAMS)
def test_who_may_read_is_said_the_same_twice(subject: str, stream: str) -> None:
    assert Scopes.parse(SCOPES[subject]).allows("read", stream) == may_read(subject, stream)


@pytest.mark.parametrize("stream", STREAMS)
def test_an_intruder_may_nothing(stream: str) -> None:
    scopes = Scopes.parse(SCOPES[INTRUDER])
    assert not any(scopes.allows(action, stream) for action in ("read", "write", "create"))
