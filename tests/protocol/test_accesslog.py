import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.accesslog import (
    ENDINGS,
    LONG_LINE_BYTES,
    MODES,
    ROLES,
    TEXT_CHARACTERS,
    USER_AGENT_CHARACTERS,
    VERDICTS,
    AccessRecord,
    LogFile,
    append_line,
    decode_line,
    encode_line,
    file_name,
    parse_file_name,
)

BASE: dict[str, Any] = {
    "time_ms": 1_794_805_200_000,
    "gateway": "gw-1",
    "worker": 0,
    "seq": 1,
    "request_id": "r1",
    "method": "GET",
    "mode": "catch-up",
    "status": 200,
    "verdict": "hit",
}
FIELDS = msgspec.structs.fields(AccessRecord)
TEXTS = [field.name for field in FIELDS if field.type is str]
VALUES: dict[object, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    int: st.integers(0, 2**53),
    float: st.floats(0, 1e9),
}
records = st.builds(AccessRecord, **{field.name: VALUES[field.type] for field in FIELDS})
any_text = st.text(st.characters(), max_size=3 * TEXT_CHARACTERS)  # lone surrogates too


def record(**fields: Any) -> AccessRecord:
    return AccessRecord(**BASE | fields)


@given(records)
def test_a_line_reads_back_as_the_record(original: AccessRecord) -> None:
    assert decode_line(encode_line(original)) == original


@given(st.dictionaries(st.sampled_from(TEXTS), any_text))
def test_a_line_is_one_line_of_json_whatever_the_strings_hold(texts: dict[str, str]) -> None:
    line = encode_line(record(**texts))
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1 and b"\r" not in line and b"\0" not in line
    assert set(json.loads(line)) == {field.name for field in FIELDS}
    assert decode_line(line).status == 200


def test_a_line_has_every_field_in_the_documented_order() -> None:
    names = list(json.loads(encode_line(record())))
    assert names == [field.name for field in FIELDS]
    assert names[:6] == ["v", "time_ms", "gateway", "worker", "seq", "request_id"]
    assert names[-3:] == ["ended", "error", "user_agent"]


def test_what_is_not_utf8_is_replaced_and_the_rest_stays() -> None:
    agent = b"caf\xe9 \xf0\x9f\x98\x80".decode("utf-8", "surrogateescape")
    line = encode_line(record(user_agent=agent, stream="a\nb"))
    found = decode_line(line)
    assert (found.user_agent, found.stream) == ("caf\ufffd \U0001f600", "a\nb")


def test_a_user_agent_is_cut() -> None:
    line = encode_line(record(user_agent="x" * 1_000_000, stream="s" * 1000))
    found = decode_line(line)
    assert found.user_agent == "x" * USER_AGENT_CHARACTERS
    assert found.stream == "s" * 1000


@given(st.lists(st.sampled_from(TEXTS), min_size=1), st.sampled_from(["x", "\0", "\u20ac"]))
def test_a_line_is_bounded_whatever_clients_send(names: list[str], sign: str) -> None:
    line = encode_line(record(**dict.fromkeys(names, sign * 100_000)))
    assert len(line) < 64 * 1024
    assert all(len(getattr(decode_line(line), name)) > 0 for name in names)


def test_strings_of_an_ordinary_line_are_whole() -> None:
    offset = "9" * (LONG_LINE_BYTES // 2)
    assert decode_line(encode_line(record(offset=offset))).offset == offset


def test_encoding_does_not_change_the_record() -> None:
    original = record(user_agent="\ud800" * 500)
    encode_line(original)
    assert original.user_agent == "\ud800" * 500


@given(st.lists(st.one_of(records, st.builds(record, user_agent=any_text))))
def test_lines_are_added_behind_each_other(many: list[AccessRecord]) -> None:
    buffer = bytearray()
    for one in many:
        append_line(one, buffer)
    assert bytes(buffer) == b"".join(map(encode_line, many))


def test_a_field_of_a_later_version_is_left_out() -> None:
    line = encode_line(record()).replace(b'{"v":1', b'{"v":2,"colour":"red"')
    assert decode_line(line) == record(v=2)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}", id="no-fields"),
        pytest.param(encode_line(record())[:-10], id="torn"),
        pytest.param(encode_line(record()).replace(b"200", b'"200"'), id="wrong-type"),
        pytest.param(encode_line(record()).replace(b"gw-1", b"\xff"), id="not-utf8"),
        pytest.param(b'{"x":' + b"[" * 100_000, id="deep"),
    ],
)
def test_what_is_not_a_line_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode_line(line)


def test_a_file_is_named_by_gateway_worker_and_hour_in_utc() -> None:
    assert file_name("gw", 3, 1_794_805_200_000) == "access-gw-3-20261116T05.jsonl"
    assert file_name("gw", 3, 1_794_805_199_999) == "access-gw-3-20261116T04.jsonl"


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True),
    st.integers(0, 255),
    st.integers(0, 4_000_000_000_000),
)
def test_the_name_of_a_file_reads_back(gateway: str, worker: int, time_ms: int) -> None:
    found = parse_file_name(file_name(gateway, worker, time_ms))
    assert found == LogFile(gateway, worker, time_ms // 3_600_000 * 3_600_000)


def test_a_compressed_file_is_still_the_same_hour_of_the_log() -> None:
    name = "access-gw-0-20261116T05.jsonl"
    assert parse_file_name(name) == parse_file_name(name + ".gz") is not None


@pytest.mark.parametrize("gateway", ["", "a/b", "a b", "a\n", "\u00e9", "x" * 65])
def test_a_name_that_is_no_part_of_a_file_name_is_refused(gateway: str) -> None:
    with pytest.raises(ValueError):
        file_name(gateway, 0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "access-gw-0-20261116T05.jsonl.tmp",
        "access-gw-0-20261116T05.jsonl.gz.gz",
        "access-gw-0-20261116T05.jsonl\n",
        "access-gw-0-20261116T05xjsonl",
        "access-gw-0-20261316T05.jsonl",
        "access-gw-0-20261116T24.jsonl",
        "access-gw-00-20261116T05.jsonl",
        "access-gw-20261116T05.jsonl",
        "access--0-20261116T05.jsonl",
        "other.jsonl",
    ],
)
def test_other_files_are_not_ours(name: str) -> None:
    assert parse_file_name(name) is None


def test_the_documentation_names_every_field_and_value() -> None:
    text = (Path(__file__).parents[2] / "docs" / "access-log.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == [field.name for field in FIELDS]
    values = {*MODES, *VERDICTS, *ROLES, *ENDINGS} - {""}
    assert [value for value in values if f"`{value}`" not in text] == []
