"""What servers say about streams."""

from collections.abc import Iterator

import pytest

from protocol.offsets import START, moved_to
from protocol.paths import parse_path, stream_url
from spark.http import Address, Client, SourceError
from spark.streams import (
    OffsetGone,
    Streams,
    precedes,
    stream_name,
    stream_path,
)
from tests.conftest import StartOrigin
from tests.helpers.offsets import nameless
from tests.helpers.scripted_origin import Answer, Recorded, ScriptedOrigin
from tests.spark.conftest import Door
from tests.spark.writer import Writer

AT = nameless


@pytest.fixture
def streams(server: ScriptedOrigin) -> Iterator[Streams]:
    with Client(Address(server.url, "very-secret", retries=0)) as client:
        yield Streams(client)


@pytest.fixture
def at_door(door: Door) -> Iterator[Streams]:
    with Client(door.address) as client:
        yield Streams(client)


@pytest.mark.parametrize("name", ["a", "a/b", "a b/ü", "+&=;,", "/ds/buck/x", "/ds/buck/ö #?"])
def test_paths_are_those_of_the_protocol(name: str) -> None:
    assert stream_path(name) == stream_url(name)
    assert stream_name(stream_path(name)) == stream_name(name) == name
    place = parse_path(stream_path(name))
    assert place is not None and place.name == name


def test_offsets_are_ordered() -> None:
    assert precedes(START, AT(1)) and precedes(AT(1), AT(2)) and precedes("x1", "x2")
    assert precedes(START, "x1") and precedes(START, "!")
    assert not precedes(START, AT(0)) and not precedes(AT(0), START)
    assert not precedes("x1", "x1") and not precedes("!", START)


def test_the_head_of_a_stream(at_door: Streams, writer: Writer) -> None:
    (tail,) = writer.lay("a", '"1"')
    first = at_door.head("a")
    assert first is not None and first.next_offset == tail and len(first.incarnation) == 16
    tail = writer.append("a", '"2"')
    second = at_door.head("a")
    assert second is not None
    assert (second.next_offset, second.incarnation) == (tail, first.incarnation)
    writer.delete("a")
    assert at_door.head("a") is None
    writer.create("a")
    again = at_door.head("a")
    assert again is not None and again.incarnation != first.incarnation


def test_a_listing_is_read_page_by_page(server: ScriptedOrigin, streams: Streams) -> None:
    ids = [f"s&{number:02}" for number in range(7)]

    def list_three(request: Recorded) -> Answer:
        after = request.parameters.get("after", "")
        rest = [each for each in ids if each > after]
        rows = ",".join(f'{{"stream_id":"{each}","tail_offset":1}}' for each in rest[:3])
        more = str(len(rest) > 3).lower()
        page = f'{{"streams":[{rows}],"next_cursor":"{rest[:3][-1]}","has_more":{more}}}'
        return Answer(200, {"Content-Type": "application/json"}, page.encode())

    server.on("GET", "/ds/buck/streams", list_three)
    found = [row.name for row in streams.listing("buck", "s&")]
    assert found == [f"/ds/buck/{each}" for each in ids]
    assert {request.parameters["prefix"] for request in server.requests} == {"s&"}
    assert server.count() == 3


def test_a_listing_tells_what_changed(at_door: Streams, writer: Writer) -> None:
    writer.bucket("buck")
    writer.lay("/ds/buck/a", '"1"')
    (before,) = at_door.listing("buck", "")
    assert list(at_door.listing("buck", "")) == [before]
    writer.append("/ds/buck/a", '"2"')
    assert list(at_door.listing("buck", "")) != [before]
    assert list(at_door.listing("buck", "b")) == []


def test_where_a_chunk_ends_costs_no_bytes(start_origin: StartOrigin) -> None:
    origin = start_origin(storage={"chunk_bytes": 10})
    writer = Writer(origin.port)
    offsets = writer.lay("a", *['"1"'] * 6)
    with Client(Address(f"http://127.0.0.1:{origin.port}")) as client:
        streams = Streams(client)
        assert streams.border("a", START) == offsets[2]
        assert streams.border("a", offsets[2]) == streams.border("a", AT(12)) == offsets[4]
        assert streams.border("a", START, max_bytes=9) == offsets[1]
        assert streams.border("a", START, max_bytes=1) == offsets[0]
        assert streams.border("a", offsets[5]) is None  # the tail
        assert streams.border("a", AT(5)) is None  # inside a message
        assert streams.border("missing", START) is None
        writer.publish("a", offsets[3], b"[]")
        assert streams.border("a", START) == OffsetGone(offsets[3])


def test_a_gateway_tells_where_chunks_end_too(gateway: Door, writer: Writer) -> None:
    (tail,) = writer.lay("a", '["1","2"]')
    with Client(gateway.address) as client:
        streams = Streams(client)
        assert streams.border("a", START) == tail
        assert streams.border("a", START, max_bytes=5) == moved_to(tail, 4)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, {"Stream-Next-Offset": AT(5)}, b"hello"),
        Answer(304, {"ETag": '"x"'}),
        Answer(304, {"Stream-Next-Offset": "x5"}),
        Answer(304, {"Stream-Next-Offset": AT(0)}),
        Answer(410),
        Answer(503),
    ],
    ids=["not conditional", "bare 304", "opaque", "no progress", "gone", "away"],
)
def test_where_a_chunk_ends_may_not_be_told(
    server: ScriptedOrigin, streams: Streams, answer: Answer
) -> None:
    server.on("GET", "/v1/stream/a", answer)
    assert streams.border("a", AT(0)) is None


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Answer(401), "stream 'a' at -1: status 401: the token is missing or invalid"),
        (Answer(403, {}, b'{"detail":"No."}'), "stream 'a' at -1: status 403: No."),
        (Answer(400, {}, b"bad"), "stream 'a' at -1: status 400: bad"),
        (Answer(503), "stream 'a' at -1: status 503"),
        (Answer(302, {"Location": "/x"}), "stream 'a' at -1: status 302"),
        (Answer(200, {}, b"<html>"), "stream 'a': no Stream-Next-Offset"),
    ],
)
def test_refusals_name_the_stream_and_never_the_token(
    server: ScriptedOrigin, streams: Streams, answer: Answer, complaint: str
) -> None:
    server.on("GET", "/v1/stream/a", answer)
    with pytest.raises(SourceError) as caught:
        streams.read("a", START)
    assert str(caught.value).startswith(complaint)
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("page", [b"", b"[]", b"{}", b'{"streams":[{}]}', b'{"streams":[7]}'])
def test_a_listing_that_is_none_is_refused(
    server: ScriptedOrigin, streams: Streams, page: bytes
) -> None:
    server.on("GET", "/ds/buck/streams", Answer(200, {}, page))
    with pytest.raises(SourceError, match="bucket 'buck': cannot read the listing"):
        list(streams.listing("buck", ""))


def test_a_missing_bucket_is_an_error(at_door: Streams) -> None:
    with pytest.raises(SourceError, match="bucket 'buck': status 404"):
        list(at_door.listing("buck", ""))


def test_a_snapshot_elsewhere_is_not_fetched(server: ScriptedOrigin, streams: Streams) -> None:
    elsewhere = Answer(307, {"Location": "http://example.com/v1/stream/a/snapshot/7"})
    server.on("GET", "/v1/stream/a/snapshot", elsewhere)
    with pytest.raises(SourceError, match="stream 'a': redirect to another server"):
        streams.snapshot("a")
