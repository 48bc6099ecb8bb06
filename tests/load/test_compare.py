"""`weir load compare` from end to end, with one small scenario."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load import compare as comparing
from loadtest.load.paced import SCENARIOS
from loadtest.load.session import Knobs
from loadtest.peers.names import NGINX, OURS
from loadtest.peers.servers import PROXIES


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A world of two peers, one of which is not there."""

    def ensure() -> None:
        raise UnavailableError("nginx is not there")

    polls = replace(SCENARIOS["polls"], knobs=Knobs(seconds=1, readers=10, rate=4, size=256))
    monkeypatch.setattr(comparing, "SCENARIOS", {"polls": polls})
    monkeypatch.setattr(comparing, "PEERS", (OURS, NGINX))
    monkeypatch.setitem(PROXIES, NGINX, replace(PROXIES[NGINX], ensure=ensure))
    monkeypatch.setattr(comparing, "RESULTS", tmp_path / "load-results")
    monkeypatch.setattr(comparing, "write_report", lambda runs, folder, images: folder)
    return tmp_path


def test_results_are_written_with_who_was_missing(small: Path) -> None:
    comparing.compare(small)
    text = (small / "results.md").read_text()
    assert "Not measured: nginx: nginx is not there." in text
    assert "10 readers wait by long-poll" in text and "; Weir " in text
    (row,) = [line for line in text.splitlines() if line.startswith("| weir |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[4:6] == ["0", "40"]  # nothing failed, each reader asked four times
    assert int(cells[6]) <= 8  # and the origin was asked for all of them together


def test_a_run_that_fails_is_named(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RunFailedError("the server died")

    monkeypatch.setattr(comparing, "_measure", fail)
    with pytest.raises(RunFailedError, match="polls on weir: the server died"):
        comparing.compare(small)
