"""Buckets, snapshots and bootstraps without sockets: what is kept, what a publication replaces, and
whom it does not concern."""

import pytest

from gateway.asking import TooLarge, UpstreamError
from gateway.calls import Call
from tests.helpers.offsets import nameless
from tests.helpers.parts import (
    INCARNATION,
    Asked,
    Asking,
    DictShared,
    MakeParts,
    Parts,
    chunk,
    quiet,
    soon,
)

AT = nameless
SNAPSHOT = f"a/snapshot/{AT(5)}"
BOUNDARY = "multipart/mixed; boundary=b1"
REVALIDATE = "public, max-age=0, must-revalidate"


def snapshot(
    position: int, *, tail: bool = False, blob: int = 1, kind: str = "text/plain"
) -> dict[str, str]:
    """Headers of a snapshot as our own origin sends them."""
    told = {
        "etag": f'"{INCARNATION}:s{blob:016x}{":t" if tail else ""}"',
        "stream-snapshot-offset": AT(position),
        "stream-up-to-date": "true" if tail else "false",
    }
    return chunk(position, position, tail=tail, kind=kind) | told


def bootstrap(
    begin: str, end: int, *, boundary: str = "b1", closed: bool = False
) -> dict[str, str]:
    mark = ":c" if closed else ""
    told = {
        "content-type": f"multipart/mixed; boundary={boundary}",
        "stream-snapshot-offset": begin,
        "stream-next-offset": AT(end),
        "stream-up-to-date": "true",
        "etag": f'W/"{INCARNATION}:b0000000000000001:{end}{mark}"',
        "cache-control": REVALIDATE,
    }
    return told | ({"stream-closed": "true"} if closed else {})


def gone(earliest: int) -> dict[str, str]:
    return {"stream-earliest-offset": AT(earliest), "content-type": "application/problem+json"}


async def publish(parts: Parts, position: int, status: int = 204) -> Asking:
    asking = parts.ask(
        f"a/snapshot/{AT(position)}", "PUT", {"content-type": "text/plain"}, b"state"
    )
    told = {"stream-snapshot-offset": AT(position)} if status == 204 else {}
    (await parts.upstream.next("PUT")).answer(status, told)
    await asking.exchange.answered()
    return asking


async def follow(parts: Parts, position: int) -> tuple[Asking, Asked]:
    """A long-poll that waits at the hub, and the hub's."""
    asking = parts.ask(f"a?offset={AT(position)}&live=long-poll")
    asked = await parts.upstream.next()
    assert asked.live
    return asking, asked


# -- snapshots -----------------------------------------------------------------------------------


async def test_a_snapshot_is_asked_for_once_and_comes_as_the_origin_gave_it(parts: Parts) -> None:
    first = await parts.fill(SNAPSHOT, snapshot(5, kind="image/png"), b"state")
    again = parts.ask(SNAPSHOT).response
    assert (again.body, again["Cache-Status"]) == (b"state", "weir; hit")
    for answer in (first, again):
        assert (answer["Content-Type"], answer.next_offset) == ("image/png", AT(5))
        assert answer["Stream-Snapshot-Offset"] == AT(5)
        assert answer["Stream-Up-To-Date"] == "false"
        assert "immutable" in answer["Cache-Control"]
    assert len(parts.upstream.asked) == 1
    assert parts.log.records[-1].mode == "snapshot"
    assert parts.log.records[-1].offset == AT(5)


async def test_a_snapshot_at_the_tail_is_served_only_on_the_origins_word(parts: Parts) -> None:
    await parts.fill(SNAPSHOT, snapshot(5, tail=True), b"state")
    again = parts.ask(SNAPSHOT)
    asked = await parts.upstream.next()
    assert asked.request.headers["if-none-match"] == f'"{INCARNATION}:s0000000000000001:t"'
    asked.answer(200, snapshot(5), b"state")
    answer = await again.exchange.answered()
    assert (answer["Stream-Up-To-Date"], answer.body) == ("false", b"state")
    assert parts.ask(SNAPSHOT).response["Cache-Status"] == "weir; hit"


async def test_a_snapshot_and_a_chunk_at_one_offset_are_two(parts: Parts) -> None:
    await parts.fill(SNAPSHOT, snapshot(5), b"state")
    await parts.fill(f"a?offset={AT(5)}", chunk(5, 9), b"data")
    assert parts.ask(SNAPSHOT).response.body == b"state"
    assert parts.ask(f"a?offset={AT(5)}").response.body == b"data"


async def test_a_reader_who_has_a_snapshot_gets_304(parts: Parts) -> None:
    etag = (await parts.fill(SNAPSHOT, snapshot(5), b"state"))["ETag"]
    answer = parts.ask(SNAPSHOT, headers={"if-none-match": etag}).response
    assert (answer.status, answer["Stream-Snapshot-Offset"]) == (304, AT(5))


async def test_a_snapshot_is_compressed_as_chunks_are(parts: Parts) -> None:
    await parts.fill(SNAPSHOT, snapshot(5), b"state " * 1000)
    asking = parts.ask(SNAPSHOT, headers={"accept-encoding": "gzip"})
    answer = await asking.exchange.answered()
    assert answer["Content-Encoding"] == "gzip" and len(answer.body) < 1000


async def test_snapshots_are_shared_through_the_second_level(make: MakeParts) -> None:
    shared = DictShared()
    one, other = make(shared), make(shared)
    await one.fill(SNAPSHOT, snapshot(5), b"state")
    asking = other.ask(SNAPSHOT)
    (await other.upstream.next("GET")).answer(304, snapshot(5))  # it still holds
    answer = await asking.exchange.answered()
    assert (answer.body, answer["Stream-Snapshot-Offset"]) == (b"state", AT(5))


async def test_a_snapshot_that_is_not_there_says_nothing_of_its_stream(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    waiting, _ = await follow(parts, 9)
    for rest in ("/snapshot", f"/snapshot/{AT(5)}", "/bootstrap"):
        answer = await parts.fill("a" + rest, {"content-type": "text/plain"}, b"", 404)
        assert answer.status == 404
    assert parts.ask("a").response["Cache-Status"] == "weir; hit"
    assert not waiting.exchange.finished


async def test_the_latest_snapshot_is_a_redirect_that_nobody_keeps(parts: Parts) -> None:
    location = f"http://10.0.0.1:4437/v1/stream/{SNAPSHOT}"
    told = {"location": f"/v1/stream/{SNAPSHOT}", "cache-control": "public, max-age=60"}
    for _ in range(2):
        answer = await parts.fill("a/snapshot", told, b"", 307)
        assert (answer.status, answer["Cache-Control"]) == (307, "no-store")
        assert answer["Location"] == location.replace("10.0.0.1:4437", "weir.test")
    assert [asked.target for asked in parts.upstream.asked] == ["/v1/stream/a/snapshot"] * 2


# -- bootstraps ----------------------------------------------------------------------------------


async def test_a_bootstrap_is_confirmed_each_time_and_kept_with_its_boundary(parts: Parts) -> None:
    await parts.fill("a/bootstrap", bootstrap("-1", 5), b"--b1 ...")
    for _ in range(2):
        again = parts.ask("a/bootstrap", headers={"accept-encoding": "gzip"})
        asked = await parts.upstream.next()
        assert asked.request.headers["if-none-match"] == bootstrap("-1", 5)["etag"]
        asked.answer(304, bootstrap("-1", 5, boundary="another"))
        answer = await again.exchange.answered()
        assert (answer.body, answer["Content-Type"]) == (b"--b1 ...", BOUNDARY)
        assert answer["Stream-Snapshot-Offset"] == "-1" and answer.up_to_date
        assert "Content-Encoding" not in answer


async def test_a_bootstrap_has_the_same_tag_at_every_gateway(make: MakeParts) -> None:
    etag = bootstrap("-1", 5)["etag"]
    for boundary in ("b1", "b2"):
        parts = make()
        told = bootstrap("-1", 5, boundary=boundary)
        assert (await parts.fill("a/bootstrap", told, b"--" + boundary.encode()))["ETag"] == etag
        again = parts.ask("a/bootstrap", headers={"if-none-match": etag})
        (await parts.upstream.next()).answer(304, told)
        assert (await again.exchange.answered()).status == 304


async def test_a_bootstrap_of_an_origin_without_incarnations_is_told_by_its_bytes(
    parts: Parts,
) -> None:
    told = bootstrap("-1", 5) | {"etag": 'W/"5"'}
    assert (await parts.fill("a/bootstrap", told, b"one"))["ETag"] != 'W/"5"'


async def test_a_bootstrap_is_never_compressed(parts: Parts) -> None:
    asking = parts.ask("a/bootstrap", headers={"accept-encoding": "gzip, zstd"})
    (await parts.upstream.next()).answer(200, bootstrap("-1", 5), b"text " * 5000)
    answer = await asking.exchange.answered()
    assert "Content-Encoding" not in answer and len(answer.body) == 25_000


async def test_the_bootstrap_of_a_closed_stream_may_still_change(parts: Parts) -> None:
    """Whatever its origin says: a snapshot can be published at any time."""
    told = bootstrap("-1", 5, closed=True) | {"cache-control": "public, max-age=600, immutable"}
    await parts.fill("a/bootstrap", told, b"--b1")
    answer = await parts.fill("a/bootstrap", told, b"--b2")
    assert answer.body == b"--b2" and "must-revalidate" in answer["Cache-Control"]


async def test_bootstraps_stay_out_of_the_second_level(make: MakeParts) -> None:
    shared = DictShared()
    await make(shared).fill("a/bootstrap", bootstrap("-1", 5, closed=True), b"--b1")
    assert shared.values == {} and shared.generations == {}, "it is not even asked"


async def test_who_comes_while_a_bootstrap_is_fetched_shares_the_next_one(parts: Parts) -> None:
    first = parts.ask("a/bootstrap")
    early = await parts.upstream.next()
    late = [parts.ask("a/bootstrap") for _ in range(10)]
    early.answer(200, bootstrap("-1", 5), b"old")
    assert (await first.exchange.answered()).body == b"old"
    (await parts.upstream.next()).answer(200, bootstrap("-1", 9, boundary="b2"), b"new")
    assert {(await one.exchange.answered()).body for one in late} == {b"new"}
    assert len(parts.upstream.asked) == 2


async def test_a_bootstrap_that_a_snapshot_made_smaller_is_kept_again(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although one from before, still on its way, turns out to be too large."""
    passed: list[Call] = []

    async def stream(call: Call) -> None:
        passed.append(call)

    monkeypatch.setattr(parts.passes, "stream", stream)
    large = parts.ask("a/bootstrap")
    asked = await parts.upstream.next()
    await publish(parts, 5)
    asked.fail(TooLarge())
    await soon(lambda: passed == [large.call])
    await parts.fill("a/bootstrap", bootstrap(AT(5), 5), b"--b1")
    assert len(parts.store) == 1


# -- publishing ----------------------------------------------------------------------------------


async def test_a_publication_purges_what_it_replaces_and_nothing_else(parts: Parts) -> None:
    old = f"a/snapshot/{AT(3)}"
    await parts.fill("a", chunk(0, 3), b"abc")
    await parts.fill(f"a?offset={AT(3)}", chunk(3, 7), b"defg")
    await parts.fill(f"a?offset={AT(5)}", chunk(5, 7), b"fg")
    await parts.fill("b", chunk(0, 3), b"abc")
    await parts.fill(old, snapshot(3), b"old")
    assert (await publish(parts, 5)).response.status == 204
    for target in ("a", f"a?offset={AT(3)}"):
        assert (await parts.fill(target, gone(5), b"", 410)).status == 410
    assert (await parts.fill(old, {}, b"", 404)).status == 404
    for target in (f"a?offset={AT(5)}", "b"):
        assert parts.ask(target).response["Cache-Status"] == "weir; hit"


async def test_a_snapshot_published_twice_at_one_offset_is_the_later_one(parts: Parts) -> None:
    await parts.fill(SNAPSHOT, snapshot(5), b"one")
    await publish(parts, 5)
    assert (await parts.fill(SNAPSHOT, snapshot(5, blob=2), b"two")).body == b"two"


async def test_a_publication_is_nothing_to_who_waits_at_the_tail(parts: Parts) -> None:
    poll, ask = await follow(parts, 9)
    await publish(parts, 9)
    await quiet()
    assert not poll.exchange.finished and not ask.future.done()
    ask.answer(200, chunk(9, 12, tail=True), b"new")
    assert (await poll.exchange.answered()).body == b"new"


async def test_a_hub_forgets_what_a_snapshot_replaced(parts: Parts) -> None:
    """Its window would answer a long-poll from before."""
    for start, body in ((5, b"data"), (9, b"new")):
        poll, ask = await follow(parts, start)
        ask.answer(200, chunk(start, start + len(body), tail=True), body)
        await poll.exchange.answered()
    assert parts.ask(f"a?offset={AT(5)}&live=long-poll").response.body == b"data"
    waiting, _ = await follow(parts, 12)
    await publish(parts, 9)
    late = parts.ask(f"a?offset={AT(5)}&live=long-poll")
    (await parts.upstream.next()).answer(410, gone(9))
    answer = await late.exchange.answered()
    assert (answer.status, answer["Stream-Earliest-Offset"]) == (410, AT(9))
    assert not waiting.exchange.finished


async def test_a_hub_keeps_nothing_that_was_overtaken_by_a_snapshot(parts: Parts) -> None:
    """Who waited for it gets it; who comes later is too late."""
    poll, ask = await follow(parts, 5)
    await publish(parts, 9)
    ask.answer(200, chunk(5, 9, tail=True), b"data")
    assert (await poll.exchange.answered()).body == b"data"
    late = parts.ask(f"a?offset={AT(5)}&live=long-poll")
    asked = await parts.upstream.next()
    asked.answer(410, gone(9))
    assert (await late.exchange.answered()).status == 410


async def test_an_event_stream_that_replays_what_was_replaced_ends_cleanly(parts: Parts) -> None:
    reader = parts.ask("a?offset=-1&live=sse")
    (await parts.upstream.next()).answer(200, chunk(0, 3), b"abc")
    asked = await parts.upstream.next()
    await publish(parts, 5)
    asked.answer(410, gone(5))
    await soon(lambda: reader.exchange.finished > 0)
    assert reader.exchange.data.endswith(b"0\r\n\r\n") and not reader.exchange.aborted
    assert parts.log.records[-1].ended == "trimmed"


async def test_a_fetch_from_before_a_publication_is_not_kept(parts: Parts) -> None:
    slow = parts.ask("a")
    asked = await parts.upstream.next()
    await publish(parts, 5)
    asked.answer(200, chunk(0, 3), b"abc")
    assert (await slow.exchange.answered()).body == b"abc"
    assert (await parts.fill("a", gone(5), b"", 410)).status == 410


@pytest.mark.parametrize("status", [400, 404, 409, 413])
async def test_a_publication_that_failed_purges_nothing(parts: Parts, status: int) -> None:
    await parts.fill("a", chunk(0, 3), b"abc")
    await parts.fill(SNAPSHOT, snapshot(5), b"state")
    assert (await publish(parts, 7, status)).response.status == status
    for target in ("a", SNAPSHOT):
        assert parts.ask(target).response["Cache-Status"] == "weir; hit"


async def test_a_publication_whose_answer_was_lost_purges_too(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 3), b"abc")
    asking = parts.ask(SNAPSHOT, "PUT", {}, b"state")
    lost = UpstreamError(504, "origin-timeout", "slow", sent=True)
    (await parts.upstream.next()).fail(lost)
    assert (await asking.exchange.answered()).status == 504
    assert (await parts.fill("a", gone(5), b"", 410)).status == 410


async def test_a_publication_empties_the_second_level(make: MakeParts) -> None:
    shared = DictShared()
    one, other = make(shared), make(shared)
    await one.fill("a", chunk(0, 3), b"abc")
    await publish(one, 5)
    assert (await other.fill("a", gone(5), b"", 410)).status == 410


@pytest.mark.parametrize(("status", "purges"), [(204, True), (404, False), (409, False)])
async def test_a_snapshot_goes_when_its_origin_lets_it(
    parts: Parts, status: int, purges: bool
) -> None:
    await parts.fill(SNAPSHOT, snapshot(5), b"state")
    asking = parts.ask(SNAPSHOT, "DELETE")
    (await parts.upstream.next()).answer(status)
    assert (await asking.exchange.answered()).status == status
    assert (parts.cache.fresh("a", f"/snapshot/{AT(5)}") is None) is purges
    assert parts.log.records[-1].mode == "withdraw"


# -- offsets that are gone -----------------------------------------------------------------------


@pytest.mark.parametrize("offset", ["-1", AT(3)])
async def test_an_offset_that_is_gone_is_not_its_stream(parts: Parts, offset: str) -> None:
    await parts.fill(f"a?offset={AT(5)}", chunk(5, 9), b"data")
    waiting, _ = await follow(parts, 9)
    answer = await parts.fill(f"a?offset={offset}", gone(5), b"", 410)
    assert (answer.status, answer["Stream-Earliest-Offset"]) == (410, AT(5))
    assert parts.ask(f"a?offset={AT(5)}").response["Cache-Status"] == "weir; hit"
    assert not waiting.exchange.finished


async def test_a_snapshot_that_nobody_told_us_of_shows_in_the_first_410(make: MakeParts) -> None:
    """What is stored from before it goes, in both levels, and only once."""
    shared = DictShared()
    parts = make(shared)
    await parts.fill("a", chunk(0, 3), b"abc")
    for _ in range(3):
        await parts.fill(f"a?offset={AT(3)}", gone(5), b"", 410)
        await quiet()
    assert shared.generations["a"] == 2
    assert (await parts.fill("a", gone(5), b"", 410)).status == 410


async def test_a_head_that_tells_of_a_snapshot_is_believed(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 3), b"abc")
    asking = parts.ask("a", "HEAD")
    told = chunk(9, 9) | {"stream-earliest-offset": AT(5), "stream-snapshot-offset": AT(5)}
    (await parts.upstream.next()).answer(200, told)
    assert (await asking.exchange.answered())["Stream-Snapshot-Offset"] == AT(5)
    assert parts.cache.fresh("a", "-1") is None


async def test_long_polls_below_the_snapshot_get_the_410(parts: Parts) -> None:
    await parts.fill(f"a?offset={AT(5)}", chunk(5, 9), b"data")
    one, other = [parts.ask(f"a?offset={AT(3)}&live=long-poll") for _ in range(2)]
    (await parts.upstream.next()).answer(410, gone(5))
    for asking in (one, other):
        answer = await asking.exchange.answered()
        assert (answer.status, answer["Stream-Earliest-Offset"]) == (410, AT(5))
    assert len(parts.upstream.asked) == 2
    assert parts.ask(f"a?offset={AT(5)}").response["Cache-Status"] == "weir; hit"


async def test_an_event_stream_below_the_snapshot_gets_the_410(parts: Parts) -> None:
    asking = parts.ask("a?offset=-1&live=sse")
    (await parts.upstream.next()).answer(410, gone(5))
    assert (await asking.exchange.answered()).status == 410


async def test_a_410_without_an_earliest_offset_is_the_end_of_the_stream(parts: Parts) -> None:
    await parts.fill(f"a?offset={AT(5)}", chunk(5, 9), b"data")
    await parts.fill("a", {"content-type": "text/plain"}, b"", 410)
    assert parts.cache.fresh("a", AT(5)) is None


# -- reads with a limit --------------------------------------------------------------------------


async def test_a_limited_read_passes_with_its_condition_and_is_not_kept(parts: Parts) -> None:
    target, etag = f"a?offset={AT(5)}&max_bytes=4", f'"{INCARNATION}:5:9"'
    answer = await parts.fill(target, chunk(5, 9), b"data")
    assert (answer.body, answer["ETag"], answer["Cache-Status"]) == (
        b"data",
        etag,
        "weir; fwd=bypass",
    )
    again = parts.ask(target, headers={"if-none-match": etag})
    asked = await parts.upstream.next()
    assert asked.target == f"/v1/stream/{target}"
    assert asked.request.headers["if-none-match"] == etag
    asked.answer(304, chunk(5, 9))
    assert (await again.exchange.answered()).status == 304
    assert len(parts.store) == 0


async def test_what_passes_carries_the_tag_by_which_a_cdn_finds_it(make: MakeParts) -> None:
    parts = make(cdn={"tag_header": "Surrogate-Key"})
    answer = await parts.fill("a?max_bytes=4", chunk(0, 4), b"much")
    assert answer["Surrogate-Key"] == "weir-a"
    assert "Surrogate-Key" not in await parts.fill("/ds/buck/streams", {}, b"{}")


async def test_a_stored_chunk_answers_no_limited_read(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 9), b"much data")
    assert (await parts.fill("a?max_bytes=4", chunk(0, 4), b"much")).body == b"much"


async def test_a_limited_long_poll_waits_with_the_others(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes to the origin by itself only for data that is more than it wants."""
    passed: list[tuple[object, str]] = []

    async def stream(call: object, offset: str) -> None:
        passed.append((call, offset))

    monkeypatch.setattr(parts.passes, "stream", stream)
    polls = [parts.ask(f"a?offset={AT(5)}&live=long-poll{more}") for more in ("", "&max_bytes=4")]
    small = parts.ask(f"a?offset={AT(5)}&live=long-poll&max_bytes=3")
    (await parts.upstream.next()).answer(200, chunk(5, 9, tail=True), b"data")
    assert [(await poll.exchange.answered()).body for poll in polls] == [b"data"] * 2
    await soon(lambda: passed == [(small.call, AT(5))])
    assert not small.exchange.finished
    late = parts.ask(f"a?offset={AT(5)}&live=long-poll&max_bytes=3")  # finds it in the window
    await soon(lambda: passed[1:] == [(late.call, AT(5))])
    assert len(parts.upstream.asked) == 1


# -- buckets, conditions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "status", "mode"),
    [
        ("PUT", "/ds/buck", 201, "bucket"),
        ("PUT", "/ds/buck", 409, "bucket"),
        ("GET", "/ds/buck", 200, "bucket"),
        ("HEAD", "/ds/buck", 404, "bucket"),
        ("DELETE", "/ds/buck", 204, "bucket"),
        ("DELETE", "/ds/buck", 404, "bucket"),
        ("DELETE", "/ds/buck", 409, "bucket"),
        ("GET", "/ds/buck/streams", 200, "list"),
    ],
)
async def test_buckets_pass_and_purge_nothing(
    make: MakeParts, method: str, target: str, status: int, mode: str
) -> None:
    shared = DictShared()
    parts = make(shared)
    await parts.fill("/ds/buck/s", chunk(0, 5), b"hello")
    asking = parts.ask(target, method)
    asked = await parts.upstream.next()
    asked.answer(status, {"content-type": "application/json"}, b"{}")
    answer = await asking.exchange.answered()
    assert (answer.status, answer["Cache-Control"]) == (status, "no-store")
    assert (asked.target, parts.log.records[-1].mode) == (target, mode)
    assert parts.log.records[-1].stream == "/ds/buck"
    assert parts.ask("/ds/buck/s").response["Cache-Status"] == "weir; hit"
    await quiet()
    assert parts.notices.counts.published == 0
    assert shared.generations == {"/ds/buck/s": 1}


async def test_a_head_is_conditional_at_the_origin(parts: Parts) -> None:
    asking = parts.ask("a", "HEAD", {"if-none-match": '"e"', "stream-seq": "1"})
    asked = await parts.upstream.next()
    assert asked.request.headers["if-none-match"] == '"e"'
    assert "stream-seq" not in asked.request.headers
    asked.answer(304, {"etag": '"e"'})
    assert (await asking.exchange.answered()).status == 304


@pytest.mark.parametrize("name", ["if-match", "if-none-match"])
async def test_a_write_is_conditional_at_the_origin(parts: Parts, name: str) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    asking = parts.ask("a", "PUT", {name: "*"})
    asked = await parts.upstream.next()
    assert asked.request.headers[name] == "*"
    asked.answer(412, {"etag": '"e"', "stream-next-offset": AT(5)})
    answer = await asking.exchange.answered()
    assert (answer.status, answer["ETag"], answer.next_offset) == (412, '"e"', AT(5))
    assert parts.ask("a").response["Cache-Status"] == "weir; hit"


async def test_a_fork_of_a_bucketed_stream_names_it_as_it_is_called(parts: Parts) -> None:
    parts.ask("a", "PUT", {"stream-forked-from": "/ds/buck/%73"})
    asked = await parts.upstream.next()
    assert asked.request.headers["stream-forked-from"] == "/ds/buck/s"
    asked.answer(404)


@pytest.mark.parametrize("source", ["/ds/buck", "/ds/buck/streams", "/ds/buck/s/bootstrap", "a"])
async def test_only_streams_are_forked(parts: Parts, source: str) -> None:
    answer = parts.ask("a", "PUT", {"stream-forked-from": source}).response
    assert (answer.status, answer.json()["code"]) == (400, "invalid-fork-source")
