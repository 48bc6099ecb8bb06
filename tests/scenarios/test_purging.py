"""A stream that is gone or made anew shows nothing of its past, at whichever gateway, by the time
the writer is answered."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.gateway import LocalGateway, TokenClient
from tests.helpers.offsets import nameless, unnamed
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import Response, wait_until
from tests.helpers.scripted_origin import (
    Answer,
    Gate,
    ScriptedOrigin,
    SimpleStream,
    dropped,
    simple_stream,
    until,
)
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import Caller, tokens
from tests.scenarios.watching import overtake, readers, riders

TOKEN = tokens(1)[0]
PATH = "/v1/stream/a"
CHUNK = nameless(4)
HIT = "weir; hit"


def test_a_deleted_stream_is_gone_everywhere_when_its_deleter_is_answered(
    fleet: list[LocalGateway],
) -> None:
    writing, reading = fleet
    with writing.client() as writer, reading.client() as reader:
        for _ in range(20):
            writer.create("a", body=b"one.")
            writer.append("a", b"two.")
            assert reader.read("a").body == b"one."
            assert reader.read("a")["Cache-Status"] == HIT
            assert writer("DELETE", "a").status == 204
            assert reader.read("a").status == 404
            assert reader.read("a", CHUNK).status == 404


def test_a_stream_made_anew_shows_nothing_of_the_old_one(fleet: list[LocalGateway]) -> None:
    """Neither its bytes nor its tags, although both have the same length."""
    writing, reading = fleet
    with writing.client() as writer, reading.client() as reader:
        old = '"none"'
        for number in range(20):
            writer.create("a", body=b"<%02d>" % number)
            writer.append("a", b"more")
            first = reader.read("a", if_none_match=old)
            assert (first.status, first.body) == (200, b"<%02d>" % number)
            assert reader.read("a")["Cache-Status"] == HIT
            old = first["ETag"]
            assert writer("DELETE", "a").status == 204


async def keep_reading(caller: Caller, offset: str, born: list[int]) -> int:
    """No read shows a stream that was replaced before it began; how many showed one."""
    seen = 0
    while born:
        newest = born[-1]
        caller.ask("a", f"offset={offset}", token=TOKEN)
        answer = await caller.answer()
        if answer.status == 200 and answer.body:
            assert int(answer.body) >= newest
            seen += 1
        else:
            assert answer.status in (200, 404)
    return seen


async def test_no_reader_ever_sees_what_was_replaced_before_it_began(
    fleet: list[LocalGateway], gather: Gather
) -> None:
    writing, reading = fleet
    born = [0]
    callers = [*await gather(writing, 6), *await gather(reading, 6)]
    work = [asyncio.create_task(keep_reading(c, "-1", born)) for c in callers[::2]]
    work += [asyncio.create_task(keep_reading(c, CHUNK, born)) for c in callers[1::2]]
    with writing.client() as writer:
        for number in range(60):
            body = b"%04d" % number
            await asyncio.to_thread(writer, "PUT", "a", {"Content-Type": "text/plain"}, body)
            born.append(number)
            await asyncio.to_thread(writer.append, "a", body)
            await asyncio.sleep(0.005)
            assert (await asyncio.to_thread(writer, "DELETE", "a")).status == 204
            born.append(number + 1)
    born.clear()
    assert sum(await asyncio.gather(*work)) > 50


async def test_live_readers_elsewhere_end_with_the_stream(
    fleet: list[LocalGateway], gather: Gather
) -> None:
    writing, reading = fleet
    with writing.client() as writer:
        at = writer.create("a", body=b"one.")
        sse, poll = await gather(reading, 2)
        sse.ask("a", "offset=-1&live=sse", token=TOKEN)
        poll.ask("a", f"offset={at}&live=long-poll", token=TOKEN)
        await until(lambda: readers(reading) == 2)
        assert writer("DELETE", "a").status == 204
        writer.create("a", "application/octet-stream", b"\xff")
    await sse.finished()
    # It is asked for again: there is no stream, or another one.
    assert (await poll.answer()).status in (404, 410)
    assert sse.data == "one."


def test_creating_what_exists_purges_nothing(fleet: list[LocalGateway]) -> None:
    writing, reading = fleet
    with writing.client() as writer, reading.client() as reader:
        writer.create("a", body=b"one.")
        writer.append("a", b"two.")
        reader.read("a")
        again = writer("PUT", "a", {"Content-Type": "text/plain"})
        assert again.status == 200
        assert reader.read("a")["Cache-Status"] == HIT


def test_appends_purge_no_chunks(fleet: list[LocalGateway]) -> None:
    writing, reading = fleet
    with writing.client() as writer, reading.client() as reader:
        writer.create("a", body=b"one.")
        writer.append("a", b"two.")
        reader.read("a")
        reader.read("a", CHUNK)
        writer.append("a", b"more")
        assert reader.read("a")["Cache-Status"] == HIT
        assert reader.read("a", CHUNK).up_to_date is False


# -- without anyone to tell ----------------------------------------------------------------------


def test_a_new_incarnation_seen_at_the_tail_purges_what_was_kept_of_the_old(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    """Two gateways that know nothing of each other."""
    writing, reading = [start_gateway(f"http://127.0.0.1:{real.port}") for _ in range(2)]
    with writing.client() as writer, reading.client() as reader:
        writer.create("a", body=b"old.")
        tail = writer.append("a", b"tail")
        assert reader.read("a").body == b"old."
        writer("DELETE", "a")
        writer.create("a", body=b"new.")
        assert unnamed(writer.append("a", b"tail")) == unnamed(tail)
        assert reader.read("a", unnamed(tail)).status == 200  # which tells of the new one
        assert reader.read("a").body == b"new."


Look = Callable[[TokenClient], Response]
TEXT = {"Content-Type": "text/plain"}
LOOKS: dict[str, Look] = {
    "head": lambda client: client("HEAD", "a"),
    "append": lambda client: client("POST", "a", TEXT, b"more"),
    "create": lambda client: client("PUT", "a", TEXT),
    "now": lambda client: client.read("a", "now"),
    "limited read": lambda client: client("GET", "a", query="offset=-1&max_bytes=2"),
    "bootstrap": lambda client: client("GET", "a/bootstrap"),
    "head of bootstrap": lambda client: client("HEAD", "a/bootstrap"),
    "publication": lambda client: client("PUT", f"a/snapshot/{CHUNK}", TEXT, b"state"),
    "long-poll": lambda client: client("GET", "a", query=f"offset={CHUNK}&live=long-poll"),
}
SHARED = ("bootstrap", "long-poll")


@pytest.mark.parametrize("look", LOOKS)
def test_every_answer_of_a_new_stream_purges_what_was_kept_of_the_old(
    fleet: list[LocalGateway], real: LocalOrigin, look: str
) -> None:
    """Deleted and made anew at the origin itself, so nobody was told. Who has seen the new stream
    sees nothing of the old one, nor does anyone whom this gateway can tell."""
    looking, reading = fleet
    with looking.client() as looker, reading.client() as reader, real.client() as behind:
        behind.create("a", body=b"old.")
        behind.append("a", b"tail")
        for client in (looker, reader):
            assert client.read("a").body == b"old."
            assert client.read("a")["Cache-Status"] == HIT
        assert looker("HEAD", "a").status == 200
        behind("DELETE", "a")
        behind.create("a", body=b"new.")
        behind.append("a", b"tail")
        assert LOOKS[look](looker).status < 500
        if look in SHARED:  # nobody's own: the others are told behind it
            wait_until(lambda: reader.read("a").body != b"old.")
        expected = (410, b"") if look == "publication" else (200, b"new.")
        answer = reader.read("a")
        assert (answer.status, answer.body if answer.status == 200 else b"") == expected


def test_a_404_at_one_offset_purges_all_others(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(f"http://127.0.0.1:{real.port}")
    with gateway.client() as reader, real.client() as behind:
        behind.create("a", body=b"old.")
        behind.append("a", b"tail")
        reader.read("a")
        assert behind("DELETE", "a").status == 204
        assert reader.read("a", CHUNK).status == 404
        assert reader.read("a").status == 404


@pytest.mark.parametrize("status", [404, 410])
def test_a_deletion_that_the_origin_knows_of_already_purges(
    status: int, scripted: ScriptedOrigin, gateway: LocalGateway
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    stream.close()
    with gateway.client() as client:
        client.read("a")
        assert client.read("a")["Cache-Status"] == HIT
        stream.delete()
        scripted.on("DELETE", PATH, Answer(status))
        assert client("DELETE", "a").status == status
        assert client.read("a").status == 404


def test_a_deletion_whose_answer_was_lost_purges_too(
    scripted: ScriptedOrigin, gateway: LocalGateway
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    stream.close()
    with gateway.client() as client:
        client.read("a")
        stream.delete()
        scripted.on("DELETE", PATH, dropped(reset=True))
        assert client("DELETE", "a").status == 502
        assert client.read("a").status == 404


@pytest.mark.parametrize("status", [500, 503])
def test_a_deletion_that_failed_but_may_have_been_done_purges_too(
    status: int, scripted: ScriptedOrigin, gateway: LocalGateway
) -> None:
    """A node of a cluster says 503 `unknown-outcome`."""
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    stream.close()
    with gateway.client() as client:
        client.read("a")
        stream.delete()
        scripted.on("DELETE", PATH, Answer(status))
        assert client("DELETE", "a").status == status
        assert client.read("a").status == 404


@pytest.mark.parametrize(
    ("method", "target"), [("DELETE", "a"), ("PUT", "a"), ("PUT", f"a/snapshot/{CHUNK}")]
)
def test_a_write_that_failed_and_was_not_done_costs_a_purge_and_no_reader(
    method: str, target: str, scripted: ScriptedOrigin, gateway: LocalGateway
) -> None:
    stream = SimpleStream(scripted, PATH, chunk_bytes=4)
    stream.append(b"one.")
    stream.append(b"two.")
    scripted.on(method, f"/v1/stream/{target}", Answer(503, {"Retry-After": "1"}))
    with gateway.client() as client, gateway.events("a") as reader:
        assert reader.next_write()[0].data == "one."
        assert reader.next_write()[0].data == "two."
        wait_until(lambda: stream.waiting == 1)
        assert client.read("a")["Cache-Status"] == HIT
        assert client(method, target, {"Content-Type": "text/plain"}, b"").status == 503
        assert client.read("a")["Cache-Status"] != HIT
        assert client.read("a")["Cache-Status"] == HIT
        stream.append(b"more")
        assert reader.next_write()[0].data == "more"
    assert gateway.gateway.holdings.streams.get("a").earliest == ""


# -- fetches under way ---------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "redis"])
async def test_a_fetch_of_the_old_stream_is_not_kept(
    shared: bool,
    scripted: ScriptedOrigin,
    start_gateway: StartGateway,
    gather: Gather,
    request: pytest.FixtureRequest,
) -> None:
    """It was decided before the stream was deleted, and comes back after it was made anew."""
    cache = {"redis_url": request.getfixturevalue("redis").url} if shared else {}
    stream = SimpleStream(scripted, PATH, chunk_bytes=4)
    for body in (b"old.", b"tail"):
        stream.append(body)
    script = overtake(scripted, stream, PATH)
    one, two = [start_gateway(cache=cache) for _ in range(2)]
    early, writer, late = await gather(one, 3)
    [elsewhere] = await gather(two)
    early.ask("a", "offset=-1", token=TOKEN)
    await script.gate.reached()
    for method in ("DELETE", "PUT"):
        writer.ask("a", method=method, token=TOKEN, Content_Type="text/plain")
        assert (await writer.answer()).status in (201, 204)
    stream.append(b"new.")
    stream.append(b"tail")
    held, script.gate = script.gate, Gate()
    script.gate.open()
    late.ask("a", "offset=-1", token=TOKEN)
    assert (await late.answer()).body == b"new."
    held.open()
    assert (await early.answer()).body == b"old."
    await until(lambda: riders(one) == 0)
    for caller in (late, elsewhere):
        caller.ask("a", "offset=-1", token=TOKEN)
        assert (await caller.answer()).body == b"new."


async def test_a_slow_answer_of_an_old_incarnation_does_not_bring_it_back(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    """Nobody told this gateway of the new stream; it learns of it while an old answer is held."""

    def chunk(incarnation: str, offset: int, body: bytes, tail: bool = False) -> Answer:
        headers = {"Content-Type": "text/plain", "Cache-Control": "public, max-age=60, immutable"}
        headers |= {"Stream-Next-Offset": nameless(offset + len(body))}
        headers |= {"ETag": f'"{incarnation}:{offset}:{offset + len(body)}"'}
        if tail:
            headers |= {"Stream-Up-To-Date": "true"}
        return Answer(200, headers, body)

    old, new = "0" * 15 + "1", "0" * 15 + "2"
    gate = scripted.hold()
    scripted.on("GET", PATH, [chunk(new, 4, b"tail", tail=True), chunk(old, 0, b"old.")])
    slow, quick = await gather(gateway, 2)
    slow.ask("a", "offset=-1", token=TOKEN)
    await gate.reached()
    scripted._gate = None  # the next one is not held
    quick.ask("a", f"offset={CHUNK}", token=TOKEN)
    assert (await quick.answer()).body == b"tail"
    gate.open()
    assert (await slow.answer()).body == b"old."
    scripted.on("GET", PATH, chunk(new, 0, b"new."))
    quick.ask("a", "offset=-1", token=TOKEN)
    assert (await quick.answer()).body == b"new."


async def test_a_leader_who_leaves_with_the_deletion_leaves_nothing_behind(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"old.")
    script = overtake(scripted, stream, PATH)
    leaver, writer = await gather(gateway, 2)
    leaver.ask("a", "offset=-1", token=TOKEN)
    await script.gate.reached()
    writer.ask("a", method="DELETE", token=TOKEN)
    await writer.answer()
    leaver.close(reset=True)
    await until(lambda: scripted.abandoned == 1)
    assert gateway.metric("flights") == 0 and gateway.metric("cache_entries") == 0


# -- writers who leave ---------------------------------------------------------------------------


async def test_a_deletion_is_carried_through_when_its_client_leaves(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    stream.close()
    reader, writer = await gather(gateway, 2)
    reader.ask("a", "offset=-1", token=TOKEN)
    assert (await reader.answer()).body == b"one."
    gate = scripted.hold()
    writer.ask("a", method="DELETE", token=TOKEN)
    await gate.reached()
    writer.close(reset=True)
    await writer.gone
    scripted.release()
    await until(lambda: gateway.metric("cache_entries") == 0)
    reader.ask("a", "offset=-1", token=TOKEN)
    assert (await reader.answer()).status == 404


# -- caches in front -----------------------------------------------------------------------------


def test_the_purge_hook_is_called_when_a_stream_goes_or_comes(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    with ScriptedOrigin() as cdn:
        cdn.on("*", "/*", [Answer(500), Answer(200)])
        hook = {
            "purge_url": f"{cdn.url}/purge?tag={{tag}}",
            "purge_header": ("X-Key: secret",),
            "purge_body": '{"path":"{path}"}',
        }
        gateway = start_gateway(f"http://127.0.0.1:{real.port}", cdn=hook)
        with gateway.client() as client:
            client.create("a/b", body=b"one.")
            wait_until(lambda: cdn.count() == 2)  # with a second try
            client.append("a/b", b"two.")
            assert client("PUT", "a/b", {"Content-Type": "text/plain"}).status == 200
            assert client("DELETE", "a/b").status == 204
            wait_until(lambda: cdn.count() == 3)
        gateway.stop()
        assert cdn.count() == 3
        for request in cdn.requests:
            assert (request.method, request.target) == ("POST", "/purge?tag=weir-a~2Fb")
            assert request.body == b'{"path":"/v1/stream/a/b"}'
            assert request.headers["x-key"] == "secret"


def test_a_cdn_that_is_away_holds_up_no_writer(
    real: LocalOrigin, start_gateway: StartGateway
) -> None:
    with ScriptedOrigin() as cdn:
        url = f"{cdn.url}/purge"
        gate = cdn.hold()
        gateway = start_gateway(f"http://127.0.0.1:{real.port}", cdn={"purge_url": url})
        with gateway.client() as client:
            client.create("a")
            assert client("DELETE", "a").status == 204
        wait_until(lambda: gate.waiting > 0)
        cdn.on("*", "/*", Answer(200))
        cdn.release()


# -- workers -------------------------------------------------------------------------------------


async def test_a_worker_that_died_holds_up_no_writer(
    real: LocalOrigin, start_gateway: StartGateway, tmp_path: Path
) -> None:
    serving = {"workers": 2}
    url = f"http://127.0.0.1:{real.port}"
    staying = start_gateway(url, worker=0, run_dir=tmp_path, gateway=serving)
    leaving = start_gateway(url, worker=1, run_dir=tmp_path, gateway=serving)
    leaving.stop()
    (tmp_path / "worker-1.sock").touch()  # as a killed one leaves it
    with staying.client() as client:
        client.create("a")
        async with asyncio.timeout(20):
            assert (await asyncio.to_thread(client, "DELETE", "a")).status == 204
