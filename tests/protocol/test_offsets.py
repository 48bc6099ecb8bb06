import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.offsets import (
    NOW,
    START,
    Offset,
    are_ordered,
    format_offset,
    incarnation_of_offset,
    is_offset,
    moved_to,
    parse_offset,
    position_of,
)

positions = st.integers(0, 10**16 - 1)
ids = st.integers(0, 2**64 - 1)
ZEROS = "0" * 16
NINES = "9" * 16
LEAST = "bbbbbbbbbbbbbbb_"  # the names of the first stream and of the last
MOST = "phfpzwbkpsgrzbt_"


@pytest.mark.parametrize(
    ("token", "position"),
    [
        pytest.param(START, 0, id="start"),
        pytest.param(f"{ZEROS}_{ZEROS}", 0, id="zero"),
        pytest.param(f"{ZEROS}_0000000000000042", 42, id="forty-two"),
        pytest.param(f"{ZEROS}_{NINES}", 10**16 - 1, id="largest-position"),
        pytest.param(f"{NINES}_{NINES}", 10**32 - 1, id="all-nines"),
        pytest.param(f"0000000000000001_{ZEROS}", 10**16, id="first-part-set"),
    ],
)
def test_well_formed_token_gives_its_position(token: str, position: int) -> None:
    assert parse_offset(token) == Offset(position, None)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param(NOW, id="now-is-for-the-caller"),
        pytest.param("0", id="bare-number"),
        pytest.param("-2", id="other-negative"),
        pytest.param("-1 ", id="start-with-blank"),
        pytest.param(f"{ZEROS}_{ZEROS}0", id="too-long"),
        pytest.param(f"{ZEROS}_{ZEROS[1:]}", id="too-short"),
        pytest.param(f"{ZEROS}0{ZEROS}", id="no-underscore"),
        pytest.param(f"{ZEROS}-{ZEROS}", id="dash"),
        pytest.param(f"{ZEROS[1:]}_0{ZEROS}", id="underscore-elsewhere"),
        pytest.param(f"{ZEROS}_+000000000000001", id="plus-sign"),
        pytest.param(f"-000000000000000_{ZEROS}", id="minus-sign"),
        pytest.param(f"{ZEROS}_ 00000000000000 ", id="blanks"),
        pytest.param(f"{ZEROS}_0000000_00000000", id="second-underscore"),
        pytest.param(f"{ZEROS}_000000000000000\u0661", id="arabic-digit"),
        pytest.param(f"{ZEROS}_000000000000000\u00b2", id="superscript-digit"),
        pytest.param(f"{ZEROS}_{ZEROS}\n", id="newline-at-end"),
        pytest.param(f"{ZEROS}_000000000000000a", id="hexadecimal"),
        pytest.param(f"{ZEROS}_{ZEROS}".replace("0", "0\x00", 1)[:33], id="nul"),
        pytest.param(f"{LEAST[:15]}b_{ZEROS}", id="sixteen-letters"),
        pytest.param(f"a{LEAST[1:]}_{ZEROS}", id="vowel"),
        pytest.param(f"{LEAST.upper()}_{ZEROS}", id="capitals"),
        pytest.param(f"{LEAST}_{ZEROS[1:]}", id="named-and-too-short"),
        pytest.param(f"{LEAST}_{ZEROS[1:]}x", id="named-without-a-position"),
        pytest.param(f"zzzzzzzzzzzzzzz__{ZEROS}", id="beyond-the-last-stream"),
    ],
)
def test_anything_else_is_refused(token: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_offset(token)
    assert (caught.value.status, caught.value.code) == (400, "invalid-offset")


def test_refusal_of_a_huge_token_stays_short() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_offset("x" * 100_000)
    assert len(caught.value.detail) < 200


@given(ids, positions)
def test_parse_undoes_format(stream_id: int, position: int) -> None:
    token = format_offset(stream_id, position)
    assert parse_offset(token) == Offset(position, stream_id)
    assert position_of(token) == position
    assert incarnation_of_offset(token) == f"{stream_id:016x}"


@given(ids, positions, positions)
def test_string_order_is_position_order(stream_id: int, left: int, right: int) -> None:
    tokens = format_offset(stream_id, left), format_offset(stream_id, right)
    assert (tokens[0] < tokens[1]) == (left < right)
    assert are_ordered(*tokens)
    assert moved_to(tokens[0], right) == tokens[1]


@given(ids, positions)
def test_a_token_is_short_valid_anywhere_and_no_number(stream_id: int, position: int) -> None:
    token = format_offset(stream_id, position)
    name, underscore, digits = token[:16], token[16], token[17:]
    assert (len(token), underscore, digits) == (33, "_", f"{position:016}")
    assert is_offset(token) and name.isascii() and not any(map(str.isdigit, name))
    assert len(token.split("_")) == 3  # who counts up offsets of two parts leaves it alone


def test_the_first_stream_and_the_last() -> None:
    assert format_offset(0, 0) == f"{LEAST}_{ZEROS}"
    assert format_offset(2**64 - 1, 0) == f"{MOST}_{ZEROS}"


@pytest.mark.parametrize("token", [START, f"{ZEROS}_{ZEROS}", "17", f"zzzzzzzzzzzzzzz__{ZEROS}"])
def test_other_tokens_name_no_stream(token: str) -> None:
    assert incarnation_of_offset(token) == ""


@pytest.mark.parametrize(
    ("token", "position"),
    [(START, 0), (f"{ZEROS}_{ZEROS[1:]}7", 7), ("17", None), (f"{NINES}_{ZEROS}", None)],
)
def test_only_our_tokens_tell_their_position(token: str, position: int | None) -> None:
    assert position_of(token) == position


@pytest.mark.parametrize(
    ("token", "other", "ordered"),
    [
        pytest.param(f"{ZEROS}_{ZEROS}", f"{ZEROS}_{NINES}", True, id="both-nameless"),
        pytest.param("17", "18", True, id="of-another-server"),
        pytest.param(START, f"{LEAST}_{ZEROS}", True, id="the-start-is-before-all"),
        pytest.param(f"{ZEROS}_{ZEROS}", f"{LEAST}_{ZEROS}", False, id="one-is-nameless"),
        pytest.param(f"{MOST}_{ZEROS}", f"{LEAST}_{ZEROS}", False, id="two-streams"),
    ],
)
def test_only_offsets_of_one_stream_are_ordered(token: str, other: str, ordered: bool) -> None:
    assert are_ordered(token, other) == are_ordered(other, token) == ordered


@given(st.text(max_size=40))
def test_no_text_makes_the_parser_fail_otherwise(token: str) -> None:
    try:
        assert parse_offset(token).position >= 0
    except ProtocolError as error:
        assert error.status == 400
