import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config import AuthConfig
from gateway.jwks import Keys, KeysError
from gateway.rules.access import Scopes
from gateway.rules.challenges import AuthError
from gateway.tokens import RECHECK_SECS, Revoked, Tokens
from protocol.replies import problem_of
from tests.helpers.keys import (
    AUDIENCE,
    ISSUER,
    Key,
    ScriptedSource,
    make_key,
    sign_raw,
)
from tests.helpers.keys import make_token as make_token_at

NOW = 1_800_000_000.0
make_token = partial(make_token_at, now=NOW)
KEY = make_key()
AUTH = AuthConfig(issuer=ISSUER, audience=AUDIENCE)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """Tokens with their keys, and what a test wants to turn."""

    def __init__(self, *keys: Key, auth: AuthConfig = AUTH, revoked: Revoked | None = None) -> None:
        self.clock = Clock()
        self.source = ScriptedSource(*keys)
        self.keys = Keys(self.source, self.clock)
        self.tokens = Tokens(auth, self.keys, revoked)

    async def publish(self, *keys: Key) -> None:
        """A new key set, and the timer's next look at it."""
        self.source.publish(*keys)
        await self.keys.refresh()

    def identity(self, key_id: str) -> bytes:
        return self.keys.current.by_id[key_id].identity

    async def accepts(self, token: str, now: float = NOW) -> bool:
        return await self.reason(token, now) == ""

    async def reason(self, token: str, now: float = NOW) -> str:
        try:
            await self.tokens.verify(token, now)
        except AuthError as error:
            return error.reason
        return ""


@pytest.fixture
async def open_desk() -> AsyncIterator[Any]:
    opened: list[Desk] = []

    async def start(*keys: Key, **options: Any) -> Desk:
        desk = Desk(*(keys or (KEY,)), **options)
        opened.append(desk)
        await desk.keys.start()
        return desk

    yield start
    for desk in opened:
        await desk.keys.stop()


@pytest.fixture
async def desk(open_desk: Any) -> Desk:
    opened: Desk = await open_desk()
    return opened


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize("kind", ["EdDSA", "ES256", "RS256"])
async def test_a_good_token_is_verified_once_and_remembered(open_desk: Any, kind: str) -> None:
    key = make_key(kind)
    desk = await open_desk(key)
    token = make_token(key, sub="bob", scope="read:a", jti="t1")
    assert desk.tokens.known(token, NOW) is None
    principal = await desk.tokens.verify(token, NOW)
    assert (principal.subject, principal.scopes) == ("bob", Scopes.parse("read:a"))
    assert principal.identity == ("t1", "bob", desk.identity("k1"))
    assert desk.tokens.known(token, NOW) is principal
    assert await desk.tokens.verify(token, NOW) is principal
    assert (desk.tokens.verified, desk.tokens.remembered) == (1, 1)


@pytest.mark.parametrize("alg", ["none", "None", "nOnE", "NONE"])
async def test_alg_none_is_refused(desk: Desk, alg: str) -> None:
    header = json.dumps({"alg": alg, "kid": "k1"}).encode()
    payload = encode(json.dumps({"sub": "root", "exp": NOW + 60}).encode())
    assert await desk.reason(f"{encode(header)}.{payload}.") == "malformed"
    assert await desk.reason(f"{encode(header)}.{payload}.AAAA") == "algorithm"


@pytest.mark.parametrize(("alg", "reason"), [("HS256", "algorithm"), ("RS256", "bad-signature")])
async def test_the_public_key_is_no_shared_secret(open_desk: Any, alg: str, reason: str) -> None:
    key = make_key("RS256")
    desk = await open_desk(key)
    head = encode(json.dumps({"alg": alg, "kid": "k1"}).encode())
    signed = f"{head}.{make_token(key).split('.')[1]}"
    mac = hmac.new(key.public_pem(), signed.encode(), hashlib.sha256).digest()
    assert await desk.reason(f"{signed}.{encode(mac)}") == reason


async def test_a_key_verifies_only_its_own_algorithm(open_desk: Any) -> None:
    desk = await open_desk(make_key("ES256", "ec"), KEY)
    assert await desk.reason(make_token(KEY, headers={"kid": "ec"})) == "algorithm"
    assert await desk.reason(make_token(KEY, headers={"alg": "ES256"})) == "algorithm"


async def test_another_key_of_the_same_kind_does_not_do(desk: Desk) -> None:
    assert await desk.reason(make_token(make_key())) == "bad-signature"


async def test_missing_expiry_is_refused(desk: Desk) -> None:
    assert await desk.reason(make_token(KEY, exp=None)) == "claims"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": int(NOW) - 60}, "expired"),
        ({"exp": str(int(NOW) + 60)}, "claims"),
        ({"exp": 10**400}, "claims"),
        ({"exp": True}, "claims"),
        ({"nbf": int(NOW) + 60}, "not-yet-valid"),
        ({"iat": int(NOW) + 60}, "not-yet-valid"),
        ({"iss": "other"}, "wrong-issuer"),
        ({"aud": "other"}, "wrong-audience"),
        ({"aud": None}, "wrong-audience"),
        ({"sub": "a\r\nb"}, "claims"),
        ({"sub": None}, "claims"),
    ],
    ids=str,
)
async def test_signed_but_not_good_is_refused_and_forgotten(
    desk: Desk, claims: dict[str, Any], reason: str
) -> None:
    token = make_token(KEY, **claims)
    assert await desk.reason(token) == reason
    assert desk.tokens.known(token, NOW) is None and desk.tokens.remembered == 0


async def test_duplicate_claims_are_refused(desk: Desk) -> None:
    header = b'{"alg":"EdDSA","kid":"k1"}'
    payload = json.dumps({"sub": "alice", "exp": NOW + 60, "iss": ISSUER, "aud": AUDIENCE})
    assert await desk.accepts(sign_raw(KEY, header, payload.encode()))
    twice = payload.replace("{", '{"sub": "root", ', 1)
    assert await desk.reason(sign_raw(KEY, header, twice.encode())) == "malformed"


@pytest.mark.parametrize(
    "kid",
    [
        "../../etc/passwd",
        "' OR 1=1 --",
        "http://169.254.169.254/",
        "K1",
        "k" * 10_000,
        "k1\x00",
        "",
    ],
    ids=range(7),
)
async def test_a_key_id_is_only_a_name(desk: Desk, kid: str) -> None:
    reason = await desk.reason(make_token(KEY, headers={"kid": kid}))
    assert reason in ("unknown-key", "malformed", "too-large")


async def test_without_key_id_the_only_key_of_its_kind_serves(open_desk: Any) -> None:
    nameless = {"kid": None}
    desk = await open_desk(KEY, make_key("ES256", "k2"))
    token = make_token(KEY, headers=nameless)
    assert (await desk.tokens.verify(token, NOW)).key == desk.identity("k1")
    assert desk.tokens.known(token, NOW) is not None
    await desk.publish(KEY, make_key("EdDSA", "k3"))
    assert desk.tokens.known(token, NOW) is None
    assert await desk.reason(token) == "unknown-key"


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk", "x5c"])
async def test_keys_that_a_token_brings_are_not_looked_at(desk: Desk, name: str) -> None:
    own = make_key("EdDSA", "mine")
    value = own.jwk() if name == "jwk" else "http://127.0.0.1:9/jwks.json"
    reads = desk.source.reads
    desk.clock.now += 3600
    assert await desk.reason(make_token(own, headers={name: value, "kid": "k1"})) == "bad-signature"
    assert desk.source.reads == reads
    assert await desk.reason(make_token(own, headers={name: value})) == "unknown-key"
    assert await desk.accepts(make_token(KEY, headers={name: value}))


async def test_critical_headers_are_refused(desk: Desk) -> None:
    assert await desk.reason(make_token(KEY, headers={"crit": ["exp"]})) == "malformed"


async def test_an_id_token_is_no_access_token_where_a_type_is_asked(open_desk: Any) -> None:
    desk = await open_desk(auth=AuthConfig(token_type="at+jwt"))
    assert await desk.reason(make_token(KEY)) == "wrong-type"
    assert await desk.accepts(make_token(KEY, headers={"typ": "at+jwt"}))


@pytest.mark.parametrize("size", [8_193, 100_000, 1_000_000])
async def test_a_huge_token_is_not_even_hashed(desk: Desk, size: int) -> None:
    token = make_token(KEY, padding="x" * size)
    assert await desk.reason(token) == "too-large"
    assert desk.tokens.known(token, NOW) is None


async def test_deep_nesting_is_malformed(open_desk: Any) -> None:
    desk = await open_desk(auth=AuthConfig(max_token_bytes=1_000_000))
    payload = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert await desk.reason(sign_raw(KEY, b'{"alg":"EdDSA","kid":"k1"}', payload)) == "malformed"


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é.é.é", "\udcff", "a" * 8192])
async def test_rubbish_is_malformed(desk: Desk, token: str) -> None:
    assert await desk.reason(token) == "malformed"
    assert desk.tokens.known(token, NOW) is None


async def test_a_remembered_token_ends_with_its_time(desk: Desk) -> None:
    token = make_token(KEY, ttl=60)
    end = (await desk.tokens.verify(token, NOW)).expires_at
    assert desk.tokens.known(token, end - 0.001) is not None
    assert desk.tokens.known(token, end) is None
    assert await desk.reason(token, end) == "expired"
    assert desk.tokens.remembered == 0


async def test_a_removed_key_takes_its_remembered_tokens_along(desk: Desk) -> None:
    token = make_token(KEY)
    await desk.tokens.verify(token, NOW)
    await desk.publish(make_key("EdDSA", "k2"))
    assert desk.tokens.known(token, NOW) is None
    assert await desk.reason(token) == "unknown-key"


async def test_a_replaced_key_of_the_same_name_is_another_key(desk: Desk) -> None:
    token = make_token(KEY)
    await desk.tokens.verify(token, NOW)
    await desk.publish(make_key("EdDSA", "k1"))
    assert desk.tokens.known(token, NOW) is None
    assert await desk.reason(token) == "bad-signature"


async def test_a_renamed_key_is_another_key(desk: Desk) -> None:
    token = make_token(KEY)
    await desk.tokens.verify(token, NOW)
    await desk.publish(replace(KEY, kid="k2"))
    assert desk.tokens.known(token, NOW) is None
    assert await desk.reason(token) == "unknown-key"


async def test_rotation_with_overlap_keeps_remembered_tokens(desk: Desk) -> None:
    token, fresh = make_token(KEY), make_key("EdDSA", "k2")
    await desk.tokens.verify(token, NOW)
    await desk.publish(KEY, fresh)
    assert desk.tokens.known(token, NOW) is not None
    assert await desk.accepts(token) and desk.tokens.verified == 1
    assert await desk.accepts(make_token(fresh))


async def test_a_new_key_is_found_by_its_first_token(desk: Desk) -> None:
    fresh = make_key("EdDSA", "k2")
    desk.source.publish(KEY, fresh)
    desk.clock.now += 31
    assert await desk.accepts(make_token(fresh))


async def test_a_flood_of_unknown_keys_is_one_fetch(desk: Desk) -> None:
    desk.clock.now += 31
    stranger = make_key("EdDSA", "x")
    flood = [make_token(stranger, headers={"kid": f"x{index}"}) for index in range(200)]
    reasons = await asyncio.gather(*(desk.reason(token) for token in flood))
    assert set(reasons) == {"unknown-key"} and desk.source.reads == 2
    assert await desk.accepts(make_token(KEY))


async def test_without_any_keys_the_answer_is_503() -> None:
    desk = Desk(KEY)
    desk.source.error = KeysError("is away")
    await desk.keys.start()
    assert await desk.reason(make_token(KEY)) == "keys-unavailable"
    desk.source.error = None
    await desk.keys.refresh()
    assert await desk.accepts(make_token(KEY))
    await desk.keys.stop()


async def test_memory_of_tokens_is_bounded(open_desk: Any) -> None:
    desk = await open_desk(auth=AuthConfig(remembered_tokens=3))
    tokens = [make_token(KEY, sub=f"s{index}") for index in range(5)]
    for token in tokens:
        assert await desk.accepts(token)
    assert [desk.tokens.known(token, NOW) is not None for token in tokens] == [False] * 2 + [
        True
    ] * 3


async def test_refusals_neither_tell_why_nor_repeat_the_token(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bad = [make_token(KEY, exp=1), make_token(make_key()), make_token(KEY, aud="x"), "a.b.c"]
    bad += [make_token(KEY, headers={"kid": "unknown"}), make_token(KEY, sub=" ")]
    answers = set()
    for token in bad:
        with pytest.raises(AuthError) as caught:
            await desk.tokens.verify(token, NOW)
        answers.add(problem_of(caught.value))
        assert token[:8] not in caplog.text and token[-8:] not in caplog.text
    assert len(answers) == 1 and answers.pop().status == 401


class Ledger:
    """Revoked names, as Redis would answer."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.away = False
        self.called = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, token_id: str, subject: str) -> bool:
        self.called.set()
        self.asked.append((token_id, subject))
        await self.open.wait()
        if self.away:
            raise ConnectionError("away")
        return bool({token_id, subject} & self.names)

    async def many(self, named: Sequence[tuple[str, str]]) -> list[bool]:
        return [await self(*pair) for pair in named]


@pytest.mark.parametrize("name", ["t1", "alice"])
async def test_a_revoked_id_or_subject_is_refused(open_desk: Any, name: str) -> None:
    ledger = Ledger()
    ledger.names.add(name)
    desk = await open_desk(revoked=ledger)
    token = make_token(KEY, jti="t1")
    assert await desk.reason(token) == "revoked"
    assert desk.tokens.known(token, NOW) is None
    assert await desk.accepts(make_token(KEY, sub="bob", jti="t2"))


async def test_revocation_is_looked_up_again_without_a_new_verification(open_desk: Any) -> None:
    ledger = Ledger()
    desk = await open_desk(revoked=ledger)
    token = make_token(KEY, jti="t1")
    assert await desk.accepts(token)
    assert desk.tokens.known(token, NOW + RECHECK_SECS - 0.1) is not None
    assert desk.tokens.known(token, NOW + RECHECK_SECS) is None
    assert await desk.accepts(token, NOW + RECHECK_SECS)
    assert desk.tokens.known(token, NOW + RECHECK_SECS) is not None
    assert len(ledger.asked) == 2 and desk.tokens.verified == 1
    ledger.names.add("t1")
    assert await desk.reason(token, NOW + 2 * RECHECK_SECS) == "revoked"
    assert desk.tokens.known(token, NOW + 2 * RECHECK_SECS) is None


async def test_a_token_is_not_known_before_the_ledger_has_answered(open_desk: Any) -> None:
    ledger = Ledger()
    desk = await open_desk(revoked=ledger)
    ledger.open.clear()
    token = make_token(KEY, jti="t1")
    first = asyncio.create_task(desk.accepts(token))
    await ledger.called.wait()
    assert desk.tokens.remembered == 1 and desk.tokens.known(token, NOW) is None
    ledger.open.set()
    assert await first and desk.tokens.known(token, NOW) is not None


async def test_a_pardoned_token_is_good_again(open_desk: Any) -> None:
    ledger = Ledger()
    ledger.names.add("t1")
    desk = await open_desk(revoked=ledger)
    token = make_token(KEY, jti="t1")
    assert await desk.reason(token) == "revoked"
    ledger.names.clear()
    assert await desk.reason(token, NOW + RECHECK_SECS - 1) == "revoked"
    assert await desk.accepts(token, NOW + RECHECK_SECS)


async def test_while_nobody_can_tell_the_last_answer_holds(open_desk: Any) -> None:
    ledger = Ledger()
    ledger.names.add("bad")
    desk = await open_desk(revoked=ledger)
    good, bad = make_token(KEY, jti="good"), make_token(KEY, jti="bad")
    assert await desk.accepts(good) and not await desk.accepts(bad)
    ledger.away = True
    assert await desk.accepts(good, NOW + RECHECK_SECS)
    assert await desk.reason(bad, NOW + RECHECK_SECS) == "revoked"
    assert await desk.accepts(make_token(KEY, jti="new"), NOW + RECHECK_SECS)
    assert desk.tokens.unknown_revocations == 3


async def test_a_forged_token_never_reaches_the_ledger(open_desk: Any) -> None:
    ledger = Ledger()
    desk = await open_desk(revoked=ledger)
    assert await desk.reason(make_token(make_key(), jti="t1")) == "bad-signature"
    assert ledger.asked == []


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_one_changed_character_makes_another_token(desk: Desk, data: st.DataObject) -> None:
    token = make_token(KEY)
    await desk.tokens.verify(token, NOW)
    index = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABCxyz019-_.").filter(lambda one: one != token[index]))
    changed = token[:index] + letter + token[index + 1 :]
    assert desk.tokens.known(changed, NOW) is None
    assert not await desk.accepts(changed)
    assert desk.tokens.known(token, NOW) is not None


async def test_an_unset_audience_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    Tokens(AuthConfig(issuer="x"), Keys(ScriptedSource(KEY)))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "auth.audience" in caplog.text


async def test_tokens_are_withdrawn_with_their_key_or_by_a_revocation(open_desk: Any) -> None:
    ledger, leaving = Ledger(), make_key("ES256", "leaving")
    desk = await open_desk(KEY, leaving, revoked=ledger)
    tokens = [make_token(KEY, jti="a"), make_token(KEY, jti="b"), make_token(leaving, jti="c")]
    identities = [(await desk.tokens.verify(token, NOW)).identity for token in tokens]
    assert await desk.tokens.withdrawn(identities) == [False, False, False]
    ledger.names.add("b")
    await desk.publish(KEY)
    assert await desk.tokens.withdrawn(identities) == [False, True, True]
