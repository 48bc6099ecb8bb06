"""Ways around a scope: paths that other servers would read otherwise, and forks."""

import pytest

from tests.helpers.gateway import bearer
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import PREFIX, encode_request
from tests.helpers.scripted_origin import Answer
from tests.hostile.gateway.arena import Arena, check_refusal
from tests.hostile.gateway.conftest import SECRET_BYTES

TEXT = {"Content-Type": "text/plain"}
FRESH = {**TEXT, "Cache-Control": "public, max-age=60, immutable", "Stream-Next-Offset": "5"}
ZERO = nameless(0)


# -- around a scope ------------------------------------------------------------------------------

# Ways to `private/x` for someone who may read `open/*`.
ROUNDABOUT = [
    "open/../private/x",
    "open/./../private/x",
    "open/%2e%2e/private/x",
    "open/%2E%2E/private/x",
    "open/.%2e/private/x",
    "open/..%2fprivate/x",
    "open/..%2Fprivate%2Fx",
    "open%2f..%2fprivate%2fx",
    "open/%252e%252e/private/x",
    "open/..;/private/x",
    "open//../private/x",
    "open/..\\private\\x",
    "open/..%5cprivate%5cx",
    "open/%c0%ae%c0%ae/private/x",
    "open/..%00/private/x",
    "/open/../private/x",
    "open/x%00/../../private/x",
    "open/%2e%2e%2fprivate/x",
    "open/*/../../private/x",
    "open/..%3b/private/x",
    "../stream/private/x",
    "../../v1/stream/private/x",
    "__ds/../private/x",
    "__ds/%2e%2e/private/x",
    "__ds/subscriptions/..%2f..%2fprivate/callback",
    "__ds/subscriptions/x%2f..%2f..%2f..%2fprivate/callback",
    "__ds/subscriptions/x%2F%2e%2e%2F..%5c..%5cprivate/ack",
    "__ds/subscriptions/x\\..\\..\\private/release",
    "__ds/subscriptions/%2e%2e/../../private/x/ack",
    "__ds/jwks.json/../../private/x",
    "open/x?/../../private/x",
]


@pytest.mark.parametrize("way", ROUNDABOUT)
def test_no_way_round_leads_out_of_a_scope(arena: Arena, way: str) -> None:
    """Whatever an origin would make of it, it is not asked for anything but open/."""
    token = arena.token(scope="read:open/* write:open/* create:open/* delete:open/*")
    before = len(arena.origin.requests)
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        for headers in ({}, {"Connection": "close"}):
            reply = arena.ask(way, token=token, method=method, headers=headers)
            assert reply.status in (400, 401, 403, 404), reply
    for request in arena.origin.requests[before:]:
        assert request.path == PREFIX + "open/x"  # of a target whose rest is a query


@pytest.mark.parametrize("spelling", ["se%63ret", "%73%65%63%72%65%74", "secre%74"])
def test_a_needless_escape_is_the_same_stream_and_the_same_key(arena: Arena, spelling: str) -> None:
    assert arena.ask(spelling, token=arena.token(scope="read:secret")).body == SECRET_BYTES
    assert arena.ask(spelling)["Cache-Status"] == "weir; hit"
    check_refusal(arena.ask(spelling, token=arena.token(scope=f"read:{spelling}x")), 403)


# -- forks ---------------------------------------------------------------------------------------


@pytest.fixture
def fork_token(arena: Arena) -> str:
    """May create anything, and read only what is below open/."""
    arena.origin.on("PUT", PREFIX + "open/fork", Answer(201, {**TEXT, "Stream-Next-Offset": ZERO}))
    return arena.token(scope="create:* write:* read:open/*")


@pytest.mark.parametrize(
    "source",
    [
        PREFIX + "secret",
        PREFIX + "se%63ret",
        PREFIX + "%73ecret",
        PREFIX + "open/../secret",
        PREFIX + "open/%2e%2e/secret",
        PREFIX + "open%2f..%2fsecret",
        PREFIX + "open/..%2fsecret",
        PREFIX + "/secret",
        PREFIX + "./secret",
        PREFIX + "secret?open/",
        PREFIX + "secret#open/",
        PREFIX + "secret%00",
        PREFIX + "SECRET",
        PREFIX.upper() + "secret",
        "/v1/../v1/stream/secret",
        "//host/v1/stream/secret",
        "http://origin/v1/stream/secret",
        "secret",
        "open/x",
        PREFIX + "__ds/jwks.json",
        PREFIX + "open/x, " + PREFIX + "secret",
        "",
    ],
)
def test_a_source_that_one_may_not_read_is_not_forked(
    arena: Arena, fork_token: str, source: str
) -> None:
    before = arena.origin.count("PUT")
    for name in ("Stream-Forked-From", "stream-forked-from", "STREAM-FORKED-FROM"):
        headers = {name: source, "Stream-Fork-Offset": ZERO}
        reply = arena.ask("open/fork", token=fork_token, method="PUT", headers=headers)
        check_refusal(reply, 400, 403, 404)
    assert arena.origin.count("PUT") == before


def test_a_fork_header_that_comes_twice_is_refused(arena: Arena, fork_token: str) -> None:
    before = arena.origin.count("PUT")
    data = encode_request("PUT", PREFIX + "open/fork", bearer(fork_token))
    twice = f"Stream-Forked-From: {PREFIX}open/x\r\nStream-Forked-From: {PREFIX}secret\r\n\r\n"
    (reply,) = arena.send(data[:-2] + twice.encode(), 1)
    check_refusal(reply, 400)
    for name in ("Stream_Forked_From", "Stream-Forked-From-", "X-Stream-Forked-From"):
        headers = {name: PREFIX + "secret"}
        arena.ask("open/fork", token=fork_token, method="PUT", headers=headers)
    sent = arena.origin.find("PUT")[before:]
    assert all(request.headers.get("stream-forked-from") is None for request in sent)
    assert "secret" not in str([r.fields for r in sent if "stream-forked-from-" not in r.headers])


@pytest.mark.parametrize("spelling", ["open/source", "open/%73ource", "%6Fpen/source"])
def test_a_fork_s_source_goes_upstream_as_it_was_authorised(
    arena: Arena, fork_token: str, spelling: str
) -> None:
    headers = {**TEXT, "Stream-Forked-From": PREFIX + spelling}
    reply = arena.ask("open/fork", token=fork_token, method="PUT", headers=headers)
    assert reply.status == 201
    assert arena.origin.requests[-1].headers["stream-forked-from"] == PREFIX + "open/source"
