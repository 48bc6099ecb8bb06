"""The parser and the commands behind it."""

from importlib import import_module
from pathlib import Path

import pytest

import weir.commands
from weir.cli import make_parser
from weir.reference import _subparsers

COMMANDS = {parser.prog.split()[1]: parser for parser in _subparsers(make_parser())}
NO_COMMANDS = {"__init__", "fleet", "localcluster"}  # flags of `weir envoy` and `weir up`


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_module_of_its_name_and_explains_its_flags(name: str) -> None:
    assert callable(import_module(f"weir.commands.{name}").run)
    assert COMMANDS[name].description
    assert all(action.help for action in COMMANDS[name]._actions)


def test_there_is_no_module_without_its_command() -> None:
    (folder,) = weir.commands.__path__
    assert {path.stem for path in Path(folder).glob("*.py")} - NO_COMMANDS == set(COMMANDS)
