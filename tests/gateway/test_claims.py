import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import AuthConfig
from gateway.rules.access import EVERYTHING, NOTHING, Principal, Scopes
from gateway.rules.challenges import AuthError
from gateway.rules.claims import read_claims, read_json, take_apart

NOW = 1_800_000_000.0
AUTH = AuthConfig(issuer="https://issuer", audience="weir", leeway_secs=10.0)
GOOD = {"sub": "alice", "iss": "https://issuer", "aud": "weir", "exp": int(NOW) + 300}


def read(auth: AuthConfig = AUTH, /, **claims: Any) -> Principal:
    """Read good claims with changes; a claim that is ... is left out."""
    kept = {name: value for name, value in (GOOD | claims).items() if value is not ...}
    return read_claims(json.dumps(kept).encode(), b"k1", auth, NOW)


def reason_of(auth: AuthConfig = AUTH, /, **claims: Any) -> str:
    with pytest.raises(AuthError) as caught:
        read(auth, **claims)
    return caught.value.reason


def encode(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def header_reason(header: str | bytes, auth: AuthConfig = AUTH) -> str:
    with pytest.raises(AuthError) as caught:
        take_apart(f"{encode(header)}.{encode('{}')}.{encode('signature')}", auth)
    return caught.value.reason


def test_good_claims_make_a_principal() -> None:
    found = read(scope="read:a", jti="t-1")
    assert found == Principal("alice", Scopes.parse("read:a"), NOW + 310, b"k1", "t-1")


@pytest.mark.parametrize(
    "exp",
    [
        pytest.param(..., id="missing"),
        pytest.param(None, id="null"),
        pytest.param(str(int(NOW) + 300), id="string"),
        pytest.param(True, id="bool"),
        pytest.param([NOW + 300], id="list"),
        pytest.param(10**400, id="400-digits"),
        pytest.param(2**53, id="beyond-safe-integers"),
        pytest.param(-1, id="negative"),
        pytest.param(int(NOW) + 31 * 86_400, id="beyond-the-longest-life"),
    ],
)
def test_exp_must_be_a_sensible_number(exp: object) -> None:
    assert reason_of(exp=exp) == "claims"


@pytest.mark.parametrize("exp", ["NaN", "Infinity", "-Infinity", "1" * 5000])
def test_exp_that_is_not_json_is_malformed(exp: str) -> None:
    payload = json.dumps(GOOD).replace(str(GOOD["exp"]), exp).encode()
    with pytest.raises(AuthError) as caught:
        read_claims(payload, b"k1", AUTH, NOW)
    assert caught.value.reason == "malformed"


def test_exp_beyond_floats_is_refused() -> None:
    payload = json.dumps(GOOD).replace(str(GOOD["exp"]), "1e400").encode()
    with pytest.raises(AuthError) as caught:
        read_claims(payload, b"k1", AUTH, NOW)
    assert caught.value.reason == "claims"


def test_exp_may_have_a_fraction() -> None:
    assert read(exp=NOW + 0.5).expires_at == NOW + 10.5


@pytest.mark.parametrize(("exp", "good"), [(NOW - 9, True), (NOW - 10, False), (NOW - 300, False)])
def test_leeway_is_all_that_an_old_token_gets(exp: float, good: bool) -> None:
    if good:
        assert read(exp=exp).expires_at > NOW
    else:
        assert reason_of(exp=exp) == "expired"


@pytest.mark.parametrize("name", ["nbf", "iat"])
def test_a_token_from_the_future_is_not_yet_valid(name: str) -> None:
    assert read(**{name: NOW + 10}).subject == "alice"
    assert reason_of(**{name: NOW + 11}) == "not-yet-valid"


@pytest.mark.parametrize("name", ["nbf", "iat"])
@pytest.mark.parametrize("value", [None, "1", True, [], -1, 10**30])
def test_other_times_are_numbers_too(name: str, value: object) -> None:
    assert reason_of(**{name: value}) == "claims"


@pytest.mark.parametrize("iss", [..., None, "", "other", ["https://issuer"], "https://issuer/"])
def test_issuer_must_be_the_configured_one(iss: object) -> None:
    assert reason_of(iss=iss) == "wrong-issuer"


@pytest.mark.parametrize(
    "aud", [..., None, "", "other", "Weir", [], ["x"], ["weir", 1], {"weir": 1}]
)
def test_audience_must_hold_the_configured_one(aud: object) -> None:
    assert reason_of(aud=aud) == "wrong-audience"


def test_audience_may_be_a_list() -> None:
    assert read(aud=["other", "weir"]).subject == "alice"


def test_what_is_not_configured_is_not_asked_for() -> None:
    assert read(AuthConfig(), iss=..., aud=...).subject == "alice"


@pytest.mark.parametrize(
    "sub",
    [
        pytest.param(..., id="missing"),
        pytest.param("", id="empty"),
        pytest.param(7, id="number"),
        pytest.param("a\r\nX-Admin: 1", id="header-injection"),
        pytest.param("a\n", id="line-feed-at-the-end"),
        pytest.param("a\x00", id="nul"),
        pytest.param("a b", id="space"),
        pytest.param("é", id="non-ascii"),
        pytest.param("\ud800", id="half-a-character"),
        pytest.param('a"b', id="quote"),
        pytest.param("a\\b", id="backslash"),
        pytest.param("a,b", id="comma"),
        pytest.param("a;b", id="semicolon"),
        pytest.param("<a>", id="markup"),
        pytest.param("a" * 257, id="too-long"),
        pytest.param("a" * 4096, id="4-kilobytes"),
    ],
)
def test_subject_must_fit_into_headers_and_logs(sub: object) -> None:
    assert reason_of(sub=sub) == "claims"


@pytest.mark.parametrize(
    "sub",
    ["a", "auth0|5f7c", "me+tag@example.org", "spiffe://td/ns/x", "user:1", "a" * 256]
    + ["system:serviceaccount:ns:name", "0f8fad5b-d9cb-469f-a165-70867728950e", "YWJj_-=="],
)
def test_usual_subjects_pass(sub: str) -> None:
    assert read(sub=sub).subject == sub


@pytest.mark.parametrize("jti", [None, 1, "", "a b", "a\n", "é", "x" * 257])
def test_token_id_is_as_strict(jti: object) -> None:
    assert reason_of(jti=jti) == "claims"


@pytest.mark.parametrize(
    ("scope", "scopes"),
    [
        (..., NOTHING),
        ("", NOTHING),
        ([], NOTHING),
        ("read:a write:b", Scopes.parse("read:a write:b")),
        (["read:a", "write:b"], Scopes.parse("read:a write:b")),
    ],
)
def test_scope_is_text_or_a_list(scope: object, scopes: Scopes) -> None:
    assert read(scope=scope).scopes == scopes


@pytest.mark.parametrize("scope", [None, 1, {"read": "*"}, ["read:a", 1], "a " * 300, "x" * 20_000])
def test_any_other_scope_is_refused(scope: object) -> None:
    assert reason_of(scope=scope) == "claims"


def test_scopes_may_be_in_another_claim_and_then_only_there() -> None:
    auth = AuthConfig(scope_claim="scp")
    assert read(auth, scp=["read:a"], scope="read:*").scopes == Scopes.parse("read:a")
    assert read(auth, scope="read:*").scopes == NOTHING


def test_without_scope_everything_only_if_configured() -> None:
    open_house = AuthConfig(allow_no_scope=True)
    assert read(open_house).scopes == EVERYTHING
    assert read(open_house, scope="").scopes == NOTHING


def test_the_right_to_write_may_include_snapshots_by_configuration() -> None:
    scope = "write:a/* write:b read:c"
    assert read(AuthConfig(), scope=scope).scopes == Scopes.parse(scope)
    wide = read(AuthConfig(write_may_snapshot=True), scope=scope).scopes
    assert wide == Scopes.parse(f"{scope} snapshot:a/* snapshot:b")
    assert not wide.allows("snapshot", "c")


@pytest.mark.parametrize("name", ["sub", "exp", "scope"])
def test_a_claim_that_comes_twice_is_malformed(name: str) -> None:
    payload = json.dumps(GOOD | {"scope": "read:a"})
    twice = payload[:-1] + f', "{name}": {json.dumps((GOOD | {"scope": "read:*"})[name])}}}'
    with pytest.raises(AuthError) as caught:
        read_claims(twice.encode(), b"k1", AUTH, NOW)
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'"x"', b"{", b'{"a":1}x', b'{"a":{"b":1,"b":2}}', b"\xff{}", b"\xef\xbb\xbf{}"]
    + [b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b'{"a":NaN}', b'{"a":1,"\\u0061":2}'],
)
def test_json_with_any_doubt_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(data)


@pytest.mark.parametrize(
    "alg", ["none", "None", "NONE", "nOnE", "HS256", "RS384", "PS256", "", "eddsa"]
)
def test_algorithms_are_those_of_the_list(alg: str) -> None:
    assert header_reason(json.dumps({"alg": alg, "kid": "k1"})) == "algorithm"


@pytest.mark.parametrize("alg", [None, 1, ["EdDSA"], {"EdDSA": 1}])
def test_an_algorithm_is_a_string(alg: object) -> None:
    assert header_reason(json.dumps({"alg": alg})) == "algorithm"
    assert header_reason("{}") == "algorithm"


def test_the_list_can_be_shorter() -> None:
    assert header_reason('{"alg":"RS256"}', AuthConfig(algorithms=("EdDSA",))) == "algorithm"


@pytest.mark.parametrize("crit", [["exp"], ["b64"], [], None, "x"])
def test_critical_extensions_are_refused(crit: object) -> None:
    assert header_reason(json.dumps({"alg": "EdDSA", "crit": crit})) == "malformed"


@pytest.mark.parametrize(
    "kid", [None, "", 1, ["k1"], "a b", "k1\n", "\x00", "é", "k" * 257, "k" * 10_240]
)
def test_a_strange_key_id_is_malformed(kid: object) -> None:
    assert header_reason(json.dumps({"alg": "EdDSA", "kid": kid})) == "malformed"


@pytest.mark.parametrize(
    "header",
    ['{"alg":"EdDSA","alg":"none"}', '{"alg":"EdDSA","kid":"a","kid":"b"}', "[]", "x", b"\xff"],
)
def test_a_header_with_any_doubt_is_malformed(header: str | bytes) -> None:
    assert header_reason(header) == "malformed"


@pytest.mark.parametrize(
    ("typ", "good"),
    [("at+jwt", True), ("AT+JWT", True), ("application/at+jwt", True)]
    + [("JWT", False), (None, False), (1, False), ("at+jwt2", False)],
)
def test_type_is_the_configured_one(typ: object, good: bool) -> None:
    auth = AuthConfig(token_type="at+jwt")
    header = {"alg": "EdDSA", "kid": "k1"} | ({} if typ is None else {"typ": typ})
    if good:
        token = f"{encode(json.dumps(header))}.{encode('{}')}.{encode('s')}"
        assert take_apart(token, auth).algorithm == "EdDSA"
    else:
        assert header_reason(json.dumps(header), auth) == "wrong-type"


HEAD = encode('{"alg":"EdDSA"}')


@pytest.mark.parametrize(
    "token",
    ["", "a", "a.b", f"{HEAD}.e30", f"{HEAD}..c2ln", f"{HEAD}.e30.", f"{HEAD}.e30.c2ln.x"]
    + [f"{HEAD}.e30.c2l", f"{HEAD}.e30.c2ln=", f"{HEAD}.e3.c2ln", f"{HEAD}.e31.c2ln"]
    + [f"{HEAD}.e30.a+/a", f"{HEAD}.e30.\u00e9", f"{HEAD}.e30.c2ln\n", f"{HEAD}.e30.\udcff"],
)
def test_only_canonical_compact_form_is_taken(token: str) -> None:
    with pytest.raises(AuthError) as caught:
        take_apart(token, AUTH)
    assert caught.value.reason == "malformed"


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_a_token_comes_apart_as_it_was_put_together(payload: bytes, signature: bytes) -> None:
    parts = take_apart(f"{HEAD}.{encode(payload)}.{encode(signature)}", AUTH)
    assert (parts.payload, parts.signature) == (payload, signature)
    assert parts.signed == f"{HEAD}.{encode(payload)}".encode()
    assert (parts.algorithm, parts.key_id) == ("EdDSA", None)


@given(st.text())
def test_no_text_breaks_the_reader(token: str) -> None:
    with pytest.raises(AuthError):
        take_apart(token, AUTH)
