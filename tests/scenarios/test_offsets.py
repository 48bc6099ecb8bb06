"""Offsets of other streams through the gateway: refused, without harm to anybody else. And offsets
that name the stream meet those that do not."""

import asyncio

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import LocalGateway
from tests.helpers.offsets import unnamed
from tests.helpers.origin import LocalOrigin
from tests.helpers.scripted_origin import until
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import Caller, tokens
from tests.scenarios.watching import readers

TOKEN = tokens(1)[0]
POLL = "&live=long-poll"
SSE = "&live=sse"


@pytest.fixture
def real(start_origin: StartOrigin) -> LocalOrigin:
    return start_origin(storage={"chunk_bytes": 4})


@pytest.fixture
def front(real: LocalOrigin, start_gateway: StartGateway) -> LocalGateway:
    return start_gateway(f"http://127.0.0.1:{real.port}")


async def ask(caller: Caller, query: str, name: str = "a") -> tuple[int, str]:
    caller.ask(name, query, token=TOKEN)
    answer = await caller.answer()
    return answer.status, answer.json()["code"] if answer.status >= 400 else ""


# -- streams made anew -----------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["", POLL, SSE])
@pytest.mark.parametrize("at_the_origin", [False, True], ids=["purged", "behind its back"])
async def test_an_offset_of_a_deleted_stream_reads_nothing_of_the_one_made_anew(
    front: LocalGateway, real: LocalOrigin, gather: Gather, live: str, at_the_origin: bool
) -> None:
    """Whether the gateway saw it being replaced or not, and whatever it has stored."""
    with front.client() as reader, (real if at_the_origin else front).client() as writer:
        middle = reader.create("a", body=b"old.")
        tail = reader.append("a", b"old!")
        writer("DELETE", "a")
        writer.create("a", body=b"new.")
        writer.append("a", b"new!")
        assert reader.read("a").body == b"new."
        (caller,) = await gather(front)
        for offset in (middle, tail):
            for _ in range(2):
                refused = await ask(caller, f"offset={offset}{live}")
                assert refused == (410, "foreign-offset")
        assert reader.read("a", unnamed(middle)).body == b"new!"  # the control


async def test_it_harms_neither_the_readers_nor_the_cache_of_the_one_that_is_there(
    front: LocalGateway, gather: Gather
) -> None:
    with front.client() as client:
        foreign = client.create("other", body=b"old.")
        client.create("a", body=b"one.")
        tail = client.append("a", b"two.")
        client.read("a")
        sse, poll, stranger = await gather(front, 3)
        sse.ask("a", f"offset=-1{SSE}", token=TOKEN)
        await sse.shown(tail)
        poll.ask("a", f"offset={tail}{POLL}", token=TOKEN)
        await until(lambda: readers(front) == 2)
        for live in ("", POLL, SSE):
            assert await ask(stranger, f"offset={foreign}{live}") == (410, "foreign-offset")
        assert client.read("a")["Cache-Status"] == "weir; hit"
        tail = client.append("a", b"end.")
        await sse.shown(tail)
        assert (await poll.answer()).body == b"end."


async def test_a_hub_that_began_with_it_serves_the_next_reader(
    front: LocalGateway, gather: Gather
) -> None:
    with front.client() as client:
        foreign = client.create("other", body=b"old.")
        tail = client.create("a", body=b"one.")
        stranger, poll = await gather(front, 2)
        stranger.ask("a", f"offset={foreign}{POLL}", token=TOKEN)
        poll.ask("a", f"offset={tail}{POLL}", token=TOKEN)
        assert (await stranger.answer()).status == 410
        await until(lambda: readers(front) == 1)
        client.append("a", b"two.")
        assert (await poll.answer()).body == b"two."


# -- several names for one place -------------------------------------------------------------------


async def all_get(front: LocalGateway, callers: list[Caller], asked: list[str], name: str) -> None:
    """Long-polls at the tail, one after the other, each of which gets what comes."""
    for number, (caller, offset) in enumerate(zip(callers, asked, strict=True)):
        caller.ask(name, f"offset={offset}{POLL}", token=TOKEN)
        await until(lambda count=number + 1: readers(front) == count)  # type: ignore[misc]
    with front.client() as client:
        tail = client.append(name, b"news")
    for caller in callers:
        answer = await caller.answer()
        assert (answer.status, answer.body, answer.next_offset) == (200, b"news", tail)


@pytest.mark.parametrize("named_first", [True, False])
async def test_readers_with_offsets_of_before_wait_with_the_others(
    front: LocalGateway, gather: Gather, named_first: bool
) -> None:
    with front.client() as client:
        tail = client.create("a", body=b"one.")
    asked = [tail, unnamed(tail), tail, unnamed(tail)]
    await all_get(front, await gather(front, 4), asked if named_first else asked[::-1], "a")


@pytest.mark.parametrize("own_first", [True, False])
async def test_readers_with_offsets_of_the_source_wait_with_the_others_of_a_fork(
    front: LocalGateway, gather: Gather, own_first: bool
) -> None:
    with front.client() as client:
        at = client.create("source", body=b"one.")
        for number in range(6):  # which of the two sorts first is chance
            name = f"fork-{number}"
            own = client("PUT", name, {"Stream-Forked-From": "/v1/stream/source"}).next_offset
            asked = [own, at, unnamed(own), own, at]
            await all_get(front, await gather(front, 5), asked if own_first else asked[::-1], name)
            await until(lambda: readers(front) == 0)


@pytest.mark.parametrize("start_first", [True, False])
async def test_readers_from_the_start_of_an_empty_stream_wait_with_the_others(
    front: LocalGateway, gather: Gather, start_first: bool
) -> None:
    with front.client() as client:
        tail = client.create("a")
    asked = ["-1", tail, unnamed(tail), "-1", tail]
    await all_get(
        front, await gather(front, 5), asked if start_first else asked[1:3] * 2 + ["-1"], "a"
    )


async def test_event_streams_from_offsets_of_before_ride_with_the_others(
    front: LocalGateway, gather: Gather
) -> None:
    with front.client() as client:
        tail = client.create("a", body=b"one.")
        callers = await gather(front, 4)
        for caller, offset in zip(callers, [tail, unnamed(tail)] * 2, strict=True):
            caller.ask("a", f"offset={offset}{SSE}", token=TOKEN)
        await asyncio.gather(*(caller.caught_up() for caller in callers))
        await until(lambda: readers(front) == 4)
        tail = client.append("a", b"two.")
    await asyncio.gather(*(caller.shown(tail) for caller in callers))
    assert {caller.data for caller in callers} == {"two."}


def test_a_snapshot_replaces_chunks_whatever_their_offset_is_called(front: LocalGateway) -> None:
    with front.client() as client:
        first = client.create("source", body=b"one.")
        second = client.append("source", b"two.")
        client.append("source", b"end.")
        for number in range(6):  # which of the two sorts first is chance
            name = f"fork-{number}"
            tail = client("PUT", name, {"Stream-Forked-From": "/v1/stream/source"}).next_offset
            for offset in (first, unnamed(first)):
                assert client.read(name, offset).body == b"two."
                assert client.read(name, offset)["Cache-Status"] == "weir; hit"
            own = tail[:17] + second[17:]
            assert client("PUT", f"{name}/snapshot/{own}", body=b"all").status == 204
            for offset in (first, unnamed(first)):
                assert client.read(name, offset).status == 410
            assert client.read(name, second).body == client.read(name, own).body == b"end."


async def test_an_event_stream_that_ends_within_a_character_tells_where_to_go_on(
    front: LocalGateway, gather: Gather
) -> None:
    with front.client() as client:
        tail = client.create("a", body="ü".encode()[:1])
        callers = await gather(front, 2)
        callers[0].ask("a", f"offset=-1{SSE}", token=TOKEN)
        await callers[0].caught_up()
        client.append("a", "ü".encode()[1:] + "ö".encode()[:1])
        told = tail[:17] + f"{2:016}"
        await callers[0].shown(told)
        tail = client.append("a", "ö".encode()[1:])
        await callers[0].shown(tail)
        callers[1].ask("a", f"offset={told}{SSE}", token=TOKEN)
        await callers[1].shown(tail)
    assert [caller.data for caller in callers] == ["üö", "ö"]
