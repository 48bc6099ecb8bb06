"""Reading a stream: bootstrap or replay, the tail, long-polls, and servers of all kinds."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import aiohttp
import pytest

from tests.helpers.scripted_origin import (
    Answer,
    Gate,
    Piece,
    Recorded,
    ScriptedOrigin,
    SimpleStream,
    simple_stream,
)
from weir.client.stream import (
    LAST_PAUSE_SECS,
    MAX_FRUITLESS,
    Batch,
    Begun,
    CaughtUp,
    Event,
    StreamClient,
    open_stream,
    parse_url,
)
from weir.exits import RequestFailed
from wire.settings import SettingsError

PATH = "/v1/stream/s"
BOOTSTRAP = f"{PATH}/bootstrap"
JSON = "application/json"
NONE = ("application/octet-stream", b"")


def encode_parts(*parts: tuple[str, bytes]) -> bytes:
    encoded = [b"--b\r\nContent-Type: %b\r\n\r\n%b\r\n" % (t.encode(), body) for t, body in parts]
    return b"".join(encoded) + b"--b--\r\n"


def bootstrap(
    *parts: tuple[str, bytes], offset: str = "9", snapshot: str = "-1", **headers: str
) -> Answer:
    named = {
        "Content-Type": "multipart/mixed; boundary=b",
        "Stream-Snapshot-Offset": snapshot,
        "Stream-Next-Offset": offset,
        "Stream-Up-To-Date": "true",
    }
    return Answer(200, named | headers, encode_parts(*parts))


def batch(*messages: object, offset: str, **headers: str) -> Answer:
    named = {"Content-Type": JSON, "Stream-Next-Offset": offset}
    return Answer(200, named | headers, json.dumps(messages).encode())


@asynccontextmanager
async def client(scripted: ScriptedOrigin) -> AsyncIterator[tuple[StreamClient, list[object]]]:
    """A reader whose complaints and pauses are noted, and that does not really pause."""
    noted: list[object] = []

    async def pause(seconds: float) -> None:
        noted.append(seconds)

    async with aiohttp.ClientSession() as session:
        yield StreamClient(session, scripted.url + PATH, noted.append, pause), noted


async def read(scripted: ScriptedOrigin, *, follow: bool = False) -> list[Event]:
    async with client(scripted) as (stream, _):
        return [event async for event in stream.events(follow=follow)]


async def fail(scripted: ScriptedOrigin, *, follow: bool = False) -> str:
    with pytest.raises(RequestFailed) as error:
        await read(scripted, follow=follow)
    assert str(error.value).isprintable()
    return str(error.value)


# -- bootstrap -----------------------------------------------------------------------------------


async def test_one_request_brings_snapshot_and_messages(scripted: ScriptedOrigin) -> None:
    parts = (JSON, b'[{"a":1}, 2]'), (JSON, b"3"), (f"{JSON}; charset=utf-8", b"[4]")
    scripted.on("GET", BOOTSTRAP, bootstrap(*parts, snapshot="5"))
    assert await read(scripted) == [
        Begun("5"),
        Batch([b'{"a":1}', b"2"], "of the snapshot at 5"),
        Batch([b"3", b"[4]"], "after offset 5"),
        CaughtUp("9"),
    ]
    assert scripted.count() == 1


async def test_the_part_of_a_missing_snapshot_is_empty(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", BOOTSTRAP, bootstrap(NONE, (JSON, b"1")))
    assert await read(scripted) == [
        Begun(None),
        Batch([], "of the snapshot at -1"),
        Batch([b"1"], "after offset -1"),
        CaughtUp("9"),
    ]


async def test_messages_are_handed_on_while_the_bootstrap_is_still_coming(
    scripted: ScriptedOrigin,
) -> None:
    """It may be long: only the part that is open is held."""
    gate = Gate()
    whole = bootstrap(NONE, (JSON, b"1"), (JSON, b"2"), (JSON, b"3"))
    cut = whole.body.index(b"2\r\n--b")
    pieces: list[Piece] = [whole.body[:cut], gate, whole.body[cut:]]
    scripted.on("GET", BOOTSTRAP, Answer(200, whole.headers, pieces=pieces))
    seen = []
    async with client(scripted) as (stream, _), aclosing(stream.events(follow=False)) as events:
        async for event in events:
            seen.append(event)
            if event == Batch([b"1"], "after offset -1"):
                await gate.reached()
                gate.open()
    assert seen[-2:] == [Batch([b"2", b"3"], "after offset -1", 2), CaughtUp("9")]


async def test_a_bootstrap_below_the_tail_is_read_on(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", BOOTSTRAP, bootstrap(NONE, offset="5", **{"Stream-Up-To-Date": "false"}))
    more = [batch(1, offset="6"), batch(2, offset="7", **{"Stream-Up-To-Date": "true"})]
    scripted.on("GET", PATH, more)
    assert (await read(scripted))[2:] == [
        Batch([b"1"], "after offset 5"),
        Batch([b"2"], "after offset 6"),
        CaughtUp("7"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(status) for status in (400, 404, 405, 501)),
        Answer(200, {"Content-Type": JSON, "Stream-Next-Offset": "1"}, b"[]"),
    ],
)
async def test_a_server_without_bootstrap_is_replayed(
    scripted: ScriptedOrigin, answer: Answer
) -> None:
    scripted.on("GET", BOOTSTRAP, answer)
    stream = SimpleStream(scripted, PATH, JSON, chunk_bytes=10)
    for message in (b'"first"', b'"second"', b'"third"'):
        stream.append(message)
    begun, *batches, caught_up = await read(scripted)
    assert (begun, caught_up) == (Begun(None, by_replay=True), CaughtUp(stream.tail))
    assert [b.messages for b in batches if isinstance(b, Batch)] == [
        [b'"first"', b'"second"'],
        [b'"third"'],
    ]


async def test_what_is_too_large_for_a_bootstrap_is_read_in_pieces(
    scripted: ScriptedOrigin,
) -> None:
    scripted.on("GET", BOOTSTRAP, Answer(413))
    scripted.on("HEAD", PATH, Answer(200, {"Stream-Snapshot-Offset": "a+b"}))
    scripted.on("GET", f"{PATH}/snapshot/a%2Bb", batch(1, offset="a+b"))
    scripted.on("GET", PATH, batch(2, offset="c", **{"Stream-Up-To-Date": "true"}))
    assert await read(scripted) == [
        Begun("a+b"),
        Batch([b"1"], "of the snapshot at a+b"),
        Batch([b"2"], "after offset a+b"),
        CaughtUp("c"),
    ]


@pytest.mark.parametrize("status", [404, 410], ids=["by another", "with its stream"])
async def test_a_snapshot_that_was_replaced_meanwhile_is_looked_for_again(
    scripted: ScriptedOrigin, status: int
) -> None:
    scripted.on("GET", BOOTSTRAP, Answer(413))
    heads = [Answer(200, {"Stream-Snapshot-Offset": offset}) for offset in ("5", "6")]
    scripted.on("HEAD", PATH, heads)
    scripted.on("GET", f"{PATH}/snapshot/5", Answer(status))
    scripted.on("GET", f"{PATH}/snapshot/6", batch(offset="6", **{"Stream-Up-To-Date": "true"}))
    events = await read(scripted)
    assert [event for event in events if not isinstance(event, Batch)] == [
        Begun("5"),
        Begun("6"),
        CaughtUp("6"),
    ]


async def test_a_stream_that_does_not_exist_is_said_in_the_servers_words(
    scripted: ScriptedOrigin,
) -> None:
    problem = json.dumps({"title": "Not Found", "detail": "There is \x1b[31m none."}).encode()
    scripted.on("*", "*", Answer(404, {"Content-Type": "application/problem+json"}, problem))
    assert await fail(scripted) == r"GET /v1/stream/s: 404 Not Found: There is \u001b[31m none."


async def test_refusals_of_a_bootstrap_are_final(scripted: ScriptedOrigin) -> None:
    for status in (401, 403, 410, 500, 503):
        scripted.on("GET", BOOTSTRAP, Answer(status, {}, b"no\nmore"))
        text = await fail(scripted)
        assert text.startswith(f"GET {BOOTSTRAP}: {status} ") and text.endswith(": no")
    assert scripted.count() == 5


async def test_a_snapshot_of_another_type_is_a_clear_error(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", BOOTSTRAP, bootstrap(("image/png", b"x"), snapshot="5"))
    expected = "the stream's snapshot is image/png, not JSON with State messages"
    assert await fail(scripted) == expected


async def test_a_snapshot_that_is_no_array_is_a_clear_error(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", BOOTSTRAP, bootstrap((JSON, b"{}"), snapshot="5"))
    assert "the snapshot: not a JSON array of messages" in await fail(scripted)


async def test_a_stream_of_another_type_is_a_clear_error(scripted: ScriptedOrigin) -> None:
    expected = "the stream is text/plain, not application/json: it has no State messages"
    simple_stream(scripted, PATH, "text/plain", b"x")
    assert await fail(scripted) == expected
    scripted.on("GET", BOOTSTRAP, bootstrap(NONE, ("text/plain", b"x")))
    assert await fail(scripted) == expected


@pytest.mark.parametrize("end", [-1, -9, -20])
async def test_a_bootstrap_that_was_cut_short_is_no_state(
    scripted: ScriptedOrigin, end: int
) -> None:
    whole = bootstrap(NONE, (JSON, b"1"))
    scripted.on("GET", BOOTSTRAP, Answer(200, whole.headers, whole.body[: end - 2]))
    assert await fail(scripted) == "the bootstrap was truncated"
    scripted.on("GET", BOOTSTRAP, Answer(200, whole.headers, whole.body, cut_after=end % 50))
    assert scripted.url in await fail(scripted)


async def test_a_bootstrap_that_is_none(scripted: ScriptedOrigin) -> None:
    whole = bootstrap(NONE)
    scripted.on("GET", BOOTSTRAP, Answer(200, whole.headers, b"--bb\r\n\r\n\r\n--b--"))
    assert "cannot read the bootstrap" in await fail(scripted)


# -- retention -----------------------------------------------------------------------------------


async def test_a_position_that_is_gone_begins_again(scripted: ScriptedOrigin) -> None:
    late = {"Stream-Up-To-Date": "false"}
    answers = [
        bootstrap(NONE, (JSON, b"1"), offset="5", **late),
        bootstrap((JSON, b"[2]"), snapshot="9"),
    ]
    scripted.on("GET", BOOTSTRAP, answers)
    scripted.on("GET", PATH, Answer(410, {}, b"gone"))
    async with client(scripted) as (stream, noted):
        events = [event async for event in stream.events(follow=False)]
    assert [event for event in events if not isinstance(event, Batch)] == [
        Begun(None),
        Begun("9"),
        CaughtUp("9"),
    ]
    assert noted == [f"GET {PATH}: 410 Gone: gone; starting over", 0.5]


async def test_who_never_gets_to_the_tail_gives_up(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", PATH, Answer(410))
    assert await fail(scripted) == f"GET {PATH}: 410 Gone"
    assert scripted.count(path=BOOTSTRAP) == MAX_FRUITLESS


# -- live ----------------------------------------------------------------------------------------


async def test_long_polls_follow_until_the_stream_is_closed(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", BOOTSTRAP, bootstrap(NONE, offset="a+b"))
    answers = [
        Answer(
            204, {"Stream-Next-Offset": "a+b", "Stream-Cursor": "7", "Stream-Up-To-Date": "true"}
        ),
        batch(1, 2, offset="c", **{"Stream-Cursor": "8"}),
        batch(3, offset="d", **{"Stream-Closed": "true"}),
    ]
    scripted.on("GET", PATH, answers)
    assert (await read(scripted, follow=True))[2:] == [
        CaughtUp("a+b"),
        Batch([b"1", b"2"], "after offset a+b"),
        Batch([b"3"], "after offset c"),
    ]
    assert [request.parameters for request in scripted.find(path=PATH)] == [
        {"offset": "a+b", "live": "long-poll"},
        {"offset": "a+b", "live": "long-poll", "cursor": "7"},
        {"offset": "c", "live": "long-poll", "cursor": "8"},
    ]


async def test_a_closed_stream_has_nothing_to_wait_for(scripted: ScriptedOrigin) -> None:
    stream = simple_stream(scripted, PATH, JSON, b"1")
    stream.close()
    assert (await read(scripted, follow=True))[-1] == CaughtUp(stream.tail)
    assert stream.counts == {"catch-up": 1}


async def test_a_follower_outlives_a_server_that_is_away(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", BOOTSTRAP, bootstrap(NONE))
    away = [Answer(503, {}, b"draining"), *[Answer(502)] * 6]
    scripted.on("GET", PATH, [*away, batch(1, offset="9", **{"Stream-Closed": "true"})])
    async with client(scripted) as (stream, noted):
        events = [event async for event in stream.events(follow=True)]
    assert events[-1] == Batch([b"1"], "after offset 9")
    assert noted[::2][0] == f"GET {PATH}: 503 Service Unavailable: draining; retrying in 0.5 s"
    assert noted[1::2] == [0.5, 1, 2, 4, 8, LAST_PAUSE_SECS, LAST_PAUSE_SECS]


async def test_a_follower_that_fell_behind_begins_again(scripted: ScriptedOrigin) -> None:
    scripted.on(
        "GET", BOOTSTRAP, [bootstrap(NONE, offset="5"), bootstrap((JSON, b"[1]"), snapshot="9")]
    )
    closed = {"Stream-Next-Offset": "9", "Stream-Closed": "true"}
    scripted.on("GET", PATH, [Answer(410), Answer(204, closed)])
    events = await read(scripted, follow=True)
    assert events[2:] == [
        CaughtUp("5"),
        Begun("9"),
        Batch([b"1"], "of the snapshot at 9"),
        CaughtUp("9"),
    ]


async def test_a_follower_whose_token_ends_is_told(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", BOOTSTRAP, bootstrap(NONE))
    scripted.on("GET", PATH, Answer(401))
    assert await fail(scripted, follow=True) == f"GET {PATH}: 401 Unauthorized"


# -- servers that are none -----------------------------------------------------------------------


async def test_a_server_that_does_not_move_is_not_asked_forever(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", PATH, batch(offset="-1"))
    assert (await read(scripted))[-1] == CaughtUp("-1")
    assert scripted.count(path=PATH) == 1


async def test_some_json_is_no_stream(scripted: ScriptedOrigin) -> None:
    scripted.on("GET", PATH, Answer(200, {"Content-Type": JSON}, b"[]"))
    assert (
        await fail(scripted)
        == f"{scripted.url}{PATH} is not a durable stream: no Stream-Next-Offset"
    )


async def test_what_is_no_array_is_no_answer(scripted: ScriptedOrigin) -> None:
    headers = {"Content-Type": JSON, "Stream-Next-Offset": "1"}
    scripted.on("GET", PATH, Answer(200, headers, b"{}"))
    assert "not a JSON array of messages" in await fail(scripted)


async def test_a_server_that_is_not_there(scripted: ScriptedOrigin) -> None:
    scripted.down()
    assert (await fail(scripted)).startswith(f"{scripted.url}{PATH}: Cannot connect")
    scripted.up()


async def test_a_redirect_is_not_followed(scripted: ScriptedOrigin) -> None:
    """The token is for the server that was named."""
    scripted.on("GET", "*", Answer(307, {"Location": "http://127.0.0.1:1/"}))
    assert "307 Temporary Redirect" in await fail(scripted)


async def test_the_token_goes_with_every_request(scripted: ScriptedOrigin) -> None:
    simple_stream(scripted, PATH, JSON, b"1")
    for token, sent in (("t.t.t", "Bearer t.t.t"), (None, None)):
        async with open_stream(scripted.url + PATH, token, print) as stream:
            assert [event async for event in stream.events(follow=False)]
        assert {r.headers.get("authorization") for r in scripted.requests[-2:]} == {sent}


# -- snapshots -----------------------------------------------------------------------------------


async def test_a_snapshot_is_published_under_its_offset(scripted: ScriptedOrigin) -> None:
    def answer(request: Recorded) -> Answer:
        assert (request.target, request.body) == (f"{PATH}/snapshot/a%2Bb", b"[]")
        assert request.headers["content-type"] == JSON
        return Answer(204)

    scripted.on("PUT", "*", answer)
    async with client(scripted) as (stream, _):
        await stream.publish("a+b", b"[]")
    assert scripted.count("PUT") == 1


async def test_a_stream_of_that_name_is_no_snapshot(scripted: ScriptedOrigin) -> None:
    scripted.on("PUT", "*", Answer(201))
    async with client(scripted) as (stream, _):
        with pytest.raises(RequestFailed, match="201 Created"):
            await stream.publish("7", b"[]")


async def test_a_refused_snapshot_is_said_in_the_servers_words(scripted: ScriptedOrigin) -> None:
    scripted.on("PUT", "*", Answer(413, {}, b'{"detail": "Too large."}'))
    async with client(scripted) as (stream, _):
        with pytest.raises(RequestFailed, match=r"^PUT .*/snapshot/7: 413 .*: Too large\.$"):
            await stream.publish("7", b"[]")


# -- URLs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "localhost:8080/v1/stream/a", "ftp://h/a", "http:///a", "http://h/a?offset=-1"]
)
def test_what_is_no_url_of_a_stream(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^URL: "):
        parse_url(url)
    for odd in ("http://h/a#b", "http://user:secret@h/a"):
        with pytest.raises(SettingsError, match=r"^URL: "):
            parse_url(odd)


def test_the_path_stays_as_it_is() -> None:
    assert parse_url("https://h:1/v1/stream/a%20b/") == "https://h:1/v1/stream/a%20b"
