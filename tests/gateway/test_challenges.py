import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rules.challenges import (
    AuthError,
    Reason,
    ambiguous_token,
    invalid_token,
    keys_unavailable,
    missing_scope,
    missing_token,
)
from protocol.replies import Reply, problem_of


def reply_to(error: AuthError) -> tuple[Reply, dict[str, str]]:
    reply = problem_of(error)
    return reply, dict(reply.headers)


def test_no_token_is_told_how_to_bring_one() -> None:
    reply, headers = reply_to(missing_token())
    assert reply.status == 401
    assert headers["WWW-Authenticate"] == 'Bearer realm="weir"'
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Cache-Control"] == "no-store"
    assert json.loads(reply.body)["code"] == "token-required"


def test_every_bad_token_gets_the_same_answer() -> None:
    reasons: tuple[Reason, ...] = get_args(Reason)
    errors = [invalid_token(reason) for reason in reasons]
    assert len({problem_of(error) for error in errors}) == 1
    assert [error.reason for error in errors] == list(reasons)
    reply, headers = reply_to(errors[0])
    assert reply.status == 401
    assert headers["WWW-Authenticate"] == 'Bearer realm="weir", error="invalid_token"'


def test_two_tokens_are_a_bad_request_in_a_401() -> None:
    reply, headers = reply_to(ambiguous_token())
    assert reply.status == 401
    assert headers["WWW-Authenticate"] == 'Bearer realm="weir", error="invalid_request"'


def test_missing_scope_is_named() -> None:
    reply, headers = reply_to(missing_scope("read", "chat/room 1"))
    wanted = 'Bearer realm="weir", error="insufficient_scope", scope="read:chat/room%201"'
    assert (reply.status, headers["WWW-Authenticate"]) == (403, wanted)
    assert "read:chat/room%201" in json.loads(reply.body)["detail"]


def test_a_scope_too_long_for_a_header_is_left_out() -> None:
    reply, headers = reply_to(missing_scope("write", "é" * 500))
    assert headers["WWW-Authenticate"] == 'Bearer realm="weir", error="insufficient_scope"'
    assert "write" in json.loads(reply.body)["detail"]


@given(st.text(st.characters(codec="utf-8")))
def test_no_name_breaks_out_of_the_header(name: str) -> None:
    _, headers = reply_to(missing_scope("read", name))
    value = headers["WWW-Authenticate"]
    assert value.isascii() and value.isprintable() and "\\" not in value
    assert value.count('"') in (4, 6) and len(value) < 1024


def test_without_keys_the_client_comes_back_later() -> None:
    reply, headers = reply_to(keys_unavailable())
    assert reply.status == 503 and int(headers["Retry-After"]) > 0
    assert "WWW-Authenticate" not in headers


@pytest.mark.parametrize("error", [missing_token(), invalid_token("claims"), keys_unavailable()])
def test_refusals_are_protocol_errors_with_a_reason(error: AuthError) -> None:
    assert error.reason in get_args(Reason)
    assert json.loads(problem_of(error).body)["status"] == error.status
