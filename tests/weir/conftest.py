"""The command in this process: what it printed and how it ended."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.helpers.scripted_origin import ScriptedOrigin
from weir.cli import main


class Done(NamedTuple):
    code: int
    out: list[str]
    err: list[str]


Weir = Callable[..., Done]


@pytest.fixture
def weir(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Weir:
    monkeypatch.delenv("WEIR_TOKEN", raising=False)

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out.splitlines(), err.splitlines())

    return run


@pytest.fixture
def scripted() -> Iterator[ScriptedOrigin]:
    with ScriptedOrigin() as origin:
        yield origin
