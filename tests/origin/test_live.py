"""Live reads: who is woken by what, and how connections end."""

import base64
import time
from collections.abc import Iterator

import pytest

from tests.conftest import StartOrigin
from tests.helpers.origin import MODES, LocalOrigin
from tests.helpers.rawhttp import (
    PREFIX,
    Client,
    Closed,
    Connection,
    EventStream,
    control,
    encode_request,
    wait_until,
)
from tests.origin.conftest import code

FAR_CURSOR = "900000000000"


@pytest.fixture(params=["memory", "file-durable"])
def origin(start_origin: StartOrigin, request: pytest.FixtureRequest) -> LocalOrigin:
    return start_origin(request.param)


@pytest.fixture
def client(origin: LocalOrigin) -> Iterator[Client]:
    with origin.client() as client:
        yield client


def live_readers(origin: LocalOrigin) -> int:
    return origin.call(lambda: origin.origin.live.reader_count)


def poll(origin: LocalOrigin, name: str, offset: str, query: str = "") -> Connection:
    """A long-poll that is waiting when this returns."""
    before = live_readers(origin)
    connection = origin.connect()
    target = f"{PREFIX}{name}?offset={offset}&live=long-poll{query}"
    connection.send(encode_request("GET", target))
    wait_until(lambda: live_readers(origin) > before, what="the long-poll waits")
    return connection


# -- long-poll -----------------------------------------------------------------------------------


def test_an_append_wakes_all_waiters_with_the_same_answer(
    origin: LocalOrigin, client: Client
) -> None:
    tail = client.create("s", body=b"old")
    waiting = [poll(origin, "s", tail) for _ in range(5)] + [poll(origin, "s", "now")]
    after = client.append("s", b"new")
    for connection in waiting:
        with connection:
            reply = connection.read_response()
        assert (reply.status, reply.body, reply.next_offset) == (200, b"new", after)
        assert reply.up_to_date and reply["Stream-Cursor"].isdigit() and reply["ETag"]


def test_a_close_wakes_with_204_and_closed(origin: LocalOrigin, client: Client) -> None:
    tail = client.create("s")
    with poll(origin, "s", tail) as connection:
        client.append("s", b"", stream_closed="true")
        reply = connection.read_response()
    assert (reply.status, reply.closed, reply.up_to_date) == (204, True, True)
    assert (reply.next_offset, reply.get("Stream-Cursor")) == (tail, None)


def test_a_last_append_wakes_with_data_and_closed(origin: LocalOrigin, client: Client) -> None:
    tail = client.create("s")
    with poll(origin, "s", tail) as connection:
        client.append("s", b"end", stream_closed="true")
        reply = connection.read_response()
    assert (reply.status, reply.body, reply.closed) == (200, b"end", True)


def test_a_delete_wakes_with_404(origin: LocalOrigin, client: Client) -> None:
    tail = client.create("s")
    with poll(origin, "s", tail) as connection:
        assert client("DELETE", "s").status == 204
        assert connection.read_response().status == 404


def test_a_recreation_does_not_reach_the_waiters_of_the_old_stream(
    origin: LocalOrigin, client: Client
) -> None:
    tail = client.create("s")
    with poll(origin, "s", tail) as connection:
        assert client("DELETE", "s").status == 204
        client.create("s", body=b"another stream")
        assert connection.read_response().status == 404


def test_appends_to_the_source_do_not_wake_the_readers_of_a_fork(
    origin: LocalOrigin, client: Client
) -> None:
    client.create("source", body=b"old")
    tail = client.create("fork", stream_forked_from=PREFIX + "source")
    with poll(origin, "fork", tail) as connection:
        client.append("source", b"unseen")
        client.append("fork", b"own")
        assert connection.read_response().body == b"own"


def test_each_waiter_has_its_own_deadline(start_origin: StartOrigin) -> None:
    origin = start_origin(server={"long_poll_timeout_secs": 1.0})
    with origin.client() as client:
        tail = client.create("s")
    first = poll(origin, "s", tail)
    time.sleep(0.7)
    started = time.monotonic()
    second = poll(origin, "s", tail)
    with first, second:
        reply = first.read_response()
        assert second.read_response().status == 204
        assert time.monotonic() - started > 0.9, "the second waited for the first's deadline"
    assert (reply.status, reply.next_offset, reply.up_to_date) == (204, tail, True)
    assert reply["Stream-Cursor"].isdigit()
    assert reply["Cache-Control"] == "no-store"


def test_the_cursor_moves_past_the_client(origin: LocalOrigin, client: Client) -> None:
    client.create("s", body=b"x")
    query = "offset=-1&live=long-poll"
    current = client("GET", "s", query=query)["Stream-Cursor"]
    assert client("GET", "s", query=f"{query}&cursor=1")["Stream-Cursor"] == current
    ahead = client("GET", "s", query=f"{query}&cursor={FAR_CURSOR}")["Stream-Cursor"]
    assert int(FAR_CURSOR) < int(ahead) <= int(FAR_CURSOR) + 180
    again = client("GET", "s", query=f"{query}&cursor={FAR_CURSOR}")["Stream-Cursor"]
    assert ahead == again, "readers who are together stay together"


def test_a_reader_who_leaves_is_forgotten(origin: LocalOrigin, client: Client) -> None:
    tail = client.create("s")
    poll(origin, "s", tail).close()
    EventStream(origin.port, "s").connection.close()
    wait_until(lambda: live_readers(origin) == 0)


# -- SSE -----------------------------------------------------------------------------------------


def test_data_and_control_come_in_one_write(origin: LocalOrigin, client: Client) -> None:
    client.create("s", body=b"old")
    with EventStream(origin.port, "s") as events:
        for body in ("old", "new", "newer"):
            if body != "old":
                client.append("s", body.encode())
            data, last = events.next_write()
            assert (data.kind, data.data) == ("data", body)
            assert control(last)["upToDate"] is True
            assert control(last)["streamNextOffset"] == client("HEAD", "s").next_offset


def test_an_empty_stream_greets_with_its_offset(origin: LocalOrigin, client: Client) -> None:
    tail = client.create("s")
    for offset in ("-1", "now", tail):
        with EventStream(origin.port, "s", offset) as events:
            [event] = events.next_write()
        assert control(event)["streamNextOffset"] == tail
        assert control(event)["upToDate"] is True


def test_now_skips_what_is_there(origin: LocalOrigin, client: Client) -> None:
    client.create("s", body=b"old")
    with EventStream(origin.port, "s", "now") as events:
        assert [event.kind for event in events.next_write()] == ["control"]
        client.append("s", b"new")
        assert events.next_write()[0].data == "new"


@pytest.mark.parametrize("last", [b"", b"end"], ids=["close-only", "append-and-close"])
def test_a_close_ends_the_event_stream(origin: LocalOrigin, client: Client, last: bytes) -> None:
    client.create("s")
    with EventStream(origin.port, "s") as events:
        events.next_write()
        client.append("s", last, stream_closed="true")
        found = events.rest()
    assert [event.data for event in found[:-1]] == ([last.decode()] if last else [])
    assert control(found[-1])["streamClosed"] is True
    assert "streamCursor" not in control(found[-1])


def test_a_closed_stream_is_told_whole_and_ended(origin: LocalOrigin, client: Client) -> None:
    client.create("s", body=b"all", stream_closed="true")
    with EventStream(origin.port, "s") as events:
        data, last = events.rest()
    assert (data.data, control(last)["streamClosed"]) == ("all", True)
    with EventStream(origin.port, "s", "now") as events:
        [only] = events.rest()
    assert control(only)["streamClosed"] is True and control(only)["upToDate"] is True


def test_a_delete_ends_the_event_stream(origin: LocalOrigin, client: Client) -> None:
    client.create("s")
    with EventStream(origin.port, "s") as events:
        events.next_write()
        assert client("DELETE", "s").status == 204
        assert [event for event in events.rest() if "streamClosed" in event.data] == []


def test_a_missing_stream_is_a_plain_404(client: Client) -> None:
    reply = client("GET", "missing", query="offset=-1&live=sse")
    assert (reply.status, reply["Content-Type"]) == (404, "application/problem+json")


def test_the_connection_rotates(start_origin: StartOrigin) -> None:
    origin = start_origin(server={"sse_reconnect_interval_secs": 0.3})
    with origin.client() as client:
        tail = client.create("s", body=b"x")
        started = time.monotonic()
        with EventStream(origin.port, "s") as events:
            found = events.rest()
        assert 0.25 < time.monotonic() - started < 20
        assert control(found[-1])["streamNextOffset"] == tail
        assert not control(found[-1]).get("streamClosed")


def test_a_quiet_connection_gets_heartbeats(start_origin: StartOrigin) -> None:
    origin = start_origin(server={"sse_heartbeat_secs": 0.05})
    with origin.client() as client:
        client.create("s")
    with EventStream(origin.port, "s") as events:
        pieces = [next(events.writes) for _ in range(4)]
    assert pieces[0].startswith(b"event: control")
    assert pieces[1:] == [b":\n\n"] * 3


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 4], ids=["one-chunk", "small-chunks"])
@pytest.mark.parametrize("live", [True, False], ids=["live", "catching-up"])
def test_a_character_cut_by_appends_arrives_whole(
    start_origin: StartOrigin, live: bool, chunk_bytes: int
) -> None:
    origin = start_origin(storage={"chunk_bytes": chunk_bytes})
    text = "abc\u00e9\u20ac\U0001f600xyz\u00e9"
    with origin.client() as client:
        client.create("s")
        parts = [bytes([byte]) for byte in text.encode()]
        if not live:
            for part in parts:
                client.append("s", part)
        with EventStream(origin.port, "s") as events:
            if live:
                events.next_write()
                for part in parts:
                    client.append("s", part)
            client.append("s", b"", stream_closed="true")
            found = events.rest()
        assert "".join(event.data for event in found if event.kind == "data") == text
        offsets = [control(e)["streamNextOffset"] for e in found if e.kind == "control"]
        assert offsets == sorted(offsets)
        for offset in offsets:  # from each of them a reader can go on
            text.encode()[int(offset[-16:]) :].decode()


def test_a_character_that_never_ends_is_told_at_the_close(
    origin: LocalOrigin, client: Client
) -> None:
    client.create("s", body=b"ab\xc3", stream_closed="true")
    with EventStream(origin.port, "s") as events:
        data, last = events.rest()
    assert data.data == "ab\ufffd"
    assert control(last)["streamClosed"] is True


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "application/ndjson"])
def test_binary_streams_come_as_base64(origin: LocalOrigin, client: Client, kind: str) -> None:
    payload = bytes(range(256))
    client.create("s", kind, payload)
    with EventStream(origin.port, "s") as events:
        assert dict(events.fields)["stream-sse-data-encoding"] == "base64"
        assert base64.b64decode(events.next_write()[0].data, validate=True) == payload


def test_json_comes_as_one_array_an_event(origin: LocalOrigin, client: Client) -> None:
    client.create("s", "application/json", b"[1,2]")
    with EventStream(origin.port, "s") as events:
        assert events.next_write()[0].data == "[1,2]"
        client.append("s", b'{"a":\n3}', "application/json")
        assert events.next_write()[0].data == '[{"a":\n3}]'


def test_the_cursor_never_goes_back(origin: LocalOrigin, client: Client) -> None:
    client.create("s")
    with EventStream(origin.port, "s", query=f"&cursor={FAR_CURSOR}") as events:
        seen = [int(control(events.next_write()[-1])["streamCursor"])]
        for number in range(5):
            client.append("s", b"%d" % number)
            seen.append(int(control(events.next_write()[-1])["streamCursor"]))
    assert seen[0] > int(FAR_CURSOR)
    assert seen == sorted(seen)


@pytest.mark.parametrize("mode", MODES)
def test_a_reader_who_comes_back_misses_nothing(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(
        mode, server={"sse_reconnect_interval_secs": 0.05}, storage={"chunk_bytes": 64}
    )
    with origin.client() as client:
        offset = client.create("s")
        received = ""
        for number in range(60):
            client.append("s", b"%04d." % number)
            if number % 10 == 0:
                with EventStream(origin.port, "s", offset) as events:
                    for event in events.rest():
                        if event.kind == "data":
                            received += event.data
                        else:
                            offset = control(event)["streamNextOffset"]
        while not (reply := client.read("s", offset)).up_to_date or reply.body:
            received, offset = received + reply.body.decode(), reply.next_offset
    assert received == "".join(f"{number:04}." for number in range(60))


def test_head_has_no_length_and_is_not_cached(origin: LocalOrigin, client: Client) -> None:
    client.create("s")
    with EventStream(origin.port, "s") as events:
        fields = dict(events.fields)
    assert fields["content-type"] == "text/event-stream"
    assert "content-length" not in fields
    assert "no-cache" in fields["cache-control"]
    assert fields["x-content-type-options"] == "nosniff"


def test_a_reader_that_does_not_read_is_dropped(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("origin.calls.STALLED_SECS", 0.3)
    origin = start_origin(limits={"max_body_bytes": 1 << 20})
    with origin.client() as client:
        client.create("s", "application/octet-stream")
        with EventStream(origin.port, "s") as stalled:
            stalled.next_write()
            for _ in range(20):
                client.append("s", b"x" * (1 << 20), "application/octet-stream")
            wait_until(lambda: live_readers(origin) == 0, what="the stalled reader is dropped")
            with pytest.raises(Closed):
                stalled.rest()
        assert client.read("s", "now").status == 200


@pytest.mark.parametrize(
    ("limit", "status"),
    [("max_live_readers", 503), ("max_live_readers_per_stream", 429)],
)
@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_live_readers_are_limited(
    start_origin: StartOrigin, limit: str, status: int, live: str
) -> None:
    origin = start_origin(limits={limit: 2})
    with origin.client() as client:
        client.create("s")
        first, second = EventStream(origin.port, "s"), EventStream(origin.port, "s")
        reply = client("GET", "s", query=f"offset=now&live={live}")
        assert code(reply) == (status, "too-many-readers")
        assert int(reply["Retry-After"]) >= 1
        assert client.read("s").status == 200
        first.connection.close()
        wait_until(lambda: origin.origin.live.reader_count == 1)
        with EventStream(origin.port, "s"):
            pass
        second.connection.close()
