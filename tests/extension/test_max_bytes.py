"""`max_bytes` on catch-up and long-poll: as much as a reader can hold, in whole messages."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extension.conftest import (
    BINARY,
    FLAT,
    JSON,
    KEPT_ANYHOW,
    TEXT,
    Api,
    StartApi,
    problem,
)


@pytest.mark.parametrize("live", ["", "&live=long-poll"])
def test_an_answer_ends_at_the_last_message_that_fits(api: Api, path: str, live: str) -> None:
    api.create(path, body=b"12345")
    tail = api.append(path, b"678", b"9")
    for limit, body in ((5, b"12345"), (7, b"12345"), (8, b"12345678"), (9, b"123456789")):
        reply = api.read(path, more=f"&max_bytes={limit}{live}")
        assert (reply.status, reply.body) == (200, body)
        assert reply.up_to_date == (reply.next_offset == tail) == (limit == 9)


@pytest.mark.parametrize("kind", [TEXT, JSON])
def test_one_message_comes_even_if_it_is_larger(api: Api, path: str, kind: str) -> None:
    body = b'"12345"'
    api.create(path, kind, body=body)
    api.append(path, body, kind=kind)
    for limit in (1, 5, 9):
        reply = api.read(path, more=f"&max_bytes={limit}")
        assert reply.body == (b'["12345"]' if kind == JSON else body)
        assert not reply.up_to_date


def test_json_ends_between_messages_of_one_append(api: Api, path: str) -> None:
    api.create(path, JSON)
    tail = api.append(path, b'["a,b", {"c": [1,2]}, 3]', kind=JSON)
    found, offset = [], "-1"
    while offset != tail:
        reply = api.read(path, offset, "&max_bytes=1")
        found.append(reply.json())
        offset = reply.next_offset
    assert found == [["a,b"], [{"c": [1, 2]}], [3]]


def test_half_a_surrogate_pair_is_cut_off_and_read_from_like_any_message(
    api: Api, path: str
) -> None:
    api.create(path, JSON)
    messages = [rb'{"t":"\ud83d"}', rb'"\\"', rb'["\ude00",1]']
    tail = api.append(path, b"[" + b" , ".join(messages) + b"]", kind=JSON)
    found, offset = [], "-1"
    while offset != tail:
        reply = api.read(path, offset, "&max_bytes=1")
        found.append(reply.body[1:-1])
        offset = reply.next_offset
    assert found == messages


def test_at_the_tail_there_is_nothing_to_cut(api: Api, path: str) -> None:
    tail = api.create(path, body=b"x")
    reply = api.read(path, tail, "&max_bytes=1")
    assert (reply.status, reply.body, reply.up_to_date) == (200, b"", True)
    api.close(path)
    reply = api.read(path, tail, "&max_bytes=1")
    assert reply.closed


def test_the_end_of_a_closed_stream_is_told_with_its_last_message(api: Api, path: str) -> None:
    api.create(path, body=b"one")
    api.append(path, b"two")
    api.close(path)
    first = api.read(path, more="&max_bytes=3")
    assert (first.body, first.closed) == (b"one", False)
    second = api.read(path, first.next_offset, "&max_bytes=3")
    assert (second.body, second.closed, second.up_to_date) == (b"two", True, True)


def test_different_answers_have_different_tags(api: Api, path: str) -> None:
    api.create(path, body=b"one")
    api.append(path, b"two")
    short, whole = api.read(path, more="&max_bytes=3"), api.read(path)
    assert short["ETag"] != whole["ETag"]
    known = api.read(path, more="&max_bytes=3", if_none_match=short["ETag"])
    assert known.status == 304
    assert api.read(path, if_none_match=short["ETag"]).status == 200
    assert api.read(path, more="&max_bytes=3", if_none_match=whole["ETag"]).status == 200


def test_a_limited_read_leaves_nothing_behind_for_the_others(api: Api, path: str) -> None:
    """Whatever is remembered of one must not answer the other."""
    api.create(path, body=b"one")
    api.append(path, b"two")
    for _ in range(3):
        assert api.read(path, more="&max_bytes=3").body == b"one"
        assert api.read(path).body == b"onetwo"
        assert api.read(path, more="&max_bytes=6").body == b"onetwo"


@pytest.mark.parametrize("limit", ["0", "-1", "", "x", "01", "1.5"])
def test_other_limits_are_refused(api: Api, path: str, limit: str) -> None:
    api.create(path, body=b"x")
    assert problem(api.read(path, more=f"&max_bytes={limit}")) == (400, "invalid-max-bytes")


def test_below_a_snapshot_it_is_gone_as_ever(api: Api, path: str) -> None:
    tail = api.create(path, body=b"x")
    api.publish(path, tail)
    assert problem(api.read(path, more="&max_bytes=1")) == (410, "offset-gone")


@KEPT_ANYHOW
@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_reading_on_gives_everything_once(start_api: StartApi, mode: str, kind: str) -> None:
    """Whatever the limit, across chunks and fork points; each answer holds to it."""
    api = start_api(mode, storage={"chunk_bytes": 256})
    paths = (f"{FLAT}{number}" for number in range(10**6))
    values = st.lists(st.integers(0, 150).map(lambda n: "," * n), min_size=1, max_size=5)

    @settings(max_examples=15, deadline=None)
    @given(st.lists(values, min_size=1, max_size=6), st.integers(1, 700), st.booleans())
    def check(appends: list[list[str]], limit: int, forked: bool) -> None:
        path = next(paths)
        api.create(path, kind)
        bodies = [json.dumps(values).encode() for values in appends]
        for number, body in enumerate(bodies):
            if forked and number == len(bodies) // 2:
                source, path = path, next(paths)
                api.fork(path, source)
            tail = api.append(path, body, kind=kind)
        found, offset = list[bytes](), "-1"
        while offset != tail:
            reply = api.read(path, offset, f"&max_bytes={limit}")
            assert reply.status == 200 and offset != reply.next_offset
            offset = reply.next_offset
            found.append(reply.body)
            if len(reply.body) > limit:  # then it is one message
                assert len(reply.json()) == 1 if kind == JSON else reply.body in bodies
        if kind == JSON:
            assert [m for body in found for m in json.loads(body)] == sum(appends, [])
        else:
            assert b"".join(found) == b"".join(bodies)

    check()


def test_a_large_message_is_not_held_back_by_chunks(start_api: StartApi) -> None:
    api = start_api(storage={"chunk_bytes": 1024})
    big = os.urandom(5000)
    api.create(FLAT, BINARY, body=b"x")
    api.append(FLAT, big, b"y", kind=BINARY)
    first = api.read(FLAT, more="&max_bytes=100")
    assert first.body == b"x"
    second = api.read(FLAT, first.next_offset, "&max_bytes=100")
    assert second.body == big
    assert api.read(FLAT, second.next_offset, "&max_bytes=100").body == b"y"
