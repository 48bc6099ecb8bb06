import os
import shutil
from pathlib import Path

import pytest

from loadtest.debian import ensure_debian
from loadtest.errors import UnavailableError


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
