"""The one order of checks, without sockets: what is let in, what is remembered, what is logged."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.admission import OPEN_BODY_BYTES
from gateway.asking import TooLarge, UpstreamError
from gateway.hits import Caller, Line
from tests.helpers.parts import KeptExchange, Parts, chunk, make_parts, quiet, soon
from wire.heads import Fields, Head, Target

MakeParts = Callable[..., Parts]
HOST = {"host": "weir.test"}
KIB = 1024


@pytest.fixture
async def make() -> AsyncIterator[MakeParts]:
    made: list[Parts] = []

    def start(**sections: Any) -> Parts:
        made.append(make_parts(**sections))
        return made[-1]

    yield start
    for parts in made:
        await parts.close()


@pytest.fixture
def parts(make: MakeParts) -> Parts:
    return make()


# -- hits ----------------------------------------------------------------------------------------


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


# -- tokens that are not ours --------------------------------------------------------------------


@pytest.mark.parametrize("path", ["callback", "ack", "release"])
async def test_the_origins_own_tokens_are_passed_to_it_unread(parts: Parts, path: str) -> None:
    target = f"__ds/subscriptions/x/{path}"
    parts.ask(target, "POST", {"authorization": "Bearer opaque!"}, b"{}")
    asked = await parts.upstream.next()
    assert asked.request.headers["authorization"] == "Bearer opaque!"
    assert asked.target == f"/v1/stream/{target}" and asked.request.body == b"{}"
    asked.answer(204)


async def test_a_subscription_whose_answer_is_too_large_is_not_sent_twice(parts: Parts) -> None:
    asking = parts.ask("__ds/subscriptions/x/callback", "POST", {}, b"{}")
    (await parts.upstream.next()).fail(TooLarge())
    assert (await asking.exchange.answered()).status == 502
    assert len(parts.upstream.asked) == 1


async def test_strangers_use_up_no_room_that_others_need(make: MakeParts) -> None:
    """However many addresses they have."""
    sizes = dict.fromkeys(("max_body_bytes", "max_snapshot_bytes"), 256 * KIB)
    room = {"max_bodies_bytes": 1024 * KIB, "max_bodies_bytes_per_subject": 1024 * KIB}
    parts = make(gateway={**sizes, **room}, auth={"mode": "jwt", "jwks": "keys.json"})
    strangers = []
    for number in range(16):
        exchange = KeptExchange()
        exchange.peer = f"192.0.2.{number}"
        body = b"x" * OPEN_BODY_BYTES
        strangers.append(parts.ask("__ds/subscriptions/x/ack", "POST", {}, body, exchange))
    assert parts.entrance.admissions.room.take("somebody", 1024 * KIB) is None
    (await parts.upstream.next()).answer(204)
    assert (await strangers[0].exchange.answered()).status == 204
    assert {stranger.response.status for stranger in strangers[1:]} == {503}
    await soon(lambda: parts.entrance.admissions.body_bytes == 1024 * KIB)  # all but our own
    again = parts.ask("__ds/subscriptions/x/ack", "POST", {}, body)
    (await parts.upstream.next()).answer(204)
    assert (await again.exchange.answered()).status == 204, "it is given back"


async def test_public_keys_are_asked_for_without_the_readers_token(parts: Parts) -> None:
    parts.ask("__ds/jwks.json", headers={"authorization": "Bearer secret"})
    asked = await parts.upstream.next()
    assert "authorization" not in asked.request.headers
    asked.answer(200, {"content-type": "application/jwk-set+json"}, b"{}")


async def test_without_authentication_any_token_will_do(make: MakeParts) -> None:
    parts = make(upstream={"forward_token": True})
    parts.ask("a", headers={"authorization": "Bearer opaque"})
    asked = await parts.upstream.next()
    assert asked.request.headers["authorization"] == "Bearer opaque"
    asked.answer(404)


@pytest.mark.parametrize("target", ["a", "__ds/subscriptions/x/callback"])
async def test_a_token_in_the_query_goes_no_further_where_nobody_looks_at_it(
    make: MakeParts, target: str
) -> None:
    parts = make(auth={"query_parameter": "token"})
    parts.ask(f"{target}?x=1&%74oken=secret", "POST", {}, b"{}")
    asked = await parts.upstream.next()
    assert asked.target == f"/v1/stream/{target}?x=1"
    asked.answer(204)


# -- what goes wrong -----------------------------------------------------------------------------


async def test_an_origin_in_trouble_is_an_error_not_a_refusal(parts: Parts) -> None:
    for method, body in (("GET", b""), ("POST", b"x"), ("HEAD", b"")):
        asking = parts.ask("a", method, {}, body)
        (await parts.upstream.next()).fail(UpstreamError(504, "origin-timeout", "slow"))
        assert (await asking.exchange.answered()).status == 504
    found = [(r.status, r.verdict, r.error) for r in parts.log.records]
    assert found == 3 * [(504, "error", "origin-timeout")]


@pytest.mark.parametrize("target", ["a", "a?offset=1&live=long-poll", "a?offset=-1&live=sse"])
async def test_a_mistake_of_ours_is_a_500(
    parts: Parts,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(parts.cache, "fresh", fail)
    monkeypatch.setattr(parts.cache, "get", fail)
    answer = await parts.ask(target).exchange.answered()
    assert (answer.status, answer.json()["code"]) == (500, "internal-error")
    assert parts.hubs._slots.total == 0 and "a mistake" in caplog.text


async def test_a_write_whose_fate_is_unknown_purges_what_it_may_have_replaced(
    parts: Parts,
) -> None:
    for method in ("PUT", "DELETE"):
        await parts.fill("a", chunk(0, 5), b"hello")
        asking = parts.ask("a", method)
        (await parts.upstream.next()).fail(UpstreamError(504, "origin-timeout", "slow", sent=True))
        assert (await asking.exchange.answered()).status == 504
        assert len(parts.store) == 0


async def test_a_write_is_carried_through_when_its_client_leaves(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    asking = parts.ask("a", "DELETE")
    asked = await parts.upstream.next()
    asking.exchange.leave()
    await quiet()
    asked.answer(204)
    await soon(lambda: len(parts.store) == 0)
    assert [r.status for r in parts.log.records if r.method == "DELETE"] == [499]


async def test_a_read_that_nobody_waits_for_is_given_up(parts: Parts) -> None:
    asking = parts.ask("a")
    asked = await parts.upstream.next()
    asking.exchange.leave()
    await soon(lambda: asked.future.cancelled())
    assert parts.log.records[-1].status == 499
