"""The State Protocol, rule by rule: tests are named after the sections of the document."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import state
from protocol.errors import ProtocolError
from protocol.jsonmode import stored_form
from protocol.state import (
    CONTROLS,
    DELETE,
    INSERT,
    OPERATIONS,
    RESET,
    RULES,
    SNAPSHOT_END,
    SNAPSHOT_START,
    UPDATE,
    UPSERT,
    Change,
    Control,
    Materialised,
    Message,
    StateError,
    check_messages,
    materialise,
    parse_message,
    snapshot_messages,
    split_array,
)

ABSENT = object()
# JSON by its grammar, but no text: half of a surrogate pair.
HALF_PAIRS = (rb'{"key":"\ud800"}', rb'{"\ud83d\\":["\udc00"]}', rb'"\ud83dx\\ud800\\"')
NOT_TEXT: list[Any] = [1, 1.5, True, None, [], ["a"], {}, {"a": 1}]


def change(operation: str = "insert", /, **fields: Any) -> dict[str, Any]:
    """A good change message, with other fields; ABSENT takes one away, `headers` adds some."""
    headers = {"operation": operation} | fields.pop("headers", {})
    message = {"type": "user", "key": "1", "value": {}, "headers": headers} | fields
    return {name: value for name, value in message.items() if value is not ABSENT}


def control(kind: object = "reset", /, **headers: Any) -> dict[str, Any]:
    return {"headers": {"control": kind} | headers}


def accept(message: object) -> Message:
    """Both ways in must take it."""
    raw = json.dumps(message).encode()
    check_messages(stored_form(b"[" + raw + b"]"))
    return parse_message(raw)


def refuse(message: object) -> str:
    """The field for which both ways in refuse it, whatever good ones are around it."""
    return refuse_raw(json.dumps(message).encode())


def refuse_raw(raw: bytes) -> str:
    with pytest.raises(StateError) as parsed:
        parse_message(raw, 2)
    good = json.dumps(change()).encode()
    with pytest.raises(StateError) as checked:
        check_messages(stored_form(b"[" + b",".join([good, good, raw, good, b"7"]) + b"]"))
    for error in (parsed.value, checked.value):
        assert (error.position, error.reason) == (2, RULES[error.field])
        assert str(error) == f"message 2{': ' * bool(error.field)}{error.field} {error.reason}"
    assert parsed.value.field == checked.value.field
    return checked.value.field


# -- 3. protocol overview ------------------------------------------------------------------------


@pytest.mark.parametrize("message", [*NOT_TEXT[:-2], "text", [change()]])
def test_3_a_message_is_a_json_object(message: object) -> None:
    assert refuse(message) == ""


def test_3_what_is_no_json_is_no_message() -> None:
    for raw in (b"", b"{", b"nul", b"{'type': 1}", b'{"type":"\xff"}', b'{"\xff":1}'):
        with pytest.raises(StateError) as error:
            parse_message(raw)
        assert error.value.field == ""


# -- 4.1 change messages -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["type", "key", "headers"])
def test_4_1_a_change_must_contain_type_key_and_headers(name: str) -> None:
    without = {field: value for field, value in change().items() if field != name}
    assert refuse(without) == name


@pytest.mark.parametrize("operation", ["insert", "update", "upsert"])
def test_4_1_what_stores_must_contain_a_value(operation: str) -> None:
    assert refuse(change(operation, value=ABSENT)) == "value"
    assert refuse(change(operation, value=ABSENT, old_value=1)) == "value"


@pytest.mark.parametrize("operation", ["insert", "update", "upsert"])
def test_4_1_null_is_a_value(operation: str) -> None:
    assert accept(change(operation, value=None)) == Change("user", "1", operation, b"null")


def test_4_1_old_value_may_be_there() -> None:
    accepted = accept(change("update", value=2, old_value=[1]))
    assert accepted == Change("user", "1", "update", b"2", b"[1]")


@pytest.mark.parametrize("headers", [[], "insert", None, 1, ["operation"]])
def test_4_1_headers_must_be_an_object(headers: object) -> None:
    assert refuse(change() | {"headers": headers}) == "headers"


def test_4_1_headers_must_contain_an_operation() -> None:
    assert refuse(change() | {"headers": {}}) == "headers"
    assert refuse(change() | {"headers": {"txid": "1"}}) == "headers"


def test_4_1_headers_may_contain_txid_and_timestamp() -> None:
    headers = {"txid": "t1", "timestamp": "2025-01-15T10:30:00Z"}
    accepted = accept(change(headers=headers))
    assert accepted == Change("user", "1", "insert", b"{}", None, *headers.values())


def test_4_1_a_change_may_say_where_it_stood() -> None:
    """The official package knows `offset` in the headers of changes too."""
    assert accept(change(headers={"offset": "0_1"})) == Change("user", "1", "insert", b"{}")


def test_4_1_a_message_is_not_both_a_change_and_a_control() -> None:
    for operation, kind in [("insert", "reset"), ("x", "reset"), ("insert", "x"), ("x", None)]:
        assert refuse(change(operation, headers={"control": kind})) == "headers"


# -- 4.1.1 to 4.1.3 operations, with the document's examples -------------------------------------


def test_4_1_1_insert() -> None:
    text = """{"type": "user", "key": "user:123",
               "value": {"name": "Alice", "email": "alice@example.com"},
               "headers": {"operation": "insert", "timestamp": "2025-01-15T10:30:00Z"}}"""
    value = b'{"name": "Alice", "email": "alice@example.com"}'
    expected = Change("user", "user:123", INSERT, value, None, None, "2025-01-15T10:30:00Z")
    assert parse_message(text.encode()) == expected


def test_4_1_1_old_value_of_an_insert_is_discouraged_not_refused() -> None:
    assert accept(change("insert", value=1, old_value=0)) == Change(
        "user", "1", "insert", b"1", b"0"
    )


@pytest.mark.parametrize("old_value", [ABSENT, None, {"name": "Alice"}])
def test_4_1_2_update_may_have_an_old_value(old_value: object) -> None:
    accepted = accept(change("update", value={"name": "Bob"}, old_value=old_value))
    kept = None if old_value is ABSENT else json.dumps(old_value).encode()
    assert accepted == Change("user", "1", UPDATE, b'{"name": "Bob"}', kept)


@pytest.mark.parametrize("value", [ABSENT, None, {"name": "Alice"}])
@pytest.mark.parametrize("old_value", [ABSENT, {"name": "Alice"}])
def test_4_1_3_delete_may_have_value_and_old_value(value: object, old_value: object) -> None:
    accepted = accept(change("delete", value=value, old_value=old_value))
    kept = [None if one is ABSENT else json.dumps(one).encode() for one in (value, old_value)]
    assert accepted == Change("user", "1", DELETE, kept[0], kept[1])


# -- 4.2 control messages ------------------------------------------------------------------------


def test_4_2_a_control_message_must_contain_headers_with_a_control() -> None:
    assert refuse({}) == "headers"
    assert refuse({"control": "reset"}) == "headers"
    assert refuse({"headers": {"offset": "1"}}) == "headers"


def test_4_2_headers_may_contain_an_offset() -> None:
    assert accept(control("reset")) == Control("reset", None)
    assert accept(control("reset", offset="123456_000")) == Control("reset", "123456_000")


def test_4_2_examples() -> None:
    for kind, offset in [
        (SNAPSHOT_START, "123456_000"),
        (SNAPSHOT_END, "123456_789"),
        (RESET, "123456_000"),
    ]:
        assert accept(control(kind, offset=offset)) == Control(kind, offset)


# -- 5.1 change message structure ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["type", "key"])
@pytest.mark.parametrize("text", ["", *NOT_TEXT])
def test_5_1_type_and_key_must_be_non_empty_strings(name: str, text: object) -> None:
    assert refuse(change(**{name: text})) == name


@pytest.mark.parametrize(
    "text", [" ", "a b", "é", "😀", "\x00", "\x1b[31m", "__proto__", "x" * 999]
)
def test_5_1_any_other_string_is_a_type_and_a_key(text: str) -> None:
    assert accept(change(type=text, key=text)) == Change(text, text, "insert", b"{}")


@pytest.mark.parametrize(
    "value",
    [b'"text"', b"1", b"-0.0", b"1e400", b"12345678901234567890123", b"true", b"false", b"null"]
    + [b"[]", b"{}", b'[1, {"a":\t[]}]', b'"\xc3\xa9\\u00e9"', b'{"a":1,"a":2}'],
)
@pytest.mark.parametrize("name", ["value", "old_value"])
def test_5_1_values_are_any_json_and_are_kept_as_they_came(name: str, value: bytes) -> None:
    fields = {"value": b"0"} | {name: value}
    members = b",".join(b'"%b": %b ' % (key.encode(), one) for key, one in fields.items())
    raw = b'{"type":"a","key":"b","headers":{"operation":"update"},' + members + b"}"
    check_messages(stored_form(raw))
    assert getattr(parse_message(raw), name) == value


@pytest.mark.parametrize(
    "operation", ["", "Upsert", "Insert", "INSERT", "insert ", "remove", *NOT_TEXT]
)
def test_5_1_operation_must_be_one_of_four(operation: object) -> None:
    assert refuse(change(headers={"operation": operation})) == "headers.operation"
    assert [accept(change(good)) for good in OPERATIONS]


@pytest.mark.parametrize("txid", ["", *NOT_TEXT])
def test_5_1_txid_must_be_a_non_empty_string(txid: object) -> None:
    assert refuse(change(headers={"txid": txid})) == "headers.txid"


@pytest.mark.parametrize(
    "timestamp", ["", "yesterday", "2025-02-30T00:00:00Z", "2025-01-15T10:30:00", *NOT_TEXT]
)
def test_5_1_timestamp_must_be_a_valid_rfc_3339_timestamp(timestamp: object) -> None:
    assert refuse(change(headers={"timestamp": timestamp})) == "headers.timestamp"


@pytest.mark.parametrize(
    "timestamp", ["2025-01-15T10:30:00Z", "1990-12-31T23:59:60Z", "2025-01-15t10:30:00.5+01:00"]
)
def test_5_1_timestamps_of_all_forms(timestamp: str) -> None:
    accepted = accept(change(headers={"timestamp": timestamp}))
    assert isinstance(accepted, Change) and accepted.timestamp == timestamp


def test_5_1_unknown_fields_are_no_concern_of_ours() -> None:
    more = {"headers": {"offset": 7, "x": []}, "from": "me", "Value": 1}
    assert accept(change(**more)) == Change("user", "1", "insert", b"{}")


@pytest.mark.parametrize("name", ["type", "key"])
@pytest.mark.parametrize("text", [b"1e999", b"9" * 5000])
def test_5_1_numbers_beyond_all_bounds_are_no_strings_either(name: str, text: bytes) -> None:
    fields = {"type": b'"a"', "key": b'"b"'} | {name: text}
    members = b",".join(b'"%b":%b' % (key.encode(), one) for key, one in fields.items())
    raw = b'{"value":1,"headers":{"operation":"insert"},' + members + b"}"
    assert refuse_raw(raw) == name


def test_5_1_the_last_of_repeated_fields_counts() -> None:
    """As JavaScript reads them."""
    raw = b'{"type":"","type":"a","key":"b","value":1,"value":2,"headers":{"operation":"update"}}'
    assert parse_message(raw) == Change("a", "b", "update", b"2")


# -- 5.2 control message structure ---------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["", "Reset", "snapshot", "snapshot_start", "up-to-date", *NOT_TEXT]
)
def test_5_2_control_must_be_one_of_three(kind: object) -> None:
    assert refuse(control(kind)) == "headers.control"
    assert [accept(control(good)) for good in CONTROLS]


@pytest.mark.parametrize(
    "offset", ["", "a,b", "a&b", "a=b", "a?b", "a/b", "a b", "é", "a\n", "x" * 256, *NOT_TEXT]
)
def test_5_2_offset_must_be_a_valid_stream_offset(offset: object) -> None:
    assert refuse(control(offset=offset)) == "headers.offset"


@pytest.mark.parametrize("offset", ["-1", "0", "123456_000", "b64+~!$'()*;:@%", "x" * 255])
def test_5_2_offsets_of_any_server_will_do(offset: str) -> None:
    assert accept(control(offset=offset)) == Control("reset", offset)


def test_5_2_unknown_fields_are_no_concern_of_ours() -> None:
    more = {"type": 1, "key": [], "value": {}, "x": None}
    assert accept(control(txid=1, timestamp="never") | more) == Control("reset")
    raw = rb'{"headers":{"control":"reset","txid":1e999},"type":1e999}'
    check_messages(stored_form(raw))
    assert parse_message(raw) == Control("reset")


# -- many messages in one append -----------------------------------------------------------------


def test_nothing_is_nothing_to_refuse() -> None:
    check_messages(b"")


json_pieces = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("a") | json_pieces,
        "key": st.just("b") | json_pieces,
        "value": json_pieces,
        "headers": json_pieces
        | st.fixed_dictionaries(
            {},
            optional={
                "operation": st.sampled_from(OPERATIONS) | json_pieces,
                "control": st.sampled_from(CONTROLS) | json_pieces,
                "txid": st.just("t") | json_pieces,
                "timestamp": st.just("2025-01-15T10:30:00Z") | json_pieces,
                "offset": st.just("0_0") | json_pieces,
            },
        ),
    },
)


@given(st.lists(near_misses | json_pieces, max_size=4))
def test_an_append_is_judged_as_its_messages_are(messages: list[Any]) -> None:
    def verdict(message: object, position: int) -> tuple[int, str] | None:
        try:
            parse_message(json.dumps(message).encode(), position)
        except StateError as error:
            return error.position, error.field
        return None

    verdicts = [verdict(message, position) for position, message in enumerate(messages)]
    expected = next((found for found in verdicts if found is not None), None)
    try:
        check_messages(stored_form(json.dumps(messages).encode()))
    except StateError as error:
        assert (error.position, error.field) == expected
    else:
        assert expected is None


@given(st.binary(max_size=40) | st.text().map(str.encode))
def test_no_bytes_make_it_fail_otherwise(body: bytes) -> None:
    try:
        check_messages(stored_form(body))
    except (ProtocolError, StateError):
        pass


def test_deep_messages_are_judged_like_others() -> None:
    deep = b"[" * 400 + b"]" * 400
    assert (
        refuse_raw(b'{"type":' + deep + b',"key":"b","headers":{"operation":"delete"}}') == "type"
    )
    raw = b'{"type":"a","key":"b","value":' + deep + b',"headers":{"operation":"insert"}}'
    check_messages(stored_form(raw))
    too_deep = raw.replace(deep, b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(StateError):
        parse_message(too_deep)
    with pytest.raises(ValueError):
        split_array(b"[" + too_deep + b"]")


HALF = rb'"\ud83d"'
A_CHANGE = rb'{"type":"a","key":"b","value":1,"headers":{"operation":"insert"}}'


@pytest.mark.parametrize(
    "value", [HALF, rb'{"\udc00":["\\\ud83d",0]}', rb'["\ud83d\ude00",%b]' % HALF]
)
def test_a_value_may_hold_half_a_surrogate_pair(value: bytes) -> None:
    raw = A_CHANGE.replace(b"1,", value + b",")
    check_messages(stored_form(b"[" + A_CHANGE + b"," + raw + b"]"))
    change = parse_message(raw)
    assert change == Change("a", "b", INSERT, value)
    (again,) = split_array(snapshot_messages(materialise([change]), "0_0"))[1:-1]
    assert parse_message(again) == change


def test_fields_that_no_rule_names_may_have_half_a_surrogate_pair() -> None:
    raw = A_CHANGE.replace(b'{"type"', b"{" + HALF + b":" + HALF + b',"type"', 1)
    raw = raw.replace(b'{"op', b"{" + HALF + b':1,"op')
    check_messages(stored_form(raw))
    assert parse_message(raw) == Change("a", "b", INSERT, b"1")


@pytest.mark.parametrize("name", ["type", "key", "headers.operation", "headers.txid"])
def test_half_a_surrogate_pair_names_nothing(name: str) -> None:
    field = name.rpartition(".")[2].encode()
    raw = A_CHANGE.replace(b'{"op', b'{"txid":"t","op')
    bad = re.sub(b'"' + field + b'":"[a-z]+"', lambda _: b'"' + field + b'":' + HALF, raw)
    assert refuse_raw(bad) == name


def test_arrays_are_split_into_messages() -> None:
    assert split_array(b' [ {"a" : 1},\n2 ,"x,]"] ') == [b'{"a" : 1}', b"2", b'"x,]"']
    assert split_array(b"[]") == []


@pytest.mark.parametrize("half_pair", HALF_PAIRS)
def test_half_a_surrogate_pair_is_split_off_as_it_is(half_pair: bytes) -> None:
    others = [b'{"a" : "\xc3\xa9"}', b"2", b'"x,]"', b"[1, 2]"]
    body = b"[\n" + b" ,".join([*others, half_pair, *others]) + b" ]"
    assert split_array(body) == [*others, half_pair, *others]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'"[]"', b"[1,]", b"[1 2]", b"[1]]", b'["\xff\\ud800"]']
)
def test_what_is_no_array_is_not_split(body: bytes) -> None:
    with pytest.raises(ValueError):
        split_array(body)


# -- 6. state materialization --------------------------------------------------------------------


def insert(key: str, value: object = 0, kind: str = "user") -> Change:
    return Change(kind, key, INSERT, json.dumps(value).encode())


def delete(key: str, kind: str = "user") -> Change:
    return Change(kind, key, DELETE)


def test_6_example() -> None:
    messages = [
        change("insert", key="1", value={"name": "Alice"}),
        change("insert", key="2", value={"name": "Bob"}),
        change("update", key="1", value={"name": "Alice Smith"}),
    ]
    state = materialise(map(accept, messages))
    assert values_of(state) == {"user": {"1": {"name": "Alice Smith"}, "2": {"name": "Bob"}}}
    assert len(state) == 2


def values_of(state: Materialised) -> dict[str, dict[str, Any]]:
    return {
        kind: {key: json.loads(value) for key, value in entities.items()}
        for kind, entities in state.entities.items()
    }


def test_6_messages_are_applied_in_order() -> None:
    first, second = insert("1", "first"), insert("1", "second")
    assert values_of(materialise([first, second])) == {"user": {"1": "second"}}
    assert values_of(materialise([second, first])) == {"user": {"1": "first"}}


@pytest.mark.parametrize("operation", [INSERT, UPDATE, UPSERT])
def test_6_insert_and_update_store_whether_or_not_the_entity_exists(operation: str) -> None:
    stored = Change("user", "1", operation, b"9")
    assert values_of(materialise([stored])) == {"user": {"1": 9}}
    assert values_of(materialise([insert("1", {"a": 1}), stored])) == {"user": {"1": 9}}


def test_6_delete_removes_whatever_value_it_carries() -> None:
    gone = Change("user", "1", DELETE, b'"still here?"')
    assert values_of(materialise([insert("1"), gone])) == {}
    assert values_of(materialise([gone])) == {}
    assert values_of(materialise([insert("1"), insert("2"), gone])) == {"user": {"2": 0}}


def test_6_equal_keys_of_different_types_are_different_entities() -> None:
    state = materialise([insert("1", 1, "a"), insert("1", 2, "b"), delete("1", "a")])
    assert values_of(state) == {"b": {"1": 2}}


def test_4_2_2_reset_clears_the_state_and_reading_goes_on() -> None:
    reset = Control(RESET, "0_0")
    assert materialise([insert("1"), reset]) == Materialised()
    assert values_of(materialise([insert("1"), reset, insert("2")])) == {"user": {"2": 0}}


def test_4_2_1_snapshot_marks_change_no_entities() -> None:
    start, end = Control(SNAPSHOT_START), Control(SNAPSHOT_END)
    state = materialise([insert("1"), start, insert("2"), end, insert("3")])
    assert values_of(state) == {"user": {"1": 0, "2": 0, "3": 0}}


def test_4_2_1_an_open_snapshot_can_be_told() -> None:
    start, end = Control(SNAPSHOT_START), Control(SNAPSHOT_END)
    assert not materialise([insert("1")]).snapshot_open
    assert materialise([start, insert("1")]).snapshot_open
    assert not materialise([start, insert("1"), end]).snapshot_open
    assert not materialise([start, Control(RESET)]).snapshot_open


texts = st.sampled_from(["a", "b", "é", "\x1b", "__proto__", "\U0001f600"]) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3
)
changes = st.builds(
    change,
    st.sampled_from(OPERATIONS),
    type=texts,
    key=texts,
    value=json_pieces,
    headers=st.just({}),
)
controls = st.builds(control, st.sampled_from(CONTROLS))
histories = st.lists(changes | changes | changes | controls, max_size=30)


def naive_state(messages: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    state: dict[tuple[str, str], Any] = {}
    for message in messages:
        headers: Mapping[str, str] = message["headers"]
        if headers.get("control") == "reset":
            state = {}
        elif headers.get("operation") == "delete":
            state.pop((message["type"], message["key"]), None)
        elif "operation" in headers:
            state[message["type"], message["key"]] = message["value"]
    return state


@given(histories)
def test_6_the_state_is_that_of_a_naive_dictionary(messages: list[dict[str, Any]]) -> None:
    state = materialise(map(accept, messages))
    flat = {
        (kind, key): value
        for kind, entities in values_of(state).items()
        for key, value in entities.items()
    }
    assert flat == naive_state(messages)
    assert len(state) == len(flat) and all(state.entities.values())


@given(histories)
def test_4_2_1_snapshot_messages_lead_to_the_same_state(messages: list[dict[str, Any]]) -> None:
    state = materialise(map(accept, messages))
    snapshot = snapshot_messages(state, "7_7")
    check_messages(stored_form(snapshot))
    assert materialise(map(parse_message, split_array(snapshot))) == state


def test_4_2_1_snapshot_messages_are_sorted_and_marked() -> None:
    state = materialise([insert("2", "é"), insert("10"), insert("1", None, "a")])
    assert json.loads(snapshot_messages(state, "7_7")) == [
        control("snapshot-start", offset="7_7"),
        change(type="a", value=None),
        change(key="10", value=0),
        change(key="2", value="é"),
        control("snapshot-end", offset="7_7"),
    ]


def test_4_2_1_values_go_into_a_snapshot_as_they_came() -> None:
    state = materialise([Change("a", "b", INSERT, b'{"n": 1.50e3, "t": "\\u00e9"}')])
    assert b'"value":{"n": 1.50e3, "t": "\\u00e9"}' in snapshot_messages(state, "0")


def test_4_2_1_a_snapshot_that_is_still_open_stays_open() -> None:
    state = materialise([Control(SNAPSHOT_START), insert("1", {})])
    assert json.loads(snapshot_messages(state, "7")) == [
        control("snapshot-start", offset="7"),
        change(),
    ]


# -- 9. security considerations ------------------------------------------------------------------


def test_9_transaction_identifiers_mean_nothing_here() -> None:
    one, other = insert("1"), insert("2")
    grouped = [Change("user", "1", INSERT, b"0", txid="t"), Change("user", "2", INSERT, b"0")]
    assert materialise(grouped) == materialise([one, other])


HALF_OFFSET = rb'{"type":"a","key":"b","headers":{"operation":"delete","offset":"\ud83d"}}'
PAIR = rb'{"type":"\ud83d\ude00","key":"\\\ud83d\ude00","headers":{"operation":"delete"}}'


@pytest.mark.parametrize("last", [b"", b"1", b'{"headers":[]}', rb'{"headers":"\ud83d"}'])
def test_only_the_message_that_is_none_is_read_slowly(
    last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def noted(raw: bytes, position: int) -> Any:
        read.append(raw)
        return decode_slowly(raw, position)

    decode_slowly = state._decode_slowly
    monkeypatch.setattr(state, "_decode_slowly", noted)
    stored = b"".join(message + b"," for message in [HALF_OFFSET, PAIR] * 50 + [last] if message)
    if last:
        with pytest.raises(StateError, match="message 100"):
            check_messages(stored)
    else:
        check_messages(stored)
    assert read == ([last] if last else [])


PARTS = [
    rb'"\ud83d"',
    rb'"\ud83d\ude00"',
    rb'"\\ud83d"',
    b'"a"',
    b"1",
    b'""',
    b'"delete"',
    b'"reset"',
]
NAMES = [b"operation", b"control", b"txid", b"timestamp", b"offset"]
spelled_headers = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(PARTS)).map(
    lambda named: b"{%b}" % b",".join(b'"%b":%b' % pair for pair in named.items())
)
spelled = st.builds(
    lambda *parts: b'{"type":%b,"key":%b,"value":%b,"headers":%b}' % parts,
    *[st.sampled_from(PARTS)] * 3,
    spelled_headers | st.sampled_from(PARTS),
)


@given(st.lists(spelled | st.just(HALF_OFFSET), min_size=1, max_size=3))
def test_an_append_with_halves_is_judged_as_its_messages_are(messages: list[bytes]) -> None:
    def verdict(*at: tuple[int, bytes]) -> str:
        try:
            for position, message in at:
                parse_message(message, position)
        except StateError as error:
            return str(error)
        return ""

    found = ""
    try:
        check_messages(b"".join(message + b"," for message in messages))
    except StateError as error:
        found = str(error)
    assert found == verdict(*enumerate(messages))
