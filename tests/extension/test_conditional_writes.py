"""If-Match and If-None-Match on writes: a writer who has seen a state changes that state only."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from protocol.replies import Reply
from protocol.requests import parse_append, parse_create
from tests.conftest import StartOrigin
from tests.extension.conftest import AT, KEPT_FOR_GOOD, TEXT, Api, Connect, problem
from tests.helpers.offsets import unnamed
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import TIMEOUT_S, Response

PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}


def post(api: Api, path: str, body: bytes, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api("POST", path, {"Content-Type": TEXT, **named}, body)


def test_every_answer_about_a_stream_names_its_tag(api: Api, path: str) -> None:
    created = api("PUT", path, {"Content-Type": TEXT}, b"one")
    assert created["ETag"] == api.head(path)["ETag"]
    again = api("PUT", path, {"Content-Type": TEXT})
    assert (again.status, again["ETag"]) == (200, created["ETag"])
    appended = post(api, path, b"two")
    assert appended["ETag"] == api.head(path)["ETag"] != created["ETag"]
    closed = api("POST", path, {"Stream-Closed": "true"})
    assert closed["ETag"] == api.head(path)["ETag"] != appended["ETag"]
    again = api("POST", path, {"Stream-Closed": "true"})
    assert (again.status, again["ETag"]) == (204, closed["ETag"])


def test_a_duplicate_names_the_tag_as_well(api: Api, path: str) -> None:
    """Whoever never got the first answer goes on from this one."""
    api.create(path)
    for status in (200, 204):
        reply = api("POST", path, {"Content-Type": TEXT, **PRODUCER}, b"x")
        assert (reply.status, reply["ETag"]) == (status, api.head(path)["ETag"])


def test_head_can_be_asked_whether_anything_changed(api: Api, path: str) -> None:
    api.create(path, body=b"one")
    etag = api.head(path)["ETag"]
    known = api.head(path, if_none_match=etag)
    assert (known.status, known["ETag"]) == (304, etag)
    api.append(path, b"two")
    assert api.head(path, if_none_match=etag).status == 200


def test_an_append_that_matches_is_taken(api: Api, path: str) -> None:
    api.create(path)
    etag = api.head(path)["ETag"]
    for body in (b"one", b"two"):
        reply = post(api, path, body, If_Match=etag)
        assert reply.status == 204
        etag = reply["ETag"]
    assert post(api, path, b"three", If_Match=f'"x", {etag}').status == 204
    assert post(api, path, b"four", If_Match="*").status == 204
    assert api.read(path).body == b"onetwothreefour"


def test_an_append_to_another_state_is_412_and_changes_nothing(api: Api, path: str) -> None:
    api.create(path)
    old = api.head(path)["ETag"]
    tail = api.append(path, b"one")
    now = api.head(path)["ETag"]
    for condition in (old, '"x"', f"W/{now}", "nonsense"):
        reply = post(api, path, b"lost", If_Match=condition)
        assert problem(reply) == (412, "precondition-failed")
        assert (reply["ETag"], reply.next_offset) == (now, tail)
    assert api.read(path).body == b"one"


def test_a_close_can_be_conditional(api: Api, path: str) -> None:
    api.create(path, body=b"one")
    old = api.head(path)["ETag"]
    api.append(path, b"two")
    assert api("POST", path, {"Stream-Closed": "true", "If-Match": old}).status == 412
    assert not api.head(path).closed
    etag = api.head(path)["ETag"]
    assert api("POST", path, {"Stream-Closed": "true", "If-Match": etag}).status == 204


def test_a_repeated_append_of_a_producer_is_a_duplicate_and_no_conflict(
    api: Api, path: str
) -> None:
    """Its first try changed the tag that it asks for."""
    api.create(path)
    etag = api.head(path)["ETag"]
    first = api("POST", path, {"Content-Type": TEXT, "If-Match": etag, **PRODUCER}, b"one")
    again = api("POST", path, {"Content-Type": TEXT, "If-Match": etag, **PRODUCER}, b"one")
    assert (first.status, again.status) == (200, 204)
    assert api.read(path).body == b"one"
    following = PRODUCER | {"Producer-Seq": "1"}
    refused = api("POST", path, {"Content-Type": TEXT, "If-Match": etag, **following}, b"two")
    assert refused.status == 412
    taken = api("POST", path, {"Content-Type": TEXT, **following}, b"two")
    assert taken.status == 200, "the refused one did not count"


def test_of_many_who_saw_the_same_state_one_writes(
    start_origin: StartOrigin, connect: Connect
) -> None:
    origin = start_origin("file-durable")
    apis = [connect(origin) for _ in range(8)]
    path = "/v1/stream/s"
    apis[0].create(path)
    with ThreadPoolExecutor(8) as pool:
        for round_ in range(5):
            etag = apis[0].head(path)["ETag"]
            replies = list(
                pool.map(lambda api, etag=etag: post(api, path, b"x", If_Match=etag), apis)
            )
            assert sorted(reply.status for reply in replies) == [204] + [412] * 7
            # Whoever lost is told the state that it lost against.
            now = apis[0].head(path)["ETag"]
            assert {reply["ETag"] for reply in replies} == {now}
            assert len(apis[0].read(path).body) == round_ + 1


def test_a_put_that_must_make_something_new(api: Api, path: str) -> None:
    assert api("PUT", path, {"Content-Type": TEXT, "If-None-Match": "*"}).status == 201
    reply = api("PUT", path, {"Content-Type": TEXT, "If-None-Match": "*"})
    assert problem(reply) == (412, "precondition-failed")
    assert reply["ETag"] == api.head(path)["ETag"]
    assert api("PUT", path, {"Content-Type": TEXT}).status == 200


def test_a_put_that_must_find_something(api: Api, path: str) -> None:
    for condition in ("*", '"x"'):
        reply = api("PUT", path, {"Content-Type": TEXT, "If-Match": condition})
        assert problem(reply) == (412, "precondition-failed")
        assert "ETag" not in reply
    assert api.head(path).status == 404
    api.create(path)
    etag = api.head(path)["ETag"]
    for condition, status in ((etag, 200), ("*", 200), ('"x"', 412)):
        assert api("PUT", path, {"Content-Type": TEXT, "If-Match": condition}).status == status


def test_a_condition_is_about_this_stream_and_not_the_one_before(api: Api, path: str) -> None:
    api.create(path, body=b"one")
    etag = api.head(path)["ETag"]
    api("DELETE", path)
    api.create(path, body=b"one")
    assert post(api, path, b"two", If_Match=etag).status == 412


def test_a_stream_that_has_changed_is_not_deleted(api: Api, path: str) -> None:
    api.create(path)
    old = api.head(path)["ETag"]
    tail = api.append(path, b"one")
    now = api.head(path)["ETag"]
    for condition in (old, f"W/{now}"):
        reply = api("DELETE", path, {"If-Match": condition})
        assert problem(reply) == (412, "precondition-failed")
        assert (reply["ETag"], reply.next_offset) == (now, tail)
    assert api.read(path).body == b"one"
    assert api("DELETE", path, {"If-Match": now}).status == 204
    assert api("DELETE", path, {"If-Match": "*"}).status == 404


def test_a_condition_on_a_missing_stream_is_not_found(api: Api, path: str) -> None:
    assert post(api, path, b"x", If_Match="*").status == 404


@pytest.mark.parametrize("condition", ["*", '"x"'])
def test_a_closed_stream_is_closed_whatever_the_condition(
    api: Api, path: str, condition: str
) -> None:
    api.create(path)
    api.close(path)
    assert problem(post(api, path, b"x", If_Match=condition)) == (409, "closed")


def test_the_tag_of_a_creation_is_of_what_was_created(origin: LocalOrigin) -> None:
    """Not of what someone else appended before the answer was out: a write by that tag would go
    over data that its writer has never seen."""
    shard = origin.origin.shard

    async def create_and_append() -> tuple[Reply, Reply]:
        create = parse_create({"content-type": TEXT})
        creation = asyncio.create_task(shard.creations.create("s", create, b"", "location"))
        await asyncio.sleep(0)  # it is staged
        appended: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        append = parse_append({"content-type": TEXT, "stream-closed": "true"})
        shard.appends.append("s", append, b"x", appended.set_result)
        return await creation, await appended

    work = asyncio.run_coroutine_threadsafe(create_and_append(), origin._loop)
    created, appended = (dict(reply.headers) for reply in work.result(TIMEOUT_S))
    assert unnamed(created["Stream-Next-Offset"]) == AT(0) and "Stream-Closed" not in created
    assert created["ETag"].endswith(':0"') and appended["ETag"].endswith(':1:c"')


@KEPT_FOR_GOOD
def test_tags_hold_across_a_restart(start_origin: StartOrigin, connect: Connect, mode: str) -> None:
    origin = start_origin(mode)
    api = connect(origin)
    api.create("/v1/stream/s")
    etag = post(api, "/v1/stream/s", b"one")["ETag"]
    origin.restart()
    api = connect(origin)
    assert post(api, "/v1/stream/s", b"two", If_Match=etag).status == 204
    assert post(api, "/v1/stream/s", b"two", If_Match=etag).status == 412


def test_a_repeated_condition_header_is_refused(api: Api) -> None:
    """As every protocol header: choosing one of two is how writes get lost."""
    api.create("/v1/stream/s")
    head = "POST /v1/stream/s HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
    request = f'{head}If-Match: "a"\r\nIf-Match: *\r\nContent-Length: 1\r\n\r\nx'
    api.connection.send(request.encode())
    assert api.connection.read_response("POST").status in (400, 412)
    assert api.read("/v1/stream/s").body == b""
