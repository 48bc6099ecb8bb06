"""Section 3: snapshot and updates in one answer, readable by any reader of multipart/mixed."""

import asyncio
import os
import re
import tracemalloc

import pytest
from aiohttp import MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from protocol.replies import REVALIDATE
from tests.conftest import StartOrigin
from tests.extension.conftest import (
    AT,
    BINARY,
    BUCKET,
    FLAT,
    JSON,
    KEPT_ANYHOW,
    TEXT,
    Api,
    Connect,
    Part,
    StartApi,
    boundary_of,
    parts_by_email,
    parts_by_hand,
    problem,
)
from tests.helpers.offsets import unnamed
from tests.helpers.origin import MIB, LocalOrigin
from tests.helpers.rawhttp import Closed, Response, encode_request, wait_until

NOTHING = Part(BINARY, b"")
# What a careless reader or writer of boundaries, lines or lengths gets wrong.
HOSTILE = [
    bytes(range(256)),
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\0",
    b"--",
    b"\r\n--",
    b"--\r\n",
    b"\r\n--\r\n",
    b"\r\n--boundary\r\nContent-Type: text/html\r\n\r\n<script>\r\n--boundary--\r\n",
    b"x\r\n",
    b"x\r",
    b"\nx",
    b"0\r\n\r\n",
    b"Content-Type: text/html\r\n\r\n",
    b"\x80\xff\xfe",
]


# -- 3.1 request ---------------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["sse", "long-poll", "true", ""])
def test_3_1_a_bootstrap_is_never_live(api: Api, path: str, live: str) -> None:
    api.create(path, body=b"x")
    assert problem(api.bootstrap(path, f"?live={live}"))[0] == 400
    assert problem(api.bootstrap(path, f"?offset=-1&live={live}"))[0] == 400


@pytest.mark.parametrize("query", ["?", "?offset=now", "?cursor=5", "?x=1&x=2", "?max_bytes=1"])
def test_3_1_no_parameter_changes_anything(api: Api, path: str, query: str) -> None:
    api.create(path, body=b"x")
    reply = api.bootstrap(path, query)
    assert parts_by_hand(reply) == [NOTHING, Part(TEXT, b"x")]


# -- 3.2 response --------------------------------------------------------------------------------


def test_3_2_snapshot_first_then_one_part_for_each_update(api: Api, path: str) -> None:
    api.create(path)
    offset = api.append(path, b"one", b"two")
    tail = api.append(path, b"three", b"four")
    api.publish(path, offset, b"folded", "text/csv")
    reply = api.bootstrap(path)
    assert reply.status == 200
    assert parts_by_hand(reply) == [
        Part("text/csv", b"folded"),
        Part(TEXT, b"three"),
        Part(TEXT, b"four"),
    ]
    assert reply["Stream-Snapshot-Offset"] == offset
    assert reply.next_offset == tail
    assert reply["Stream-Up-To-Date"] == "true"
    assert not reply.closed


def test_3_2_without_a_snapshot_the_first_part_is_empty(api: Api, path: str) -> None:
    api.create(path, kind=JSON)
    reply = api.bootstrap(path)
    assert reply["Stream-Snapshot-Offset"] == "-1"
    assert unnamed(reply.next_offset) == AT(0)
    assert parts_by_hand(reply) == [NOTHING]
    api.append(path, b"1", kind=JSON)
    reply = api.bootstrap(path)
    assert reply["Stream-Snapshot-Offset"] == "-1"
    assert parts_by_hand(reply) == [NOTHING, Part(JSON, b"1")]


def test_3_2_an_empty_snapshot_is_still_a_snapshot(api: Api, path: str) -> None:
    tail = api.create(path, body=b"x")
    api.publish(path, tail, b"", "text/csv")
    reply = api.bootstrap(path)
    assert reply["Stream-Snapshot-Offset"] == tail
    assert parts_by_hand(reply) == [Part("text/csv", b"")]


def test_3_2_each_json_message_is_a_part(api: Api, path: str) -> None:
    """Also those that came together in one append; byte for byte as they came."""
    api.create(path, kind="application/json; charset=utf-8")
    api.append(path, b'[1.0, {"a" : [1,2]} ,"\\u00e9,"]', b"  [[3,4]]  ", b"null", kind=JSON)
    bodies = [b"1.0", b'{"a" : [1,2]}', b'"\\u00e9,"', b"[3,4]", b"null"]
    found = api.parts(path)
    assert [part.body for part in found[1:]] == bodies
    assert {part.kind for part in found[1:]} == {"application/json; charset=utf-8"}


@pytest.mark.parametrize("kind", [TEXT, BINARY, "text/plain; charset=utf-8"])
def test_3_2_each_append_to_a_byte_stream_is_a_part(api: Api, path: str, kind: str) -> None:
    """Nothing is looked into: an array stays an array, a cut character stays cut."""
    bodies = [b"[1,2]", "é".encode()[:1], "é".encode()[1:], b"a\nb\n"]
    api.create(path, kind, body=bodies[0])
    api.append(path, *bodies[1:], kind=kind)
    assert api.parts(path) == [NOTHING, *(Part(kind, body) for body in bodies)]


@KEPT_ANYHOW
def test_3_2_parts_are_the_same_wherever_the_bytes_are(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    """In the journal, in segments, across both, in several chunks, after a restart."""
    origin = start_origin(mode, storage={"checkpoint_secs": 0.01, "chunk_bytes": 1024})
    api = connect(origin)
    bodies = [os.urandom(size) for size in (1, 700, 5000, 1, 300, 1024, 1024, 2)]
    api.create(FLAT, BINARY, body=bodies[0])
    api.append(FLAT, *bodies[1:4], kind=BINARY)
    if mode == "file-durable":
        origin.restart()
        api = connect(origin)
    api.append(FLAT, *bodies[4:], kind=BINARY)
    expected = [NOTHING, *(Part(BINARY, body) for body in bodies)]
    for _ in range(3):
        assert api.parts(FLAT) == expected
    api.publish(FLAT, AT(sum(map(len, bodies[:3]))), b"s")
    for _ in range(3):
        assert api.parts(FLAT) == [Part(TEXT, b"s"), *expected[4:]]


@KEPT_ANYHOW
def test_3_2_a_fork_has_the_parts_of_its_source(start_api: StartApi, mode: str) -> None:
    """Up to its fork point, which may cut a part short (a sub-offset)."""
    api = start_api(mode)
    api.create(FLAT, body=b"one")
    offset = api.append(FLAT, b"two")
    api.append(FLAT, b"three")
    fork = f"{BUCKET}/fork"
    api.fork(fork, FLAT, stream_fork_offset=offset, stream_fork_sub_offset="2")
    api.append(fork, b"own")
    bodies = [part.body for part in api.parts(fork)]
    assert bodies == [b"", b"one", b"two", b"th", b"own"]


def test_3_2_a_fork_of_json_cuts_between_messages(api: Api, path: str) -> None:
    api.create(path, kind=JSON)
    api.append(path, b"[1,2,3]", kind=JSON)
    api.fork("/v1/stream/f", path, stream_fork_offset=AT(0), stream_fork_sub_offset="2")
    api.append("/v1/stream/f", b"[4,5]", kind=JSON)
    assert [part.body for part in api.parts("/v1/stream/f")] == [b"", b"1", b"2", b"4", b"5"]


def test_3_2_a_closed_stream_says_so(api: Api, path: str) -> None:
    api.create(path, body=b"x")
    before = api.bootstrap(path)
    api.close(path)
    reply = api.bootstrap(path)
    assert (before.closed, reply.closed) == (False, True)
    assert before["ETag"] != reply["ETag"]


def test_3_2_no_stream_no_bootstrap(api: Api, path: str) -> None:
    assert problem(api.bootstrap(path))[0] == 404
    api.create(path)
    api("DELETE", path)
    assert problem(api.bootstrap(path))[0] == 404


def test_3_2_a_stream_that_forks_hold_has_no_bootstrap(api: Api, path: str) -> None:
    api.create(path, body=b"x")
    api.fork("/v1/stream/f", path)
    api("DELETE", path)
    assert api.bootstrap(path).status == 410
    assert api("GET", f"{path}/snapshot").status == 410


def test_3_2_who_knows_it_gets_304(api: Api, path: str) -> None:
    """The tag is weak: the boundary is another each time."""
    api.create(path, body=b"x")
    reply = api.bootstrap(path)
    assert reply["ETag"].startswith("W/") and reply["Cache-Control"] == REVALIDATE
    for condition in (reply["ETag"], reply["ETag"].removeprefix("W/"), f'"a", {reply["ETag"]}'):
        known = api.bootstrap(path, if_none_match=condition)
        assert (known.status, known.body, known["ETag"]) == (304, b"", reply["ETag"])
        assert known["Stream-Snapshot-Offset"] == "-1"
    tail = api.append(path, b"y")
    changed = api.bootstrap(path, if_none_match=reply["ETag"])
    assert changed.status == 200
    api.publish(path, tail, b"xy")
    assert api.bootstrap(path, if_none_match=changed["ETag"]).status == 200


def test_3_2_head_is_get_without_a_body(api: Api, path: str) -> None:
    api.create(path, body=b"x")
    got, head = api.bootstrap(path), api("HEAD", f"{path}/bootstrap")
    assert (head.status, head.body) == (200, b"")
    for name in ("ETag", "Stream-Snapshot-Offset", "Stream-Next-Offset", "Stream-Up-To-Date"):
        assert head[name] == got[name]


@KEPT_ANYHOW
def test_3_2_what_is_too_large_for_one_answer_is_413(start_api: StartApi, mode: str) -> None:
    """A snapshot helps."""
    api = start_api(mode, limits={"max_bootstrap_bytes": 1000})
    api.create(FLAT, body=b"x" * 600)
    assert api.bootstrap(FLAT).status == 200
    tail = api.append(FLAT, b"x" * 600)
    assert problem(api.bootstrap(FLAT))[0] == 413
    api.publish(FLAT, tail, b"s" * 900)
    assert api.bootstrap(FLAT).status == 200


def test_3_2_the_answer_is_one_moment_of_the_stream(
    start_origin: StartOrigin, connect: Connect
) -> None:
    """What is appended while it is read is not in it, and follows from its offset."""
    origin = start_origin(storage={"chunk_bytes": 64 * 1024})
    api = connect(origin)
    api.create(FLAT, BINARY)
    bodies = [os.urandom(512 * 1024) for _ in range(32)]
    tail = api.append(FLAT, *bodies, kind=BINARY)
    with origin.connect() as slow:
        slow.send(encode_request("GET", f"{FLAT}/bootstrap"))
        status, fields = slow.read_head()
        api.append(FLAT, b"later", kind=BINARY)
        reply = Response(status, fields, b"".join(slow.chunks()))
    assert reply.next_offset == tail
    assert parts_by_hand(reply) == [NOTHING, *(Part(BINARY, body) for body in bodies)]
    assert api.read(FLAT, tail).body == b"later"


@KEPT_ANYHOW
def test_3_2_a_publication_does_not_change_a_bootstrap_under_way(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    """It is given whole, or cut off so that everyone sees it; never half the old, half the new."""
    origin = start_origin(mode, storage={"chunk_bytes": 64 * 1024, "checkpoint_secs": 0.01})
    api = connect(origin)
    first = api.create(FLAT, BINARY, body=b"first")
    api.publish(FLAT, first, b"old" * MIB)
    bodies = [os.urandom(512 * 1024) for _ in range(8)]
    tail = api.append(FLAT, *bodies, kind=BINARY)
    with origin.connect() as slow:
        slow.send(encode_request("GET", f"{FLAT}/bootstrap"))
        status, fields = slow.read_head()
        api.publish(FLAT, tail, b"new")
        wait_until(lambda: api.snapshot(FLAT, first).status == 404)
        with_end = b""
        try:
            for piece in slow.chunks():
                with_end += piece
        except Closed:
            assert not with_end.endswith(b"--\r\n")
            return
    reply = Response(status, fields, with_end)
    old = [Part(TEXT, b"old" * MIB), *(Part(BINARY, body) for body in bodies)]
    assert parts_by_hand(reply) == old


def test_3_2_it_comes_in_pieces(api: Api) -> None:
    """Nobody needs to know its length before it is sent."""
    api.create(FLAT, body=b"x")
    reply = api.bootstrap(FLAT)
    assert reply["Transfer-Encoding"] == "chunked"
    assert "Content-Length" not in reply


def test_3_2_a_slow_reader_does_not_fill_the_memory(
    start_origin: StartOrigin, connect: Connect
) -> None:
    """64 MiB on disk; of them a few pieces are in memory, while it waits and when it reads on."""
    origin = start_origin("file-durable", storage={"checkpoint_secs": 0.02, "cache_bytes": 0})
    api = connect(origin)
    body = os.urandom(MIB - 100)
    api.create(FLAT, BINARY)
    api.append(FLAT, *[body] * 64, kind=BINARY)
    wait_until(lambda: origin.call(lambda: held_bytes(origin)) == 0)
    with origin.connect() as slow:
        tracemalloc.start()
        try:
            slow.send(encode_request("GET", f"{FLAT}/bootstrap"))
            status, fields = slow.read_head()
            wait_until(lambda: tracemalloc.get_traced_memory()[1] > MIB)
            size = sum(map(len, slow.chunks()))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (status, size > 64 * len(body)) == (200, True)
    assert peak < 16 * MIB


def held_bytes(origin: LocalOrigin) -> int:
    """What only memory has: appends that no checkpoint has moved yet."""
    streams = origin.origin.shard.storage._streams.values()  # type: ignore[attr-defined]
    return sum(
        sum(map(len, stored.recent.parts)) for stored in streams if stored.recent is not None
    )


# -- 3.3 follow-up -------------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_3_3_tailing_goes_on_where_the_bootstrap_ended(
    origin: LocalOrigin, connect: Connect, live: str
) -> None:
    api, reader = connect(origin), connect(origin)
    tail = api.create(FLAT, body=b"one")
    api.publish(FLAT, tail)
    api.append(FLAT, b"two")
    at = api.bootstrap(FLAT).next_offset
    reader.connection.send(encode_request("GET", f"{FLAT}?offset={at}&live={live}"))
    api.append(FLAT, b"three")
    if live == "long-poll":
        assert reader.connection.read_response().body == b"three"
    else:
        reader.connection.read_head()
        seen = b""
        for piece in reader.connection.chunks():
            seen += piece
            if b"three" in seen:
                break
        assert b"two" not in seen


# -- 3.4 compatibility ---------------------------------------------------------------------------


def test_3_4_ordinary_reads_never_show_the_snapshot(api: Api, path: str) -> None:
    tail = api.create(path, body=b"one")
    api.publish(path, tail, b"SNAPSHOT")
    api.append(path, b"two")
    for query in (f"?offset={tail}", f"?offset={tail}&live=long-poll", "", "?offset=now"):
        assert b"SNAPSHOT" not in api("GET", path + query).body
    api.close(path)
    assert b"SNAPSHOT" not in api("GET", f"{path}?offset={tail}&live=sse").body


def test_3_4_who_is_told_410_finds_everything_in_the_bootstrap(api: Api, path: str) -> None:
    api.create(path, body=b"one")
    tail = api.append(path, b"two")
    api.publish(path, tail, b"onetwo")
    api.append(path, b"three")
    gone = api.read(path)
    assert gone.status == 410
    reply = api.bootstrap(path)
    assert reply["Stream-Snapshot-Offset"] == gone["Stream-Earliest-Offset"]
    assert b"".join(part.body for part in parts_by_hand(reply)) == b"onetwothree"


# -- readers -------------------------------------------------------------------------------------


async def parts_by_aiohttp(reply: Response) -> list[Part]:
    loop = asyncio.get_running_loop()
    content = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    content.feed_data(reply.body)
    content.feed_eof()
    headers = CIMultiDictProxy(CIMultiDict({"Content-Type": reply["Content-Type"]}))
    reader = MultipartReader(headers, content)
    parts = []
    while (part := await reader.next()) is not None:
        assert not isinstance(part, MultipartReader)
        parts.append(Part(part.headers["Content-Type"], bytes(await part.read())))
    return parts


async def test_binary_parts_are_exact_for_every_reader(api: Api, path: str) -> None:
    api.create(path, BINARY)
    tail = api.append(path, b"folded", kind=BINARY)
    api.append(path, *HOSTILE, kind=BINARY)
    for snapshot in (bytes(range(256)), b"\r\n", b""):
        api.publish(path, tail, snapshot, "image/png")
        reply = api.bootstrap(path)
        expected = [Part("image/png", snapshot), *(Part(BINARY, body) for body in HOSTILE)]
        assert parts_by_hand(reply) == expected
        assert parts_by_email(reply) == expected
        assert await parts_by_aiohttp(reply) == expected


def test_any_messages_come_back_from_every_reader(start_api: StartApi) -> None:
    api = start_api(storage={"chunk_bytes": 64})
    hostile = st.sampled_from(HOSTILE) | st.binary(min_size=1, max_size=80)
    names = iter(range(10**6))

    @settings(max_examples=40, deadline=None)
    @given(st.lists(hostile, max_size=8), st.binary(max_size=40), st.integers(0, 8))
    def check(bodies: list[bytes], snapshot: bytes, number: int) -> None:
        path = f"{FLAT}{next(names)}"
        offsets = [api.create(path, BINARY)]
        offsets += [api.append(path, body, kind=BINARY) for body in bodies]
        number %= len(offsets)
        api.publish(path, offsets[number], snapshot)
        reply = api.bootstrap(path)
        expected = [Part(TEXT, snapshot), *(Part(BINARY, body) for body in bodies[number:])]
        assert parts_by_hand(reply) == parts_by_email(reply) == expected

    check()


def test_nobody_can_foresee_the_boundary(api: Api) -> None:
    """Who writes messages must not be able to write parts."""
    api.create(FLAT, body=b"x")
    seen = [boundary_of(api.bootstrap(FLAT)) for _ in range(20)]
    assert len(set(seen)) == 20
    assert all(re.fullmatch(rb"[\w-]{22,70}", boundary) for boundary in seen), "128 bits and more"
    forged = b"\r\n--%b\r\nContent-Type: text/html\r\n\r\nforged\r\n--%b--\r\n"
    messages = [forged % (boundary, boundary) for boundary in seen]
    api.append(FLAT, *messages)
    reply = api.bootstrap(FLAT)
    expected = [NOTHING, Part(TEXT, b"x"), *(Part(TEXT, message) for message in messages)]
    assert parts_by_hand(reply) == parts_by_email(reply) == expected


@pytest.mark.parametrize("kind", ["text/plain; a=\x00", "text/plain; a=\x0b", "text/plain; a=\xe9"])
def test_a_content_type_cannot_break_the_head_of_a_part(api: Api, kind: str) -> None:
    tail = api.create(FLAT, body=b"x")
    assert api.try_publish(FLAT, tail, kind=kind).status == 400
