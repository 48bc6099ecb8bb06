"""The level of a log as other servers of the protocol are told it."""

import pytest

from origin.config import load_config
from wire.rustlog import level_of, with_level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("info", "info"),
        ("WARN", "warning"),
        ("trace", "debug"),
        ("off", "error"),
        ("durable_streams=debug", "debug"),
        ("durable_streams::api=debug,warn", "debug"),
        ("weir=error,info", "error"),
        ("info, weir = debug", "info"),
        ("hyper=debug,info", "info"),
        ("hyper=debug", ""),
        ("loud,=,x=y", ""),
        ("", ""),
    ],
)
def test_a_filter_is_a_level_of_ours(text: str, level: str) -> None:
    assert level_of(text) == level


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({}, "info"),
        ({"RUST_LOG": "debug"}, "debug"),
        ({"DS_LOG__RUST_LOG": "warn"}, "warning"),
        ({"RUST_LOG": "error", "DS_LOG__RUST_LOG": "debug"}, "error"),
        ({"RUST_LOG": "", "DS_LOG__RUST_LOG": "debug"}, "debug"),
        ({"RUST_LOG": "debug", "DS_LOG__LEVEL": "warning"}, "warning"),
        ({"RUST_LOG": "other_program=debug"}, "info"),
    ],
)
def test_the_variables_set_the_level_unless_ours_does(
    variables: dict[str, str], level: str
) -> None:
    assert load_config({}, variables).log.level == level


def test_nothing_else_is_touched() -> None:
    assert with_level({"DS_SERVER__PORT": "1"}) == {"DS_SERVER__PORT": "1"}
