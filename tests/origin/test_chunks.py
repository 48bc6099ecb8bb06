"""Catch-up reads: conditions, offsets, and chunks that everyone meets on."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from origin.storage.acid import AcidShard
from origin.storage.memory import MemoryStorage
from origin.storage.segments import Segments
from tests.conftest import StartOrigin
from tests.helpers.offsets import nameless as at
from tests.helpers.offsets import unnamed
from tests.helpers.origin import MODES, LocalOrigin
from tests.helpers.rawhttp import PREFIX, Client, Response, encode_request, wait_until
from tests.origin.storage.driver import has_batches

IMMUTABLE = "public, max-age=60, stale-while-revalidate=300, immutable"
REVALIDATE = "public, max-age=0, must-revalidate"


# -- If-None-Match -------------------------------------------------------------------------------


def test_a_recreated_stream_gives_no_false_304(client: Client) -> None:
    client.create("s", body=b"old")
    old = client.read("s")["ETag"]
    assert client("DELETE", "s").status == 204
    client.create("s", body=b"new")
    reply = client.read("s", if_none_match=old)
    assert (reply.status, reply.body) == (200, b"new")


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("{etag}", 304),
        ("W/{etag}", 304),
        ('"other", {etag}', 304),
        ('W/"other" ,\tW/{etag}', 304),
        ("*", 304),
        ('"other"', 200),
        ("", 200),
        ("other", 200),
    ],
)
def test_if_none_match(client: Client, condition: str, status: int) -> None:
    client.create("s", body=b"data")
    etag = client.read("s")["ETag"]
    reply = client.read("s", if_none_match=condition.format(etag=etag))
    assert (reply.status, reply.body) == (status, b"" if status == 304 else b"data")


def test_304_keeps_the_stream_headers(client: Client) -> None:
    client.create("s", body=b"data", stream_closed="true")
    whole = client.read("s")
    reply = client.read("s", if_none_match=whole["ETag"])
    assert reply.status == 304
    for name in ("Stream-Next-Offset", "Stream-Up-To-Date", "Stream-Closed", "ETag"):
        assert reply[name] == whole[name]
    assert reply["Cache-Control"] == whole["Cache-Control"]


@pytest.mark.parametrize("change", ["append", "close"])
def test_the_tag_changes_with_data_and_with_closure(client: Client, change: str) -> None:
    tail = client.create("s", body=b"data")
    tags = [client.read("s")["ETag"], client.read("s", tail)["ETag"]]
    if change == "append":
        client.append("s", b"more")
    else:
        client.append("s", b"", stream_closed="true")
    for offset, tag in zip(["-1", tail], tags, strict=True):
        reply = client.read("s", offset, if_none_match=tag)
        assert reply.status == 200
        assert reply.closed == (change == "close")


# -- offsets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
@pytest.mark.parametrize("mode", MODES)
def test_offsets_that_were_never_handed_out_are_400(
    start_origin: StartOrigin, mode: str, live: str
) -> None:
    with start_origin(mode).client() as client:
        client.create("text", body=b"12345")
        client.create("json", "application/json", b'["abc","def"]')
        client.append("json", b"1", "application/json")
        for name, position in [("text", 6), ("json", 3), ("json", 5), ("json", 13), ("json", 15)]:
            reply = client("GET", name, query=f"offset={at(position)}{live}")
            assert reply.status == 400, (name, position, reply)


@pytest.mark.parametrize("mode", MODES)
def test_every_message_of_an_array_ends_at_an_offset(start_origin: StartOrigin, mode: str) -> None:
    with start_origin(mode).client() as client:
        client.create("json", "application/json", b'["a,1","b",[2,3],{"c":4,"d":","}]')
        client.append("json", b'["e",5]', "application/json")
        stored = b'"a,1","b",[2,3],{"c":4,"d":","},"e",5,'
        found = {}
        for position in range(len(stored) + 1):
            reply = client.read("json", at(position))
            if reply.status == 200:
                found[position] = reply.body
        ends = [0, 6, 10, 16, 32, 36, 38]
        assert found == {end: b"[" + stored[end:-1] + b"]" for end in ends}


def test_reading_at_the_tail_is_empty_and_says_so(client: Client) -> None:
    for kind, body in (("text/plain", b""), ("application/json", b"[]")):
        tail = client.create(kind[:4], kind, b"1")
        reply = client.read(kind[:4], tail)
        assert (reply.status, reply.body, reply.next_offset) == (200, body, tail)
        assert reply.up_to_date and not reply.closed
        assert reply["Cache-Control"] == REVALIDATE


@pytest.mark.parametrize("value", ["TRUE", "True", "true"])
def test_stream_closed_counts_in_any_case(client: Client, value: str) -> None:
    client.create("s", stream_closed=value)
    assert client("HEAD", "s").closed


@pytest.mark.parametrize("value", ["false", "1", "yes", ""])
def test_other_values_of_stream_closed_are_as_good_as_absent(client: Client, value: str) -> None:
    client.create("s", stream_closed=value)
    client.append("s", b"x", stream_closed=value)
    assert not client("HEAD", "s").closed
    assert client("POST", "s", {"Stream-Closed": value}).status == 400


# -- chunks --------------------------------------------------------------------------------------


def follow(client: Client, name: str, offset: str) -> list[tuple[str, Response]]:
    """(offset, answer) of each read until the tail."""
    answers: list[tuple[str, Response]] = []
    while not answers or not answers[-1][1].up_to_date:
        reply = client.read(name, offset)
        assert reply.status == 200
        answers.append((offset, reply))
        offset = reply.next_offset
    return answers


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_readers_who_start_anywhere_meet(start_origin: StartOrigin, mode: str, kind: str) -> None:
    origin = start_origin(mode, storage={"chunk_bytes": 100, "checkpoint_secs": 0.05})
    with origin.client() as client:
        offsets = [client.create("s", kind)]
        for number in range(60):
            body = b'"%03d%b"' % (number, b"x" * (number % 17))
            offsets.append(client.append("s", body, kind))
        whole = follow(client, "s", "-1")
        ends = {reply.next_offset for _, reply in whole}
        assert len(whole) > 5
        for offset in offsets[:-1]:
            answers = follow(client, "s", offset)
            assert {reply.next_offset for _, reply in answers} <= ends
            assert answers[-1][1].next_offset == offsets[-1]
        if kind == "text/plain":
            expected = b"".join(b'"%03d%b"' % (n, b"x" * (n % 17)) for n in range(60))
            assert b"".join(reply.body for _, reply in whole) == expected
        else:
            messages = [message for _, reply in whole for message in reply.json()]
            assert messages == [f"{n:03}{'x' * (n % 17)}" for n in range(60)]


def test_a_chunk_below_the_tail_is_immutable(start_origin: StartOrigin) -> None:
    with start_origin(storage={"chunk_bytes": 10}).client() as client:
        client.create("s")
        for _ in range(4):
            client.append("s", b"1234567")
        client.append("s", b"", stream_closed="true")
        *below, (_, last) = follow(client, "s", "-1")
        assert len(below) == 2
        for _, reply in below:
            assert reply["Cache-Control"] == IMMUTABLE
            assert not reply.up_to_date and not reply.closed
        assert (last.up_to_date, last.closed) == (True, True)


def test_chunks_do_not_change_when_the_stream_grows(start_origin: StartOrigin) -> None:
    with start_origin(storage={"chunk_bytes": 10}).client() as client:
        client.create("s")
        for _ in range(10):
            client.append("s", b"1234567")
        before = follow(client, "s", "-1")[:-1]
        for _ in range(10):
            client.append("s", b"1234567")
        after = follow(client, "s", "-1")
        assert [(o, r.body, r["ETag"]) for o, r in before] == [
            (o, r.body, r["ETag"]) for o, r in after[: len(before)]
        ]


def test_an_append_larger_than_a_chunk_is_one_answer(start_origin: StartOrigin) -> None:
    with start_origin(storage={"chunk_bytes": 10}).client() as client:
        client.create("s", body=b"x" * 1000)
        client.append("s", b"y")
        reply = client.read("s")
        assert (reply.body, unnamed(reply.next_offset)) == (b"x" * 1000, at(1000))


@pytest.mark.parametrize("mode", MODES)
def test_a_fork_reads_across_its_border(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode, storage={"chunk_bytes": 32, "checkpoint_secs": 0.05})
    with origin.client() as client:
        client.create("a", body=b"a" * 40)
        client.append("a", b"A" * 40)
        client.create(
            "b", stream_forked_from=PREFIX + "a", stream_fork_offset=at(40), body=b"b" * 40
        )
        client.create("c", stream_forked_from=PREFIX + "b", body=b"c" * 40)
        client.append("a", b"unseen")
        assert client("DELETE", "b").status == 204
        body = b"".join(reply.body for _, reply in follow(client, "c", "-1"))
        assert body == b"a" * 40 + b"b" * 40 + b"c" * 40
        assert client.read("c", at(40)).body.startswith(b"b")


@pytest.mark.parametrize("mode", MODES)
def test_an_acknowledged_append_is_read_at_once(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as writer, origin.client() as reader:
        tail = writer.create("s")
        for number in range(50):
            assert reader.read("s", tail).body == b""
            after = writer.append("s", b"%d" % number)
            assert reader.read("s", tail).body == b"%d" % number
            tail = after


# -- reads that meet a removal -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "owner"), [("acid", AcidShard), ("file-fast", Segments), ("file-durable", Segments)]
)
def test_a_read_that_a_removal_overtakes_is_whole_or_404(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch, mode: str, owner: Any
) -> None:
    arrived, removed = threading.Event(), threading.Event()
    read = owner.read

    def read_late(self: Any, *arguments: int) -> bytes:
        arrived.set()
        assert removed.wait(60)
        return bytes(read(self, *arguments))

    monkeypatch.setattr(owner, "read", read_late)
    origin = start_origin(mode, storage={"checkpoint_secs": 0.05})
    with origin.client() as client, origin.connect() as reader:
        client.create("s", body=b"x" * 1000)
        wait_until(lambda: not has_batches(Path(origin.config.storage.data_dir)))
        reader.send(encode_request("GET", PREFIX + "s"))
        assert arrived.wait(60)
        assert client("DELETE", "s").status == 204
        removed.set()
        reply = reader.read_response()
        assert reply.status == 404 or reply.body == b"x" * 1000


def test_memory_says_nothing_of_a_stream_whose_removal_is_on_its_way(
    origin: LocalOrigin, client: Client
) -> None:
    client.create("s", body=b"bytes")
    shard = origin.origin.shard

    def remove_and_read() -> object:
        stream = shard.registry.by_name["s"]
        shard.removals.remove(stream, lambda error: None)
        return shard.chunks.cached(stream, 0)

    assert origin.call(remove_and_read) is None
    assert client.read("s").status == 404


def test_a_reader_of_a_fork_that_leaves_with_its_source_gets_404(
    origin: LocalOrigin, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, removed = threading.Event(), threading.Event()

    async def boundary_late(self: MemoryStorage, stream_id: int, at_or_after: int) -> int:
        arrived.set()
        assert await asyncio.to_thread(removed.wait, 10)
        return at_or_after

    client.create("source", "application/json", b"[1,2]")
    client.create("fork", stream_forked_from=PREFIX + "source", kind="application/json", body=b"3")
    assert client("DELETE", "source").status == 204
    monkeypatch.setattr(MemoryStorage, "boundary", boundary_late)
    with origin.connect() as reader:
        reader.send(encode_request("GET", f"{PREFIX}fork?offset={at(2)}"))
        assert arrived.wait(60)
        assert client("DELETE", "fork").status == 204
        wait_until(lambda: client("HEAD", "source").status == 404)
        removed.set()
        assert reader.read_response().status == 404
