"""The fast path: what it answers, what it leaves to the door, what it remembers."""

import pytest

from gateway.hits import Caller, Line
from tests.helpers.parts import KeptExchange, MakeParts, Parts, chunk
from wire.heads import Fields, Head, Target

HOST = {"host": "weir.test"}


def hit(parts: Parts, target: Target, headers: dict[str, str] | None = None) -> bytes | None:
    return parts.door.hit(Head(target, Fields({**HOST, **(headers or {})}, 0)), "192.0.2.1")


def a_target(query: str = "") -> Target:
    return Target("GET", "/v1/stream/a", query)


async def test_a_hit_is_the_answer_that_the_ordinary_way_gives(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    fast = KeptExchange()
    fast.data = hit(parts, a_target()) or b""
    slow = parts.ask("a").response
    own = ("x-request-id",)
    one, other = (
        sorted(field for field in answer.fields if field[0] not in own)
        for answer in (fast.response, slow)
    )
    assert one == other and fast.response.body == slow.body == b"hello"


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (a_target("offset=now"), {}),
        (a_target("offset=-1&live=sse"), {}),
        (a_target("offset=9"), {}),
        (a_target("offset="), {}),
        (Target("HEAD", "/v1/stream/a", ""), {}),
        (Target("GET", "/healthz", ""), {}),
        (a_target(), {"if-none-match": "*"}),
    ],
    ids=str,
)
async def test_what_is_no_plain_hit_goes_the_ordinary_way(
    parts: Parts, target: Target, headers: dict[str, str]
) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    assert hit(parts, target, headers) is None


async def test_what_a_request_line_remembers_is_never_older_than_the_store(parts: Parts) -> None:
    target = a_target()
    await parts.fill("a", chunk(0, 5), b"older")
    assert b"older" in (hit(parts, target) or b"")
    parts.purges.forget("a")
    assert hit(parts, target) is None
    await parts.fill("a", chunk(0, 5), b"newer")
    assert b"newer" in (hit(parts, target) or b"")


async def test_what_was_evicted_is_not_held_by_request_lines(make: MakeParts) -> None:
    """Or the memory of a cache would be bounded by the number of URLs, not by its bytes."""
    parts = make(cache={"max_bytes": 20_000, "compress": False})
    targets = [Target("GET", f"/v1/stream/{number}", "") for number in range(20)]
    for number, target in enumerate(targets):
        await parts.fill(str(number), chunk(0, 5000), b"x" * 5000)
        assert hit(parts, target)
    places = [target.parsed for target in targets]
    held = [p.kept.entry for p in places if isinstance(p, Line) and p.kept is not None]
    assert len(places) == 20 and sum(entry is not None for entry in held) == len(parts.store) < 4


async def test_callers_are_told_apart_in_the_log(make: MakeParts) -> None:
    parts = make(gateway={"trusted_hops": 1})
    await parts.fill("a", chunk(0, 5), b"hello")
    fields = Fields({**HOST, "user-agent": "me"}, 0)
    for peer in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        assert parts.door.hit(Head(a_target(), fields, "r1"), peer)
    assert isinstance(fields.parsed, Caller)
    clients = [line.partition(b'"client":"')[2].partition(b'"')[0] for line in parts.log.lines]
    assert clients == [b"192.0.2.1", b"192.0.2.2", b"192.0.2.1"]
    assert all(b'"request_id":"r1"' in line and b'"me"' in line for line in parts.log.lines)
