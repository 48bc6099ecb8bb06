import base64
import codecs
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import sse
from protocol.heads import ReplyHead
from protocol.offsets import format_offset
from protocol.sse import Decoder, Event, HeldText, parse_control

OFFSET = "0000000000000000_0000000000000042"
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\r\n :"))
pieces = st.sampled_from(
    ["data", "event", "id", "retry", ":", " ", "\r", "\n", "\r\n", "x", "\ufeff", "\u2028", "é"]
)


def decode(stream: bytes) -> list[Event]:
    return Decoder().feed(stream)


def decode_bytewise(stream: bytes) -> list[Event]:
    decoder = Decoder()
    return [event for byte in stream for event in decoder.feed(bytes([byte]))]


def normalised(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        pytest.param(b"line1", b"data:line1\n", id="one-line"),
        pytest.param(b"", b"data:\n", id="empty"),
        pytest.param(b"a\nb", b"data:a\ndata:b\n", id="lf"),
        pytest.param(b"a\rb", b"data:a\ndata:b\n", id="cr"),
        pytest.param(b"a\r\nb", b"data:a\ndata:b\n", id="crlf"),
        pytest.param(b"a\n\rb", b"data:a\ndata:\ndata:b\n", id="lf-then-cr"),
        pytest.param(b"a\n", b"data:a\ndata:\n", id="line-end-at-the-end"),
        pytest.param(b" a\n b", b"data:  a\ndata:  b\n", id="leading-spaces-are-doubled"),
        pytest.param(b"\ta", b"data:\ta\n", id="leading-tab"),
        pytest.param(b"data: x", b"data:data: x\n", id="field-name-in-the-payload"),
        pytest.param(
            "a\u2028b\u0085c\x0bd\x0ce".encode(),
            "data:a\u2028b\u0085c\x0bd\x0ce\n".encode(),
            id="other-separators-are-content",
        ),
        pytest.param(b"\xff\xc3", b"data:\xff\xc3\n", id="bytes-are-not-decoded"),
    ],
)
def test_each_payload_line_becomes_a_data_field(payload: bytes, event: bytes) -> None:
    assert sse.data_event(payload) == b"event: data\n" + event + b"\n"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"], ids=["lf", "cr", "crlf"])
def test_payload_cannot_forge_an_event(end: str) -> None:
    attack = end.join(["safe", "", "event: control", 'data: {"bad":true}', "", "more"])
    assert decode(sse.data_event(attack.encode())) == [Event("data", normalised(attack))]


@given(texts)
def test_decoding_gives_the_text_back_with_line_ends_normalised(text: str) -> None:
    stream = sse.data_event(text.encode())
    assert decode_bytewise(stream) == [Event("data", normalised(text))]


@given(st.binary())
def test_base64_gives_the_bytes_back(payload: bytes) -> None:
    [event] = decode_bytewise(sse.base64_event(payload))
    assert event.kind == "data"
    assert base64.b64decode(event.data, validate=True) == payload


@pytest.mark.parametrize(
    ("cursor", "up_to_date", "closed", "fields"),
    [
        pytest.param(7, False, False, {"streamCursor": "7"}, id="behind"),
        pytest.param(7, True, False, {"streamCursor": "7", "upToDate": True}, id="at-the-tail"),
        pytest.param(None, True, False, {"upToDate": True}, id="no-cursor"),
        pytest.param(None, False, False, {}, id="offset-alone"),
        pytest.param(7, True, True, {"upToDate": True, "streamClosed": True}, id="closed"),
        pytest.param(
            None, False, True, {"upToDate": True, "streamClosed": True}, id="closed-is-up-to-date"
        ),
    ],
)
def test_control_event_fields(
    cursor: int | None, up_to_date: bool, closed: bool, fields: dict[str, object]
) -> None:
    stream = sse.control_event(OFFSET, cursor, up_to_date, closed)
    [event] = decode(stream)
    assert event.kind == "control"
    assert json.loads(event.data) == {"streamNextOffset": OFFSET} | fields


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**15), st.none() | st.integers(0), st.booleans())
def test_control_events_are_read_back(
    stream_id: int, position: int, cursor: int | None, up_to_date: bool
) -> None:
    offset, incarnation = format_offset(stream_id, position), f"{stream_id:016x}"
    [event] = decode(sse.control_event(offset, cursor, up_to_date, False))
    told = "" if cursor is None else str(cursor)
    assert parse_control(event.data) == ReplyHead(
        next_offset=offset, incarnation=incarnation, up_to_date=up_to_date, cursor=told
    )
    [event] = decode(sse.control_event(offset, cursor, up_to_date, True))
    assert parse_control(event.data) == ReplyHead(
        next_offset=offset, incarnation=incarnation, up_to_date=True, closed=True
    )


@pytest.mark.parametrize("data", ["", "[]", '{"streamNextOffset":5}', '{"streamNextOffset":"5"'])
def test_what_is_no_control_event(data: str) -> None:
    with pytest.raises(ValueError):
        parse_control(data)


def test_control_events_of_others_may_say_less_and_more() -> None:
    assert parse_control('{"streamNextOffset": "x5", "other": 1}') == ReplyHead(next_offset="x5")


def test_control_event_is_one_flat_line() -> None:
    stream = sse.control_event(OFFSET, 7, True, False)
    body = b'{"streamNextOffset":"%b","streamCursor":"7","upToDate":true}' % OFFSET.encode()
    id_line = b"\nid:" + OFFSET.encode()
    assert stream == b"event: control\ndata:" + body + id_line + b"\n\n"


def test_foreign_offsets_are_escaped_in_control_events() -> None:
    """And are no id if they could be more than a line."""
    stream = sse.control_event('a"b\n', None, False, False)
    [event] = decode(stream)
    assert json.loads(event.data) == {"streamNextOffset": 'a"b\n'}
    assert b"id:" not in stream


def test_comment_is_no_event() -> None:
    assert decode(sse.comment() + sse.data_event(b"x")) == [Event("data", "x")]


@pytest.mark.parametrize(
    ("payload", "held_back"),
    [
        pytest.param(b"", 0, id="empty"),
        pytest.param(b"abc", 0, id="ascii"),
        pytest.param("é€😀".encode(), 0, id="whole-characters"),
        pytest.param("é".encode()[:1], 1, id="first-of-two"),
        pytest.param("a€".encode()[:-2], 1, id="first-of-three"),
        pytest.param("a€".encode()[:-1], 2, id="two-of-three"),
        pytest.param("a😀".encode()[:-3], 1, id="first-of-four"),
        pytest.param("a😀".encode()[:-2], 2, id="two-of-four"),
        pytest.param("a😀".encode()[:-1], 3, id="three-of-four"),
        pytest.param("€😀".encode()[:-3], 1, id="cut-after-a-whole-character"),
        pytest.param(b"\x80", 0, id="lone-continuation"),
        pytest.param(b"\x80\x80\x80", 0, id="only-continuations"),
        pytest.param(b"\xc0", 0, id="overlong-lead"),
        pytest.param(b"\xf5", 0, id="lead-beyond-unicode"),
        pytest.param(b"\xff", 0, id="never-a-lead"),
        pytest.param(b"\xe0\x80", 0, id="overlong-three"),
        pytest.param(b"\xed\xa0", 0, id="surrogate"),
        pytest.param(b"\xf4\x90", 0, id="beyond-unicode"),
        pytest.param(b"\xf0\x80\x80", 0, id="overlong-four"),
        pytest.param(b"\xe2a", 0, id="broken-off-by-ascii"),
        pytest.param(b"\xc3\xc3", 1, id="second-lead-may-go-on"),
    ],
)
def test_only_a_started_character_is_held_back(payload: bytes, held_back: int) -> None:
    assert sse.complete_utf8(payload) == len(payload) - held_back


@given(st.lists(st.sampled_from([b"\r", b"\n", b" ", b"x", "é".encode()])).map(b"".join))
@example(b"123\r\n56")
@example(b"123\n 56")
def test_pieces_of_a_text_are_its_lines(payload: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "_STEP_BYTES", 4)
        patch.setattr(sse, "PIECE_BYTES", 12)
        made, at = [], 0
        while at < len(payload):
            piece, at = sse.text_piece(payload, at, len(payload))
            made.append(piece)
    assert at == len(payload) and all(0 < len(piece) <= 12 + 6 * 5 for piece in made)
    assert b"".join(made) == sse.data_lines(payload)


@pytest.mark.parametrize("more", [-1, 0, 1, 2, 3])
def test_pieces_of_base64_are_one_base64(more: int) -> None:
    payload, made, at = bytes(range(256)) * 512 + b"x" * (3 + more), b"", 0
    while at < len(payload):
        piece, at = sse.base64_piece(payload, at, len(payload))
        made += piece
    assert base64.b64decode(made, validate=True) == payload


@given(st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_cut_text_is_held_back_to_the_last_whole_character(text: str, data: st.DataObject) -> None:
    encoded = text.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    length = sse.complete_utf8(cut)
    assert cut[:length].decode() == cut.decode(errors="ignore")


@example(b"\xed\xa0")
@given(st.binary(max_size=6))
def test_held_back_bytes_are_those_the_decoder_would_wait_for(payload: bytes) -> None:
    # The incremental decoder of the standard library waits for exactly the same bytes, apart from
    # the beginning of an encoded surrogate, which no continuation makes right.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(payload)
    waiting = decoder.getstate()[0]
    if re.fullmatch(rb"\xed[\xa0-\xbf]", waiting):
        waiting = b""
    assert sse.complete_utf8(payload) == len(payload) - len(waiting)


@given(st.binary(max_size=20), st.lists(st.integers(0, 20), max_size=6), st.booleans())
def test_a_text_is_shown_character_by_character(data: bytes, cuts: list[int], large: bool) -> None:
    """In whatever pieces it comes, and the offset told is that of what was shown."""
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    text, shown = HeldText(), b""
    for start, end in zip(edges, edges[1:], strict=False):
        payload, is_last = data[start:end], end == len(data)
        if large and end - start >= 3:
            before, whole = text.take_large(payload, is_last=is_last)
            shown += before + payload[:whole]
        else:
            shown += text.take(payload, is_last=is_last)
        assert shown + text.held == data[:end]
        assert is_last or sse.complete_utf8(data[:end]) == len(shown)
        assert text.told(format_offset(7, end)) == format_offset(7, len(shown))
    assert shown == data


def test_offsets_of_others_are_told_as_they_are() -> None:
    text = HeldText()
    assert text.take("é".encode()[:1], is_last=False) == b""
    assert text.told("x5") == "x5"


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data:a\n\n", [Event("message", "a")], id="default-kind"),
        pytest.param(b"data: a\n\n", [Event("message", "a")], id="one-space-stripped"),
        pytest.param(b"data:  a\n\n", [Event("message", " a")], id="only-one-space-stripped"),
        pytest.param(b"data:\ta\n\n", [Event("message", "\ta")], id="tab-is-kept"),
        pytest.param(b"data\n\n", [Event("message", "")], id="field-without-colon"),
        pytest.param(b"data\ndata\n\n", [Event("message", "\n")], id="two-empty-lines"),
        pytest.param(b"data:a:b\n\n", [Event("message", "a:b")], id="colon-in-value"),
        pytest.param(b"event: x\n\n", [], id="no-data-no-event"),
        pytest.param(
            b"event: x\n\ndata:a\n\n", [Event("message", "a")], id="kind-does-not-outlive-its-block"
        ),
        pytest.param(b"event:x\nevent:y\ndata:a\n\n", [Event("y", "a")], id="last-kind-wins"),
        pytest.param(b"data:a\r\rdata:b\r\r", [Event("message", x) for x in "ab"], id="cr"),
        pytest.param(b"data:a\r\n\r\n", [Event("message", "a")], id="crlf"),
        pytest.param(b"data:a\r\n\n", [Event("message", "a")], id="mixed-line-ends"),
        pytest.param(b":x\ndata:a\n: y\n\n", [Event("message", "a")], id="comments"),
        pytest.param(b"id:1\nretry:5\ndata:a\n\n", [Event("message", "a")], id="id-and-retry"),
        pytest.param(b"Data:a\n\n", [], id="names-are-case-sensitive"),
        pytest.param(b" data:a\n\n", [], id="space-before-the-name"),
        pytest.param(b"\xef\xbb\xbfdata:a\n\n", [Event("message", "a")], id="byte-order-mark"),
        pytest.param(b"data:a\n\n\xef\xbb\xbfdata:b\n\n", [Event("message", "a")], id="late-mark"),
        pytest.param(b"data:a\n", [], id="unfinished-event"),
        pytest.param(b"data:\xff\n\n", [Event("message", "\ufffd")], id="not-utf-8"),
        pytest.param("data:a\u2028b\n\n".encode(), [Event("message", "a\u2028b")], id="u2028"),
        pytest.param(b"\n\n\n", [], id="only-empty-lines"),
    ],
)
def test_decoder_follows_the_event_stream_grammar(stream: bytes, events: list[Event]) -> None:
    assert decode(stream) == events
    assert decode_bytewise(stream) == events


@given(st.lists(pieces, max_size=40).map("".join), st.lists(st.integers(0, 60), max_size=6))
def test_any_split_gives_the_same_events(text: str, cuts: list[int]) -> None:
    stream = text.encode()
    bounds = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    decoder = Decoder()
    events = [
        event
        for start, end in zip(bounds, bounds[1:], strict=False)
        for event in decoder.feed(stream[start:end])
    ]
    assert events == decode(stream) == decode_bytewise(stream)


@given(st.lists(texts, max_size=5))
def test_events_in_a_row_stay_apart(payloads: list[str]) -> None:
    stream = b"".join(
        sse.data_event(text.encode()) + sse.control_event(OFFSET, 1, False, False)
        for text in payloads
    )
    data = [event.data for event in decode(stream) if event.kind == "data"]
    assert data == [normalised(text) for text in payloads]
