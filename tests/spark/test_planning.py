"""What a batch reads: tails, parts, budgets, and positions of streaming queries."""

from itertools import pairwise
from typing import Any

import pytest

from protocol.heads import ReplyHead
from protocol.offsets import START
from spark.http import SourceError
from spark.options import parse_options
from spark.planning import Planner
from spark.ranges import Beyond
from spark.reading import DataLoss
from tests.conftest import StartOrigin
from tests.helpers.offsets import nameless
from tests.helpers.scripted_origin import Answer, Recorded, ScriptedOrigin, SimpleStream
from tests.spark.conftest import Door, messages, read_all
from tests.spark.writer import JSON, Writer

AT = nameless
Position = dict[str, dict[str, str]]


def planner(door: Door, **given: Any) -> Planner:
    options = door.options | {name: str(value) for name, value in given.items()}
    return Planner(parse_options(options, streaming=False))


def streaming(door: Door, **given: str) -> Planner:
    return Planner(parse_options(door.options | given, streaming=True))


def ends(position: Position) -> dict[str, str]:
    return {name: entry["offset"] for name, entry in position.items()}


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_reads_to_where_streams_end_now(door: Door, writer: Writer) -> None:
    tails = [writer.lay("a", '"1"', '"2"')[-1], writer.lay("b", '"3"')[-1]]
    (partition,) = planner(door, streams='["b", "a"]').plan_all()
    assert [(each.stream, each.start, each.end) for each in partition] == [
        ("a", START, tails[0]),
        ("b", START, tails[1]),
    ]


def test_start_and_end_may_differ_by_stream(front: Door, writer: Writer) -> None:
    for name in ("a", "b", "c"):
        writer.lay(name, '"1"', '"2"', '"3"')
    start, end = f'{{"a": "{AT(4)}", "c": "now"}}', f'{{"/v1/stream/b": "{AT(8)}"}}'
    planned = planner(front, streams='["a","b","c"]', start=start, end=end).plan_all()
    found = [(row["stream"], row["message"]) for row in read_all(front, planned)]
    assert found == [("a", '"2"'), ("a", '"3"'), ("b", '"1"'), ("b", '"2"')]


@pytest.mark.parametrize("option", ["start", "end"])
def test_offsets_beyond_the_tail_are_refused(front: Door, writer: Writer, option: str) -> None:
    writer.lay("a", '"1"')
    with pytest.raises(SourceError, match=f"stream 'a': {option} .* is beyond the tail"):
        planner(front, **{"stream": "a", option: AT(5)}).plan_all()


def test_a_stream_that_is_named_but_not_there_is_a_loss(door: Door, writer: Writer) -> None:
    writer.lay("a", '"1"')
    with pytest.raises(DataLoss, match="stream 'b': no such stream"):
        planner(door, streams='["a","b"]').plan_all()
    planned = planner(door, streams='["a","b"]', failOnDataLoss="false").plan_all()
    assert messages(read_all(door, planned)) == ['"1"']


def test_a_bucket_of_fifty_streams_in_few_partitions(door: Door, writer: Writer) -> None:
    writer.bucket("buck")
    for number in range(50):
        writer.lay(f"/ds/buck/{'ab'[number % 2]}{number:02}", f'"{number}"')
    everything = planner(door, bucket="buck").plan_all()
    assert len(everything) == 2
    assert sorted(messages(read_all(door, everything))) == sorted(f'"{n}"' for n in range(50))
    some = planner(door, bucket="buck", prefix="a").plan_all()
    assert messages(read_all(door, some)) == [f'"{n}"' for n in range(0, 50, 2)]


def test_an_empty_bucket_is_no_partition(door: Door, writer: Writer) -> None:
    writer.bucket("buck")
    assert planner(door, bucket="buck").plan_all() == []


def test_a_large_stream_is_cut_where_chunks_end(start_origin: StartOrigin) -> None:
    origin = start_origin(storage={"chunk_bytes": 100})
    door, writer = Door(f"http://127.0.0.1:{origin.port}"), Writer(origin.port)
    (*_, tail) = writer.lay("a", *(f'["message {n}"]' for n in range(60)))
    partitions = planner(door, stream="a", partitionBytes=250).plan_all()
    parts = [part for (part,) in partitions]
    assert (parts[0].start, parts[-1].end) == (START, tail)
    assert all(before.end == after.start for before, after in pairwise(parts))
    assert all(part.size_bytes <= 250 for part in parts) and len(parts) == 4
    assert {part.beyond for part in parts} == {Beyond.REFUSE}
    writer.publish("a", AT(parts[0].size_bytes), b'["s"]')
    rows = read_all(door, planner(door, stream="a", partitionBytes=250).plan_all())
    assert rows[0]["kind"] == "snapshot"
    assert [row["kind"] for row in rows].count("snapshot") == 1
    assert rows[-1]["message"] == '"message 59"'


# -- streaming -------------------------------------------------------------------------------------


def test_a_position_leads_from_batch_to_batch(door: Door, writer: Writer) -> None:
    query = streaming(door, streams='["a","b"]')
    (tail,) = writer.lay("a", '"1"')
    first = query.latest({}, query.look(), 0)
    assert ends(first) == {"a": tail}
    assert messages(read_all(door, query.plan_between({}, first))) == ['"1"']
    writer.append("a", '"2"')
    writer.lay("b", '"3"')
    second = query.latest(first, query.look(), 0)
    assert messages(read_all(door, query.plan_between(first, second))) == ['"2"', '"3"']
    assert query.latest(second, query.look(), 0) == second
    assert query.plan_between(second, second) == []


def test_equal_positions_look_equal(front: Door, writer: Writer) -> None:
    """Spark compares them as text."""
    for name in "cab":
        writer.lay(name, '"1"')
    for names in ('["b","c","a"]', '["c","a","b"]'):
        query = streaming(front, streams=names)
        assert list(query.latest({}, query.look(), 0)) == ["a", "b", "c"]


def test_a_stream_created_anew_begins_at_its_beginning(door: Door, writer: Writer) -> None:
    query = streaming(door, stream="a", start=AT(4))
    writer.lay("a", '"1"', '"2"')
    first = query.latest({}, query.look(), 0)
    assert messages(read_all(door, query.plan_between({}, first))) == ['"2"']
    writer.delete("a")
    gone = query.latest(first, query.look(), 0)
    assert gone == first  # it keeps its place: nothing to read, and nothing forgotten
    writer.lay("a", '"3"', '"4"', '"5"')
    second = query.latest(gone, query.look(), 0)
    rows = read_all(door, query.plan_between(gone, second))
    assert messages(rows) == ['"3"', '"4"', '"5"']
    assert {row["incarnation"] for row in rows} == {second["a"]["incarnation"]}
    assert second["a"]["incarnation"] != first["a"]["incarnation"]


def test_where_incarnations_are_not_told_a_lower_tail_tells(server: ScriptedOrigin) -> None:
    query = streaming(Door(server.url), stream="a")
    before = {"a": {"offset": "t0005", "incarnation": ""}}
    after = query.latest(before, {"a": ReplyHead(next_offset="t0003")}, 0)
    ((part,),) = query.plan_between(before, after)
    assert (part.start, part.end) == (START, "t0003")


def test_streams_come_and_go_in_a_bucket(door: Door, writer: Writer) -> None:
    query = streaming(door, bucket="buck")
    writer.bucket("buck")
    writer.lay("/ds/buck/a", '"1"')
    first = query.latest({}, query.look(), 0)
    writer.delete("/ds/buck/a")
    (tail,) = writer.lay("/ds/buck/b", '"2"')
    second = query.latest(first, query.look(), 0)
    assert ends(second) == {"/ds/buck/b": tail}
    assert messages(read_all(door, query.plan_between(first, second))) == ['"2"']


def test_only_streams_that_changed_are_asked_about(server: ScriptedOrigin) -> None:
    streams = {name: SimpleStream(server, f"/ds/buck/{name}", JSON) for name in ("a", "b")}

    def listing(_: Recorded) -> Answer:
        rows = [f'{{"stream_id":"{n}","tail_offset":"{s.tail}"}}' for n, s in streams.items()]
        return Answer(200, {}, f'{{"streams":[{",".join(rows)}]}}'.encode())

    server.on("GET", "/ds/buck/streams", listing)
    query = streaming(Door(server.url), bucket="buck")
    assert query.look() == query.look()
    assert [streams[name].counts["head"] for name in "ab"] == [1, 1]
    streams["b"].append(b'"1"')
    assert query.look()["/ds/buck/b"].next_offset == AT(3)
    assert [streams[name].counts["head"] for name in "ab"] == [1, 2]


def test_now_passes_over_what_is_there_at_first_and_nothing_else(
    door: Door, writer: Writer
) -> None:
    query = streaming(door, streams='["a","b"]', start="now")
    writer.lay("a", '"1"')
    first = query.latest({}, query.look(), 0)
    assert query.plan_between({}, first) == []
    writer.append("a", '"2"')
    writer.lay("b", '"3"')
    second = query.latest(first, query.look(), 0)
    assert messages(read_all(door, query.plan_between(first, second))) == ['"2"', '"3"']


def test_what_appears_after_a_query_began_with_nothing_is_read_from_its_beginning(
    door: Door, writer: Writer
) -> None:
    query = streaming(door, stream="a", start="now")
    first = query.latest({}, query.look(), 0)
    assert first != {} and query.plan_between({}, first) == []
    assert query.latest(first, query.look(), 0) == first
    tail = writer.lay("a", '"1"', '"2"')[-1]
    second = query.latest(first, query.look(), 0)
    assert ends(second) == {"a": tail}
    assert messages(read_all(door, query.plan_between(first, second))) == ['"1"', '"2"']


def test_a_bucket_that_was_emptied_has_not_just_begun(door: Door, writer: Writer) -> None:
    query = streaming(door, bucket="buck", start="now")
    writer.bucket("buck")
    writer.lay("/ds/buck/a", '"1"')
    first = query.latest({}, query.look(), 0)
    writer.delete("/ds/buck/a")
    second = query.latest(first, query.look(), 0)
    writer.lay("/ds/buck/b", '"2"')
    third = query.latest(second, query.look(), 0)
    assert messages(read_all(door, query.plan_between(second, third))) == ['"2"']


def test_a_start_beyond_the_tail_is_refused_before_it_could_be_forgotten(
    front: Door, writer: Writer
) -> None:
    query = streaming(front, stream="a", start=AT(8))
    writer.lay("a", '"1"')
    with pytest.raises(SourceError, match="stream 'a': start .* is beyond the tail"):
        query.latest({}, query.look(), 0)


# -- budgets ---------------------------------------------------------------------------------------


def drain(door: Door, query: Planner, budget: int) -> list[tuple[int, list[str]]]:
    """Batches until there is nothing more: bytes and messages of each."""
    found: list[tuple[int, list[str]]] = []
    position: Position = {}
    while (after := query.latest(position, query.look(), budget)) != position:
        read = messages(read_all(door, query.plan_between(position, after)))
        found.append((sum(len(text.encode()) + 1 for text in read), read))
        position = after
        assert len(found) < 1000
    return found


@pytest.mark.parametrize("budget", [1, 17, 40, 100, 10_000])
def test_batches_stay_within_the_budget_and_miss_nothing(
    start_origin: StartOrigin, budget: int
) -> None:
    origin = start_origin(storage={"chunk_bytes": 60})
    door, writer = Door(f"http://127.0.0.1:{origin.port}"), Writer(origin.port)
    for name in "abc":
        writer.lay(name, *(f'["{name}{n:02}","ü"]' for n in range({"a": 2, "b": 10}.get(name, 20))))
    query = streaming(door, streams='["a","b","c"]')
    batches = drain(door, query, budget)
    largest = 3 * 6  # one message of each stream
    assert all(size <= max(budget, largest) for size, _ in batches)
    everything = [text for _, read in batches for text in read]
    for name in "abc":
        mine = [text for text in everything if text.startswith(f'"{name}')]
        assert mine == sorted(set(mine)) and len(mine) == {"a": 2, "b": 10}.get(name, 20)
    assert everything.count('"ü"') == 32


def test_a_message_that_no_longer_fits_waits_for_the_next_batch(start_origin: StartOrigin) -> None:
    origin = start_origin(storage={"chunk_bytes": 10})
    door, writer = Door(f"http://127.0.0.1:{origin.port}"), Writer(origin.port)
    large = f'"{"x" * 40}"'
    writer.lay("a", '"1"', '"2"', '"3"', large, '"4"')
    query = streaming(door, stream="a")
    assert [read for _, read in drain(door, query, 20)] == [['"1"', '"2"', '"3"'], [large], ['"4"']]


def test_a_budget_does_not_count_a_snapshot(front: Door, writer: Writer) -> None:
    offsets = writer.lay("a", *(f'"{n}"' for n in range(9)))
    writer.publish("a", offsets[5], b'["a long snapshot with more than the budget"]')
    query = streaming(front, stream="a")
    assert [len(read) for _, read in drain(front, query, 8)] == [2, 2]
