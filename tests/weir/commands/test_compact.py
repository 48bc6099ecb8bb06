"""`weir compact`: what it publishes, what it refuses, and that readers see the same state."""

import json
from typing import Any

import pytest

from protocol.state import materialise, parse_message, split_array
from tests.conftest import StartOrigin
from tests.helpers.gateway import KEY, LocalGateway, make_gateway_config
from tests.helpers.keys import make_token
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import Client
from tests.helpers.scripted_origin import Answer, Recorded, ScriptedOrigin, simple_stream
from tests.weir.conftest import Done, Weir

PATH = "/v1/stream/s"
JSON = "application/json"


def change(key: str, value: Any = 0, operation: str = "insert") -> bytes:
    message = {"type": "user", "key": key, "value": value, "headers": {"operation": operation}}
    return json.dumps(message).encode()


MESSAGES = [change("1", "a"), change("2"), change("1", "b", "update"), change("2", None, "delete")]


class Stream:
    """A stream on a server with bootstrap and snapshots."""

    tail = "0_7"

    def __init__(self, scripted: ScriptedOrigin) -> None:
        self.messages = list(MESSAGES)
        scripted.on("GET", f"{PATH}/bootstrap", self._answer)
        scripted.on("PUT", f"{PATH}/snapshot/*", Answer(204))

    def _answer(self, request: Recorded) -> Answer:
        parts = [b"--b\r\n\r\n\r\n"]
        parts += [
            b"--b\r\nContent-Type: %b\r\n\r\n%b\r\n" % (JSON.encode(), m) for m in self.messages
        ]
        headers = {"Content-Type": "multipart/mixed; boundary=b", "Stream-Snapshot-Offset": "-1"}
        headers |= {"Stream-Next-Offset": self.tail, "Stream-Up-To-Date": "true"}
        return Answer(200, headers, b"".join(parts) + b"--b--")


@pytest.fixture
def stream(scripted: ScriptedOrigin) -> Stream:
    return Stream(scripted)


def test_the_state_at_the_tail_is_published(
    weir: Weir, scripted: ScriptedOrigin, stream: Stream
) -> None:
    done = weir("compact", scripted.url + PATH, "--token", "t")
    [request] = scripted.find("PUT")
    assert request.path == f"{PATH}/snapshot/{stream.tail}"
    assert request.headers["content-type"] == JSON
    assert request.headers["authorization"] == "Bearer t"
    start, *inserts, end = json.loads(request.body)
    assert [mark["headers"]["control"] for mark in (start, end)] == [
        "snapshot-start",
        "snapshot-end",
    ]
    assert {mark["headers"]["offset"] for mark in (start, end)} == {stream.tail}
    assert inserts == [json.loads(change("1", "b"))]
    lines = [
        f"{scripted.url}{PATH}: snapshot at {stream.tail}",
        "messages read   4",
        "live entities   1",
        f"bytes before    {sum(map(len, MESSAGES))}",
        f"bytes after     {len(request.body)}",
    ]
    assert done == Done(0, lines, [])


def test_what_is_malformed_is_not_thrown_away_silently(
    weir: Weir, scripted: ScriptedOrigin, stream: Stream
) -> None:
    stream.messages.append(b'"note"')
    code, out, [line] = weir("compact", scripted.url + PATH)
    assert (code, out, scripted.count("PUT")) == (1, [], 0)
    assert ": must be a well-formed JSON object; a snapshot would lose it (--skip-malformed" in line
    code, out, [line] = weir("compact", scripted.url + PATH, "--skip-malformed")
    assert (code, out[1], scripted.count("PUT")) == (0, "messages read   5", 1)
    assert line.endswith(": must be a well-formed JSON object; skipped")


def test_a_server_without_snapshots_is_left_alone(weir: Weir, scripted: ScriptedOrigin) -> None:
    """It would take the snapshot for a stream of that name."""
    simple_stream(scripted, PATH, JSON, *MESSAGES)
    code, out, err = weir("compact", scripted.url + PATH)
    url = f"{scripted.url}{PATH}/bootstrap"
    assert (code, out) == (4, [])
    assert err == [f"weir: {url} is missing: the server has no snapshots"]
    assert scripted.count("PUT") == 0


def test_a_stream_without_messages_has_nothing_to_compact(
    weir: Weir, scripted: ScriptedOrigin, stream: Stream
) -> None:
    stream.messages.clear()
    url = scripted.url + PATH
    assert weir("compact", url) == Done(0, [f"{url} has nothing to compact"], [])
    assert scripted.count("PUT") == 0


def test_a_server_that_refuses_is_quoted(
    weir: Weir, scripted: ScriptedOrigin, stream: Stream
) -> None:
    problem = b'{"title": "Conflict", "detail": "The tail is \\u001b[5m elsewhere."}'
    scripted.on("PUT", f"{PATH}/snapshot/*", Answer(409, {}, problem))
    code, out, [line] = weir("compact", scripted.url + PATH)
    assert (code, out) == (4, [])
    assert line.startswith(f"weir: PUT {PATH}/snapshot/{stream.tail}: 409 Conflict: The tail is ")
    assert line.isprintable()


def test_a_token_that_may_not_publish_is_told_what_it_lacks(
    weir: Weir, origin: LocalOrigin
) -> None:
    config = make_gateway_config(f"http://127.0.0.1:{origin.port}")
    with origin.client() as client, LocalGateway(config) as gateway:
        client.create("s", JSON, b"[%b]" % MESSAGES[0])
        token = make_token(KEY, scope="read:s write:s create:s delete:s")
        code, out, [line] = weir("compact", f"{gateway.url}{PATH}", "--token", token)
        assert (code, out) == (4, [])
        assert line.endswith("403 Forbidden: The token lacks the scope snapshot:s")
        assert client.read("s").body == b"[%b]" % MESSAGES[0]


def test_a_snapshot_that_is_open_stays_open(
    weir: Weir, scripted: ScriptedOrigin, stream: Stream
) -> None:
    stream.messages.append(b'{"headers":{"control":"snapshot-start"}}')
    done = weir("compact", scripted.url + PATH)
    assert done.out[-1] == "The stream ends inside a snapshot of its own, and so does the new one."
    [request] = scripted.find("PUT")
    assert materialise(map(parse_message, split_array(request.body))).snapshot_open


def test_compacting_changes_no_state_and_can_be_repeated(
    weir: Weir, origin: LocalOrigin, client: Client
) -> None:
    """With our own origin."""
    url = f"http://127.0.0.1:{origin.port}{PATH}"
    client.create("s", JSON, b"[" + b",".join(MESSAGES) + b"]")
    before = weir("state", url, "--json")
    first = weir("compact", url)
    assert first.code == 0 and weir("state", url, "--json") == before
    assert client.read("s").status == 410
    assert weir("compact", url).out == [f"{url} has nothing to compact"]
    client.append("s", change("3"), JSON)
    again = weir("compact", url)
    assert again.out[1:3] == ["messages read   4", "live entities   2"]
    assert json.loads(weir("state", url, "--json").out[0]) == {"user": {"1": "b", "3": 0}}


def test_more_than_a_bootstrap_may_have_is_compacted_all_the_same(
    weir: Weir, start_origin: StartOrigin
) -> None:
    """Nothing else would make it small again."""
    origin = start_origin(limits={"max_bootstrap_bytes": 300})
    url = f"http://127.0.0.1:{origin.port}{PATH}"
    with origin.client() as client:
        client.create("s", JSON, b"[" + b",".join(MESSAGES) + b"]")
        for number in (1, 2):
            assert client("GET", "s/bootstrap").status == 413
            before = weir("state", url, "--json")
            assert (before.code, weir("compact", url).code) == (0, 0)
            assert client("GET", "s/bootstrap").status == 200
            assert weir("state", url, "--json") == before
            for value in range(4):
                client.append("s", change("1", number + value, "update"), JSON)
