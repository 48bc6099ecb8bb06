import os
import shutil
from pathlib import Path

import pytest

from loadtest.errors import UnavailableError
from loadtest.peers.debian import ensure_debian, main, unpack_debian


def test_what_is_there_is_not_installed() -> None:
    ensure_debian("sh", "no-such-package")


def test_only_root_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnavailableError, match="varnish is not installed, and only root"):
        ensure_debian("no-such-program", "varnish")


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo no such package >&2; exit 100", "no such package"), ("exit 0", "missing although")],
)
def test_an_installation_that_helps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, reason: str
) -> None:
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "apt-get").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert shutil.which("apt-get")
    with pytest.raises(UnavailableError, match=reason):
        ensure_debian("no-such-program", "a-package")


def test_each_that_is_missing_is_named_and_the_others_are_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["no-such-program=a-package", "sh=dash", "nor-this=another"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in said] == ["a-package", "another"]


def test_a_package_is_unpacked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools, target = tmp_path / "tools", tmp_path / "target"
    tools.mkdir()
    for name, script in {
        "apt-get": 'echo "$@" >>"$CALLS"; : >"$3"_1_amd64.deb',
        "dpkg": '/bin/mkdir "$3"; : >"$3/program"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    for _ in range(2):
        assert (unpack_debian("thing", target) / "program").exists()
    assert (tmp_path / "calls").read_text() == "download -qq thing\n"
    assert [path.name for path in target.iterdir()] == ["thing"]


def test_a_package_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho no network >&2; exit 100\n")
    (tmp_path / "apt-get").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no network"):
        unpack_debian("thing", tmp_path / "target")
