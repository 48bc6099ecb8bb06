"""`weir report` before Spark is started: what is missing is told in one line."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from weir.cli import main
from weir.commands.report import stop_by_signal


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["report", *arguments])
    assert caught.value.code == 2
    return capsys.readouterr().err


def folders(tmp_path: Path) -> list[str]:
    """As they should be."""
    (tmp_path / "logs").mkdir()
    return ["--logs", str(tmp_path / "logs"), "--out", str(tmp_path / "out")]


def test_logs_that_are_no_folder_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fails(capsys, "--logs", str(tmp_path / "none"), "--out", str(tmp_path / "out"))
    assert said == f"weir: --logs: {tmp_path / 'none'} is not a folder\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("logs", "out"), [("a", "a"), ("a", "a/out"), ("a/logs", "a"), ("link", "a/out")]
)
def test_logs_and_tables_in_one_another_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], logs: str, out: str
) -> None:
    (tmp_path / "a/logs").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    said = fails(capsys, "--logs", str(tmp_path / logs), "--out", str(tmp_path / out))
    assert said.startswith("weir: --out: ") and "must not contain one another" in said
    assert not (tmp_path / out / "_weir").exists()


@pytest.mark.parametrize(
    "origin", ["localhost:4437", "http://user:secret@host:4437", "ftp://host", "http://"]
)
def test_an_origin_that_is_no_url_is_refused_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], origin: str
) -> None:
    said = fails(capsys, *folders(tmp_path), "--origin", origin)
    assert said == "weir: --origin: must look like http://host:port, without user or query\n"


def test_a_token_that_is_none_is_refused_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fails(capsys, *folders(tmp_path), "--token", "a\nb")
    assert said == "weir: --token: contains invalid characters\n"


def test_without_java_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = fails(capsys, *folders(tmp_path))
    assert said == ("weir: weir report: needs Java 17: apt-get install openjdk-17-jre-headless\n")


def test_without_pyspark_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.commands.report.find_spec", lambda name: None)
    said = fails(capsys, *folders(tmp_path))
    assert said == (
        "weir: weir report: needs Spark: `make setup` in a checkout, "
        "or pip install 'weir-gateway[spark]'\n"
    )


def test_the_command_line_does_not_load_spark() -> None:
    program = "import sys, weir.cli, weir.commands.report; print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "False\n"


@pytest.fixture
def handlers() -> Iterator[None]:
    """Of this process, as they were."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_asks_to_stop_and_a_second_one_does_not_wait(number: signal.Signals) -> None:
    stop = Event()
    stop_by_signal(stop)
    signal.raise_signal(number)
    assert stop.is_set()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
