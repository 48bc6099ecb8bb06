"""Tokens that must not be taken, and the places where a token must not be found.

Each forgery is tried on a chunk that is in the cache, where letting it pass would be easiest. All
get one and the same answer.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.gateway import KEY, bearer
from tests.helpers.keys import Key, jwks, make_key, make_token, sign_raw, write_jwks
from tests.helpers.rawhttp import PREFIX, Connection, Response, encode_request, wait_until
from tests.helpers.redis import running_redis
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, SimpleStream
from tests.helpers.server import launch_gateway, serving
from tests.hostile.gateway.arena import Arena, check_refusal, lasting
from tests.hostile.gateway.conftest import SECRET_BYTES

RSA = make_key("RS256", "rsa-key")
EC = make_key("ES256", "ec-key")
WEAK = make_key("RS256", "weak-key", rsa_bits=1024)
THEIRS = make_key("EdDSA", "test-key")  # an attacker's key under the id of ours
FAR = "9" * 400
NOW = int(time.time())


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory, arena_class: type[Arena]) -> Iterator[Arena]:
    """As everywhere, but with keys of each kind, a weak one and a symmetric one among them."""
    folder = tmp_path_factory.mktemp("tokens")
    oct_key = {"kty": "oct", "kid": "oct-key", "alg": "HS256", "k": encode(b"0123456789abcdef")}
    document = jwks(KEY, RSA, EC, WEAK)
    document["keys"].append(oct_key)
    path = folder / "jwks.json"
    path.write_text(json.dumps(document))
    with arena_class(folder, auth={"jwks": str(path)}) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "secret", chunk_bytes=len(SECRET_BYTES))
        stream.append(SECRET_BYTES)
        stream.append(b"and the rest")
        arena.ask("secret")
        assert arena.ask("secret")["Cache-Status"] == "weir; hit"
        yield arena


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(algorithm: str, signature: str = "") -> str:
    header, payload = {"alg": algorithm, "typ": "JWT"}, make_token(KEY).split(".")[1]
    return f"{encode(json.dumps(header).encode())}.{payload}.{signature}"


def with_mac(secret: bytes, kid: str | None) -> str:
    """A public key, which everybody has, used as the secret of an HMAC."""
    header = {"alg": "HS256", "typ": "JWT"} | ({"kid": kid} if kid else {})
    signed = f"{encode(json.dumps(header).encode())}.{make_token(KEY).split('.')[1]}"
    return f"{signed}.{encode(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def raw(payload: str, header: str = '{"alg":"EdDSA","kid":"test-key"}', key: Key = KEY) -> str:
    """Signed by us, whatever it says."""
    return sign_raw(key, header.encode(), payload.encode())


def claims(more: str) -> str:
    base = f'"sub":"eve","scope":"read:*","iss":"weir-dev","aud":"weir","iat":{NOW}'
    return "{" + base + ("," + more if more else "") + "}"


def named(sub: Any) -> str:
    return make_token(KEY, sub=sub)


EXP = f'"exp":{NOW + 300}'

FORGED: dict[str, Callable[[], str]] = {
    # no signature
    **{f"alg-{name}": partial(unsigned, name) for name in ("none", "None", "NONE", "nOnE")},
    "alg-none-with-signature": lambda: unsigned("none", make_token(KEY).split(".")[2]),
    "alg-empty": lambda: unsigned("", make_token(KEY).split(".")[2]),
    # one algorithm's key as another's
    "hmac-by-the-rsa-public-key": lambda: with_mac(RSA.public_pem(), "rsa-key"),
    "hmac-by-the-rsa-public-key-without-kid": lambda: with_mac(RSA.public_pem(), None),
    "hmac-by-the-rsa-jwk": lambda: with_mac(json.dumps(RSA.jwk()).encode(), "rsa-key"),
    "hmac-by-the-ec-public-key": lambda: with_mac(EC.public_pem(), "ec-key"),
    "hmac-by-a-published-secret": lambda: with_mac(b"0123456789abcdef", "oct-key"),
    "kid-of-a-key-of-another-kind": lambda: make_token(EC, headers={"kid": "rsa-key"}),
    "alg-of-another-kind": lambda: make_token(RSA, headers={"alg": "RS512"}),
    "alg-ps256": lambda: make_token(RSA, headers={"alg": "PS256"}),
    "alg-a-list": lambda: make_token(KEY, headers={"alg": ["EdDSA"]}),
    "alg-in-lower-case": lambda: make_token(KEY, headers={"alg": "eddsa"}),
    "rsa-key-of-1024-bits": lambda: make_token(WEAK),
    # somebody else's key
    "signed-by-another-key": lambda: make_token(THEIRS),
    "signed-by-another-key-without-kid": lambda: make_token(THEIRS, headers={"kid": None}),
    "embedded-jwk": lambda: make_token(THEIRS, headers={"jwk": THEIRS.jwk()}),
    "embedded-jwk-without-kid": lambda: make_token(
        THEIRS, headers={"jwk": THEIRS.jwk(), "kid": None}
    ),
    "embedded-x5c": lambda: make_token(THEIRS, headers={"x5c": [encode(THEIRS.public_pem())]}),
    # key ids
    **{
        f"kid-{name}": partial(make_token, KEY, headers={"kid": kid})
        for name, kid in {
            "unknown": "nobody",
            "path": "../../../../dev/null",
            "absolute-path": "/proc/self/environ",
            "sql": "x' UNION SELECT 'secret' --",
            "shell": "| cat /etc/passwd",
            "with-nul": "test-key\x00",
            "with-crlf": "test-key\r\nX-Evil: 1",
            "in-other-case": "TEST-KEY",
            "with-space": "test-key ",
            "not-ascii": "test-kéy",
            "empty": "",
            "number": 1,
            "list": ["test-key"],
            "object": {"kid": "test-key"},
            "false": False,
            "of-5-kB": "k" * 5000,
        }.items()
    },
    # what must be understood, and is not
    "crit": lambda: make_token(KEY, headers={"crit": ["exp"], "exp": NOW}),
    "crit-unknown": lambda: make_token(KEY, headers={"crit": ["x"], "x": 1}),
    "crit-empty": lambda: make_token(KEY, headers={"crit": []}),
    # times
    "expired": lambda: make_token(KEY, ttl=-1),
    "expired-long-ago": lambda: make_token(KEY, exp=0),
    "not-yet-valid": lambda: make_token(KEY, nbf=NOW + 3600),
    "issued-in-the-future": lambda: make_token(KEY, iat=NOW + 3600),
    "without-exp": lambda: make_token(KEY, exp=None),
    "exp-null": lambda: raw(claims('"exp":null')),
    "exp-string": lambda: make_token(KEY, exp=str(NOW + 300)),
    "exp-true": lambda: make_token(KEY, exp=True),
    "exp-list": lambda: make_token(KEY, exp=[NOW + 300]),
    "exp-of-400-digits": lambda: raw(claims(f'"exp":{FAR}')),
    "exp-1e400": lambda: raw(claims('"exp":1e400')),
    "exp-nan": lambda: raw(claims('"exp":NaN')),
    "exp-infinity": lambda: raw(claims('"exp":Infinity')),
    "exp-negative": lambda: make_token(KEY, exp=-1),
    "exp-in-a-century": lambda: make_token(KEY, exp=NOW + 100 * 365 * 86400),
    "nbf-string": lambda: make_token(KEY, nbf="0"),
    "nbf-nan": lambda: raw(claims(f'{EXP},"nbf":NaN')),
    # who it is for and from
    "wrong-audience": lambda: make_token(KEY, aud="other"),
    "audience-list-without-us": lambda: make_token(KEY, aud=["other", "weirs"]),  # type: ignore[arg-type]
    "audience-list-with-an-object": lambda: make_token(KEY, aud=["weir", {}]),  # type: ignore[arg-type]
    "audience-object": lambda: raw(claims(EXP).replace('"aud":"weir"', '"aud":{"weir":1}')),
    "without-audience": lambda: make_token(KEY, aud=None),  # type: ignore[arg-type]
    "wrong-issuer": lambda: make_token(KEY, iss="evil"),
    "issuer-list": lambda: make_token(KEY, iss=["weir-dev"]),  # type: ignore[arg-type]
    "without-issuer": lambda: make_token(KEY, iss=None),  # type: ignore[arg-type]
    # subjects
    "without-subject": lambda: make_token(KEY, sub=None),  # type: ignore[arg-type]
    **{
        f"subject-{name}": partial(named, sub)
        for name, sub in {
            "with-crlf": "eve\r\nX-JWT-Sub: alice",
            "with-lf": "eve\nalice",
            "with-nul": "eve\x00",
            "with-quote": 'eve"',
            "with-space": "eve alice",
            "not-ascii": "évé",
            "of-4-kB": "e" * 4096,
            "empty": "",
            "number": 7,
            "list": ["alice"],
        }.items()
    },
    "token-id-with-crlf": lambda: make_token(KEY, jti="a\r\nb"),
    "token-id-number": lambda: make_token(KEY, jti=5),
    # names that come twice: the next hop may take the other one
    "subject-twice": lambda: raw(claims(f'{EXP},"sub":"alice"')),
    "exp-twice": lambda: raw(claims(f'"exp":1,{EXP}')),
    "scope-twice": lambda: raw(claims(f'{EXP},"scope":"read:x"')),
    "nested-name-twice": lambda: raw(claims(f'{EXP},"x":{{"a":1,"a":2}}')),
    "alg-twice": lambda: raw(claims(EXP), '{"alg":"none","alg":"EdDSA","kid":"test-key"}'),
    "kid-twice": lambda: raw(claims(EXP), '{"alg":"EdDSA","kid":"x","kid":"test-key"}'),
    # scope claims
    "scope-number": lambda: make_token(KEY, scope=1),  # type: ignore[arg-type]
    "scope-list-of-objects": lambda: make_token(KEY, scope=[{"read": "*"}]),  # type: ignore[arg-type]
    "scope-of-201-entries": lambda: make_token(KEY, scope="read:a " * 201),
    # not quite JSON, not quite base64, not quite a JWS
    "deeply-nested-payload": lambda: raw("[" * 2500),
    "deeply-nested-claim": lambda: raw(claims(f'{EXP},"x":' + "[" * 1000 + "]" * 1000)),
    "deeply-nested-header": lambda: raw(claims(EXP), '{"alg":' + "[" * 2500),
    "payload-list": lambda: raw("[1]"),
    "payload-text": lambda: raw('"sub"'),
    "payload-not-json": lambda: raw("sub=eve"),
    "payload-utf-16": lambda: sign_raw(KEY, b'{"alg":"EdDSA"}', claims(EXP).encode("utf-16")),
    "payload-with-bad-utf-8": lambda: sign_raw(KEY, b'{"alg":"EdDSA"}', b'{"sub":"\xff"}'),
    "two-parts": lambda: make_token(KEY).rpartition(".")[0],
    "four-parts": lambda: make_token(KEY) + ".x",
    "five-parts": lambda: make_token(KEY) + ".x.y",
    "only-dots": lambda: "..",
    "one-word": lambda: "token",
    "padded": lambda: make_token(KEY) + "==",
    "not-the-canonical-spelling": lambda: respell(make_token(KEY)),
    "with-a-space-inside": lambda: make_token(KEY).replace(".", ". ", 1),
    "two-tokens-with-a-comma": lambda: make_token(KEY) + ", " + make_token(KEY),
    "in-quotes": lambda: f'"{make_token(KEY)}"',
    "cut-short": lambda: make_token(KEY)[:-1],
    "of-9-kB": lambda: make_token(KEY, more="x" * 9000),
}


def respell(token: str) -> str:
    """The last character has bits that do not count: another letter, the same bytes."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(token[-1])
    return token[:-1] + alphabet[last ^ 1]


def refusal(arena: Arena) -> Response:
    """The one answer for all tokens that are not good."""
    signature = "A" * 86
    return arena.ask("secret", token=make_token(KEY).rpartition(".")[0] + "." + signature)


@pytest.mark.parametrize("name", FORGED)
def test_a_token_that_is_not_good_gets_the_one_answer_and_no_byte(arena: Arena, name: str) -> None:
    before, token = len(arena.origin.requests), FORGED[name]()
    for more in ({}, {"Connection": "close"}):  # the fast path, and aiohttp's
        reply = arena.ask("secret", token=arena.keep_secret(token), headers=more)
        check_refusal(reply, 401)
        assert reply.json()["code"] == "invalid-token"
        assert reply["WWW-Authenticate"] == 'Bearer realm="weir", error="invalid_token"'
        expected = refusal(arena)
        assert reply.body == expected.body
        assert {*reply.fields} - {*expected.fields} <= {
            ("connection", "close"),
            *(f for f in reply.fields if f[0] in ("date", "x-request-id")),
        }
    assert len(arena.origin.requests) == before


@pytest.mark.parametrize(
    ("token", "scheme"),
    [
        (lambda: make_token(KEY), "Bearer"),
        (lambda: make_token(RSA), "Bearer"),
        (lambda: make_token(EC), "Bearer"),
        (lambda: make_token(KEY), "bearer"),
        (lambda: make_token(KEY), "BEARER"),
        (lambda: make_token(KEY, aud=["x", "weir"]), "Bearer"),  # type: ignore[arg-type]
        (lambda: make_token(KEY, headers={"kid": None}), "Bearer"),
        (lambda: make_token(KEY, headers={"jku": "http://127.0.0.1:1/"}), "Bearer"),
    ],
    ids=["ed", "rsa", "ec", "lower-case", "upper-case", "audiences", "no-kid", "ignored-jku"],
)
def test_a_good_token_passes(arena: Arena, token: Callable[[], str], scheme: str) -> None:
    """Without which the tests above would prove nothing."""
    headers = {"Authorization": f"{scheme} {arena.keep_secret(token())}"}
    assert arena.ask("secret", token=None, headers=headers).body == SECRET_BYTES


def test_every_reason_looks_alike_but_is_told_apart_in_the_metrics(arena: Arena) -> None:
    reasons = {
        "expired": "expired",
        "wrong-audience": "wrong-audience",
        "kid-unknown": "unknown-key",
    }
    reasons |= {"signed-by-another-key": "bad-signature", "alg-none-with-signature": "algorithm"}
    for name, reason in reasons.items():
        before = arena.gateway.metric("token_failures", reason=reason)
        arena.ask("secret", token=FORGED[name]())
        assert arena.gateway.metric("token_failures", reason=reason) == before + 1


@pytest.mark.parametrize("name", ["secret", "live", "there-is-no-such-stream", "a/b/c"])
def test_a_bad_token_learns_nothing_about_streams(arena: Arena, name: str) -> None:
    answers = {lasting(refusal(arena))}
    for method in ("GET", "POST", "PUT", "DELETE"):
        answers.add(lasting(arena.ask(name, token=make_token(THEIRS), method=method)))
    for query in ("offset=now", "offset=-1&live=sse", "offset=-1&live=long-poll"):
        answers.add(lasting(arena.ask(name, query, token=make_token(KEY, ttl=-5))))
    assert len(answers) == 1


def test_one_changed_character_of_a_remembered_token_is_enough(arena: Arena) -> None:
    token = arena.token()
    assert arena.ask("secret", token=token).status == 200
    for at in range(0, len(token), 7):
        other = "A" if token[at] != "A" else "B"
        changed = token[:at] + other + token[at + 1 :]
        assert arena.ask("secret", token=changed).status == 401
    assert arena.ask("secret", token=token).status == 200


def test_keys_and_urls_in_a_token_cause_no_request(arena: Arena) -> None:
    with ScriptedOrigin() as trap:
        document = json.dumps(jwks(THEIRS)).encode()
        trap.on("*", "*", Answer(200, {"Content-Type": "application/json"}, document))
        for name in ("jku", "x5u", "kid", "iss", "jwks_uri"):
            headers = {name: f"{trap.url}/jwks.json"}
            assert arena.ask("secret", token=make_token(THEIRS, headers=headers)).status == 401
        issuer = make_token(THEIRS, iss=trap.url)
        assert arena.ask("secret", token=issuer).status == 401
        assert trap.accepted == 0


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_huge_token_is_refused_unread_and_not_echoed(arena: Arena, size: int) -> None:
    token = arena.token(more="x" * size)
    head = encode_request("GET", PREFIX + "secret", {"Authorization": f"Bearer {token}"})
    began = time.monotonic()
    (reply,) = arena.send(head)
    assert time.monotonic() - began < 20
    check_refusal(reply, 431)
    assert b"Bearer" not in reply.body and token[:20].encode() not in reply.body
    arena.check_alive()


def test_a_flood_of_unknown_key_ids_fetches_the_keys_once(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """The cooldown counts attempts, good or bad; known keys work all the while."""
    with ScriptedOrigin() as issuer:
        document = json.dumps(jwks(KEY)).encode()
        issuer.on("GET", "/jwks.json", [Answer(200, {}, document), Answer(500)])
        auth = {"jwks": f"{issuer.url}/jwks.json", "jwks_cooldown_secs": 60.0}
        with arena_class(tmp_path, auth=auth) as arena:
            SimpleStream(arena.origin, PREFIX + "a").append(b"x")
            for number in range(40):
                forged = make_token(THEIRS, headers={"kid": f"made-up-{number}"})
                assert arena.ask("a", token=forged).status == 401
            assert arena.ask("a").status == 200
            assert issuer.count() == 1  # the one at the start is an attempt as well


def test_the_leeway_is_as_configured_and_not_more(tmp_path: Path, arena_class: type[Arena]) -> None:
    """Else two layers disagree about a token for as long as the difference."""
    with arena_class(tmp_path, auth={"leeway_secs": 10.0}) as arena:
        SimpleStream(arena.origin, PREFIX + "a").append(b"x")
        now = time.time()
        good: list[dict[str, Any]] = [{"exp": now - 6}, {"nbf": now + 6}, {"iat": now + 6}]
        bad: list[dict[str, Any]] = [{"exp": now - 11}, {"nbf": now + 15}, {"iat": now + 15}]
        for claim in good:
            assert arena.ask("a", token=arena.token(**claim)).status == 200
        for claim in bad:
            assert arena.ask("a", token=arena.token(**claim)).status == 401


def test_a_token_type_keeps_id_tokens_out(tmp_path: Path, arena_class: type[Arena]) -> None:
    with arena_class(tmp_path, auth={"token_type": "at+jwt"}) as arena:
        SimpleStream(arena.origin, PREFIX + "a").append(b"x")
        assert arena.ask("a", token=arena.token(headers={"typ": "AT+JWT"})).status == 200
        for kind in ("JWT", "id+jwt", None, 1, ["at+jwt"]):
            assert arena.ask("a", token=arena.token(headers={"typ": kind})).status == 401


# -- where a token may be ------------------------------------------------------------------------


def twice(first: str, second: str) -> bytes:
    target = f"GET {PREFIX}secret HTTP/1.1\r\nHost: h\r\n"
    return f"{target}Authorization: {first}\r\nAuthorization: {second}\r\n\r\n".encode()


def test_two_authorization_headers_are_refused_even_when_they_agree(arena: Arena) -> None:
    one, other = arena.token(), arena.token(sub="bob")
    for data in (
        twice(f"Bearer {one}", f"Bearer {one}"),
        twice(f"Bearer {one}", f"Bearer {other}"),
        twice("Basic eDp5", f"Bearer {one}"),
        twice(f"Bearer {one}", ""),
        twice(f"Bearer {one}", "x").replace(b"\r\nAuthorization: x", b"\r\naUTHORIZATION: x"),
    ):
        (reply,) = arena.send(data, 1)
        check_refusal(reply, 401)
        assert reply.json()["code"] == "ambiguous-token"


def wrong_places(token: str) -> list[tuple[str, dict[str, str]]]:
    """(query, headers)"""
    return [
        (f"access_token={token}", {}),
        (f"token={token}&offset=-1", {}),
        *(("", {name: token}) for name in ("X-Authorization", "Token", "X-JWT", "X-Access-Token")),
        *(("", {name: f"Bearer {token}"}) for name in ("Proxy-Authorization", "Authorization_")),
        ("", {"Cookie": f"access_token={token}; token={token}"}),
        ("", {"Authorization": token}),
        ("", {"Authorization": f"Basic {token}"}),
        ("", {"Authorization": f"Token {token}"}),
    ]


def test_a_token_in_the_wrong_place_is_no_token(arena: Arena) -> None:
    for query, headers in wrong_places(arena.token()):
        reply = arena.ask("secret", query, token=None, headers=headers)
        check_refusal(reply, 401)
        assert reply.json()["code"] == "token-required"
        assert reply["WWW-Authenticate"] == 'Bearer realm="weir"'


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory, arena_class: type[Arena]) -> Iterator[Arena]:
    """A gateway that also takes tokens from a cookie and from the query."""
    auth = {"cookie": "session", "query_parameter": "access_token"}
    with arena_class(tmp_path_factory.mktemp("lenient"), auth=auth) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "doc", chunk_bytes=10)
        for _ in range(3):
            stream.append(b"0123456789")
        yield arena


SPELLINGS = ["access_token", "access%5Ftoken", "%61ccess_token", "access_toke%6e"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_token_in_the_query_goes_no_further(lenient: Arena, name: str) -> None:
    """Not upstream, not into the key (so the second reader gets a hit), not into log or answer."""
    for order in ("{t}&offset={o}", "offset={o}&{t}", "x=1&{t}&offset={o}&y=2"):
        offset = lenient.ask("doc").next_offset
        query = order.format(t=f"{name}={lenient.token()}", o=offset)
        assert lenient.ask("doc", query, token=None).body == b"0123456789"
    assert lenient.ask("doc", query, token=None)["Cache-Status"].startswith("weir; hit")
    assert all("token" not in request.target for request in lenient.origin.requests)
    assert all("token" not in line.offset + line.stream for line in lenient.lines())


def test_a_token_in_the_query_does_not_reach_the_service_paths(lenient: Arena) -> None:
    """Their queries go upstream as they are, but for this."""
    lenient.origin.on("*", PREFIX + "__ds/*", Answer(200, {}, b"x"))
    for name in SPELLINGS:
        query = f"a=1&{name}={lenient.token()}&b=2"
        assert lenient.ask("__ds/subscriptions", query, token=None).status == 200
        assert lenient.origin.requests[-1].query == "a=1&b=2"


def test_a_token_in_the_query_does_not_reach_the_origin_with_a_write(lenient: Arena) -> None:
    for name in SPELLINGS:
        query = f"a=1&{name}={lenient.token()}&b=2"
        lenient.ask("doc", query, token=None, method="POST", body=b"x")
        assert lenient.origin.requests[-1].query == "a=1&b=2"


def test_a_token_in_the_query_is_in_no_location_and_no_error(lenient: Arena) -> None:
    path, query = PREFIX + "made", f"access_token={lenient.token()}"
    location = {"Location": f"{lenient.origin.url}{path}", "Content-Type": "text/plain"}
    lenient.origin.on("PUT", path, Answer(201, location))
    made = lenient.ask("made", query, token=None, method="PUT", headers=location)
    assert made.status == 201 and made["Location"].endswith(path)
    for bad in (f"{query}&offset=!!,", f"{query}&live=x", f"{query}x&offset=-1", f"{query}%00"):
        check_refusal(lenient.ask("doc", bad, token=None), 400, 401)
    reader = lenient.keep_secret(make_token(KEY, scope="read:other"))
    check_refusal(lenient.ask("doc", f"access_token={reader}", token=None), 403)


def test_tokens_in_two_places_are_refused_whoever_they_name(lenient: Arena) -> None:
    one, other = lenient.token(), lenient.token(sub="bob")
    for query, headers in (
        (f"access_token={one}", {"Authorization": f"Bearer {other}"}),
        (f"access_token={one}", {"Authorization": f"Bearer {one}"}),
        (f"access_token={one}", {"Cookie": f"session={other}"}),
        ("", {"Cookie": f"session={one}", "Authorization": f"Bearer {other}"}),
        (f"access_token={one}&access_token={other}", {}),
        (f"access_token={one}&access%5Ftoken={other}", {}),
        ("", {"Cookie": f"session={one}; session={other}"}),
    ):
        reply = lenient.ask("doc", query, token=None, headers=headers)
        check_refusal(reply, 401)
        assert reply.json()["code"] == "ambiguous-token"


def test_a_token_in_a_cookie_is_taken_and_not_forwarded(lenient: Arena) -> None:
    cookie = f"a=b; session={lenient.token(sub='cookie-monster')}; c=d"
    assert lenient.ask("doc", token=None, headers={"Cookie": cookie}).status == 200
    assert lenient.ask("doc", "offset=now", token=None, headers={"Cookie": cookie}).status == 200
    last = lenient.origin.requests[-1]
    assert "cookie" not in last.headers and last.headers["x-jwt-sub"] == "cookie-monster"
    assert lenient.ask("doc", token=None, headers={"Cookie": "session="}).status == 401


# -- keys that go, tokens that are called back ---------------------------------------------------


def test_a_key_that_leaves_the_set_takes_its_remembered_tokens_along(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """Also where the answer is a hit; the new key works beside the old one before."""
    fresh = make_key("EdDSA", "next")
    path = write_jwks(tmp_path / "jwks.json", KEY)
    with arena_class(tmp_path, auth={"jwks": str(path), "jwks_refresh_secs": 0.05}) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "a", chunk_bytes=1)
        stream.append(b"x")
        stream.append(b"y")
        old, nameless, new = arena.token(), arena.token(headers={"kid": None}), arena.token(fresh)
        for token in (old, nameless, old, nameless):
            assert arena.ask("a", token=token).status == 200
        write_jwks(path, KEY, fresh)
        wait_until(lambda: arena.ask("a", token=new).status == 200)
        assert [arena.ask("a", token=old).status for _ in range(3)] == [200] * 3
        write_jwks(path, fresh)
        for token in (old, nameless, arena.token()):
            check_refusal(ask_until(arena, token, 401), 401)
        assert ask_until(arena, new, 200)["Cache-Status"] == "weir; hit"


def ask_until(arena: Arena, token: str, status: int) -> Response:
    """The first answer with this status. Each thread of Envoy keeps the keys for a second of its
    own, so one of them may be behind what another has just answered."""
    replies: list[Response] = []

    def is_there() -> bool:
        replies.append(arena.ask("a", token=token))
        return replies[-1].status == status

    wait_until(is_there, what=f"status {status}")
    return replies[-1]


def test_revoked_tokens_and_subjects_are_refused_soon_and_without_redis_the_rest_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arena_class: type[Arena]
) -> None:
    monkeypatch.setattr("gateway.tokens.RECHECK_SECS", 0.05)
    with running_redis() as redis:
        cache, auth = {"redis_url": redis.url, "redis_timeout_secs": 1.0}, {"revocation": True}
        with arena_class(tmp_path, cache=cache, auth=auth) as arena:
            stream = SimpleStream(arena.origin, PREFIX + "a", chunk_bytes=1)
            stream.append(b"x")
            stream.append(b"y")
            one, other = arena.token(jti="id-1"), arena.token(jti="id-2")
            mallory = arena.token(sub="mallory")
            for token in (one, other, mallory, one, other, mallory):
                assert arena.ask("a", token=token).status == 200
            redis.command("SET", "weir:revoked:jti:id-1", "1", "EX", 60)
            redis.command("SET", "weir:revoked:sub:mallory", "1")
            wait_until(lambda: arena.ask("a", token=one).status == 401)
            wait_until(lambda: arena.ask("a", token=mallory).status == 401)
            check_refusal(arena.ask("a", token=one), 401)
            assert arena.ask("a", token=other).body == b"x"
            redis.kill()
            assert arena.ask("a", token=other).body == b"x"
            assert arena.ask("a", token=arena.token(jti="id-3")).body == b"x"
            check_refusal(arena.ask("a", token=one), 401)  # what was known still holds
            check_refusal(arena.ask("a", token=make_token(THEIRS)), 401)


def test_no_answer_of_the_real_process_nor_its_log_holds_a_token(tmp_path: Path) -> None:
    path = write_jwks(tmp_path / "jwks.json", KEY)
    settings = {"DS_AUTH__JWKS": str(path), "DS_LOG__LEVEL": "debug"}
    settings |= {"DS_GATEWAY__ACCESS_LOG": str(tmp_path / "access")}
    tokens = [make_token(KEY), make_token(THEIRS), make_token(KEY, ttl=-9), make_token(KEY) + "x"]
    tokens += [make_token(KEY, more="x" * 20_000)]
    heard = []
    with ScriptedOrigin() as origin:
        SimpleStream(origin, PREFIX + "a").append(b"x")
        with serving(launch_gateway(tmp_path, origin.url, settings=settings)) as server:
            for token in tokens:
                for target in (
                    PREFIX + "a",
                    f"{PREFIX}a?token={token}",
                    f"/x?{token}",
                    f"/{token}",
                ):
                    with Connection(server.port) as connection:
                        heard.append(connection.request("GET", target, bearer(token)))
            assert server.stop() == 0
            files = [path.read_text() for path in sorted((tmp_path / "access").iterdir())]
            everything = server.stdout + server.stderr + repr(heard) + repr(files)
    assert heard[0].status == 200 and "Traceback" not in everything
    for token in tokens:
        assert not [part for part in token.split(".")[1:] if part in everything]
