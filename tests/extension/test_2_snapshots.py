"""Section 2: snapshots, what they replace, and what becomes of the bytes below them."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from origin.snapshotblobs import COPIES_AT_A_TIME
from origin.storage.inspect import fsck
from protocol.offsets import Offset
from protocol.replies import IMMUTABLE, REVALIDATE, Reply
from protocol.requests import Publish, parse_create
from tests.conftest import StartOrigin
from tests.extension.conftest import (
    AT,
    BINARY,
    BUCKET,
    FLAT,
    JSON,
    KEPT_ANYHOW,
    KEPT_FOR_GOOD,
    TEXT,
    Api,
    Connect,
    Held,
    Part,
    StartApi,
    problem,
)
from tests.helpers.offsets import unnamed
from tests.helpers.origin import MIB, LocalOrigin
from tests.helpers.rawhttp import (
    TIMEOUT_S,
    Closed,
    Connection,
    EventStream,
    Response,
    control,
    encode_request,
    wait_until,
)
from tests.helpers.server import started

EVERY_BYTE = bytes(range(256))
KIB = 1024


def lay(api: Api, path: str, *bodies: bytes, kind: str = TEXT) -> list[str]:
    """A stream of these appends; the offsets between them, from the first to the tail."""
    return [api.create(path, kind), *(api.append(path, body, kind=kind) for body in bodies)]


# -- 2.1 offsets ---------------------------------------------------------------------------------


def test_2_1_offsets_can_be_subtracted(api: Api, path: str) -> None:
    """The reserved -1 counts as 0."""
    first, second = lay(api, path, b"12345", b"678")[1:]
    assert [int(offset.rpartition("_")[2]) for offset in (first, second)] == [5, 8]
    assert first < second


@pytest.mark.parametrize("kind", [TEXT, BINARY, JSON])
def test_2_1_reads_snapshots_and_bootstrap_share_their_boundaries(api: Api, kind: str) -> None:
    """A snapshot can be published where a message ends, and nowhere else."""
    bodies = [b'[1,[2,",],"],"a,b"]', b'{"x":[1,2,3]}', b"[7]"]
    tail = int(lay(api, FLAT, *bodies, kind=kind)[-1].rpartition("_")[2])
    ends, position = {0}, 0
    for part in api.parts(FLAT)[1:]:
        position += len(part.body) + (kind == JSON)
        ends.add(position)
    assert position == tail
    assert len(ends) == (6 if kind == JSON else 4)
    for number in range(tail, -1, -1):  # one may be published below another only before it
        api.fork(f"{FLAT}{number}", FLAT)
        reply = api.try_publish(f"{FLAT}{number}", AT(number))
        assert reply.status == (204 if number in ends else 400), number
        if number in ends:
            assert api.read(f"{FLAT}{number}", AT(number)).status == 200
        elif kind == JSON:
            assert problem(api.read(FLAT, AT(number))) == (400, "invalid-offset")


# -- 2.2 publish ---------------------------------------------------------------------------------


def test_2_2_publish_is_204_and_says_where_it_stands(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one", b"two")
    reply = api.try_publish(path, offsets[1])
    assert (reply.status, reply.body) == (204, b"")
    assert reply["Stream-Snapshot-Offset"] == offsets[1]
    assert reply.next_offset == offsets[2]


@pytest.mark.parametrize("kind", ["text/csv; header=present", "application/vnd.x+json", JSON])
def test_2_2_the_content_type_is_kept_as_it_came(api: Api, path: str, kind: str) -> None:
    offset = lay(api, path, b"x")[-1]
    api.publish(path, offset, b"{}", kind)
    assert api.snapshot(path, offset)["Content-Type"] == kind
    assert api.parts(path)[0] == Part(kind, b"{}")
    assert api.head(path)["Content-Type"] == TEXT


def test_2_2_the_content_type_has_a_default(api: Api, path: str) -> None:
    offset = lay(api, path, b"x")[-1]
    api.publish(path, offset, kind=None)
    assert api.snapshot(path, offset)["Content-Type"] == BINARY


@pytest.mark.parametrize("kind", ["text", "a/b/c", ""])
def test_2_2_a_content_type_must_be_one(api: Api, kind: str) -> None:
    offset = lay(api, FLAT, b"x")[-1]
    assert problem(api.try_publish(FLAT, offset, kind=kind)) == (400, "invalid-content-type")


@pytest.mark.parametrize("offset", ["-1", "now", "5", "x", "0" * 16, AT(5) + "0", AT(5) + "%20"])
def test_2_2_an_invalid_offset_is_refused(api: Api, path: str, offset: str) -> None:
    lay(api, path, b"12345")
    assert problem(api.try_publish(path, offset)) == (400, "invalid-offset")
    assert "Stream-Snapshot-Offset" not in api.head(path)


def test_2_2_an_offset_inside_a_message_is_refused(api: Api, path: str) -> None:
    lay(api, path, b"12345", b"67")
    for number in (1, 4, 6):
        assert problem(api.try_publish(path, AT(number)))[0] == 400
    for number in (5, 7):
        api.publish(path, AT(number))


def test_2_2_an_offset_inside_a_json_message_is_refused(api: Api, path: str) -> None:
    """Between the messages of one append there is a boundary."""
    lay(api, path, b'[1,"a,b",{"c":[2,3]}]', kind=JSON)
    stored = b'1,"a,b",{"c":[2,3]},'
    good = {0, 2, 8, 20}
    for number in range(len(stored) + 1):
        reply = api.try_publish(path, AT(number))
        assert reply.status == (204 if number in good else 400), number


def test_2_2_publish_without_a_stream_is_not_found(api: Api, path: str) -> None:
    assert problem(api.try_publish(path, AT(0)))[0] == 404


def test_2_2_publish_to_a_deleted_stream_is_not_found(api: Api, path: str) -> None:
    offset = lay(api, path, b"x")[-1]
    api("DELETE", path)
    assert problem(api.try_publish(path, offset))[0] == 404


def test_2_2_publish_above_the_tail_is_a_conflict(api: Api, path: str) -> None:
    lay(api, path, b"12345")
    for number in (6, 10**15):
        assert problem(api.try_publish(path, AT(number)))[0] == 409
    assert api.read(path).body == b"12345"


def test_2_2_publish_below_the_snapshot_is_gone(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one", b"two")
    api.publish(path, offsets[2], b"latest")
    for offset in offsets[:2]:
        reply = api.try_publish(path, offset, b"older")
        assert problem(reply)[0] == 410
        assert reply["Stream-Earliest-Offset"] == offsets[2]
    assert api.snapshot(path, offsets[2]).body == b"latest"


def test_2_2_publish_at_the_snapshot_replaces_it(api: Api, path: str) -> None:
    offset = lay(api, path, b"one")[-1]
    api.publish(path, offset, b"first", TEXT)
    before = api.snapshot(path, offset)
    api.publish(path, offset, b"second", JSON)
    after = api.snapshot(path, offset)
    assert (after.body, after["Content-Type"]) == (b"second", JSON)
    assert before["ETag"] != after["ETag"]
    assert api.snapshot(path, offset, if_none_match=before["ETag"]).status == 200


def test_2_2_publish_at_the_beginning_replaces_nothing(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one")
    api.publish(path, offsets[0], b"seed")
    assert api.read(path).body == b"one"
    assert api.parts(path) == [Part(TEXT, b"seed"), Part(TEXT, b"one")]


@pytest.mark.parametrize("chunked", [False, True])
def test_2_2_a_snapshot_that_is_too_large_is_413(start_api: StartApi, chunked: bool) -> None:
    api = start_api(limits={"max_snapshot_bytes": 2000})
    offset = lay(api, FLAT, b"x")[-1]
    api.publish(FLAT, offset, b"s" * 2000)
    if chunked:
        body = b"7d1\r\n" + b"s" * 2001 + b"\r\n0\r\n\r\n"
        target = f"{FLAT}/snapshot/{offset}"
        head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        api.connection.send(head.encode() + body)
        reply = api.connection.read_response()
    else:
        reply = api.try_publish(FLAT, offset, b"s" * 2001)
    assert problem(reply)[0] == 413


def test_2_2_a_snapshot_may_be_larger_than_an_append(start_api: StartApi) -> None:
    api = start_api(limits={"max_body_bytes": 1000})
    offset = lay(api, FLAT, b"x")[-1]
    assert api("POST", FLAT, {"Content-Type": TEXT}, b"x" * 2000).status == 413
    body = EVERY_BYTE * 1000
    api.publish(FLAT, offset, body)
    assert api.snapshot(FLAT, offset).body == body


def test_2_2_an_encoded_body_is_refused(api: Api) -> None:
    offset = lay(api, FLAT, b"x")[-1]
    reply = api("PUT", f"{FLAT}/snapshot/{offset}", {"Content-Encoding": "gzip"}, b"\x1f\x8b")
    assert reply.status == 415


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        *(("POST", "/snapshot"), ("PUT", "/snapshot"), ("DELETE", "/snapshot")),
        *(("POST", f"/snapshot/{AT(1)}"), ("PATCH", f"/snapshot/{AT(1)}")),
        *(("POST", "/bootstrap"), ("PUT", "/bootstrap"), ("DELETE", "/bootstrap")),
    ],
)
def test_2_2_other_methods_are_told_which(api: Api, path: str, method: str, rest: str) -> None:
    lay(api, path, b"x")
    reply = api(method, path + rest, {"Content-Type": TEXT}, b"x")
    assert reply.status == 405
    assert "GET" in reply["Allow"] and method not in reply["Allow"]
    assert api.read(path).body == b"x"


# -- 2.2 retention -------------------------------------------------------------------------------


@KEPT_ANYHOW
def test_2_2_reads_below_the_snapshot_are_gone(start_api: StartApi, mode: str) -> None:
    """Also those that were answered, and kept, before."""
    api = start_api(mode)
    offsets = lay(api, FLAT, b"one", b"two", b"three")
    below = [f"?offset={offset}" for offset in ("-1", *offsets[:2])] + [""]
    live = ["", "&live=long-poll", "&live=sse"]
    for _ in range(3):  # the third time comes from whatever remembers
        assert {api("GET", FLAT + query).status for query in below} == {200}
    api.publish(FLAT, offsets[2])
    for query in below:
        for mode_ in live if query else [""]:
            reply = api("GET", FLAT + query + mode_)
            assert problem(reply) == (410, "offset-gone"), (query, mode_)
            assert reply["Stream-Earliest-Offset"] == offsets[2]
            assert reply["Cache-Control"] == "no-store"
    assert api.read(FLAT, offsets[2]).body == b"three"
    assert api.read(FLAT, offsets[3]).body == b""
    assert api.read(FLAT, "now").status == 200


def test_2_2_a_byte_stream_is_gone_up_to_the_last_byte_below(api: Api) -> None:
    lay(api, FLAT, b"12345", b"67")
    api.publish(FLAT, AT(5))
    assert problem(api.read(FLAT, AT(4)))[0] == 410
    assert api.read(FLAT, AT(5)).body == b"67"
    assert problem(api.read(FLAT, AT(6))) == (400, "invalid-offset")


def test_2_2_a_condition_does_not_bring_back_what_is_gone(api: Api) -> None:
    offsets = lay(api, FLAT, b"one", b"two")
    etag = api.read(FLAT)["ETag"]
    assert api.read(FLAT, if_none_match=etag).status == 304
    api.publish(FLAT, offsets[1])
    assert api.read(FLAT, if_none_match=etag).status == 410


def test_2_2_a_publication_changes_nothing_else(api: Api, path: str) -> None:
    """Tail, closure, producers, Stream-Seq and the stream's tag are those of before."""
    lay(api, path, b"one")
    producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    tail = api.append(path, b"two", stream_seq="5", **producer)
    before = api.head(path)
    api.publish(path, tail)
    after = api.head(path)
    assert (after.next_offset, after["ETag"]) == (tail, before["ETag"])
    assert api("POST", path, {"Content-Type": TEXT, "Stream-Seq": "5"}, b"x").status == 409
    assert api.append(path, b"two", **producer) == tail
    assert unnamed(api.append(path, b"three")) == AT(len("onetwothree"))


def test_2_2_a_closed_stream_can_be_snapshotted(api: Api, path: str) -> None:
    tail = lay(api, path, b"one")[-1]
    api.close(path)
    api.publish(path, tail)
    reply = api.read(path, tail)
    assert (reply.body, reply.closed) == (b"", True)
    assert api.read(path).status == 410


@KEPT_ANYHOW
def test_2_2_the_superseded_snapshot_is_not_found(start_api: StartApi, mode: str) -> None:
    api = start_api(mode)
    offsets = lay(api, FLAT, b"one", b"two")
    for number in (1, 2):
        api.publish(FLAT, offsets[number], str(number).encode())
        assert api.head(FLAT)["Stream-Snapshot-Offset"] == offsets[number]
    assert problem(api.snapshot(FLAT, offsets[1]))[0] == 404
    assert api.snapshot(FLAT, offsets[2]).body == b"2"


@KEPT_ANYHOW
def test_2_2_a_snapshot_makes_room_in_a_full_stream(start_api: StartApi, mode: str) -> None:
    api = start_api(mode, limits={"max_stream_bytes": 10_000})
    api.create(FLAT)
    for _ in range(5):
        tail = api.append(FLAT, b"x" * 9_000)
        assert api("POST", FLAT, {"Content-Type": TEXT}, b"x" * 9_000).status == 413
        api.publish(FLAT, tail, b"small")
    assert api.parts(FLAT) == [Part(TEXT, b"small")]
    assert unnamed(tail) == AT(45_000)


@pytest.mark.parametrize("limit", ["max_stream_bytes", "max_memory_bytes"])
def test_2_2_a_full_stream_takes_a_snapshot_that_is_smaller_than_what_it_replaces(
    start_api: StartApi, limit: str
) -> None:
    api = start_api(limits={limit: 10_000})
    tail = api.create(FLAT, body=b"x" * 10_000)
    api.publish(FLAT, tail, b"y" * 9_000)
    assert problem(api.try_publish(FLAT, tail, b"y" * 10_001))[0] == 413
    api.publish(FLAT, tail, b"z" * 10_000)
    assert problem(api("POST", FLAT, {"Content-Type": TEXT}, b"x"))[0] == 413


def test_2_2_what_forks_still_read_counts_as_before(start_api: StartApi) -> None:
    api = start_api(limits={"max_stream_bytes": 10_000})
    tail = api.create(FLAT, body=b"x" * 9_000)
    assert api.fork("/v1/stream/fork", FLAT).status == 201
    assert problem(api.try_publish(FLAT, tail, b"y" * 2_000))[0] == 413
    api.publish(FLAT, tail, b"y" * 1_000)


# -- 2.2 concurrency -----------------------------------------------------------------------------


@KEPT_ANYHOW
def test_2_2_appends_go_on_while_a_snapshot_arrives(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    """And belong to the updates after it, even if they were there before it was complete."""
    origin = start_origin(mode)
    api, publisher = connect(origin), connect(origin)
    boundary = lay(api, FLAT, b"folded ")[-1]
    body = EVERY_BYTE * (MIB // 256)
    request = encode_request("PUT", f"{FLAT}/snapshot/{boundary}", {"Content-Type": BINARY}, body)
    for start in range(0, len(request), 256 * KIB):
        api.append(FLAT, f"{start} ".encode())
        assert api.read(FLAT).status == 200
        publisher.connection.send(request[start : start + 256 * KIB])
    assert publisher.connection.read_response("PUT").status == 204
    found = api.parts(FLAT)
    assert found[0] == Part(BINARY, body)
    assert [p.body for p in found[1:]] == [
        f"{n} ".encode() for n in range(0, len(request), 256 * KIB)
    ]


@KEPT_ANYHOW
def test_2_2_a_publication_that_breaks_off_leaves_nothing(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode)
    api = connect(origin)
    tail = lay(api, FLAT, b"x")[-1]
    with origin.connect() as publisher:
        request = encode_request("PUT", f"{FLAT}/snapshot/{tail}", {}, b"s" * 100_000)
        publisher.send(request[:50_000])
    assert api("GET", f"{FLAT}/snapshot").status == 404
    assert api.read(FLAT).body == b"x"
    assert snapshot_files(origin) == []


@KEPT_ANYHOW
def test_2_2_publications_at_once_never_go_back(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode)
    apis = [connect(origin) for _ in range(8)]
    offsets = lay(apis[0], FLAT, *(b"x" for _ in range(8)))[1:]

    def publish(number: int) -> int:
        return apis[number].try_publish(FLAT, offsets[number], str(number).encode()).status

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(publish, range(8)))
    assert set(found) <= {204, 410} and found[7] == 204
    assert apis[0].head(FLAT)["Stream-Snapshot-Offset"] == offsets[7]
    assert apis[0].snapshot(FLAT, offsets[7]).body == b"7"
    wait_until(lambda: len(snapshot_files(origin)) == (mode != "memory"))


@KEPT_ANYHOW
@pytest.mark.parametrize("meanwhile", ["append", "later", "same", "delete", "made-again", "fork"])
def test_2_2_a_publication_is_judged_again_when_it_is_written(
    start_origin: StartOrigin, connect: Connect, mode: str, meanwhile: str
) -> None:
    """Nothing waits for it, so the stream may have moved on."""
    origin = start_origin(mode)
    api, publisher = connect(origin), connect(origin)
    offsets = lay(api, FLAT, b"one", b"two")
    held = Held(origin, "write_blob")
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publisher.try_publish, FLAT, offsets[1], b"slow")
        held.wait_for_it()
        assert api.read(FLAT).body == b"onetwo"
        match meanwhile:
            case "append":
                api.append(FLAT, b"three")
            case "later":
                api.publish(FLAT, offsets[2], b"quick")
            case "same":
                api.publish(FLAT, offsets[1], b"quick")
            case "delete":
                api("DELETE", FLAT)
            case "made-again":
                api("DELETE", FLAT)
                lay(api, FLAT, b"new", b"stream")
            case "fork":
                api.fork("/v1/stream/f", FLAT)
        held.let_go()
        status = publishing.result().status
    found = [part.body for part in api.parts(FLAT)] if meanwhile != "delete" else []
    assert (status, found) == {
        "append": (204, [b"slow", b"two", b"three"]),
        "later": (410, [b"quick"]),
        "same": (204, [b"slow", b"two"]),
        "delete": (404, []),
        "made-again": (404, [b"", b"new", b"stream"]),
        "fork": (204, [b"slow", b"two"]),
    }[meanwhile]
    if meanwhile == "fork":
        assert api.read("/v1/stream/f").body == b"onetwo"
    left = 0 if mode == "memory" or status == 404 else 1
    wait_until(lambda: len(snapshot_files(origin)) == left)


@KEPT_ANYHOW
@pytest.mark.parametrize("what", ["publish", "fork", "read", "limited", "long-poll", "sse"])
def test_2_2_who_is_overtaken_while_it_is_looked_up_is_told(
    start_origin: StartOrigin, connect: Connect, mode: str, what: str
) -> None:
    """Everything that asks for a place below a snapshot that was not there when it asked."""
    origin = start_origin(mode, storage={"checkpoint_secs": 0.01})
    api, slow = connect(origin), connect(origin)
    tail = lay(api, FLAT, b"[1,2]", b"3", kind=JSON)[-1]
    asked: dict[str, Callable[[], Response]] = {
        "publish": lambda: slow.try_publish(FLAT, AT(2)),
        "fork": lambda: slow.fork("/v1/stream/f", FLAT, stream_fork_offset=AT(2)),
        "read": lambda: slow.read(FLAT, AT(2)),
        "limited": lambda: slow.read(FLAT, AT(2), "&max_bytes=1"),
        "long-poll": lambda: slow.read(FLAT, AT(2), "&live=long-poll"),
        "sse": lambda: slow.read(FLAT, AT(2), "&live=sse"),
    }
    held = Held(origin, "boundary")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(asked[what])
        held.wait_for_it()
        api.publish(FLAT, tail)
        held.let_go()
        reply = asking.result()
    if what == "fork" and reply.status == 201:  # it held what it needed, in time
        assert api.read("/v1/stream/f").json() == [1]
    else:
        assert problem(reply) == (410, "offset-gone")
        assert reply["Stream-Earliest-Offset"] == tail


def test_2_2_live_readers_at_the_tail_notice_nothing(origin: LocalOrigin, connect: Connect) -> None:
    api, poller = connect(origin), connect(origin)
    tail = lay(api, FLAT, b"one")[-1]
    with EventStream(origin.port, FLAT, tail) as events:
        events.next_write()
        target = f"{FLAT}?offset={tail}&live=long-poll"
        poller.connection.send(encode_request("GET", target))
        wait_until(lambda: b"live_readers 2" in api("GET", "/metrics").body)
        api.publish(FLAT, tail)
        api.append(FLAT, b"two")
        assert events.next_write()[0].data == "two"
        assert poller.connection.read_response().body == b"two"


def test_2_2_a_reader_overtaken_by_a_snapshot_is_not_shown_a_gap(
    start_origin: StartOrigin, connect: Connect
) -> None:
    """It is cut off at the latest where the bytes are gone; when it comes back it is told."""
    origin = start_origin(storage={"chunk_bytes": 64 * KIB, "cache_bytes": 0})
    api = connect(origin)
    bodies = [f"{number:04}".encode() * 64 * KIB for number in range(64)]
    tail = lay(api, FLAT, *bodies)[-1]
    whole = b"".join(bodies).decode()
    with EventStream(origin.port, FLAT) as events:  # it does not read on until it is too late
        api.publish(FLAT, tail)
        api.append(FLAT, b"after")
        seen, told = "", AT(0)
        with pytest.raises(Closed):
            while True:
                for event in events.next_write():
                    if event.kind == "data":
                        seen += event.data
                    else:
                        told = control(event)["streamNextOffset"]
        assert unnamed(told) == AT(len(seen)) and told < tail
        assert whole.startswith(seen)
    assert problem(api.read(FLAT, told)) == (410, "offset-gone")


# -- 2.3 latest ----------------------------------------------------------------------------------


def test_2_3_the_latest_snapshot_is_a_redirect(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one", b"two")
    for offset in offsets[1:]:
        api.publish(path, offset, offset.encode())
        reply = api("GET", f"{path}/snapshot")
        assert (reply.status, reply["Cache-Control"]) == (307, "no-store")
        assert reply["Location"] == f"http://weir.test{path}/snapshot/{offset}"
        assert reply["Stream-Snapshot-Offset"] == offset
        assert api("GET", urlsplit(reply["Location"]).path).body == offset.encode()


def test_2_3_the_redirect_leads_to_the_configured_address(start_api: StartApi) -> None:
    api = start_api(http={"public_url": "https://streams.test/base/"})
    path = f"{BUCKET}/a%20b"
    offset = lay(api, path, b"one")[-1]
    api.publish(path, offset)
    location = api("GET", f"{path}/snapshot")["Location"]
    assert location == f"https://streams.test/base{path}/snapshot/{offset}"


def test_2_3_no_snapshot_no_redirect(api: Api, path: str) -> None:
    assert problem(api("GET", f"{path}/snapshot"))[0] == 404
    lay(api, path, b"one")
    assert problem(api("GET", f"{path}/snapshot"))[0] == 404


# -- 2.4 HEAD ------------------------------------------------------------------------------------


def test_2_4_head_names_the_snapshot_that_is_visible(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one", b"two")
    assert (
        not {"stream-snapshot-offset", "stream-earliest-offset"}
        & dict(api.head(path).fields).keys()
    )
    for offset in offsets:
        api.publish(path, offset)
        head = api.head(path)
        assert head["Stream-Snapshot-Offset"] == head["Stream-Earliest-Offset"] == offset
        assert api("GET", f"{path}/snapshot")["Location"].endswith(offset)


# -- 2.5 read ------------------------------------------------------------------------------------


@KEPT_ANYHOW
def test_2_5_a_snapshot_is_read_as_it_was_written(start_api: StartApi, mode: str) -> None:
    api = start_api(mode)
    offset = lay(api, FLAT, b"x")[-1]
    for body in (b"", EVERY_BYTE, b"\r\n--\r\n", os.urandom(MIB + 1)):
        api.publish(FLAT, offset, body)
        reply = api.snapshot(FLAT, offset)
        assert reply.status == 200
        assert reply.body == body


def test_2_5_the_answer_says_whether_more_follows(api: Api, path: str) -> None:
    offset = lay(api, path, b"one")[-1]
    api.publish(path, offset)
    reply = api.snapshot(path, offset)
    assert reply["Stream-Snapshot-Offset"] == reply.next_offset == offset
    assert (reply["Stream-Up-To-Date"], reply["Cache-Control"]) == ("true", REVALIDATE)
    api.append(path, b"two")
    later = api.snapshot(path, offset)
    assert later["Stream-Snapshot-Offset"] == later.next_offset == offset
    assert (later["Stream-Up-To-Date"], later["Cache-Control"]) == ("false", IMMUTABLE)
    assert later.body == reply.body
    assert api.read(path, later.next_offset).body == b"two"


def test_2_5_the_end_of_a_closed_stream_never_changes(api: Api, path: str) -> None:
    offset = lay(api, path, b"one")[-1]
    api.publish(path, offset)
    before = api.snapshot(path, offset)
    assert not before.closed
    api.close(path)
    reply = api.snapshot(path, offset)
    assert (reply["Stream-Up-To-Date"], reply.closed) == ("true", True)
    assert reply["Cache-Control"] == IMMUTABLE


def test_2_5_a_reader_who_knows_it_gets_304(api: Api, path: str) -> None:
    offset = lay(api, path, b"one")[-1]
    api.publish(path, offset)
    etag = api.snapshot(path, offset)["ETag"]
    for header in (etag, f'"x", W/{etag}', "*"):
        reply = api.snapshot(path, offset, if_none_match=header)
        assert (reply.status, reply.body, reply["ETag"]) == (304, b"", etag)
        assert reply["Stream-Snapshot-Offset"] == offset
    api.append(path, b"two")  # now it is no longer up to date, and that is part of the answer
    assert api.snapshot(path, offset, if_none_match=etag).status == 200


def test_2_5_head_of_a_snapshot_is_get_without_a_body(api: Api, path: str) -> None:
    offset = lay(api, path, b"one")[-1]
    api.publish(path, offset, b"12345", JSON)
    got, head = api.snapshot(path, offset), api("HEAD", f"{path}/snapshot/{offset}")
    assert (head.status, head.body) == (200, b"")
    for name in ("Content-Type", "ETag", "Stream-Snapshot-Offset", "Stream-Up-To-Date"):
        assert head[name] == got[name]


@KEPT_ANYHOW
@pytest.mark.parametrize("end", ["replaced", "deleted"])
def test_2_5_who_has_begun_to_read_a_snapshot_gets_all_of_it(
    start_origin: StartOrigin, connect: Connect, mode: str, end: str
) -> None:
    origin = start_origin(mode)
    api = connect(origin)
    tail = lay(api, FLAT, b"one")[-1]
    body = os.urandom(16 * MIB)  # more than sockets hold
    api.publish(FLAT, tail, body)
    with origin.connect() as slow:
        slow.send(encode_request("GET", f"{FLAT}/snapshot/{tail}"))
        status, fields = slow.read_head()
        if end == "replaced":
            api.publish(FLAT, tail, b"new")
            assert api.snapshot(FLAT, tail).body == b"new"
        else:
            assert api("DELETE", FLAT).status == 204
        assert (status, dict(fields)["content-length"]) == (200, str(len(body)))
        assert slow.take(len(body)) == body
    left = 1 if end == "replaced" and mode != "memory" else 0
    wait_until(lambda: len(snapshot_files(origin)) == left)


@pytest.mark.parametrize("offset", [AT(0), AT(2), AT(4), AT(10**10)])
def test_2_5_other_offsets_have_no_snapshot(api: Api, path: str, offset: str) -> None:
    assert problem(api.snapshot(path, offset))[0] == 404
    lay(api, path, b"one", b"two")
    assert problem(api.snapshot(path, offset))[0] == 404
    api.publish(path, AT(3))
    assert problem(api.snapshot(path, offset))[0] == 404


@pytest.mark.parametrize("offset", ["-1", "now", "x"])
def test_2_5_what_is_no_offset_has_no_snapshot(api: Api, path: str, offset: str) -> None:
    api.publish(path, lay(api, path, b"one")[-1])
    assert api.snapshot(path, offset).status in (400, 404)
    assert api("DELETE", f"{path}/snapshot/{offset}").status in (400, 404)


# -- 2.6 delete ----------------------------------------------------------------------------------


def test_2_6_the_latest_snapshot_is_protected(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one", b"two")
    api.publish(path, offsets[1])
    assert problem(api("DELETE", f"{path}/snapshot/{offsets[1]}"))[0] == 409
    assert api.snapshot(path, offsets[1]).status == 200
    api.publish(path, offsets[2])
    assert problem(api("DELETE", f"{path}/snapshot/{offsets[1]}"))[0] == 404
    assert problem(api("DELETE", f"{path}/snapshot/{offsets[2]}"))[0] == 409


def test_2_6_where_there_is_none_there_is_nothing_to_delete(api: Api, path: str) -> None:
    assert problem(api("DELETE", f"{path}/snapshot/{AT(0)}"))[0] == 404
    lay(api, path, b"one")
    assert problem(api("DELETE", f"{path}/snapshot/{AT(3)}"))[0] == 404
    assert api.read(path).body == b"one"


# -- the life of a stream with a snapshot --------------------------------------------------------


@KEPT_FOR_GOOD
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_published_snapshot_outlives_restarts(
    start_origin: StartOrigin, connect: Connect, mode: str, checkpointed: bool
) -> None:
    origin = start_origin(mode, storage={"checkpoint_secs": 0.01 if checkpointed else 60})
    api = connect(origin)
    offsets = lay(api, FLAT, b"one", b"two", b"three")
    api.publish(FLAT, offsets[1], b"1", JSON)
    api.publish(FLAT, offsets[2], EVERY_BYTE, JSON)
    if checkpointed and mode == "file-durable":
        wait_until(lambda: segment_blocks(origin) != [])
    before = api.snapshot(FLAT, offsets[2]), api.head(FLAT)
    for _ in range(2):
        origin.restart()
        api = connect(origin)
        after = api.snapshot(FLAT, offsets[2]), api.head(FLAT)
        assert [plain(reply.fields) for reply in after] == [plain(reply.fields) for reply in before]
        assert after[0].body == EVERY_BYTE
        assert api.parts(FLAT) == [Part(JSON, EVERY_BYTE), Part(TEXT, b"three")]
        assert problem(api.read(FLAT)) == (410, "offset-gone")
        assert api.read(FLAT, offsets[2]).body == b"three"
        assert api.snapshot(FLAT, offsets[1]).status == 404
        assert len(snapshot_files(origin)) == 1


@KEPT_FOR_GOOD
def test_a_published_snapshot_outlives_a_crash(tmp_path: Path, mode: str) -> None:
    with started(tmp_path, mode) as server, Connection(server.port) as connection:
        api = Api(connection)
        offsets = lay(api, FLAT, b"one", b"two")
        api.publish(FLAT, offsets[0], b"first")
        api.publish(FLAT, offsets[1], EVERY_BYTE)
        server.kill()
    with started(tmp_path, mode) as server, Connection(server.port) as connection:
        api = Api(connection)
        assert api.parts(FLAT) == [Part(TEXT, EVERY_BYTE), Part(TEXT, b"two")]
        assert problem(api.read(FLAT)) == (410, "offset-gone")
    assert_sound(str(tmp_path / "data"), mode)


def plain(fields: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {name: value for name, value in fields if name != "date"}


@KEPT_ANYHOW
def test_a_stream_made_again_shows_nothing_of_the_old_snapshot(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode)
    api = connect(origin)
    tail = lay(api, FLAT, b"old")[-1]
    api.publish(FLAT, tail, b"old snapshot")
    etag, known = api.snapshot(FLAT, tail)["ETag"], api.bootstrap(FLAT)["ETag"]
    api("DELETE", FLAT)
    for rest in ("/snapshot", f"/snapshot/{tail}", "/bootstrap", ""):
        assert api("GET", FLAT + rest).status == 404
    old, tail = tail, lay(api, FLAT, b"new")[-1]
    assert "Stream-Snapshot-Offset" not in api.head(FLAT)
    assert api.snapshot(FLAT, tail, if_none_match=etag).status == 404
    assert problem(api.snapshot(FLAT, old)) == (410, "foreign-offset")
    assert api.read(FLAT).body == b"new"
    assert api.bootstrap(FLAT, if_none_match=known).status == 200
    assert api.parts(FLAT) == [Part(BINARY, b""), Part(TEXT, b"new")]
    api.publish(FLAT, tail, b"new snapshot")
    assert api.snapshot(FLAT, tail, if_none_match=etag).body == b"new snapshot"
    wait_until(lambda: len(snapshot_files(origin)) == (mode != "memory"))


@KEPT_ANYHOW
def test_a_deleted_stream_takes_its_snapshot_along(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode)
    api = connect(origin)
    api.publish(FLAT, lay(api, FLAT, b"x")[-1])
    assert len(snapshot_files(origin)) == (mode != "memory")
    api("DELETE", FLAT)
    wait_until(lambda: snapshot_files(origin) == [])
    if mode == "memory":
        wait_until(lambda: origin.call(lambda: len(origin.origin.shard.storage._blobs)) == 0)  # type: ignore[attr-defined]


def test_a_stream_that_expires_takes_its_snapshot_along(api: Api) -> None:
    tail = api.create(FLAT, body=b"x", stream_ttl="1")
    api.publish(FLAT, tail)
    reply = api.snapshot(FLAT, tail)
    assert reply["Cache-Control"] == REVALIDATE, "it can expire"
    wait_until(lambda: api.head(FLAT).status == 404)
    for rest in ("/snapshot", f"/snapshot/{tail}", "/bootstrap"):
        assert api("GET", FLAT + rest).status == 404
    assert api.try_publish(FLAT, tail).status == 404
    assert unnamed(api.create(FLAT, body=b"y", stream_ttl="1")) == unnamed(tail)
    assert "Stream-Snapshot-Offset" not in api.head(FLAT)


@pytest.mark.parametrize("rest", ["/bootstrap", "/snapshot", "/snapshot/{tail}", "publish"])
def test_reading_and_writing_the_snapshot_keep_a_stream_alive(
    origin: LocalOrigin, connect: Connect, rest: str
) -> None:
    """The idle window (base protocol) counts reads and writes; these are some."""
    api = connect(origin)
    tail = api.create(FLAT, body=b"x", stream_ttl="60")
    api.publish(FLAT, tail)

    def deadline_ms() -> int:
        (stream,) = origin.origin.shard.registry.by_name.values()
        assert stream.deadline_ms is not None
        return stream.deadline_ms

    before = origin.call(deadline_ms)
    wait_until(lambda: time.time() * 1000 > before - 60_000 + 2)
    if rest == "publish":
        api.publish(FLAT, tail)
    else:
        assert api("GET", FLAT + rest.format(tail=tail)).status in (200, 307)
    assert origin.call(deadline_ms) > before


@pytest.mark.parametrize("method", ["HEAD", "DELETE"])
@pytest.mark.parametrize("rest", ["/bootstrap", "/snapshot", "/snapshot/{tail}"])
def test_a_look_at_the_snapshot_keeps_no_stream_alive(
    origin: LocalOrigin, connect: Connect, method: str, rest: str
) -> None:
    """As HEAD of the stream itself."""
    api = connect(origin)
    tail = api.create(FLAT, body=b"x", stream_ttl="60")
    api.publish(FLAT, tail)
    (stream,) = origin.origin.shard.registry.by_name.values()
    before = stream.deadline_ms
    assert before is not None
    wait_until(lambda: time.time() * 1000 > before - 60_000 + 2)
    assert api(method, FLAT + rest.format(tail=tail)).status in (200, 307, 405, 409)
    assert stream.deadline_ms == before


@pytest.mark.parametrize("part", ["bootstrap", "snapshot/{tail}"])
def test_a_reader_who_leaves_is_no_error(
    start_origin: StartOrigin, connect: Connect, part: str
) -> None:
    """Reported as one, each would be a traceback in the log; `start_origin` looks for these."""
    origin = start_origin()
    api = connect(origin)
    tail = api.create(FLAT, body=b"x")
    api.publish(FLAT, tail)
    held = Held(origin, "read_blob")
    blobs = origin.origin.shard.blobs

    def go_on_while_it_closes() -> None:
        held.let_go_now()
        for connection in origin.origin.listener.server.connections:
            if connection._current_request is not None:
                assert connection.transport is not None
                connection.transport.close()

    with origin.connect() as leaving:
        leaving.send(encode_request("GET", f"{FLAT}/{part.format(tail=tail)}"))
        held.wait_for_it()
        origin.call(go_on_while_it_closes)
    wait_until(lambda: origin.call(lambda: not blobs.readers))


def test_a_fork_at_a_snapshot_that_is_on_its_way(
    start_origin: StartOrigin, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it covers goes while the fork is made; the offset is a boundary all the same."""
    origin = start_origin("file-durable")
    connect(origin).create(FLAT, JSON, b"[1,2,3]")
    shard, storage = origin.origin.shard, origin.origin.shard.storage
    name = FLAT.removeprefix("/v1/stream/")
    fork = parse_create({"stream-forked-from": FLAT, "stream-fork-offset": AT(4)})
    read, stage, staged = storage.read, storage.stage, asyncio.Event()

    def stage_and_tell(*arguments: Any) -> None:
        stage(*arguments)
        staged.set()

    monkeypatch.setattr(storage, "stage", stage_and_tell)

    async def publish_and_fork() -> tuple[Reply, Reply]:
        publish = shard.snapshots.publish(name, Publish(Offset(4), TEXT), b"1")
        publishing = asyncio.create_task(publish)
        await staged.wait()

        async def read_late(stream_id: int, start: int, end: int) -> bytes:
            await publishing
            return await read(stream_id, start, end)

        monkeypatch.setattr(storage, "read", read_late)
        forked = await shard.creations.create("fork", fork, b"", "location")
        return await publishing, forked

    work = asyncio.run_coroutine_threadsafe(publish_and_fork(), origin._loop)
    assert [reply.status for reply in work.result(TIMEOUT_S)] == [204, 201]


def test_forks_of_a_large_snapshot_do_not_all_copy_it_at_once(
    start_origin: StartOrigin, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy is in memory as a whole while it is made."""
    origin = start_origin()
    api = connect(origin)
    api.publish(FLAT, api.create(FLAT, body=b"x"))
    storage, at_once = origin.origin.shard.storage, [0]
    write = storage.write_blob

    async def write_slowly(blob: int, data: bytes) -> int:
        at_once.append(at_once[-1] + 1)
        for _ in range(100):
            await asyncio.sleep(0)
        at_once.append(at_once[-1] - 1)
        return await write(blob, data)

    monkeypatch.setattr(storage, "write_blob", write_slowly)
    apis = [connect(origin) for _ in range(12)]
    for number, other in enumerate(apis):
        fork = {"Stream-Forked-From": FLAT}
        other.connection.send(encode_request("PUT", f"/v1/stream/fork{number}", fork))
    assert [other.connection.read_response("PUT").status for other in apis] == [201] * 12
    assert 1 <= max(at_once) <= COPIES_AT_A_TIME


# -- what is left on the disk, and in memory -----------------------------------------------------


def snapshot_files(origin: LocalOrigin) -> list[Path]:
    data_dir = Path(origin.config.storage.data_dir)
    found = [*data_dir.glob("snapshots/*/*"), *data_dir.glob("objects/*/*/blobs/*")]
    return sorted(path for path in found if path.is_file())


def assert_sound(data_dir: str, mode: str = "") -> None:
    if mode == "cluster":
        return
    said = StringIO()
    assert fsck(data_dir, said) == 0, said.getvalue()


def segment_blocks(origin: LocalOrigin) -> list[int]:
    """Of each segment, the bytes that it really occupies."""
    folder = Path(origin.config.storage.data_dir) / "segments"
    return [path.stat().st_blocks * 512 for path in folder.rglob("*.seg")]


def rows(origin: LocalOrigin) -> int:
    storage = origin.origin.shard.storage
    return sum(
        shard.env.begin().stat(shard.data)["entries"]
        for shard in storage._shards  # type: ignore[attr-defined]
    )


def test_segments_give_back_what_is_below_the_snapshot(
    start_origin: StartOrigin, connect: Connect
) -> None:
    origin = start_origin("file-durable", storage={"checkpoint_secs": 0.02})
    api = connect(origin)
    offsets = lay(api, FLAT, *(os.urandom(512 * KIB) for _ in range(8)), kind=BINARY)
    last = os.urandom(100)
    api.append(FLAT, last, kind=BINARY)
    wait_until(lambda: sum(segment_blocks(origin)) >= 4 * MIB)
    api.publish(FLAT, offsets[-1])
    wait_until(lambda: sum(segment_blocks(origin)) <= 600 * KIB)
    assert api.read(FLAT, offsets[-1]).body == last
    origin.restart()
    api = connect(origin)
    assert api.read(FLAT, offsets[-1]).body == last
    assert api.parts(FLAT)[1:] == [Part(BINARY, last)]
    origin.stop()
    assert_sound(origin.config.storage.data_dir)


def test_rows_below_the_snapshot_are_deleted(start_origin: StartOrigin, connect: Connect) -> None:
    origin = start_origin("acid")
    api = connect(origin)
    offsets = lay(api, FLAT, *(b"x" for _ in range(50)))
    assert rows(origin) == 50
    api.publish(FLAT, offsets[40])
    wait_until(lambda: rows(origin) == 10)
    assert api.read(FLAT, offsets[40]).body == b"x" * 10
    origin.restart()
    assert connect(origin).read(FLAT, offsets[40]).body == b"x" * 10
    origin.stop()
    assert_sound(origin.config.storage.data_dir)


def test_memory_forgets_what_is_below_the_snapshot(origin: LocalOrigin, connect: Connect) -> None:
    api = connect(origin)
    offsets = lay(api, FLAT, *(b"x" * 1000 for _ in range(50)))

    def kept() -> int:
        streams = origin.origin.shard.storage._streams  # type: ignore[attr-defined]
        return sum(len(part) for recent in streams.values() for part in recent.parts)

    assert origin.call(kept) == 50_000
    api.publish(FLAT, offsets[40])
    wait_until(lambda: origin.call(kept) == 10_000)
    assert b"stored_bytes 10008" in api("GET", "/metrics").body


# -- forks and snapshots -------------------------------------------------------------------------


@KEPT_ANYHOW
def test_a_fork_keeps_what_its_source_has_snapshotted_away(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode, storage={"checkpoint_secs": 0.02})
    api = connect(origin)
    fork = f"{BUCKET}/fork"
    api.make_bucket()
    offsets = lay(api, FLAT, b"one", b"two", b"three")
    api.fork(fork, FLAT, stream_fork_offset=offsets[2])
    api.publish(FLAT, offsets[3], b"all")
    for again in (False, True):
        assert problem(api.read(FLAT))[0] == 410
        assert api.read(fork).body == b"onetwo"
        assert api.parts(fork)[1:] == [Part(TEXT, b"one"), Part(TEXT, b"two")]
        assert "Stream-Snapshot-Offset" not in api.head(fork)
        if mode != "memory" and not again:
            origin.restart()
            api = connect(origin)
    api("DELETE", fork)
    wait_until(lambda: b"stored_bytes 3\n" in api("GET", "/metrics").body.replace(b".0\n", b"\n"))


@KEPT_ANYHOW
def test_a_fork_of_a_snapshotted_stream_has_a_snapshot_of_its_own(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    """A copy: what becomes of the source's does not concern it."""
    origin = start_origin(mode)
    api = connect(origin)
    api.make_bucket()
    offsets = lay(api, FLAT, b"one", b"two", b"three")
    api.publish(FLAT, offsets[1], b"1", JSON)
    fork = f"{BUCKET}/fork"
    assert api.fork(fork, FLAT, stream_fork_offset=offsets[2]).status == 201
    api.append(fork, b"own")
    api.publish(FLAT, offsets[3], b"3")
    api("DELETE", FLAT)
    for again in (False, True):
        own = api.head(fork)["Stream-Snapshot-Offset"]
        assert unnamed(own) == unnamed(offsets[1])
        assert api.snapshot(fork, own).body == api.snapshot(fork, offsets[1]).body == b"1"
        assert api.parts(fork) == [Part(JSON, b"1"), Part(TEXT, b"two"), Part(TEXT, b"own")]
        assert problem(api.read(fork))[0] == 410
        assert api.read(fork, offsets[1]).body == b"twoown"
        if mode != "memory" and not again:
            origin.restart()
            api = connect(origin)


def test_a_fork_below_the_snapshot_is_gone(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one", b"two")
    api.publish(path, offsets[2])
    for offset in offsets[:2]:
        reply = api.fork("/v1/stream/fork", path, stream_fork_offset=offset)
        assert problem(reply)[0] == 410
        assert reply["Stream-Earliest-Offset"] == offsets[2]
    assert api.head("/v1/stream/fork").status == 404
    assert api("DELETE", path).status == 204
    wait_until(lambda: api.head(path).status == 404)  # and not 410: nothing holds it


def test_a_fork_at_the_snapshot_begins_with_it(api: Api, path: str) -> None:
    offsets = lay(api, path, b"one", b"two")
    api.publish(path, offsets[1], b"1")
    assert api.fork("/v1/stream/fork", path, stream_fork_offset=offsets[1]).status == 201
    api.append("/v1/stream/fork", b"own")
    assert api.parts("/v1/stream/fork") == [Part(TEXT, b"1"), Part(TEXT, b"own")]


@KEPT_ANYHOW
def test_a_snapshot_of_a_fork_leaves_its_source_alone(start_api: StartApi, mode: str) -> None:
    """Wherever it stands: below the fork point, at it, above it."""
    api = start_api(mode)
    offsets = lay(api, FLAT, b"one", b"two")
    fork = f"{BUCKET}/fork"
    api.fork(fork, FLAT)
    tail = api.append(fork, b"own")
    expected = [Part(TEXT, b"one"), Part(TEXT, b"two"), Part(TEXT, b"own")]
    for number, offset in enumerate([*offsets[1:], tail]):
        api.publish(fork, offset, str(number).encode())
        assert api.parts(fork) == [Part(TEXT, str(number).encode()), *expected[number + 1 :]]
        assert problem(api.read(fork))[0] == 410
        assert api.read(FLAT).body == b"onetwo"
    api("DELETE", FLAT)
    assert api.parts(fork) == [Part(TEXT, b"2")]


def test_a_chain_of_forks_keeps_each_its_own(api: Api) -> None:
    """The middle one is snapshotted away under the last; then the first."""
    a, b, c = (f"/v1/stream/{name}" for name in "abc")
    lay(api, a, b"one", b"two")
    api.fork(b, a)
    api.append(b, b"three")
    api.fork(c, b)
    tail = api.append(c, b"four")
    api.publish(b, AT(len("onetwothree")), b"B")
    api.publish(a, AT(len("onetwo")), b"A")
    api("DELETE", a)
    api("DELETE", b)
    assert api.read(c).body == b"onetwothreefour"
    api.publish(c, tail, b"C")
    assert api.parts(c) == [Part(TEXT, b"C")]
    api("DELETE", c)
    for path in (a, b, c):
        wait_until(lambda path=path: api.head(path).status == 404)  # type: ignore[misc]


# -- everything at once, against a naive model ---------------------------------------------------

# A message to append, a number of an offset to publish at, or a restart.
steps = st.lists(st.binary(min_size=1, max_size=8) | st.integers(0, 20) | st.none(), max_size=10)


@KEPT_ANYHOW
def test_bootstrap_and_reads_agree_with_a_list_of_messages(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode, storage={"checkpoint_secs": 0.01})
    names = (f"{FLAT}{number}" for number in count())

    @settings(max_examples=15, deadline=None)
    @given(steps)
    def check(taken: list[bytes | int | None]) -> None:
        api, path = connect(origin), next(names)
        offsets, messages, snapshot, body = [api.create(path, BINARY)], list[bytes](), 0, b""
        for step in taken:
            if isinstance(step, bytes):
                messages.append(step)
                offsets.append(api.append(path, step, kind=BINARY))
            elif isinstance(step, int):
                number = step % len(offsets)
                reply = api.try_publish(path, offsets[number], b"%d" % step)
                assert reply.status == (204 if number >= snapshot else 410)
                if reply.status == 204:
                    snapshot, body = number, b"%d" % step
            elif mode != "memory":
                origin.restart()
                api = connect(origin)
            assert [part.body for part in api.parts(path)] == [body, *messages[snapshot:]]
            for number, offset in enumerate(offsets):
                reply = api.read(path, offset)
                assert reply.status == (200 if number >= snapshot else 410)
                assert number < snapshot or reply.body == b"".join(messages[number:])

    check()
