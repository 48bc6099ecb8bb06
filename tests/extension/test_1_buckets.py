"""Section 1: buckets, their names, their listing, and what happens to streams in them."""

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from tests.conftest import StartOrigin
from tests.extension.conftest import (
    BINARY,
    BUCKET,
    JSON,
    KEPT_FOR_GOOD,
    TEXT,
    Api,
    Connect,
    Held,
    StartApi,
    problem,
)
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import EventStream, control, wait_until

BAD_BUCKETS = ["abc", "b" * 65, "Buck", "bu.k", "b%C3%BCck", "bu%20ck", "bu%2Fck", ".."]
FIELDS = {
    *("stream_id", "status", "content_type"),
    *("tail_offset", "created_at_ms", "last_write_at_ms"),
}


def ids(listing: dict[str, list[dict[str, str]]]) -> list[str]:
    return [stream["stream_id"] for stream in listing["streams"]]


# -- 1.1 identifiers -----------------------------------------------------------------------------


@pytest.mark.parametrize("bucket", ["abcd", "0_-a", "----", "b" * 64])
def test_1_1_bucket_ids_are_4_to_64_of_their_alphabet(api: Api, bucket: str) -> None:
    assert api("PUT", f"/ds/{bucket}").status == 201
    assert api("GET", f"/ds/{bucket}").json()["bucket_id"] == bucket


@pytest.mark.parametrize("bucket", BAD_BUCKETS)
@pytest.mark.parametrize("method", ["PUT", "GET", "HEAD", "DELETE"])
def test_1_1_other_bucket_ids_are_refused(api: Api, bucket: str, method: str) -> None:
    assert api(method, f"/ds/{bucket}").status == 400


@pytest.mark.parametrize(
    "stream",
    ["s", "Großer Bär", "a:b@c", "emoji-😀", "100%", ".hidden", "a?b#c", "__ds", "Streams"],
)
def test_1_1_stream_ids_are_text(api: Api, stream: str) -> None:
    path = f"{BUCKET}/{quote(stream)}"
    api.create(path, body=b"hello")
    assert api.read(path).body == b"hello"
    assert ids(api.listing()) == [stream]


def test_1_1_bucket_and_stream_together_have_122_bytes(api: Api) -> None:
    """In bytes of UTF-8, not in characters."""
    room = 122 - len("buck/")
    for stream in ("s" * room, quote("é" * (room // 2) + "s" * (room % 2))):
        api.create(f"{BUCKET}/{stream}")
    for stream in ("s" * (room + 1), quote("é" * (room // 2 + 1))):
        assert problem(api("PUT", f"{BUCKET}/{stream}")) == (400, "invalid-path")


@pytest.mark.parametrize("stream", ["a/b", "a%2Fb", "a%00b", "a..b", "..", "%2e%2e", "", "%FF"])
def test_1_1_forbidden_stream_ids_are_refused(api: Api, stream: str) -> None:
    for method in ("PUT", "GET", "POST", "DELETE", "HEAD"):
        assert api(method, f"{BUCKET}/{stream}").status == 400


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_1_1_streams_is_the_listing_and_never_a_stream(api: Api, method: str) -> None:
    reply = api(method, f"{BUCKET}/streams", {"Content-Type": TEXT}, b"x")
    assert reply.status == 405
    assert "GET" in reply["Allow"] and method not in reply["Allow"]
    assert api("GET", BUCKET).json()["streams"] == 0
    assert api("GET", f"{BUCKET}/streams/bootstrap").status == 400


# -- 1.2 create ----------------------------------------------------------------------------------


def test_1_2_create_is_201_and_a_second_time_a_conflict(api: Api) -> None:
    assert api("PUT", "/ds/other").status == 201
    assert problem(api("PUT", "/ds/other"))[0] == 409


def test_1_2_many_who_create_at_once_make_one(origin: LocalOrigin, connect: Connect) -> None:
    apis = [connect(origin) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(lambda api: api("PUT", BUCKET).status, apis))
    assert found == [201] + [409] * 7


def test_1_2_a_stream_never_creates_its_bucket(api: Api) -> None:
    for headers in ({}, {"Stream-Forked-From": f"{BUCKET}/s"}):
        assert problem(api("PUT", "/ds/none/s", headers))[0] == 404
    assert api("GET", "/ds/none").status == 404


@KEPT_FOR_GOOD
def test_1_2_an_answered_bucket_outlives_a_restart(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    """Twice: first it is in the journal, then perhaps only in the catalog."""
    origin = start_origin(mode, storage={"checkpoint_secs": 0.01})
    connect(origin).make_bucket()
    for number in range(2):
        origin.restart()
        api = connect(origin)
        assert api("GET", BUCKET).json() == {"bucket_id": "buck", "streams": number}
        assert api("PUT", BUCKET).status == 409
        api.create(f"{BUCKET}/{number}", body=b"x")


# -- 1.3 metadata --------------------------------------------------------------------------------


def test_1_3_metadata_counts_the_streams(api: Api) -> None:
    def count() -> int:
        reply = api("GET", BUCKET)
        assert (reply.status, reply["Content-Type"]) == (200, JSON)
        assert reply.json()["bucket_id"] == "buck"
        found: int = reply.json()["streams"]
        return found

    assert count() == 0
    for name in "ab":
        api.create(f"{BUCKET}/{name}")
    api.create("/v1/stream/ds/buck/c")
    assert count() == 2
    assert api("PUT", f"{BUCKET}/a", {"Content-Type": TEXT}).status == 200
    assert count() == 2
    api("DELETE", f"{BUCKET}/a")
    assert count() == 1


def test_1_3_head_is_get_without_a_body(api: Api) -> None:
    got, head = api("GET", BUCKET), api("HEAD", BUCKET)
    assert (head.status, head.body, head["Content-Type"]) == (200, b"", got["Content-Type"])
    assert head.get("Content-Length") in (None, got["Content-Length"])


def test_1_3_a_bucket_that_is_not_there_is_not_found(api: Api) -> None:
    assert problem(api("GET", "/ds/none"))[0] == 404
    assert api("HEAD", "/ds/none").status == 404


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_1_3_a_bucket_has_no_other_methods(api: Api, method: str) -> None:
    reply = api(method, BUCKET)
    assert reply.status == 405
    assert {"GET", "HEAD", "PUT", "DELETE"} <= set(reply["Allow"].split(", "))


def test_1_3_browsers_may_ask_where_configured(start_origin: StartOrigin) -> None:
    with start_origin(http={"cors_origins": ("*",)}).connect() as connection:
        for path in (BUCKET, f"{BUCKET}/streams", f"{BUCKET}/s/bootstrap"):
            reply = connection.request("OPTIONS", path, {"Origin": "https://app.test"})
            assert reply.status == 204
            assert reply["Access-Control-Allow-Origin"] == "*"


# -- 1.4 list ------------------------------------------------------------------------------------


def test_1_4_listing_says_of_each_stream_what_it_is(api: Api) -> None:
    began_ms = time.time() * 1000
    api.create(f"{BUCKET}/closed", body=b"12345", kind="text/plain; charset=utf-8")
    api.close(f"{BUCKET}/closed")
    api.create(f"{BUCKET}/open", kind=JSON)
    listing = api.listing()
    assert listing == {
        "bucket_id": "buck",
        "prefix": "",
        "stream_count": 2,
        "streams": listing["streams"],
        "next_cursor": "open",
        "has_more": False,
    }
    closed, open_ = listing["streams"]
    assert set(closed) == set(open_) == FIELDS
    assert (closed["status"], open_["status"]) == ("Closed", "Open")
    assert (closed["tail_offset"], open_["tail_offset"]) == (5, 0)
    assert closed["content_type"] == "text/plain; charset=utf-8"
    for stream in (closed, open_):
        assert began_ms - 1 <= stream["created_at_ms"] <= stream["last_write_at_ms"]
        assert isinstance(stream["created_at_ms"], int)


def test_1_4_the_last_write_moves_with_appends(api: Api) -> None:
    api.create(f"{BUCKET}/s", body=b"x")
    (before,) = api.listing()["streams"]
    wait_until(lambda: time.time() * 1000 > before["last_write_at_ms"] + 1)
    api.append(f"{BUCKET}/s", b"y")
    (after,) = api.listing()["streams"]
    assert after["last_write_at_ms"] > before["last_write_at_ms"]
    assert after["created_at_ms"] == before["created_at_ms"]
    assert (before["tail_offset"], after["tail_offset"]) == (1, 2)


def test_1_4_streams_are_sorted_and_filtered(api: Api) -> None:
    names = ["user-2", "user-10", "User-1", "user", "zz", "üser", "user-1", "😀", "uses"]
    for name in names:
        api.create(f"{BUCKET}/{quote(name)}")
    assert ids(api.listing()) == sorted(names)
    found = api.listing(query="?prefix=user-")
    assert (found["prefix"], ids(found)) == ("user-", ["user-1", "user-10", "user-2"])
    assert found["stream_count"] == 3
    assert ids(api.listing(query="?after=user-1")) == sorted(n for n in names if n > "user-1")
    assert ids(api.listing(query="?after=user-11")) == sorted(n for n in names if n > "user-11")
    assert ids(api.listing(query="?prefix=user&after=user-1")) == ["user-10", "user-2"]
    assert ids(api.listing(query="?prefix=user-&after=a")) == ["user-1", "user-10", "user-2"]
    assert ids(api.listing(query="?prefix=a&after=user")) == []
    assert ids(api.listing(query=f"?prefix={quote('ü')}")) == ["üser"]
    assert ids(api.listing(query=f"?prefix={quote('😀')}")) == ["😀"]


def test_1_4_the_surrounding_streams_are_not_listed(api: Api) -> None:
    api.make_bucket("/ds/buck2")
    api.make_bucket("/ds/buc_")
    api.create("/ds/buck2/other")
    api.create("/ds/buc_/other")
    api.create("/v1/stream/buck/other")
    assert ids(api.listing()) == []


def test_1_4_pages_follow_each_other(api: Api) -> None:
    names = [f"{number:02}" for number in range(10)]
    for name in names:
        api.create(f"{BUCKET}/{name}")
    found, cursor = list[str](), ""
    for expected in (4, 4, 2):
        page = api.listing(query=f"?limit=4&after={cursor}")
        assert len(page["streams"]) == page["stream_count"] == expected
        assert page["has_more"] == (expected == 4)
        cursor = page["next_cursor"]
        assert cursor == ids(page)[-1]
        found += ids(page)
    assert found == names
    empty = api.listing(query=f"?limit=4&after={cursor}")
    assert (empty["streams"], empty["next_cursor"], empty["has_more"]) == ([], None, False)


def test_1_4_a_full_last_page_has_no_more(api: Api) -> None:
    for name in "ab":
        api.create(f"{BUCKET}/{name}")
    page = api.listing(query="?limit=2")
    assert (ids(page), page["has_more"]) == (["a", "b"], False)
    assert api.listing(query="?limit=1&prefix=b")["has_more"] is False


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "1.5"])
def test_1_4_other_limits_are_refused(api: Api, limit: str) -> None:
    assert api("GET", f"{BUCKET}/streams?limit={limit}").status == 400


@pytest.mark.parametrize("query", ["prefix=%FF", "after=%C3", "limit=1&limit=1"])
def test_1_4_other_queries_are_refused(api: Api, query: str) -> None:
    assert api("GET", f"{BUCKET}/streams?{query}").status == 400


def test_1_4_no_bucket_no_listing(api: Api) -> None:
    assert problem(api("GET", "/ds/none/streams"))[0] == 404
    assert api("GET", "/ds/BAD/streams").status == 400


def test_1_4_streams_that_are_gone_are_not_listed(api: Api) -> None:
    """Deleted, expired, deleted while a fork holds it."""
    for name, headers in {
        "deleted": {},
        "expired": {"stream_ttl": "0"},
        "held": {},
        "z": {},
    }.items():
        api.create(f"{BUCKET}/{name}", body=b"x", **headers)
    assert api.fork("/v1/stream/fork", f"{BUCKET}/held").status == 201
    for name in ("deleted", "held"):
        assert api("DELETE", f"{BUCKET}/{name}").status == 204
    assert api("GET", f"{BUCKET}/held").status == 410
    wait_until(lambda: ids(api.listing()) == ["z"])
    assert ids(api.listing(query="?limit=1")) == ["z"]
    assert api.listing(query="?limit=1")["has_more"] is False


@KEPT_FOR_GOOD
def test_1_4_a_restart_lists_the_same(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode)
    api = connect(origin)
    api.make_bucket()
    for name in ("b", "a", "ü"):
        api.create(f"{BUCKET}/{quote(name)}", kind=BINARY, body=name.encode())
    api.close(f"{BUCKET}/b")
    api("DELETE", f"{BUCKET}/a")
    before = api.listing()
    origin.restart()
    assert connect(origin).listing() == before
    assert ids(before) == ["b", "ü"]


def test_1_4_paging_meets_each_stream_once_while_others_come_and_go(
    start_api: StartApi, connect: Connect
) -> None:
    """Streams that are there from the first page to the last are seen exactly once."""
    api = start_api()
    lasting = [f"s{number:05}" for number in range(0, 4000, 2)]
    for name in lasting:
        api.create(f"{BUCKET}/{name}")
    found, cursor, page_number = list[str](), "", 0
    while True:
        page = api.listing(query=f"?limit=170&after={cursor}")
        found += ids(page)
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
        for number in range(1, 4000, 400):  # before, at and behind the cursor
            passing = f"{BUCKET}/s{(number + 2 * page_number) % 4000:05}x"
            api.create(passing)
            if page_number % 2:
                api("DELETE", passing)
        page_number += 1
    assert page_number > 5
    assert found == sorted(set(found)), "sorted, none twice"
    assert [name for name in found if not name.endswith("x")] == lasting


# -- 1.5 delete ----------------------------------------------------------------------------------


def test_1_5_an_empty_bucket_is_deleted(api: Api) -> None:
    reply = api("DELETE", BUCKET)
    assert (reply.status, reply.body) == (204, b"")
    assert api("GET", BUCKET).status == 404
    assert api("GET", f"{BUCKET}/streams").status == 404
    assert problem(api("PUT", f"{BUCKET}/s"))[0] == 404
    assert problem(api("DELETE", BUCKET))[0] == 404


def test_1_5_a_bucket_with_streams_is_not(api: Api) -> None:
    api.create(f"{BUCKET}/s", body=b"x")
    assert problem(api("DELETE", BUCKET))[0] == 409
    assert api.read(f"{BUCKET}/s").body == b"x"
    api("DELETE", f"{BUCKET}/s")
    assert api("DELETE", BUCKET).status == 204


def test_1_5_the_last_stream_may_also_expire(api: Api) -> None:
    api.create(f"{BUCKET}/s", stream_ttl="0")
    wait_until(lambda: api("DELETE", BUCKET).status == 204)


def test_1_5_a_bucket_made_again_is_empty(api: Api) -> None:
    api.create(f"{BUCKET}/s", body=b"old")
    api("DELETE", f"{BUCKET}/s")
    api("DELETE", BUCKET)
    api.make_bucket()
    assert ids(api.listing()) == []
    assert api("GET", f"{BUCKET}/s").status == 404


def test_1_5_a_stream_that_a_fork_holds_keeps_its_bucket(api: Api) -> None:
    """Its name is still taken: a new bucket must not inherit that."""
    api.create(f"{BUCKET}/s", body=b"old")
    api.fork("/v1/stream/fork", f"{BUCKET}/s")
    assert api("DELETE", f"{BUCKET}/s").status == 204
    assert problem(api("DELETE", BUCKET))[0] == 409
    assert api.read("/v1/stream/fork").body == b"old"
    assert api("DELETE", "/v1/stream/fork").status == 204
    wait_until(lambda: api("DELETE", BUCKET).status == 204)


def test_1_5_either_the_bucket_goes_or_a_stream_comes(
    start_origin: StartOrigin, connect: Connect
) -> None:
    """Whoever is first; never a stream without its bucket."""
    origin = start_origin("file-durable")
    one, other = connect(origin), connect(origin)
    outcomes = set()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            one("PUT", BUCKET)
            creating = pool.submit(one, "PUT", f"{BUCKET}/s")
            deleting = pool.submit(other, "DELETE", BUCKET)
            outcome = creating.result().status, deleting.result().status
            outcomes.add(outcome)
            there = one("GET", BUCKET).status == 200
            assert (one("GET", f"{BUCKET}/s").status == 200) == there == (outcome[0] == 201)
            one("DELETE", f"{BUCKET}/s")
    assert outcomes <= {(201, 409), (404, 204)}


def test_1_5_a_stream_that_comes_slowly_does_not_find_a_bucket_that_has_gone(
    origin: LocalOrigin, connect: Connect
) -> None:
    """A fork takes time: the snapshot of its source is copied."""
    api, other = connect(origin), connect(origin)
    api.make_bucket()
    api.publish("/v1/stream/a", api.create("/v1/stream/a", body=b"x"))
    held = Held(origin, "write_blob")
    with ThreadPoolExecutor(1) as pool:
        forking = pool.submit(other.fork, f"{BUCKET}/f", "/v1/stream/a")
        held.wait_for_it()
        deleted = api("DELETE", BUCKET)
        held.let_go()
        assert (deleted.status, forking.result().status) == (204, 404)
    assert origin.call(lambda: len(held.storage._blobs)) == 1, "the copy is not left behind"
    api.make_bucket()
    assert ids(api.listing()) == []


@KEPT_FOR_GOOD
def test_1_5_a_deleted_bucket_stays_deleted(
    start_origin: StartOrigin, connect: Connect, mode: str
) -> None:
    origin = start_origin(mode)
    api = connect(origin)
    api.make_bucket()
    api.make_bucket("/ds/kept")
    api("DELETE", BUCKET)
    origin.restart()
    api = connect(origin)
    assert api("GET", BUCKET).status == 404
    assert api("GET", "/ds/kept").status == 200
    api.make_bucket()


# -- 1.6 stream operations -----------------------------------------------------------------------

OPERATIONS = {
    "create": ("PUT", "", b""),
    "append": ("POST", "", b"x"),
    "read": ("GET", "", b""),
    "head": ("HEAD", "", b""),
    "delete": ("DELETE", "", b""),
    "long-poll": ("GET", "?offset=-1&live=long-poll", b""),
    "sse": ("GET", "?offset=-1&live=sse", b""),
    "publish": ("PUT", "/snapshot/0000000000000000_0000000000000000", b"x"),
    "latest": ("GET", "/snapshot", b""),
    "snapshot": ("GET", "/snapshot/0000000000000000_0000000000000000", b""),
    "unpublish": ("DELETE", "/snapshot/0000000000000000_0000000000000000", b""),
    "bootstrap": ("GET", "/bootstrap", b""),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("bucket", ["/ds/none", BUCKET], ids=["no-bucket", "no-stream"])
def test_1_6_operation_on_what_is_not_there(api: Api, operation: str, bucket: str) -> None:
    method, rest, body = OPERATIONS[operation]
    reply = api(method, f"{bucket}/s{rest}", {"Content-Type": TEXT} if body else {}, body)
    assert reply.status == (201 if (operation, bucket) == ("create", BUCKET) else 404)


def test_1_6_a_stream_in_a_bucket_is_a_stream(api: Api) -> None:
    path = f"{BUCKET}/s"
    reply = api("PUT", path, {"Content-Type": JSON})
    assert (reply.status, reply["Location"]) == (201, f"http://weir.test{path}")
    assert api("PUT", path, {"Content-Type": JSON}).status == 200
    assert api("PUT", path, {"Content-Type": TEXT}).status == 409
    producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    tail = api.append(path, b"[1,2]", kind=JSON, **producer)
    assert api.append(path, b"[1,2]", kind=JSON, **producer) == tail
    assert api.read(path).json() == [1, 2]
    assert api.head(path).next_offset == tail
    reply = api.read(path, "-1", "&live=long-poll")
    assert (reply.status, reply.json()) == (200, [1, 2])
    api.close(path)
    assert problem(api("POST", path, {"Content-Type": JSON}, b"3")) == (409, "closed")
    assert api("DELETE", path).status == 204
    assert api("GET", path).status == 404


def test_1_6_live_readers_follow_a_stream_in_a_bucket(
    origin: LocalOrigin, connect: Connect
) -> None:
    api = connect(origin)
    api.make_bucket()
    api.create(f"{BUCKET}/s")
    with EventStream(origin.port, f"{BUCKET}/s") as events:
        assert events.next_write()[-1].kind == "control"
        api.append(f"{BUCKET}/s", b"hello")
        assert [event.data for event in events.next_write()][0] == "hello"
        api.close(f"{BUCKET}/s")
        assert control(events.rest()[-1])["streamClosed"]


@pytest.mark.parametrize(
    ("source", "fork"),
    [
        (f"{BUCKET}/a", f"{BUCKET}/b"),
        (f"{BUCKET}/a", "/v1/stream/b"),
        ("/v1/stream/a", f"{BUCKET}/b"),
        (f"{BUCKET}/a", "/ds/other/a"),
    ],
)
def test_1_6_forks_go_from_any_surface_to_any(api: Api, source: str, fork: str) -> None:
    api.make_bucket("/ds/other")
    api.create(source, body=b"shared ")
    assert api.fork(fork, source).status == 201
    api.append(source, b"source")
    api.append(fork, b"fork")
    assert [api.read(path).body for path in (source, fork)] == [b"shared source", b"shared fork"]
    assert api.fork(fork, source).status == 200


def test_1_6_a_fork_needs_a_source_and_its_bucket(api: Api) -> None:
    api.create(f"{BUCKET}/a")
    found = [
        api.fork("/v1/stream/b", "/ds/none/a"),
        api.fork("/v1/stream/b", f"{BUCKET}/none"),
        api.fork("/ds/none/b", f"{BUCKET}/a"),
    ]
    assert [reply.status for reply in found] == [404, 404, 404]


def test_1_6_equal_ids_are_not_equal_streams(api: Api) -> None:
    api.make_bucket("/ds/other")
    paths = [f"{BUCKET}/s", "/ds/other/s", "/v1/stream/ds/buck/s", "/v1/stream/buck/s"]
    for path in paths:
        api.create(path, body=path.encode())
    for path in paths:
        assert api.read(path).body == path.encode()
