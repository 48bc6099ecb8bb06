"""Headers that cross the gateway, and those that do not."""

import pytest

from gateway.rules.forwarding import (
    BadAnswer,
    client_headers,
    condition,
    is_repeatable,
    public_location,
    response_headers,
    upstream_headers,
)
from protocol.errors import ProtocolError

NEVER_FORWARDED = [
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "origin",
    "producer_id",
    "proxy-authorization",
    "range",
    "stream_closed",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-http-method-override",
    "x-jwt-roles",
    "x-jwt-sub",
    "x-original-url",
    "x-request-id",
    "x_jwt_sub",
    "x-stream-closed",
]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize("name", NEVER_FORWARDED)
def test_what_clients_may_not_tell_the_origin(method: str, name: str) -> None:
    assert client_headers(method, {name: "x"}) == {}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PATCH"])
def test_reads_take_nothing_of_the_client_along(method: str) -> None:
    headers = {"content-type": "text/plain", "stream-seq": "1", "producer-id": "p", "if-match": "x"}
    assert client_headers(method, headers) == {}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"])
def test_a_condition_goes_where_the_origin_decides(method: str) -> None:
    """What is stored has tags of ours; there it is none of the origin's business."""
    passes = method in ("HEAD", "PUT")
    headers = {"if-none-match": '"e", *'}
    assert client_headers(method, headers) == (headers if passes else {})


def test_a_condition_that_no_header_may_have_is_refused() -> None:
    with pytest.raises(ProtocolError):
        condition({"if-none-match": "a\r\nX: y"})
    assert condition({"if-match": "x"}) == {}


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_writes_take_the_protocol_along(method: str) -> None:
    headers = {
        "content-type": "application/json",
        "content-encoding": "gzip",
        "if-match": '"e"',
        "producer-epoch": "0",
        "producer-id": "p",
        "producer-seq": "1",
        "stream-expires-at": "2030-01-01T00:00:00Z",
        "stream-forked-from": "/v1/stream/a",
        "stream-seq": "7",
        "stream-state": "strict",
        "stream-ttl": "60",
    }
    assert client_headers(method, headers) == headers


def test_a_delete_takes_no_description_of_a_body_along() -> None:
    headers = {"content-type": "text/plain", "if-match": '"e"', "stream-seq": "7"}
    assert client_headers("DELETE", headers) == {"if-match": '"e"', "stream-seq": "7"}


@pytest.mark.parametrize("value", ["true", "TRUE", "True", " true "])
def test_closing_is_said_in_one_way(value: str) -> None:
    assert client_headers("POST", {"stream-closed": value}) == {"stream-closed": "true"}


@pytest.mark.parametrize("value", ["false", "1", "yes", "", "true, true"])
def test_other_values_of_stream_closed_are_as_good_as_absent(value: str) -> None:
    assert client_headers("POST", {"stream-closed": value}) == {}


def test_names_listed_in_connection_end_here() -> None:
    headers = {"connection": "close, Stream-Seq ,producer-id", "stream-seq": "1", "stream-ttl": "2"}
    assert client_headers("POST", headers | {"producer-id": "p"}) == {"stream-ttl": "2"}


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\x00", "\x7f", "caf\xe9", "\udce9", "\u2028"])
def test_values_that_no_header_may_have_are_refused(value: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        client_headers("POST", {"stream-seq": value})
    assert (refused.value.status, refused.value.code) == (400, "invalid-header")
    assert client_headers("POST", {"cookie": value}) == {}


def test_every_request_asks_for_plain_bytes() -> None:
    assert upstream_headers({}) == {"accept-encoding": "identity"}
    assert upstream_headers({"accept-encoding": "gzip"})["accept-encoding"] == "identity"


def test_the_gateway_says_who_asks() -> None:
    found = upstream_headers({"stream-seq": "1"}, subject="alice", request_id="r-1")
    assert found["x-jwt-sub"] == "alice"
    assert found["x-request-id"] == "r-1"
    assert found["stream-seq"] == "1"
    assert "authorization" not in found


def test_a_token_is_forwarded_only_when_given() -> None:
    assert upstream_headers({}, token="a.b.c")["authorization"] == "Bearer a.b.c"
    assert "authorization" not in upstream_headers({}, token=None)


def test_a_forged_identity_is_refused() -> None:
    with pytest.raises(ProtocolError):
        upstream_headers({}, subject="alice\r\nX-JWT-Sub: root")


PRODUCER = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}


@pytest.mark.parametrize(
    ("method", "headers", "repeatable"),
    [
        ("GET", {}, True),
        ("HEAD", {}, True),
        ("POST", PRODUCER, True),
        ("POST", {}, False),
        ("POST", {"producer-id": "p", "producer-epoch": "0"}, False),
        ("PUT", PRODUCER, False),
        ("DELETE", PRODUCER, False),
    ],
)
def test_only_some_requests_may_be_sent_twice(
    method: str, headers: dict[str, str], repeatable: bool
) -> None:
    assert is_repeatable(method, headers) is repeatable


def test_answers_bring_the_protocol_and_what_caches_need() -> None:
    fields = {
        "Allow": "GET",
        "Cache-Control": "public",
        "Content-Disposition": "attachment",
        "Content-Type": "text/plain",
        "ETag": '"1"',
        "Producer-Epoch": "1",
        "Retry-After": "1",
        "Stream-Next-Offset": "0_1",
    }
    found = response_headers(fields.items())
    assert found == {name.lower(): value for name, value in fields.items()}


@pytest.mark.parametrize(
    "name",
    [
        "Access-Control-Allow-Origin",
        "Age",
        "Connection",
        "Content-Length",
        "Content-Location",
        "Content-Range",
        "Date",
        "Keep-Alive",
        "Link",
        "Server",
        "Server-Timing",
        "Set-Cookie",
        "Stream_Closed",
        "Transfer-Encoding",
        "Vary",
        "Via",
        "WWW-Authenticate",
        "X-JWT-Sub",
        "X-Powered-By",
    ],
)
def test_what_stays_with_the_origin(name: str) -> None:
    assert response_headers([(name, "x")]) == {}


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\x00", "\x1b[2J", "\x7f", "caf\xe9"])
def test_an_answer_with_wrong_characters_is_not_passed_on(value: str) -> None:
    with pytest.raises(BadAnswer, match="content-type"):
        response_headers([("Content-Type", value)])
    assert response_headers([("Server", value)]) == {}


def test_a_header_with_two_values_is_no_choice_of_ours() -> None:
    with pytest.raises(BadAnswer, match="etag is repeated"):
        response_headers([("ETag", '"1"'), ("etag", '"2"')])


def test_lists_may_come_in_several_lines() -> None:
    fields = [("Cache-Control", "public"), ("cache-control", "max-age=60")]
    assert response_headers(fields) == {"cache-control": "public, max-age=60"}


@pytest.mark.parametrize("coding", ["gzip", "br", "GZIP", "identity, gzip", "unknown"])
def test_an_encoded_body_is_not_passed_on(coding: str) -> None:
    with pytest.raises(BadAnswer, match="Content-Encoding"):
        response_headers([("Content-Encoding", coding)])


@pytest.mark.parametrize("coding", ["identity", "Identity", ""])
def test_identity_may_be_named(coding: str) -> None:
    assert response_headers([("Content-Encoding", coding)]) == {}


@pytest.mark.parametrize(
    ("location", "origin_path", "expected"),
    [
        ("http://127.0.0.1:4437/v1/stream/a", "", "/v1/stream/a"),
        ("https://elsewhere.test/v1/stream/a%2Fb", "", "/v1/stream/a%2Fb"),
        ("/v1/stream/a", "", "/v1/stream/a"),
        ("//other.test/v1/stream/a", "", "/v1/stream/a"),
        ("http://o.test/base/v1/stream/a", "/base", "/v1/stream/a"),
        ("http://o.test/based/v1/stream/a", "/base", "/based/v1/stream/a"),
        ("/v1/stream/a/snapshot/1?x=1#frag", "", "/v1/stream/a/snapshot/1?x=1"),
    ],
)
def test_location_becomes_a_path_of_ours(location: str, origin_path: str, expected: str) -> None:
    found = response_headers([("Location", location)], origin_path)
    assert found == {"location": expected}


@pytest.mark.parametrize(
    "location",
    ["", "a/b", "http://o.test", "http://o.test//evil.test/x", "javascript:alert(1)", "/\\evil"]
    + ["http://[bad/x", "?x=1", "http://o.test/base//evil.test"],
)
def test_a_location_that_could_lead_elsewhere_is_dropped(location: str) -> None:
    assert response_headers([("Location", location)], "/base") == {}


def test_a_client_gets_the_address_it_used() -> None:
    assert public_location("/v1/stream/a", "https://gw.test/") == "https://gw.test/v1/stream/a"
    assert public_location("/v1/stream/a", "") == "/v1/stream/a"
