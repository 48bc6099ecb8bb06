"""The hostile requests of the gateway's tests, sent to Envoy instead: the same tests once more.

Envoy's defaults would let several of them through (see weir.edge.listeners). A few it reads where
the gateway would not: what matters then is that it passes on what it has read, in words of its own.
"""

import pytest

from tests.envoy.repeated import repeated
from tests.helpers.rawhttp import PREFIX, encode_request
from tests.helpers.scripted_origin import Answer
from tests.hostile.gateway import test_http as attacks
from tests.hostile.gateway.arena import Arena
from tests.hostile.gateway.conftest import check_victim
from tests.hostile.gateway.test_http import PAIRS, with_token
from tests.hostile.oracle import TEXT
from tests.hostile.test_malformed_http import GET, POST, REFUSED

READ = {
    "folded-header": REFUSED["folded-header"],
    "cr-in-value": REFUSED["cr-in-value"],
    "cl-after-lf": POST + PAIRS["cl-after-lf"],
    "header-after-bare-cr": POST + PAIRS["header-after-bare-cr"],
    "bare-line-feeds": GET + b"X: y\nX2: z\n\n",
}
"""What RFC 9112 lets a server read, and Envoy does: old line folding, lone CR and LF."""

globals().update(repeated(attacks))
WITHOUT = {
    **{
        f"test_what_is_not_http_is_refused_with_all_that_follows[{name}]": "see below"
        for name in READ
    },
    **{
        f"test_no_pair_of_framings_lets_a_second_request_through[{name}]": "see below"
        for name in READ
    },
    "test_what_is_not_http_is_refused_with_all_that_follows[http-2-preface]": "another protocol",
    "test_bare_line_feeds_do_not_end_a_head": "see below",
    "test_no_service_path_leads_past_the_token[//healthz]": "merged slashes, see below",
    "test_the_paths_without_a_token_tell_nothing": "/healthz alone has none here, see below",
}


@pytest.mark.parametrize("name", READ)
def test_what_envoy_reads_goes_on_as_it_was_read(quick: Arena, name: str) -> None:
    """One request for the gateway as for Envoy, so that nothing hides between the two; what follows
    is another one, and needs a token of its own."""
    quick.origin.on("*", PREFIX + "sink", Answer(204, {"Stream-Next-Offset": "5"}))
    before = len(quick.origin.requests)
    data = with_token(quick, READ[name].replace(TEXT.encode(), b"sink"))
    replies = quick.send(data + encode_request("DELETE", PREFIX + TEXT), 2)
    assert [reply.status for reply in replies] in ([200, 401], [204, 401], [204, 400]), replies
    (sent,) = quick.origin.requests[before:]
    names = [name.lower() for name, _ in sent.fields]
    assert names.count("content-length") + names.count("transfer-encoding") <= 1
    assert not [value for _, value in sent.fields if {"\r", "\n"} & {*value}]
    check_victim(quick)


def test_a_preface_of_http_2_begins_no_request(quick: Arena) -> None:
    before = len(quick.origin.requests)
    assert quick.send(REFUSED["http-2-preface"] + encode_request("DELETE", PREFIX + TEXT)) == []
    assert len(quick.origin.requests) == before
    check_victim(quick)


@pytest.mark.parametrize("path", ["/readyz", "/metrics", "/stats", "/ready", "/quitquitquit", "/"])
def test_only_what_is_for_clients_is_routed(arena: Arena, path: str) -> None:
    """With a good token: without one nothing else is even looked at."""
    headers = {"Authorization": f"Bearer {arena.token()}"}
    for method in ("GET", "POST"):
        reply = arena.send(encode_request(method, path, headers), 1)[0]
        assert (reply.status, reply.json()["code"]) == (404, "not-found")


def test_health_is_told_by_a_gateway_without_a_token(arena: Arena) -> None:
    for target in ("/healthz", "/healthz?x=cAnArY7", "//healthz"):
        assert arena.send(encode_request("GET", target), 1)[0].body == b"ok"
    arena.check_alive()
