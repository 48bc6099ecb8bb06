"""Who asks, and whether they may; without tokens, everybody may."""

import pytest

from gateway.config import AuthConfig, GatewayConfig, UpstreamConfig
from gateway.guard import Guard
from gateway.rules.access import ANYONE, Principal, Scopes
from protocol.errors import ProtocolError
from wire.heads import Head, make_head

OPEN = "/v1/stream/__ds/subscriptions/x/ack"


def make_guard(*, forward_token: bool = False) -> Guard:
    upstream = UpstreamConfig(forward_token=forward_token)
    return Guard(GatewayConfig(auth=AuthConfig(mode="off"), upstream=upstream), None)


def head(method: str, path: str, headers: dict[str, str] | None = None, size: int = 0) -> Head:
    return make_head(method, path, "", {"host": "weir.test", **(headers or {})}, size)


def someone(scope: str) -> Principal:
    return Principal("someone", Scopes.parse(scope), expires_at=1e12)


@pytest.mark.parametrize(
    ("method", "path", "scope", "allowed"),
    [
        ("GET", "/v1/stream/a", "read:a", True),
        ("GET", "/v1/stream/a", "write:a", False),
        ("POST", "/v1/stream/a", "write:a", True),
        ("PUT", "/v1/stream/a", "create:b", False),
        ("POST", OPEN, "", True),
    ],
)
def test_scopes_decide(method: str, path: str, scope: str, allowed: bool) -> None:
    guard, asked = make_guard(), head(method, path)
    _, route = guard.read_head(asked, repeated=False)
    if allowed:
        assert guard.authorise(asked, route, someone(scope)) == ""
    else:
        with pytest.raises(ProtocolError) as refused:
            guard.authorise(asked, route, someone(scope))
        assert refused.value.status == 403


def test_a_fork_needs_the_right_to_read_its_source() -> None:
    guard = make_guard()
    asked = head("PUT", "/v1/stream/b", {"stream-forked-from": "/v1/stream/a"})
    _, route = guard.read_head(asked, repeated=False)
    assert guard.authorise(asked, route, someone("create:b read:a")) == "/v1/stream/a"
    with pytest.raises(ProtocolError):
        guard.authorise(asked, route, someone("create:b"))


def test_an_empty_append_that_closes_is_a_close() -> None:
    guard = make_guard()
    closing = {"stream-closed": "true"}
    modes = [
        guard.read_head(head("POST", "/v1/stream/a", headers, size), repeated=False)[1].mode
        for headers, size in ((closing, 0), (closing, 5), ({}, 0))
    ]
    assert modes == ["close", "append", "append"]


@pytest.mark.parametrize(
    ("path", "forward", "token"),
    [
        ("/v1/stream/a", False, None),
        ("/v1/stream/a", True, "t"),
        (OPEN, False, "t"),
    ],
)
def test_which_tokens_go_upstream(path: str, forward: bool, token: str | None) -> None:
    guard = make_guard(forward_token=forward)
    asked = head("POST", path, {"authorization": "Bearer t"})
    found, _ = guard.read_head(asked, repeated=False)
    assert guard.forwarded(asked, found) == token
    assert guard.recognise(asked, found) is ANYONE
