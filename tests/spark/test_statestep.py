"""The state step on a real origin: what it reads, what it leaves, what its tables say."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from protocol.heads import ReplyHead
from protocol.offsets import START
from protocol.paths import stream_url
from spark.statestep import Origin, Stream, judge_stream, update_state
from spark.tables import Tables
from tests.helpers.offsets import nameless
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, SimpleStream
from tests.spark.conftest import Door
from tests.spark.histories import message
from tests.spark.writer import JSON, Writer
from weir.cli import main

USAGE = (
    "stream string, subject string, requests bigint, reads bigint, writes bigint, "
    "bytes_sent bigint, bytes_received bigint, bytes_saved bigint, failures bigint, "
    "last_seen timestamp, date date"
)
TAIL = nameless(10)
RANDOM = tuple(f"random-{number}" for number in range(8))
ROUNDS = 4

pytestmark = pytest.mark.timeout(900)


def change(key: str, value: Any = 0, operation: str = "insert") -> str:
    message = {"type": "user", "key": key, "value": value, "headers": {"operation": operation}}
    return json.dumps(message)


def used(stream: str, subject: str = "ann", failures: int = 0, reads: int = 4) -> tuple[Any, ...]:
    return (stream, subject, 5, reads, 1, 100, 10, 50, failures, None, None)


def weir_state(capsys: pytest.CaptureFixture[str], url: str) -> Any:
    with pytest.raises(SystemExit):
        main(["state", url, "--json"])
    return json.loads(capsys.readouterr().out)


class Step:
    def __init__(self, spark: SparkSession, folder: Path, door: Door, *seen: tuple[Any, ...]):
        self._spark = spark
        self.origin = Origin(door.address, streams=("named",))
        self._usage = spark.createDataFrame(list(seen), USAGE)
        self.tables = Tables(folder)
        self.said: list[str] = []
        self.notes: list[str] = []

    def run(self) -> None:
        done = update_state(self._spark, self.tables, self.origin, self._usage)
        self.said.append(done.said)
        self.notes = done.notes

    def table(self, name: str) -> DataFrame:
        return self._spark.read.parquet(str(self.tables.path(name)))

    def by_stream(self, name: str) -> dict[str, dict[str, Any]]:
        return {row.stream: row.asDict() for row in self.table(name).collect()}

    def state_of(self, stream: str) -> Any:
        found: dict[str, dict[str, Any]] = {}
        for row in self.table("state").where(f"stream = '{stream}'").collect():
            found.setdefault(row.type, {})[row.key] = json.loads(row.value)
        return found


@pytest.fixture
def step(spark: SparkSession, tmp_path: Path, front: Door) -> Iterator[Step]:
    seen = [used("seen"), used("seen", "bob"), used("text"), used("never", failures=5)]
    step = Step(spark, tmp_path, front, *seen, used("deleted"))
    step.tables.open()
    yield step
    step.tables.close()


def test_state_follows_the_streams_from_run_to_run(
    step: Step, writer: Writer, front: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.lay("seen", f"[{change('1', 'a')},{change('2')}]", "7", change("2", None, "delete"))
    writer.lay("deleted", change("x"))
    writer.lay("named", *(change(str(n)) for n in range(5)))
    writer.lay("text", "no JSON", kind="text/plain")
    with pytest.raises(SystemExit):
        main(["compact", f"{front.url}{stream_url('named')}"])
    writer.append("named", change("6", [1, 2.50]))
    step.run()
    for name in ("seen", "named"):
        assert step.state_of(name) == weir_state(_clear(capsys), front.url + stream_url(name))
    streams = step.by_stream("state_streams")
    assert {name: row["status"] for name, row in streams.items()} == {
        **{"seen": "read", "named": "read", "deleted": "read", "text": "not-json"}
    }
    assert (streams["seen"]["messages"], streams["seen"]["quarantined"]) == (4, 1)
    assert streams["named"]["snapshots"] == 1
    both = step.by_stream("traffic_and_state")
    assert (both["seen"]["readers_per_entity"], both["seen"]["bytes_sent"]) == (2.0, 200)
    assert (both["named"]["unread_entities"], both["named"]["requests"]) == (6, None)
    assert (both["text"]["entities"], both["text"]["reads_per_entity"]) == (None, None)

    writer.append("seen", change("3"))
    writer.delete("deleted")
    writer.delete("named")
    writer.lay("named", change("anew"))
    step.run()
    assert step.state_of("seen") == {"user": {"1": "a", "3": 0}}
    assert (step.state_of("named"), step.state_of("deleted")) == ({"user": {"anew": 0}}, {})
    streams = step.by_stream("state_streams")
    assert (streams["seen"]["messages"], streams["named"]["messages"]) == (5, 1)
    assert streams["deleted"]["status"] == "gone"
    counts = {row.stream: row.entities for row in step.table("state_counts").collect()}
    growth = step.table("state_churn").groupBy("stream").sum("growth").collect()
    assert counts == dict(map(tuple, growth)) == {"seen": 2, "named": 1, "deleted": 0}
    assert step.table("state_quarantine").count() == 1

    generation = step.tables.current.readlink()
    step.run()
    assert step.said == [
        "3 of 4 streams changed (1 not-json, 0 gone, 0 refused)",
        "2 of 4 streams changed (1 not-json, 1 gone, 0 refused)",
        "",
    ]
    assert step.tables.current.readlink() == generation


def _clear(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    capsys.readouterr()
    return capsys


def test_whatever_happens_to_streams_between_runs_their_state_is_that_of_the_materialiser(
    step: Step, writer: Writer, front: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    step.origin = Origin(front.address, streams=RANDOM)
    chance = Random(1)
    lives: set[str] = set()
    for _ in range(ROUNDS):
        for name in RANDOM:
            for _ in range(chance.randrange(3)):
                happen(chance, writer, front, name, lives)
        step.run()
        for name in lives:
            assert step.state_of(name) == weir_state(_clear(capsys), front.url + stream_url(name))
        stored = step.table("state").groupBy("stream", "type").count().collect()
        growth = step.table("state_churn").groupBy("stream", "type").sum("growth").collect()
        assert {row[:2]: row[2] for row in map(tuple, growth) if row[2]} == {
            row[:2]: row[2] for row in map(tuple, stored)
        }
        assert {row[0] for row in map(tuple, stored)} <= lives


def happen(chance: Random, writer: Writer, front: Door, name: str, lives: set[str]) -> None:
    """One thing to one stream."""
    if name not in lives:
        writer.create(name)
        lives.add(name)
    what = chance.random()
    if what < 0.15:
        writer.delete(name)
        lives.remove(name)
    elif what < 0.35:
        with pytest.raises(SystemExit):
            main(["compact", front.url + stream_url(name)])
    else:
        texts = [message(chance, resets=0.05) for _ in range(chance.randrange(1, 20))]
        writer.append(name, f"[{','.join(texts)}]")


BROKEN = {
    "failing": (Answer(500), "status 500"),
    "forbidden": (Answer(403), "status 403: the token does not allow this"),
    "spoilt": (
        Answer(200, {"Content-Type": JSON, "Stream-Next-Offset": nameless(999)}, b"[1,"),
        "not a JSON array of messages",
    ),
}


def test_streams_that_cannot_be_read_do_not_stop_the_others(
    spark: SparkSession, tmp_path: Path, server: ScriptedOrigin
) -> None:
    names = (*BROKEN, "good")
    step = Step(spark, tmp_path, Door(server.url), *map(used, names))
    streams = {name: SimpleStream(server, stream_url(name), JSON) for name in names}
    step.tables.open()
    for stream in streams.values():
        stream.append(change("1").encode())
    step.run()
    for stream in streams.values():
        stream.append(change("2").encode())
    for name, (answer, _) in BROKEN.items():
        server.on("GET", stream_url(name), answer)
    step.run()
    assert step.state_of("good") == {"user": {"1": 0, "2": 0}}
    rows = step.by_stream("state_streams")
    for name, (_, reason) in BROKEN.items():
        assert step.state_of(name) == {"user": {"1": 0}}
        assert (rows[name]["status"], rows[name]["messages"]) == ("refused", 1)
        assert reason in rows[name]["detail"]
    [note] = step.notes
    assert note.startswith("Streams with state from an earlier run (3): failing (")
    generation = step.tables.current.readlink()
    step.run()
    assert (step.notes, step.said[-1]) == ([note], "")
    assert step.tables.current.readlink() == generation
    for name in BROKEN:
        server.on("GET", stream_url(name), streams[name]._answer)
    step.run()
    assert all(step.state_of(name) == {"user": {"1": 0, "2": 0}} for name in names)
    assert step.notes == []
    step.tables.close()


def test_what_is_refused_or_not_there_is_noted_in_every_run(
    spark: SparkSession, tmp_path: Path, server: ScriptedOrigin
) -> None:
    listing = Answer(200, {"Content-Type": JSON}, b'{"streams":[]}')
    server.on("HEAD", stream_url("secret"), Answer(401))
    server.on("GET", "/ds/empty/streams", listing)
    server.on("GET", "/ds/typo/streams", Answer(404))
    step = Step(spark, tmp_path, Door(server.url), used("secret"), used("/ds/seen/only"))
    step.origin = replace(step.origin, buckets=("empty", "typo"))
    step.tables.open()
    for _ in range(2):
        step.run()
        assert step.notes == [
            "Nothing is shown for bucket 'empty': it has no streams.",
            "Nothing is shown for bucket 'typo': status 404: not found.",
            "Streams with state from an earlier run (1): "
            "secret (401, the token is missing or invalid).",
        ]
    assert step.said[-1] == ""
    step.tables.close()


BEFORE = Stream("s", "read", "", "1" * 16, nameless(5))


@pytest.mark.parametrize(
    ("answer", "before", "found"),
    [
        ((200, "1" * 16, TAIL, "application/json"), None, ("read", START, False)),
        ((200, "1" * 16, TAIL, "application/json"), BEFORE, ("read", BEFORE.offset, False)),
        ((200, "2" * 16, TAIL, "application/json"), BEFORE, ("read", START, True)),
        ((200, "1" * 16, nameless(3), "application/json"), BEFORE, ("read", START, True)),
        ((200, "1" * 16, TAIL, "text/plain"), None, ("not-json", START, False)),
        ((404, "", "", ""), BEFORE, ("gone", START, True)),
        ((404, "", "", ""), None, ("gone", START, False)),
        ((403, "", "", ""), BEFORE, ("refused", BEFORE.offset, False)),
        ((200, "", "no offset", JSON), BEFORE, ("refused", BEFORE.offset, False)),
    ],
)
def test_what_a_head_says_decides_what_is_read(
    answer: tuple[int, str, str, str], before: Stream | None, found: tuple[Any, ...]
) -> None:
    status, incarnation, tail, content_type = answer
    head = ReplyHead(content_type, next_offset=tail, incarnation=incarnation)
    stream = judge_stream("s", status, head, before)
    assert (stream.status, stream.offset, stream.is_over) == found
