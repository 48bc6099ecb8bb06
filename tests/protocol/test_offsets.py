import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.offsets import NOW, START, format_offset, parse_offset

positions = st.integers(0, 10**16 - 1)
ZEROS = "0" * 16
NINES = "9" * 16


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
    assert parse_offset(token) == position


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


@given(positions)
def test_parse_undoes_format(position: int) -> None:
    assert parse_offset(format_offset(position)) == position


@given(positions, positions)
def test_string_order_is_position_order(left: int, right: int) -> None:
    assert (format_offset(left) < format_offset(right)) == (left < right)


@given(st.text(max_size=40))
def test_no_text_makes_the_parser_fail_otherwise(token: str) -> None:
    try:
        assert parse_offset(token) >= 0
    except ProtocolError as error:
        assert error.status == 400
