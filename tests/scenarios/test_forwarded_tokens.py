"""An origin that judges tokens by itself (`upstream.forward_token`): nobody gets by the gateway
what the origin refused him, and who may read is served as always."""

import pytest

from gateway.notices import Notice
from tests.helpers.gateway import KEY, LocalGateway
from tests.helpers.keys import make_token
from tests.helpers.offsets import nameless
from tests.helpers.redis import RedisServer
from tests.helpers.scripted_origin import (
    Answer,
    Recorded,
    ScriptedOrigin,
    SimpleStream,
    until,
)
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.watching import readers

PATH = "/v1/stream/a"
FRIEND, STRANGER = (make_token(KEY, sub=name) for name in ("friend", "stranger"))
REFUSED = Answer(403, {"Content-Type": "text/plain"}, b"not you")
HIDDEN = Answer(404, {"Content-Type": "text/plain"}, b"what stream?")


class Guarded:
    """A stream of two chunks and a tail, with a snapshot, for one token alone."""

    def __init__(self, origin: ScriptedOrigin) -> None:
        self.stream = SimpleStream(origin, PATH, chunk_bytes=4)
        for data in (b"one.", b"two.", b"tail"):
            self.stream.append(data)
        self.welcome = {f"Bearer {FRIEND}"}
        self.seen: list[str] = []
        self.refusal = REFUSED
        origin.on("*", PATH, self._answer)
        for part in ("/snapshot/5", "/bootstrap"):
            origin.on("GET", PATH + part, self._show)

    async def _answer(self, request: Recorded) -> Answer:
        return await self.stream._answer(request) if self._may(request) else self.refusal

    def _show(self, request: Recorded) -> Answer:
        told = {"Cache-Control": "public, max-age=60, immutable", "Stream-Next-Offset": "5"}
        return Answer(200, told, b"state") if self._may(request) else self.refusal

    def _may(self, request: Recorded) -> bool:
        self.seen.append(request.headers.get("authorization", ""))
        return self.seen[-1] in self.welcome


def purges_told(gateway: LocalGateway) -> list[Notice]:
    """To other gateways, from now on."""
    told: list[Notice] = []

    async def publish(notice: Notice) -> bool:
        told.append(notice)
        return True

    gateway.gateway.backends.notices.publish = publish  # type: ignore[method-assign]
    return told


@pytest.fixture
def guarded(scripted: ScriptedOrigin) -> Guarded:
    return Guarded(scripted)


@pytest.fixture
def forwarding(start_gateway: StartGateway, guarded: Guarded) -> LocalGateway:
    return start_gateway(upstream={"forward_token": True})


READS = ["", "?offset=-1", f"?offset={nameless(4)}", "/snapshot/5", "/bootstrap"]


@pytest.mark.parametrize("read", READS)
def test_what_the_origin_refused_is_not_to_be_had_from_the_cache(
    forwarding: LocalGateway, guarded: Guarded, read: str
) -> None:
    part, _, query = f"a{read}".partition("?")
    with forwarding.client(FRIEND) as friend, forwarding.client(STRANGER) as stranger:
        for _ in range(3):
            assert friend("GET", part, query=query).status == 200
            assert stranger("GET", part, query=query).status == 403
    assert set(guarded.seen) == {f"Bearer {FRIEND}", f"Bearer {STRANGER}"}
    assert forwarding.metric("cache_entries") == 0


def test_a_right_that_ends_at_the_origin_ends_at_once(
    forwarding: LocalGateway, guarded: Guarded
) -> None:
    with forwarding.client(FRIEND) as friend:
        assert friend.read("a").body == b"one."
        guarded.welcome.clear()
        assert friend.read("a").status == 403


async def test_a_fetch_is_not_shared_while_it_is_on_its_way(
    forwarding: LocalGateway, guarded: Guarded, scripted: ScriptedOrigin, gather: Gather
) -> None:
    friend, stranger = await gather(forwarding, 2)
    gate = scripted.hold()
    friend.ask("a", token=FRIEND)
    await gate.reached(1)
    stranger.ask("a", token=STRANGER)
    await gate.reached(2)
    scripted.release()
    assert (await friend.answer()).body == b"one."
    assert (await stranger.answer()).status == 403


async def test_live_data_reaches_those_whom_the_origin_lets_in_and_nobody_else(
    forwarding: LocalGateway, guarded: Guarded, gather: Gather
) -> None:
    tail = guarded.stream.tail
    poll, sse, bad_poll, bad_sse, late = await gather(forwarding, 5)
    poll.ask("a", f"offset={tail}&live=long-poll", token=FRIEND)
    sse.ask("a", "offset=-1&live=sse", token=FRIEND)
    await until(lambda: readers(forwarding) == 2)
    bad_poll.ask("a", f"offset={tail}&live=long-poll", token=STRANGER)
    bad_sse.ask("a", "offset=-1&live=sse", token=STRANGER)
    for refused in (bad_poll, bad_sse):
        assert (await refused.answer()).status == 403
    end = guarded.stream.append(b"news")
    assert (await poll.answer()).body == b"news"
    await sse.shown(end)
    assert sse.data == "one.two.tailnews"
    late.ask("a", f"offset={tail}&live=long-poll", token=STRANGER)  # for what a window holds
    assert (await late.answer()).status == 403


async def test_two_readers_with_one_token_share_what_is_theirs(
    forwarding: LocalGateway, guarded: Guarded, gather: Gather
) -> None:
    callers = await gather(forwarding, 5)
    for caller in callers:
        caller.ask("a", f"offset={guarded.stream.tail}&live=long-poll", token=FRIEND)
    await until(lambda: readers(forwarding) == 5 and guarded.stream.waiting == 1)
    guarded.stream.append(b"news")
    for caller in callers:
        assert (await caller.answer()).body == b"news"


async def test_a_purge_reaches_every_hub_of_a_stream(
    forwarding: LocalGateway, guarded: Guarded, gather: Gather
) -> None:
    other = make_token(KEY, sub="other")
    guarded.welcome.add(f"Bearer {other}")
    one, two = await gather(forwarding, 2)
    for caller, token in ((one, FRIEND), (two, other)):
        caller.ask("a", "offset=-1&live=sse", token=token)
    await until(lambda: readers(forwarding) == 2)
    with forwarding.client(FRIEND) as friend:
        assert friend("DELETE", "a").status == 204
    for caller in (one, two):
        await caller.finished()


def test_nothing_goes_to_redis(
    start_gateway: StartGateway, guarded: Guarded, redis: RedisServer
) -> None:
    gateway = start_gateway(upstream={"forward_token": True}, cache={"redis_url": redis.url})
    with gateway.client(FRIEND) as friend:
        for _ in range(2):
            assert friend.read("a").body == b"one."
    assert redis.command("KEYS", "weir:chunk:*") == []


@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("GET", "offset={tail}&live=long-poll"),
        ("GET", "offset=-1&live=sse"),
        ("GET", "offset=now"),
        ("GET", ""),
        ("HEAD", ""),
        ("POST", ""),
        ("DELETE", ""),
    ],
)
async def test_a_stream_that_is_hidden_from_one_goes_on_for_the_others(
    forwarding: LocalGateway, guarded: Guarded, gather: Gather, method: str, query: str
) -> None:
    """The origin's 404 is for the token that it was asked with."""
    guarded.refusal = HIDDEN
    (sse,) = await gather(forwarding, 1)
    sse.ask("a", "offset=-1&live=sse", token=FRIEND)
    await until(lambda: readers(forwarding) == 1)
    purges = purges_told(forwarding)
    forwarding.gateway.holdings.streams.get(
        "a"
    ).incarnation = "0123456789abcdef"  # as our origin tells
    with forwarding.client(STRANGER) as stranger:
        found = stranger(method, "a", query=query.format(tail=guarded.stream.tail))
        assert found.status == 404
    end = guarded.stream.append(b"news")
    await sse.shown(end)
    assert sse.data == "one.two.tailnews"
    assert purges == []
