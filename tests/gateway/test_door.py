"""The one order of checks, without sockets: what is let in, what is remembered, what is logged."""

import pytest

from gateway.admission import OPEN_BODY_BYTES
from gateway.asking import TooLarge, UpstreamError
from tests.helpers.parts import KeptExchange, MakeParts, Parts, chunk, quiet, soon

HOST = {"host": "weir.test"}
KIB = 1024


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


async def test_connections_stay_open_while_keys_are_missing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only who leaves closes connections; /readyz tells of the keys."""
    monkeypatch.setattr("gateway.guard.Guard.ready", False)
    assert not parts.door.is_open
    parts.entrance.pages.open()
    assert parts.door.is_open and not parts.entrance.pages.ready
    assert parts.ask("/readyz").response.status == 503
    parts.entrance.pages.close()
    assert not parts.door.is_open


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
    assert parts.hubs.slots.total == 0 and "a mistake" in caplog.text


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
