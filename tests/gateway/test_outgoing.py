"""Large events and bodies on their way to readers: in slices, from bytes that all share, within
bounds."""

import asyncio
import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.entries import EventLines, Lines
from gateway.outgoing import PIECES_AT_ONCE, RECENT_BYTES, SLICE_BYTES, Recent, Unsent
from protocol.sse import Decoder, Event, data_event, text_piece
from tests.helpers.offsets import nameless
from tests.helpers.parts import Asking, KeptExchange, MakeParts, Parts, chunk, quiet, soon

LARGE = 10 * SLICE_BYTES


def narrow(room_bytes: int = 1) -> KeptExchange:
    exchange = KeptExchange()
    exchange.room_bytes = room_bytes
    return exchange


async def follow(
    parts: Parts, body: bytes, exchange: KeptExchange, kind: str = "text/plain", name: str = "a"
) -> Asking:
    """A reader to whom this is being replayed."""
    reader = parts.ask(f"{name}?offset=-1&live=sse", exchange=exchange)
    asked = await parts.upstream.next("GET")
    status = 304 if "if-none-match" in asked.request.headers else 200
    asked.answer(status, chunk(0, len(body), tail=True, kind=kind), body)
    await soon(lambda: exchange.unread > 0)
    return reader


async def take_all(exchange: KeptExchange) -> int:
    """Until nothing more comes; how often it was full."""
    turns = 0
    while exchange.unread:
        exchange.take()
        await quiet()
        turns += 1
    return turns


async def take_to_the_end(exchange: KeptExchange) -> None:
    def has_ended() -> bool:
        exchange.take()
        return exchange.finished > 0

    await soon(has_ended)


def events(exchange: KeptExchange) -> list[Event]:
    _, _, data = exchange.data.partition(b"\r\n\r\n")
    found, decoder = [], Decoder()
    while data and not data.startswith(b"0\r\n"):
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        found += decoder.feed(rest[:length])
        assert rest[length : length + 2] == b"\r\n"
        data = rest[length + 2 :]
    return found


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"x" * LARGE, "text/plain"),
        (b" x\n  y\r\nz\r" * (LARGE // 10) + b"\n", "text/plain"),
        ("äöü€😀".encode() * (LARGE // 13), "text/plain"),
        (b'[{"n":1}' + b',"\xe2\x82\xac"' * (LARGE // 6) + b"]", "application/json"),
        (bytes(range(256)) * (LARGE // 256), "application/octet-stream"),
    ],
    ids=["text", "lines", "characters", "json", "binary"],
)
async def test_a_large_event_comes_in_slices_and_is_what_a_whole_one_would_be(
    make: MakeParts, body: bytes, kind: str
) -> None:
    parts, exchange = make(), narrow()
    await follow(parts, body, exchange, kind)
    assert len(exchange.data) < 2 * SLICE_BYTES, "no more than it has room for"
    assert await take_all(exchange) > 5
    data, control = events(exchange)
    if kind == "application/octet-stream":
        assert base64.b64decode(data.data) == body
    else:
        assert data == Decoder().feed(data_event(body))[0]
    assert json.loads(control.data)["streamNextOffset"] == nameless(len(body))


async def test_a_character_cut_between_two_large_batches_is_shown_whole(make: MakeParts) -> None:
    parts, exchange = make(gateway={"max_reader_backlog_bytes": 10 * LARGE}), narrow()
    text = ("x" * LARGE + "😀" + " y" * LARGE).encode()
    cut = LARGE + 3
    await follow(parts, text[:cut], exchange)
    await take_all(exchange)
    await soon(lambda: parts.hubs.reader_count == 1)
    tail = await parts.upstream.next()
    tail.answer(200, chunk(cut, len(text), tail=True), text[cut:])
    await soon(lambda: exchange.unread > 0)
    await take_all(exchange)
    first, told, second, _ = events(exchange)
    assert first.data + second.data == text.decode()
    assert json.loads(told.data)["streamNextOffset"] == nameless(LARGE)


# -- events that are not their body's bytes ------------------------------------------------------


class Encoder:
    """Counts the pieces that are made of texts, in all and in one turn of the loop."""

    def __init__(self) -> None:
        self.pieces = self.most_in_a_turn = 0
        self._of_turn = 0

    def __call__(self, payload: bytes, start: int, end: int) -> tuple[bytes, int]:
        if not self._of_turn:
            asyncio.get_running_loop().call_soon(self._turn_over)
        self.pieces += 1
        self._of_turn += 1
        self.most_in_a_turn = max(self.most_in_a_turn, self._of_turn)
        return text_piece(payload, start, end)

    def _turn_over(self) -> None:
        self._of_turn = 0


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    counting = Encoder()
    monkeypatch.setattr("protocol.sse.text_piece", counting)
    return counting


@pytest.mark.parametrize("body", [b"\r" * LARGE, b"\n " * (LARGE // 2)], ids=["cr", "lf"])
async def test_an_event_of_line_ends_is_made_only_as_far_as_it_is_taken(
    make: MakeParts, encoder: Encoder, body: bytes
) -> None:
    """It is six times as large as its message, and each who came and left had all of it made."""
    parts = make()
    for visit in range(1, 6):
        exchange = narrow()
        await follow(parts, body, exchange)
        assert parts.hubs.unsent.total == LARGE
        assert encoder.pieces <= 2 * visit
        exchange.leave()


async def test_an_event_is_made_once_for_a_crowd(make: MakeParts, encoder: Encoder) -> None:
    parts, body = make(), b"\r" * LARGE
    exchanges = [narrow() for _ in range(5)]
    for exchange in exchanges:
        await follow(parts, body, exchange)
    while any(exchange.unread for exchange in exchanges):
        for exchange in exchanges:
            exchange.take()
        await quiet()
    pieces, at = 0, 0
    while at < LARGE:
        pieces, at = pieces + 1, text_piece(body, at, LARGE)[1]
    assert encoder.pieces == pieces
    assert len({exchange.data.partition(b"\r\n\r\n")[2] for exchange in exchanges}) == 1


async def test_who_takes_an_event_at_once_does_not_keep_others_waiting(
    make: MakeParts, encoder: Encoder
) -> None:
    parts, exchange, body = make(), KeptExchange(), b"\r" * LARGE
    parts.ask("a?offset=-1&live=sse", exchange=exchange)
    (await parts.upstream.next("GET")).answer(200, chunk(0, LARGE, tail=True), body)
    await soon(lambda: parts.hubs.reader_count == 1)
    assert encoder.pieces > 4 * PIECES_AT_ONCE
    assert encoder.most_in_a_turn <= 2 * PIECES_AT_ONCE, "his replay and what he waits for"
    data, _ = events(exchange)
    assert data.data == "\n" * LARGE


async def test_who_has_room_is_not_slow_while_he_waits_for_his_turn(make: MakeParts) -> None:
    parts, exchange = make(gateway={"max_reader_backlog_bytes": LARGE // 2}), KeptExchange()
    kind, size = "application/octet-stream", 4 * LARGE
    parts.ask("a?offset=-1&live=sse", exchange=exchange)
    (await parts.upstream.next("GET")).answer(200, chunk(0, 3, tail=True, kind=kind), b"abc")
    for start in (3, 3 + size):
        headers = chunk(start, start + size, tail=True, kind=kind)
        (await parts.upstream.next()).answer(200, headers, bytes(size))
    await soon(lambda: exchange.aborted or len(events(exchange)) == 6)
    data = [base64.b64decode(event.data) for event in events(exchange) if event.kind == "data"]
    assert data == [b"abc", bytes(size), bytes(size)] and not exchange.aborted


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream"])
@pytest.mark.parametrize("unit", [b"x", b"x\r\n"])
async def test_the_log_tells_the_size_of_a_large_event_without_its_frames(
    make: MakeParts, kind: str, unit: bytes
) -> None:
    parts, exchange = make(), narrow()
    body = unit * (LARGE // len(unit))
    await follow(parts, body, exchange, kind)
    await take_all(exchange)
    parts.purges.forget("a")
    await soon(lambda: exchange.finished > 0)
    size, data = 0, exchange.data.partition(b"\r\n\r\n")[2]
    while not data.startswith(b"0\r\n"):
        length = int(data.partition(b"\r\n")[0], 16)
        size, data = size + length, data[len(b"%x" % length) + length + 4 :]
    assert parts.log.records[-1].bytes_sent == size > len(body)


async def test_readers_share_what_waits_for_them(make: MakeParts) -> None:
    """Text that needs no change is not even copied once."""
    parts, body = make(), b"x" * LARGE
    exchanges = [narrow() for _ in range(5)]
    for exchange in exchanges:
        await follow(parts, body, exchange)
        assert parts.hubs.unsent.total == LARGE
    for exchange in exchanges:
        exchange.leave()
    assert parts.hubs.unsent.total == 0


async def test_a_subjects_readers_have_a_share_of_what_may_wait(
    make: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.outgoing.WAIT_SECS", 0.01)
    limits = {"max_unsent_bytes_per_subject": 2 * LARGE}
    parts = make(gateway=limits, auth={"mode": "jwt", "jwks": "keys.json"})
    for name in "ab":
        await follow(parts, b"x" * LARGE, narrow(), name=name)
    refused = narrow()
    await follow(parts, b"x" * LARGE, refused, name="c")
    await soon(lambda: refused.finished > 0)
    assert parts.log.records[-1].ended == "slow"
    assert parts.hubs.unsent.total == 2 * LARGE


async def test_a_replay_waits_for_room_before_it_fetches(make: MakeParts) -> None:
    limits = {"max_unsent_bytes_per_subject": LARGE}
    parts = make(gateway=limits, auth={"mode": "jwt", "jwks": "keys.json"})
    first, second = narrow(), narrow()
    await follow(parts, b"x" * LARGE, first)
    parts.ask("b?offset=-1&live=sse", exchange=second)
    await quiet()
    assert not parts.upstream.unseen()
    await take_all(first)
    asked = await parts.upstream.next("GET")
    while asked.live:
        asked = await parts.upstream.next("GET")
    asked.answer(200, chunk(0, LARGE, tail=True), b"x" * LARGE)
    await soon(lambda: second.unread > 0)
    await take_all(second)
    assert [event.kind for event in events(second)] == ["data", "control"]


async def test_who_is_given_more_before_he_took_enough_is_dropped(make: MakeParts) -> None:
    parts, exchange = make(gateway={"max_reader_backlog_bytes": LARGE // 2}), narrow(LARGE)
    body = b"x" * LARGE
    await follow(parts, body, exchange)
    exchange.take()
    await soon(lambda: parts.hubs.reader_count == 1)
    exchange.room_bytes = 1
    (await parts.upstream.next()).answer(200, chunk(LARGE, 2 * LARGE, tail=True), body)
    await soon(lambda: exchange.unread > 0)
    assert not exchange.aborted, "one large event makes nobody slow"
    tail = await parts.upstream.next()
    tail.answer(200, chunk(2 * LARGE, 2 * LARGE + 1, tail=True), b"y")
    await soon(lambda: exchange.aborted)
    assert parts.log.records[-1].ended == "slow"
    assert len(exchange.data) < 2 * LARGE, "nothing more was put"


async def test_small_events_wait_behind_a_large_one(make: MakeParts) -> None:
    parts, exchange = make(), narrow()
    await follow(parts, b"x" * LARGE, exchange)
    for _ in range(8):
        exchange.take()
        await quiet()
    exchange.room_bytes = 10 * LARGE
    exchange.take()
    await soon(lambda: parts.hubs.reader_count == 1)
    (await parts.upstream.next()).answer(200, chunk(LARGE, LARGE + 1, tail=True), b"y")
    await soon(lambda: len(events(exchange)) == 4)
    assert [event.data[:1] for event in events(exchange)] == ["x", "{", "y", "{"]


async def test_an_end_comes_after_the_event_that_is_being_taken(make: MakeParts) -> None:
    """Else who needs longer for it than a connection lasts would never get it."""
    parts, exchange = make(), narrow()
    await follow(parts, b"x" * LARGE, exchange)
    parts.purges.forget("a")
    assert exchange.finished == 0
    await take_all(exchange)
    assert exchange.data.endswith(b"0\r\n\r\n")
    assert [event.kind for event in events(exchange)] == ["data", "control"]
    assert parts.log.records[-1].ended == "deleted"


async def test_who_takes_a_large_event_gets_all_of_it_when_the_gateway_stops(
    make: MakeParts,
) -> None:
    parts, exchange = make(), narrow()
    await follow(parts, b"x" * LARGE, exchange)
    parts.purges.forget("a")
    parts.hubs.drain()
    stopping = asyncio.create_task(parts.hubs.settle(30.0))
    await quiet()
    assert not stopping.done()
    await take_all(exchange)
    await stopping
    assert exchange.data.endswith(b"0\r\n\r\n")


# -- whole answers -------------------------------------------------------------------------------

READS = ("a?offset=-1", "a?offset=-1&live=long-poll")


@pytest.mark.parametrize("read", READS)
async def test_a_large_answer_comes_in_slices_and_is_counted_until_it_is_taken(
    make: MakeParts, read: str
) -> None:
    parts, body = make(), b"x" * LARGE
    await parts.fill("a", chunk(0, LARGE), body)
    exchanges = [narrow() for _ in range(3)]
    for exchange in exchanges:
        parts.ask(read, exchange=exchange)
        assert len(exchange.data) < 2 * SLICE_BYTES, "no more than it has room for"
        assert parts.hubs.unsent.total == LARGE, "once for all"
    exchanges[0].leave()
    exchanges[1].leave()
    assert await take_all(exchanges[2]) > 5
    assert exchanges[2].finished == 1 and exchanges[2].response.body == body
    assert parts.hubs.unsent.total == 0


async def test_a_large_batch_is_counted_until_who_waited_for_it_has_taken_it(
    make: MakeParts,
) -> None:
    parts, exchange, body = make(), narrow(), b"x" * LARGE
    parts.ask("a?offset=-1&live=long-poll", exchange=exchange)
    (await parts.upstream.next()).answer(200, chunk(0, LARGE, tail=True), body)
    await soon(lambda: exchange.unread > 0)
    assert len(exchange.data) < 2 * SLICE_BYTES and parts.hubs.unsent.total == LARGE
    await take_all(exchange)
    assert exchange.response.body == body and parts.hubs.unsent.total == 0


@pytest.mark.parametrize("read", READS)
async def test_an_answer_for_which_memory_has_no_room_waits_on_disk(
    make: MakeParts, read: str
) -> None:
    parts = make(gateway={"max_unsent_bytes": LARGE, "max_unsent_bytes_per_subject": LARGE})
    bodies = {name: name.encode() * LARGE for name in "ab"}
    for name, body in bodies.items():
        await parts.fill(name, chunk(0, LARGE), body)
    one, other = narrow(), narrow()
    parts.ask("b", exchange=one)
    parts.ask(read, exchange=other)
    await take_to_the_end(other)
    assert other.response.body == bodies["a"]
    assert parts.hubs.unsent.total == LARGE, "of the first"
    one.leave()


def test_recent_pieces_are_bounded_and_one_that_somebody_has_is_never_made_again() -> None:
    recent, lines = Recent(), EventLines(bytes(RECENT_BYTES * 2), is_text=False)
    first = at = recent.piece(lines, 0, len(lines.data), True)
    while at.next < len(lines.data):
        at = recent.piece(lines, at.next, len(lines.data), True)
    assert RECENT_BYTES // 2 < sum(len(piece.data) for piece in recent._pieces) <= RECENT_BYTES
    assert first not in recent._pieces
    assert recent.piece(lines, 0, len(lines.data), True) is first


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.booleans())))
def test_what_is_held_is_counted_once_for_all_and_once_for_each_subject(
    steps: list[tuple[str, int, bool]],
) -> None:
    unsent, all_lines = Unsent(40, 30), [Lines(b"x" * size) for size in (5, 10, 15, 20, 35)]
    held: list[tuple[str, Lines]] = []
    for subject, number, takes in steps:
        wanted = (subject, all_lines[number])
        if takes and unsent.hold(*wanted):
            held.append(wanted)
        elif not takes and wanted in held:
            held.remove(wanted)
            unsent.release(*wanted)
        distinct = {lines for _, lines in held}
        assert unsent.total == sum(len(lines.data) for lines in distinct)
        assert unsent.total <= 40
        for name in "ab":
            of_subject = {lines for holder, lines in held if holder == name}
            assert len(of_subject) <= 1 or sum(len(lines.data) for lines in of_subject) <= 30
