from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import AuthConfig
from gateway.rules.challenges import AuthError
from gateway.rules.credentials import find_token

TOKEN = "aaa.bbb.c-_"
OTHER = "ddd.eee.fff"
PLAIN = AuthConfig()
EVERYWHERE = AuthConfig(cookie="session", query_parameter="token")


def find(headers: dict[str, str], query: str = "", auth: AuthConfig = PLAIN) -> str | None:
    return find_token(headers, query, auth).token


def refusal(headers: dict[str, str], query: str = "", **options: Any) -> str:
    auth = options.pop("auth", EVERYWHERE)
    with pytest.raises(AuthError) as caught:
        find_token(headers, query, auth, **options)
    assert caught.value.status == 401
    return caught.value.reason


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "])
def test_scheme_has_no_case(scheme: str) -> None:
    assert find({"authorization": f"{scheme} {TOKEN}"}) == TOKEN


@pytest.mark.parametrize(
    "value", ["", "Basic YTpi", "Digest x", "Bear a.b.c", "Bearerx a.b.c", TOKEN]
)
def test_another_scheme_brings_no_token(value: str) -> None:
    assert find({"authorization": value}) is None
    assert find({"authorization": value, "cookie": f"session={TOKEN}"}, auth=EVERYWHERE) == TOKEN


def test_no_header_no_token() -> None:
    assert find_token({}, "offset=-1", EVERYWHERE) == (None, "offset=-1")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("Bearer", id="nothing"),
        pytest.param("Bearer ", id="only-a-space"),
        pytest.param(f"Bearer {TOKEN} x", id="two-words"),
        pytest.param(f"Bearer {TOKEN}, Bearer {OTHER}", id="joined-by-a-proxy"),
        pytest.param(f"Bearer {TOKEN},{TOKEN}", id="list"),
        pytest.param(f'Bearer "{TOKEN}"', id="quoted"),
        pytest.param(f"Bearer token={TOKEN}", id="parameter"),
        pytest.param("Bearer aaa.bbb", id="two-parts"),
        pytest.param("Bearer a.b.c.d.e", id="five-parts"),
        pytest.param("Bearer aaa..ccc", id="empty-part"),
        pytest.param("Bearer aaa.bbb.", id="no-signature"),
        pytest.param("Bearer aaa.bbb.cc=", id="padding"),
        pytest.param("Bearer aaa.b+b.c/c", id="base64-not-url"),
        pytest.param("Bearer aaa.bbb.ccé", id="non-ascii"),
        pytest.param("Bearer aaa.bbb.cc\n", id="line-feed"),
        pytest.param("Bearer aaa.bbb.cc\x00", id="nul"),
        pytest.param("Bearer aaa.bbb.cc\udcff", id="raw-byte"),
    ],
)
def test_malformed_bearer_is_refused(value: str) -> None:
    assert refusal({"authorization": value}) == "malformed"


@pytest.mark.parametrize("name", ["session", "token"])
def test_a_place_that_is_not_configured_is_not_looked_at(name: str) -> None:
    assert find({"cookie": f"{name}={TOKEN}"}, f"{name}={TOKEN}") is None


def test_repeated_authorization_is_refused() -> None:
    assert refusal({"authorization": f"Bearer {TOKEN}"}, repeated=True) == "ambiguous"


@pytest.mark.parametrize("second", [TOKEN, OTHER], ids=["same", "different"])
def test_two_places_are_refused_even_if_they_agree(second: str) -> None:
    header, cookie = {"authorization": f"Bearer {TOKEN}"}, {"cookie": f"session={second}"}
    assert refusal(header | cookie) == "ambiguous"
    assert refusal(header, f"token={second}") == "ambiguous"
    assert refusal(cookie, f"token={TOKEN}") == "ambiguous"
    assert refusal(header, "token=") == "ambiguous"


@pytest.mark.parametrize("size", [8193, 100_000, 1_000_000])
def test_too_large_is_refused_before_it_is_read(size: int) -> None:
    huge = "a" * (size - 4) + ".b.c"
    assert refusal({"authorization": f"Bearer {huge}"}) == "too-large"
    assert refusal({"cookie": f"session={huge}"}) == "too-large"
    assert refusal({}, f"token={huge}") == "too-large"


def test_the_largest_token_passes() -> None:
    token = "a" * 8188 + ".b.c"
    assert find({"authorization": f"Bearer {token}"}) == token


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (f"session={TOKEN}", TOKEN),
        (f"a=1; session={TOKEN}; b=2", TOKEN),
        (f"a=1;session={TOKEN}", TOKEN),
        (f"xsession={TOKEN}; SESSION={TOKEN}", None),
        (f"a=session={TOKEN}", None),
        ("session", None),
        ("", None),
    ],
)
def test_cookie_by_its_exact_name(header: str, token: str | None) -> None:
    if header == "session":
        assert refusal({"cookie": header}) == "malformed"
    else:
        assert find({"cookie": header}, auth=EVERYWHERE) == token


def test_a_tossed_second_cookie_is_refused() -> None:
    assert refusal({"cookie": f"session={TOKEN}; session={OTHER}"}) == "ambiguous"


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        (f"token={TOKEN}", ""),
        (f"offset=-1&token={TOKEN}&live=sse", "offset=-1&live=sse"),
        (f"%74oken={TOKEN}&offset=now", "offset=now"),
        (f"offset=now&t%6Fke%6e={TOKEN}", "offset=now"),
    ],
)
def test_query_token_is_taken_out(query: str, rest: str) -> None:
    assert find_token({}, query, EVERYWHERE) == (TOKEN, rest)


@pytest.mark.parametrize(
    "query", [f"token={TOKEN}&token={TOKEN}", f"token={TOKEN}&%74oken={OTHER}"]
)
def test_repeated_query_token_is_refused(query: str) -> None:
    assert refusal({}, query) == "ambiguous"


@given(
    st.lists(st.sampled_from(["offset=-1", "token=a.b.c", "%74%6fken=a.b.c", "", "x", "a=token"]))
)
def test_no_query_that_goes_on_holds_the_parameter(pairs: list[str]) -> None:
    try:
        found = find_token({}, "&".join(pairs), EVERYWHERE)
    except AuthError:
        return
    assert "token" not in dict(parse_qsl(found.query, keep_blank_values=True))
    assert (found.token is not None) is any("a.b.c" in pair for pair in pairs)
