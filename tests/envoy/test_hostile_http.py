"""The hostile requests of the gateway's tests, sent to Envoy instead: the same tests once more.

Envoy's defaults would let several of them through (see weir.envoyconfig). A few it reads where the
gateway would not: what matters then is that it passes on what it has read, in words of its own.
"""

import pytest

from tests.helpers.rawhttp import PREFIX, encode_request
from tests.helpers.scripted_origin import Answer
from tests.hostile.gateway import test_http as direct
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
ANOTHER_PROTOCOL = {"http-2-preface"}


# In the order of the originals, which count requests.
test_what_is_odd_but_legal_is_answered_without_harm = (
    direct.test_what_is_odd_but_legal_is_answered_without_harm
)
test_fuzzed_headers_change_nothing = direct.test_fuzzed_headers_change_nothing
test_an_absolute_target_does_not_choose_host_or_location = (
    direct.test_an_absolute_target_does_not_choose_host_or_location
)
test_a_preflight_needs_no_token_and_asks_nobody = (
    direct.test_a_preflight_needs_no_token_and_asks_nobody
)
test_a_strange_host_is_in_no_location = direct.test_a_strange_host_is_in_no_location
test_no_header_of_the_origin_becomes_two = direct.test_no_header_of_the_origin_becomes_two
test_no_data_forges_an_event = direct.test_no_data_forges_an_event
test_bytes_that_are_not_text_go_as_base64 = direct.test_bytes_that_are_not_text_go_as_base64
test_what_a_browser_would_run_is_marked_on_every_answer = (
    direct.test_what_a_browser_would_run_is_marked_on_every_answer
)


@pytest.mark.parametrize("target", [t for t in direct.SERVICE_PATHS if t != "//healthz"])
def test_no_service_path_leads_past_the_token(arena: Arena, target: str) -> None:
    direct.test_no_service_path_leads_past_the_token(arena, target)


@pytest.mark.parametrize("name", [n for n in REFUSED if n not in {*READ, *ANOTHER_PROTOCOL}])
def test_what_is_not_http_is_refused_with_all_that_follows(quick: Arena, name: str) -> None:
    direct.test_what_is_not_http_is_refused_with_all_that_follows(quick, name)


@pytest.mark.parametrize("name", [n for n in PAIRS if n not in READ])
def test_no_pair_of_framings_lets_a_second_request_through(quick: Arena, name: str) -> None:
    direct.test_no_pair_of_framings_lets_a_second_request_through(quick, name)


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


test_one_request_goes_upstream_as_one_request = direct.test_one_request_goes_upstream_as_one_request


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
