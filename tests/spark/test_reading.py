"""What a task reads of its range, whatever happened to the stream since the range was planned."""

from collections.abc import Iterator
from itertools import count

import pytest

from protocol.offsets import START, format_offset
from spark.http import Client, SourceError
from spark.options import parse_options
from spark.planning import Partitions, Planner
from spark.ranges import Beyond, Range
from spark.reading import DataLoss, read_range
from spark.streams import Streams
from tests.conftest import StartOrigin
from tests.helpers.offsets import nameless, unnamed
from tests.helpers.scripted_origin import Answer, Recorded, ScriptedOrigin
from tests.spark.conftest import TEXT, Door, messages, read_all
from tests.spark.writer import JSON, Writer

AT = nameless


def plan(door: Door, **given: str) -> Partitions:
    return Planner(parse_options(door.options | given, streaming=False)).plan_all()


def between(door: Door, name: str, start: str, end: str, limit: str = "") -> Partitions:
    """A part of a streaming batch, of the stream as it is now."""
    with Client(door.address) as client:
        head = Streams(client).head(name)
    assert head is not None
    return [(Range(name, head.incarnation, start, end, limit or end, Beyond.LATER),)]


# -- what is there ---------------------------------------------------------------------------------


def test_messages_come_as_they_were_stored_each_with_its_offset(door: Door, writer: Writer) -> None:
    writer.lay("a", '[{"k":"é"}, 1.0]', ' "x" ')
    rows = read_all(door, plan(door, stream="a"))
    assert messages(rows) == ['{"k":"é"}', "1.0", '"x"']
    assert [unnamed(row["offset"]) for row in rows] == [AT(0), AT(11), AT(15)]
    assert [unnamed(row["next_offset"]) for row in rows] == [AT(11), AT(15), AT(19)]
    assert {(row["stream"], row["position"], row["kind"]) for row in rows} == {("a", 0, "message")}


def test_reading_can_begin_at_the_offset_of_any_row(door: Door, writer: Writer) -> None:
    writer.lay("a", '["ü","v","w"]', '["x"]', '["y","z"]')
    rows = read_all(door, plan(door, stream="a"))
    for number, row in enumerate(rows):
        assert read_all(door, plan(door, stream="a", start=row["offset"])) == rows[number:]
        assert read_all(door, plan(door, stream="a", end=row["offset"])) == rows[:number]


def test_other_streams_come_as_chunks_with_exact_bytes(door: Door, writer: Writer) -> None:
    every_byte = bytes(range(256))
    tail = writer.lay("a", every_byte, every_byte, kind="application/octet-stream")[-1]
    (row,) = read_all(door, plan(door, stream="a"))
    assert (row["data"], row["message"], row["kind"]) == (every_byte * 2, None, "chunk")
    assert (row["content_type"], row["next_offset"]) == ("application/octet-stream", tail)


def test_names_may_be_anything_that_a_stream_can_have(door: Door, writer: Writer) -> None:
    writer.bucket("buck")
    names = ["a/b c", "grüße+&=", "/ds/buck/ö #1?"]
    for name in names:
        writer.lay(name, '"x"')
    for name in names:
        assert [row["stream"] for row in read_all(door, plan(door, stream=name))] == [name]


@pytest.mark.parametrize("end_in_message", [AT(3), AT(9)])
def test_an_end_inside_a_message_is_refused(
    front: Door, writer: Writer, end_in_message: str
) -> None:
    writer.lay("a", '[{"a":1,"b":2}]', '"x"')
    with pytest.raises(SourceError, match="stream 'a' at -1: not a JSON array of messages"):
        read_all(front, plan(front, stream="a", end=end_in_message))


def test_an_empty_stream_has_no_rows(door: Door, writer: Writer) -> None:
    writer.create("a")
    assert plan(door, stream="a") == []


# -- growth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [JSON, TEXT])
def test_what_was_appended_since_is_left_for_later(door: Door, writer: Writer, kind: str) -> None:
    writer.lay("a", '"ü"', '"y"', kind=kind)
    planned = plan(door, stream="a")
    before = read_all(door, planned)
    writer.append("a", '"z"', kind)
    assert read_all(door, planned) == before
    assert read_all(door, plan(door, stream="a")) != before


def test_parts_give_the_same_rows_as_the_whole(start_origin: StartOrigin) -> None:
    origin = start_origin(storage={"chunk_bytes": 50})
    door, writer = Door(f"http://127.0.0.1:{origin.port}"), Writer(origin.port)
    for name, kind in (("a", JSON), ("b", TEXT)):
        writer.lay(name, *(f'"message {number}"' for number in range(40)), kind=kind)
        whole, parts = plan(door, stream=name), plan(door, stream=name, partitionBytes="100")
        assert len(whole) == 1 and len(parts) > 5
        assert read_all(door, parts) == read_all(door, whole)


# -- snapshots -------------------------------------------------------------------------------------


def test_a_snapshot_stands_for_what_it_replaced(door: Door, writer: Writer) -> None:
    offsets = writer.lay("a", '"1"', '"2"', '"3"')
    writer.publish("a", offsets[1], b'["s1","s2"]')
    rows = read_all(door, plan(door, stream="a"))
    assert messages(rows) == ['"s1"', '"s2"', '"3"']
    assert [row["kind"] for row in rows] == ["snapshot", "snapshot", "message"]
    keys = [(row["offset"], row["position"]) for row in rows]
    assert keys == sorted(set(keys)) == [(offsets[1], number) for number in (-2, -1, 0)]
    assert read_all(door, plan(door, stream="a", start=offsets[1])) == rows[2:]


def test_an_offset_of_a_stream_that_was_deleted_is_lost_data(door: Door, writer: Writer) -> None:
    """Not one that a snapshot of the new one stands for."""
    (old,) = writer.lay("a", '"old"')
    writer.delete("a")
    offsets = writer.lay("a", '"new"', '"newer"', '"newest"')
    for _ in range(2):
        with pytest.raises(DataLoss):
            read_all(door, plan(door, stream="a", start=old))
        writer.publish("a", offsets[1], b'["snapshot"]')


def test_a_snapshot_at_the_tail_is_all_there_is(door: Door, writer: Writer) -> None:
    (tail,) = writer.lay("a", '["1","2"]')
    writer.publish("a", tail, b"\x00\x01", "application/x-state")
    (row,) = read_all(door, plan(door, stream="a"))
    assert (row["kind"], row["data"], row["next_offset"]) == ("snapshot", b"\x00\x01", tail)
    assert row["content_type"] == "application/x-state"


def test_a_snapshot_that_was_published_since_is_read_instead(door: Door, writer: Writer) -> None:
    offsets = writer.lay("a", '"1"', '"2"', '"3"')
    planned = plan(door, stream="a")
    writer.publish("a", offsets[0], b'["s"]')
    assert messages(read_all(door, planned)) == ['"s"', '"2"', '"3"']


def test_a_later_snapshot_is_read_by_the_batch_that_has_it_inside(
    door: Door, writer: Writer
) -> None:
    """First nothing, then the snapshot: together neither a gap nor a repetition."""
    offsets = writer.lay("a", '"1"', '"2"', '"3"', '"4"')
    first = between(door, "a", START, offsets[0])
    writer.publish("a", offsets[2], b'["s"]')
    assert read_all(door, first) == []
    assert messages(read_all(door, between(door, "a", offsets[0], offsets[3]))) == ['"s"', '"4"']
    assert messages(read_all(door, between(door, "a", offsets[0], offsets[2]))) == ['"s"']
    assert messages(read_all(door, between(door, "a", offsets[2], offsets[3]))) == ['"4"']


def test_a_batch_read_has_no_later_and_takes_it(door: Door, writer: Writer) -> None:
    writer.lay("a", '"1"')
    planned = plan(door, stream="a")
    writer.publish("a", writer.append("a", '"2"'), b'["s"]')
    assert messages(read_all(door, planned)) == ['"s"']


def test_a_snapshot_with_more_than_was_asked_for_is_a_loss(front: Door, writer: Writer) -> None:
    offsets = writer.lay("a", '"1"', '"2"')
    writer.publish("a", offsets[1], b'["s"]')
    planned = plan(front, stream="a", end=offsets[0])
    with pytest.raises(DataLoss, match="stream 'a': a snapshot at .* replaced"):
        read_all(front, planned)
    assert read_all(front, planned, fail=False) == []


def test_a_part_fails_when_nobody_can_tell_who_reads_the_snapshot(
    front: Door, writer: Writer
) -> None:
    offsets = writer.lay("a", '"1"', '"2"', '"3"', '"4"')
    parts = [
        between(front, "a", start, end, limit=offsets[3])
        for start, end in ((START, offsets[0]), (offsets[0], offsets[2]), (offsets[2], offsets[3]))
    ]
    writer.publish("a", offsets[1], b'["s"]')
    with pytest.raises(SourceError, match="in parts; try again"):
        read_all(front, parts[0], fail=False)
    assert messages(read_all(front, parts[1])) == ['"s"', '"3"']
    assert messages(read_all(front, parts[2])) == ['"4"']


# -- deletion --------------------------------------------------------------------------------------


def test_a_stream_that_was_deleted_is_a_loss(door: Door, writer: Writer) -> None:
    writer.lay("a", '"1"')
    writer.lay("b", '"2"')
    planned = plan(door, streams='["a", "b"]')
    writer.delete("a")
    with pytest.raises(DataLoss, match="stream 'a': deleted"):
        read_all(door, planned)
    assert messages(read_all(door, planned, fail=False)) == ['"2"']


@pytest.mark.parametrize("body", ['"2"', '"2","3"', '"22"'])
def test_a_stream_that_was_created_anew_is_not_taken_for_the_old_one(
    door: Door, writer: Writer, body: str
) -> None:
    writer.lay("a", '"1"')
    planned = plan(door, stream="a")
    assert messages(read_all(door, planned)) == ['"1"']  # and a gateway has kept it
    writer.delete("a")
    writer.lay("a", f"[{body}]")
    with pytest.raises(DataLoss, match="stream 'a': deleted or re-created"):
        read_all(door, planned)
    assert read_all(door, planned, fail=False) == []


def test_a_snapshot_of_a_stream_created_anew_is_not_taken_either(
    door: Door, writer: Writer
) -> None:
    writer.lay("a", '"1"')
    planned = plan(door, stream="a")
    writer.delete("a")
    writer.publish("a", writer.lay("a", '"2"')[0], b"[]")
    with pytest.raises(DataLoss, match="re-created"):
        read_all(door, planned)


# -- servers that say less -------------------------------------------------------------------------


class Opaque:
    """A stream whose offsets tell nothing but their order; each answer reaches the tail."""

    def __init__(self, server: ScriptedOrigin, kind: str = JSON) -> None:
        self.kind = kind
        self.held: list[str] = []
        self.grows: Iterator[list[str]] = iter(())  # what is appended before each read
        server.on("*", "/v1/stream/a", self._answer)

    @property
    def tail(self) -> str:
        return f"t{len(self.held):04}"

    def _answer(self, request: Recorded) -> Answer:
        if request.method == "GET":
            self.held += next(self.grows, [])
        start = request.parameters.get("offset", START)
        rest = self.held[0 if start == START else int(start[1:]) :]
        body = f"[{','.join(rest)}]" if self.kind == JSON else "".join(rest)
        headers = {"Content-Type": self.kind, "Stream-Next-Offset": self.tail, "ETag": '"x"'}
        return Answer(200, headers, body.encode())


def test_opaque_offsets_order_the_messages_of_an_answer_by_position(server: ScriptedOrigin) -> None:
    stream, door = Opaque(server), Door(server.url)
    stream.held = ['"1"', '"2"']
    rows = read_all(door, plan(door, stream="a", partitionBytes="1"))
    assert [(row["offset"], row["position"], row["message"]) for row in rows] == [
        (START, 0, '"1"'),
        (START, 1, '"2"'),
    ]
    assert {(row["next_offset"], row["incarnation"]) for row in rows} == {("t0002", None)}


@pytest.mark.parametrize(("kind", "kept"), [(JSON, ['"1"', '"2"']), (TEXT, [b'"1""2"'])])
def test_growth_is_cut_off_by_what_follows_the_end(
    server: ScriptedOrigin, kind: str, kept: list[object]
) -> None:
    stream, door = Opaque(server, kind), Door(server.url)
    stream.held = ['"1"', '"2"']
    planned = plan(door, stream="a")
    stream.grows = iter([['"3"'], ['"4"'], [], ['"5"'], []])
    rows = read_all(door, planned)
    assert [row["message"] or row["data"] for row in rows] == kept
    assert rows[-1]["next_offset"] == "t0002"
    assert len(stream.held) == 5


def test_a_stream_that_never_stands_still_is_given_up(server: ScriptedOrigin) -> None:
    stream, door = Opaque(server), Door(server.url)
    stream.held = ['"1"']
    planned = plan(door, stream="a")
    stream.grows = (['"more"'] for _ in count())
    with pytest.raises(SourceError, match="growing too fast"):
        read_all(door, planned)


def test_an_empty_stream_there_has_no_rows_either(server: ScriptedOrigin) -> None:
    for kind in (JSON, TEXT):
        Opaque(server, kind)
        door = Door(server.url)
        assert read_all(door, plan(door, stream="a")) == []


def test_an_answer_that_leads_nowhere_is_not_asked_for_again(server: ScriptedOrigin) -> None:
    stuck = Answer(200, {"Stream-Next-Offset": "t0001", "Content-Type": JSON}, b"[]")
    server.on("GET", "/v1/stream/a", stuck)
    wanted = Range("a", "", "t0001", "t0009", "t0009", Beyond.LATER)
    with Client(Door(server.url).address) as client:
        with pytest.raises(DataLoss, match="ends at t0001, before t0009"):
            list(read_range(Streams(client), wanted))
    assert server.count() == 1


def test_a_chunk_with_a_gateways_tag_names_its_stream_by_its_offset(server: ScriptedOrigin) -> None:
    end = format_offset(0xC0FFEE, 3)
    head = {"Content-Type": TEXT, "Stream-Next-Offset": end, "ETag": f'"{"0" * 32}"'}
    server.on("GET", "/v1/stream/a", Answer(200, head, b"abc"))
    same, other = (
        Range("a", f"{number:016x}", START, end, end, Beyond.LATER) for number in (0xC0FFEE, 1)
    )
    with Client(Door(server.url).address) as client:
        assert len(list(read_range(Streams(client), same))) == 1
        with pytest.raises(DataLoss, match="re-created"):
            list(read_range(Streams(client), other))
    assert [request.method for request in server.requests] == ["GET", "GET"]


def test_a_server_that_calls_everything_gone_is_an_error(server: ScriptedOrigin) -> None:
    gone = Answer(410, {"Stream-Earliest-Offset": "t0005"})
    snapshot = {"Content-Type": JSON, "Stream-Snapshot-Offset": "t0005"}
    server.on("GET", "/v1/stream/a", gone)
    server.on("GET", "/v1/stream/a/snapshot", Answer(307, {"Location": "/v1/stream/a/snapshot/t5"}))
    server.on("GET", "/v1/stream/a/snapshot/t5", Answer(200, snapshot, b"[]"))
    wanted = Range("a", "", START, "t0009", "t0009", Beyond.LATER)
    with Client(Door(server.url).address) as client:
        with pytest.raises(SourceError, match="t0005 is gone, but not covered by a snapshot"):
            list(read_range(Streams(client), wanted))
