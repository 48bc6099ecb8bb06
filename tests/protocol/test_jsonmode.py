import json
import tracemalloc
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.jsonmode import (
    DENSE,
    MAX_DEPTH,
    framed,
    split_messages,
    stored_form,
)

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
layouts = st.sampled_from(
    [
        {"indent": 2},
        {"ensure_ascii": False},
        {"separators": (",", ":")},
        {"separators": (" ,\t", "\r\n: ")},
    ]
)
# Pieces that make near-misses likely: half tokens, escapes, surrogates, blanks that are none.
PIECES = (
    [b"[", b"]", b"{", b"}", b",", b":", b'"', b'"a"', b'"a":', b" ", b"\n", b"\t", b"\r", b"\x0c"]
    + [b"0", b"1", b"-", b"+", b".", b"e", b"E", b"00", b"1.5", b"1e9", b"1E400", b"-0", b"_"]
    + [b"true", b"false", b"null", b"tru", b"NaN", b"Infinity", b"\\", b"\\n", b"\\q", b"\\/"]
    + [b"\\u", b"\\u0041", b"\\ud83d", b"\\ude00", b"\\uD800", b"\\uDFFF", b"\\U0041", b"\\u00g0"]
    + [b"\x00", b"\x1f", b"\x7f", b"\xc3\xa9", b"\xc3", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf"]
    + [b"/", b"//x", b"'", b"\xc2\xa0", b"\xe2\x80\xa8"]
)
bodies = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
strings = bodies.map(lambda body: b'"' + body.replace(b'"', b"") + b'"')


# Halves of surrogate pairs, as JavaScript writes them: JSON, though no text.
HALVES = [
    pytest.param(rb'"\ud83d"', id="high"),
    pytest.param(rb'"\uDC00"', id="low"),
    pytest.param(rb'"\ude00\ud83d"', id="reversed-pair"),
    pytest.param(rb'"\ud83dxxxxxx\ude00"', id="separated-pair"),
    pytest.param(rb'"\ud83d\ud83d\ude00"', id="high-high-low"),
    pytest.param(rb'"\ud83d\ude00\ude00"', id="high-low-low"),
    pytest.param(rb'"\ud83d\n\ude00"', id="escape-between-the-halves"),
    pytest.param(rb'"\ud83d\\ude00"', id="backslash-between-the-halves"),
    pytest.param(rb'"\\\ud83d\\"', id="between-backslashes"),
    pytest.param(rb'{"\ud800":1,"t":"\ud83d"}', id="in-a-key"),
    pytest.param('"é\\ud83d"'.encode(), id="beside-other-characters"),
]


def refuse(token: str) -> NoReturn:
    raise ValueError(token)


def parse_strictly(body: bytes) -> Any:
    """The oracle: the standard parser, with its known liberties taken away."""
    return json.loads(body.decode(), parse_constant=refuse, parse_int=float)


def accepts(judge: Callable[[bytes], Any], body: bytes) -> bool:
    try:
        judge(body)
    except (ValueError, ProtocolError):
        return False
    return True


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        pytest.param(b"{}", b"{},", id="object"),
        pytest.param(b"[1,2]", b"1,2,", id="array-is-flattened"),
        pytest.param(b"[[1,2],[3]]", b"[1,2],[3],", id="only-one-level"),
        pytest.param(b"[]", b"", id="empty-array"),
        pytest.param(b" [ \n] ", b"", id="empty-array-with-blanks"),
        pytest.param(b"[[]]", b"[],", id="one-empty-array"),
        pytest.param(b"null", b"null,", id="null"),
        pytest.param(b'"a, b"', b'"a, b",', id="text-with-comma"),
        pytest.param(b" \t\r\n 7 \n", b"7,", id="blanks-around-a-value"),
        pytest.param(b"[ 1 ,\n2\t]", b"1,2,", id="blanks-between-messages"),
        pytest.param(b'[ { "a" : 1 } ]', b'{ "a" : 1 },', id="blanks-inside-are-kept"),
        pytest.param(b'{"a":1,"a":2}', b'{"a":1,"a":2},', id="duplicate-keys-are-kept"),
        pytest.param(b"[1.0,1E400,-0,1e-9]", b"1.0,1E400,-0,1e-9,", id="numbers-as-written"),
        pytest.param(b'"\\u0041\\/"', b'"\\u0041\\/",', id="escapes-as-written"),
        pytest.param(b'"\\ud83d\\ude00"', b'"\\ud83d\\ude00",', id="surrogate-pair"),
        pytest.param(b'"\\\\ud800"', b'"\\\\ud800",', id="escaped-backslash-before-u"),
        pytest.param(b'"\xf0\x9f\x98\x80"', b'"\xf0\x9f\x98\x80",', id="four-byte-character"),
        pytest.param(b'"\x7f"', b'"\x7f",', id="delete-is-legal-in-strings"),
        pytest.param(b"1" * 5000, b"1" * 5000 + b",", id="very-long-number"),
    ],
)
def test_messages_are_stored_as_they_came(body: bytes, stored: bytes) -> None:
    assert stored_form(body) == stored


@pytest.mark.parametrize("half", HALVES)
def test_half_a_surrogate_pair_is_kept_as_it_came(half: bytes) -> None:
    stored = stored_form(b"[1 , " + half + b' ,"\\\\"]')
    assert stored == b"1," + half + b',"\\\\",'
    assert split_messages(stored) == [b"1", half, b'"\\\\"']


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("around", [b"%b,", b"[%b", b"%b%b", b"\\%b", b"[%b,tru]", b"[%b,\t\x00]"])
def test_half_a_surrogate_pair_excuses_nothing_else(around: bytes, half: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        stored_form(around.replace(b"%b", half))
    assert caught.value.code == "invalid-json"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \n", id="only-blanks"),
        pytest.param(b"{", id="open-object"),
        pytest.param(b"[1", id="open-array"),
        pytest.param(b"[1,]", id="comma-at-end-of-array"),
        pytest.param(b'{"a":1,}', id="comma-at-end-of-object"),
        pytest.param(b"[,1]", id="comma-at-start"),
        pytest.param(b"1 2", id="two-values"),
        pytest.param(b"1,2", id="comma-at-top"),
        pytest.param(b"{}x", id="garbage-after-object"),
        pytest.param(b"[]]", id="garbage-after-array"),
        pytest.param(b"{1:2}", id="number-as-key"),
        pytest.param(b"01", id="leading-zero"),
        pytest.param(b"1.", id="no-fraction"),
        pytest.param(b"+1", id="plus"),
        pytest.param(b".5", id="no-integer-part"),
        pytest.param(b"1e", id="no-exponent"),
        pytest.param(b"[[01]]", id="leading-zero-nested"),
        pytest.param(b"NaN", id="nan"),
        pytest.param(b"[-Infinity]", id="infinity"),
        pytest.param(b'"\t"', id="tab-in-string"),
        pytest.param(b'"\x00"', id="nul-in-string"),
        pytest.param(b'"\\x41"', id="unknown-escape"),
        pytest.param(b'"\\u12"', id="short-escape"),
        pytest.param(b'"\\ud8"', id="short-escape-of-a-half"),
        pytest.param(b"\\ud83d", id="half-a-pair-outside-of-a-string"),
        pytest.param(b"'a'", id="single-quotes"),
        pytest.param(b"/**/1", id="comment"),
        pytest.param(b"\x0c1", id="form-feed-is-no-blank"),
        pytest.param(b"\xef\xbb\xbf1", id="byte-order-mark"),
        pytest.param(b'"\xff"', id="not-utf-8"),
        pytest.param(b'{"\xc3":1}', id="cut-character-in-a-key"),
        pytest.param(b'"\xed\xa0\x80"', id="surrogate-as-utf-8"),
        pytest.param(b'"\xc0\xaf"', id="overlong-utf-8"),
        pytest.param('["a"]'.encode("utf-16"), id="utf-16"),
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        stored_form(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid-json")


@pytest.mark.parametrize(
    ("body", "position"),
    [(b"[1,x]", "byte 3"), (b'["\xff"]', "byte 2"), (b"\xef\xbb\xbf[]", "byte 0")],
    ids=["syntax", "utf-8", "byte-order-mark"],
)
def test_refusal_names_the_position(body: bytes, position: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        stored_form(body)
    assert position in caught.value.detail


def nested(opening: bytes, closing: bytes, levels: int) -> bytes:
    return opening * levels + b"1" + closing * levels


SHAPES = pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"]
)


@SHAPES
def test_a_message_may_nest_512_levels(opening: bytes, closing: bytes) -> None:
    message = nested(opening, closing, MAX_DEPTH)
    assert stored_form(b"[%b]" % message) == message + b","


@SHAPES
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1_000, 100_000])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "open"])
def test_deeper_is_refused_without_a_crash(
    opening: bytes, closing: bytes, levels: int, ended: bool
) -> None:
    body = b"[%b]" % nested(opening, closing, levels) if ended else opening * levels
    with pytest.raises(ProtocolError) as caught:
        stored_form(body)
    assert caught.value.code == "invalid-json"


def many(message: bytes, count: int) -> bytes:
    return b"[" + b",".join([message] * count) + b"]"


MESSAGES = [b"0", b"{}", b' "a,b" ', b'[1,{"a":[2,3]}]', b'"\\ud83d"']


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("dense", [5, 10_000], ids=["counted", "taken-apart"])
def test_a_body_has_so_many_messages_and_no_more(
    monkeypatch: pytest.MonkeyPatch, message: bytes, dense: int
) -> None:
    """Whichever way they are counted."""
    monkeypatch.setattr("protocol.jsonmode.DENSE", dense)
    monkeypatch.setattr("protocol.jsonmode.MAX_MESSAGES", 9)
    assert len(split_messages(stored_form(many(message, 9)))) == 9
    with pytest.raises(ProtocolError) as caught:
        stored_form(many(message, 10))
    assert (caught.value.status, caught.value.code) == (413, "too-many-messages")


def test_one_message_may_have_any_number_of_values() -> None:
    message = many(b"0", DENSE + 2)
    assert stored_form(b"[%b]" % message) == message + b","


def test_too_many_messages_are_refused_without_an_object_for_each() -> None:
    body = many(b"0", 4_000_000)
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        stored_form(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(body)


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    message = b'["' + b'[{\\"[' * 1000 + b'\\\\",' + b"[]," * 1000 + b"{}]"
    assert stored_form(b"[%b]" % message) == message + b","


def test_wide_is_not_deep() -> None:
    assert split_messages(stored_form(b"[%b1]" % (b'{"a":[]},' * 5000)))[5000] == b"1"


@given(bodies | strings | strings.map(lambda text: b"[%b]" % text))
@example(b'"\\ud83d\\"')
@example(b'["\\ud83d"]')
@example(b'"\\ud83d\\ude0"')
def test_accepts_exactly_strict_json(body: bytes) -> None:
    assert accepts(stored_form, body) == accepts(parse_strictly, body)


@given(values, layouts, st.data())
def test_one_changed_byte_is_judged_like_strict_json(
    value: Any, layout: dict[str, Any], data: st.DataObject
) -> None:
    body = bytearray(json.dumps(value, **layout).encode())
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    assert accepts(stored_form, bytes(body)) == accepts(parse_strictly, bytes(body))


@given(values, layouts)
def test_framed_array_holds_the_same_values(value: Any, layout: dict[str, Any]) -> None:
    body = json.dumps(value, **layout).encode()
    expected = value if isinstance(value, list) else [value]
    assert json.loads(framed(stored_form(body))) == expected


@given(st.lists(values, max_size=6), layouts)
def test_split_messages_are_the_written_ones(items: list[Any], layout: dict[str, Any]) -> None:
    messages = [json.dumps(item, **layout).encode() for item in items]
    stored = stored_form(b"[%b]" % b" , ".join(messages))
    assert split_messages(stored) == messages
    assert stored == b"".join(message + b"," for message in messages)


def test_nothing_stored_is_framed_as_an_empty_array() -> None:
    assert framed(b"") == b"[]"
    assert split_messages(b"") == []
