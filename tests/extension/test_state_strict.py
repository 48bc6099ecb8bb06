"""`Stream-State: strict`: a stream that takes messages of the State Protocol and nothing else."""

import json
from typing import Any

import pytest

from tests.conftest import StartOrigin
from tests.extension.conftest import BUCKET, FLAT, JSON, KEPT_FOR_GOOD, TEXT, Api, Connect, problem
from tests.helpers.rawhttp import Response

INSERT = {"type": "user", "key": "1", "value": {"n": 1}, "headers": {"operation": "insert"}}
UPDATE = INSERT | {"value": None, "headers": {"operation": "update"}}
DELETE = {"type": "user", "key": "1", "headers": {"operation": "delete"}}
RESET = {"headers": {"control": "reset"}}
UPSERT = INSERT | {"key": "2", "headers": {"operation": "upsert"}}
GOOD = [INSERT, UPDATE, DELETE, UPSERT, RESET]


def make(
    api: Api, path: str, kind: str = JSON, state: str = "strict", body: bytes = b""
) -> Response:
    return api("PUT", path, {"Content-Type": kind, "Stream-State": state}, body)


def post(api: Api, path: str, value: Any) -> Response:
    return api("POST", path, {"Content-Type": JSON}, json.dumps(value).encode())


def test_a_strict_stream_says_so(api: Api, path: str) -> None:
    assert make(api, path).status == 201
    assert api.head(path)["Stream-State"] == "strict"
    api.create("/v1/stream/plain", JSON)
    assert "Stream-State" not in api.head("/v1/stream/plain")


@pytest.mark.parametrize("kind", [TEXT, "application/octet-stream", "application/x-ndjson"])
def test_only_json_streams_can_be_strict(api: Api, path: str, kind: str) -> None:
    assert make(api, path, kind).status == 400
    assert api.head(path).status == 404


@pytest.mark.parametrize("state", ["lax", "true", "", "strict,strict"])
def test_there_is_no_other_mode(api: Api, path: str, state: str) -> None:
    assert problem(make(api, path, state=state)) == (400, "invalid-state-mode")
    assert api.head(path).status == 404


def test_good_messages_are_taken_as_they_are(api: Api, path: str) -> None:
    make(api, path)
    for value in (INSERT, [UPDATE, DELETE, UPSERT], [RESET]):
        assert post(api, path, value).status == 204
    assert api.read(path).json() == GOOD


def test_a_value_with_half_an_emoji_comes_back_as_it_was(api: Api, path: str) -> None:
    make(api, path)
    body = json.dumps([INSERT | {"value": "\ud83d"}, UPDATE]).encode()
    assert rb'"\ud83d"' in body
    assert api("POST", path, {"Content-Type": JSON}, body).status == 204
    assert api.read(path).body == body.replace(b"}, {", b"},{")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "headers"),
        (1, None),
        ([1], None),
        (INSERT | {"key": 1}, "key"),
        (INSERT | {"type": ""}, "type"),
        ({k: v for k, v in INSERT.items() if k != "value"}, "value"),
        (INSERT | {"headers": {"operation": "replace"}}, "headers.operation"),
        (INSERT | {"headers": {}}, None),
        ({"headers": {"control": "stop"}}, "headers.control"),
    ],
)
def test_a_bad_message_is_named_by_position_and_field(
    api: Api, path: str, message: Any, field: str | None
) -> None:
    make(api, path)
    for before in (0, 2):
        reply = post(api, path, [*GOOD[:before], message, INSERT])
        assert problem(reply) == (400, "invalid-state-message")
        body = reply.json()
        assert body["position"] == before
        assert isinstance(body["field"], str)
        assert field is None or body["field"] == field
    assert api.read(path).json() == [], "all of an append or nothing of it"


def test_a_refused_append_leaves_no_trace(api: Api, path: str) -> None:
    """Neither of the producer nor of Stream-Seq nor of the end."""
    make(api, path)
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    headers = {"Content-Type": JSON, "Stream-Seq": "5", "Stream-Closed": "true", **producer}
    assert api("POST", path, headers, b"1").status == 400
    head = api.head(path)
    assert not head.closed
    assert api("POST", path, headers, json.dumps(INSERT).encode()).status == 200


def test_the_first_messages_of_a_stream_are_checked_too(api: Api, path: str) -> None:
    assert problem(make(api, path, body=b'[{"a":1}]')) == (400, "invalid-state-message")
    assert api.head(path).status == 404
    assert make(api, path, body=json.dumps(GOOD).encode()).status == 201
    assert api.read(path).json() == GOOD


def test_what_is_no_json_is_refused_as_ever(api: Api, path: str) -> None:
    make(api, path)
    assert problem(api("POST", path, {"Content-Type": JSON}, b"{")) == (400, "invalid-json")
    assert problem(api("POST", path, {"Content-Type": JSON}, b"[]")) == (400, "empty-array")


def test_other_streams_take_anything(api: Api, path: str) -> None:
    api.create(path, JSON)
    assert post(api, path, {"a": 1}).status == 204


def test_strictness_is_part_of_the_configuration(api: Api, path: str) -> None:
    make(api, path)
    assert make(api, path).status == 200
    assert problem(api("PUT", path, {"Content-Type": JSON}))[0] == 409
    other = "/v1/stream/plain"
    api.create(other, JSON)
    assert problem(make(api, other))[0] == 409


def test_forks_inherit_it(api: Api, path: str) -> None:
    fork = f"{BUCKET}/fork"
    make(api, path, body=json.dumps(INSERT).encode())
    assert api.fork(fork, path).status == 201
    assert api.head(fork)["Stream-State"] == "strict"
    assert problem(post(api, fork, {"a": 1})) == (400, "invalid-state-message")
    assert post(api, fork, DELETE).status == 204
    assert api.fork(fork, path).status == 200
    assert api.fork(fork, path, stream_state="strict").status == 200


def test_a_fork_of_a_plain_stream_cannot_become_strict(api: Api, path: str) -> None:
    """Nobody has checked what it would inherit."""
    api.create(path, JSON, body=b"1")
    assert api.fork("/v1/stream/f", path, stream_state="strict").status == 409
    assert api("DELETE", path).status == 204
    assert api.head(path).status == 404


def test_snapshots_are_not_looked_into(api: Api, path: str) -> None:
    """They are opaque, whatever the stream holds."""
    tail = make(api, path, body=json.dumps(INSERT).encode()).next_offset
    api.publish(path, tail, b"\0binary")
    assert problem(post(api, path, 1)) == (400, "invalid-state-message")


@KEPT_FOR_GOOD
def test_a_restart_is_as_strict(start_origin: StartOrigin, connect: Connect, mode: str) -> None:
    origin = start_origin(mode)
    make(connect(origin), FLAT)
    origin.restart()
    api = connect(origin)
    assert api.head(FLAT)["Stream-State"] == "strict"
    assert problem(post(api, FLAT, {"a": 1})) == (400, "invalid-state-message")
