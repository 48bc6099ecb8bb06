"""Section 4: ordinary event streams stay what they are, whatever snapshots there are."""

import base64

import pytest

from tests.extension.conftest import BINARY, JSON, TEXT, Api, problem
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import EventStream, control

BYTES = bytes(range(256))


def test_4_binary_events_are_base64_and_say_so(origin: LocalOrigin, api: Api, path: str) -> None:
    tail = api.create(path, BINARY, body=b"folded")
    api.publish(path, tail, BYTES, TEXT)
    api.append(path, BYTES, kind=BINARY)
    api.close(path)
    with EventStream(origin.port, path, tail) as events:
        assert dict(events.fields)["stream-sse-data-encoding"] == "base64"
        data, end = events.rest()
    assert base64.b64decode(data.data.replace("\n", "")) == BYTES
    assert control(end)["streamClosed"]


@pytest.mark.parametrize("kind", [TEXT, JSON])
def test_4_text_events_are_text(origin: LocalOrigin, api: Api, path: str, kind: str) -> None:
    """Of the stream's type; the snapshot's does not matter."""
    tail = api.create(path, kind, body=b'"folded"')
    api.publish(path, tail, BYTES, BINARY)
    api.append(path, b'"more"', kind=kind)
    api.close(path)
    with EventStream(origin.port, path, tail) as events:
        assert "stream-sse-data-encoding" not in dict(events.fields)
        data, _ = events.rest()
    assert data.data == ('["more"]' if kind == JSON else '"more"')


def test_4_no_event_carries_snapshot_bytes(origin: LocalOrigin, api: Api, path: str) -> None:
    tail = api.create(path, body=b"one")
    with EventStream(origin.port, path, tail) as events:
        events.next_write()
        api.publish(path, tail, b"SNAPSHOT")
        api.append(path, b"two")
        api.close(path)
        assert [event.data for event in events.rest() if event.kind == "data"] == ["two"]


def test_4_events_of_json_begin_at_any_message(origin: LocalOrigin, api: Api, path: str) -> None:
    """Every boundary is an offset, also one inside of an append."""
    api.create(path, JSON)
    api.append(path, b'["a","b","c"]', kind=JSON)
    offset = api.read(path, more="&max_bytes=6").next_offset
    api.close(path)
    with EventStream(origin.port, path, offset) as events:
        assert [event.data for event in events.rest() if event.kind == "data"] == ['["b","c"]']


@pytest.mark.parametrize("rest", ["/bootstrap", "/snapshot"])
def test_4_extension_resources_have_no_event_streams(api: Api, path: str, rest: str) -> None:
    tail = api.create(path, body=b"one")
    api.publish(path, tail)
    reply = api("GET", f"{path}{rest}?offset={tail}&live=sse", {"Accept": "text/event-stream"})
    assert reply.get("Content-Type") != "text/event-stream"
    if rest == "/bootstrap":
        assert problem(reply)[0] == 400
