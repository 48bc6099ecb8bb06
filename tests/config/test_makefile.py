"""What the Makefile says it will do, and what it leaves out."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make(*words: str) -> str:
    """What it prints; the `make test` that runs this has no say in it."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "ARGS")}
    command = ["make", "--silent", "--no-print-directory", *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_what_will_be_installed_is_said_before(tmp_path: Path) -> None:
    nothing = [f"{name}={tmp_path}/none" for name in ("VENV", "MITM", "UNPACKED", "NODE_FOLDERS")]
    told = make("installs", *nothing, "DEBIAN=sh=dash no-such-program=a-package").splitlines()
    assert told[0].endswith("will install:")
    assert [line.partition(":")[0].strip() for line in told[1:]] == [
        f"{tmp_path}/none",
        f"{tmp_path}/none",
        "a-package",
        f"{tmp_path}/none",
        f"{tmp_path}/none/node_modules",
    ]
    assert not list(tmp_path.iterdir())


def test_nothing_is_said_where_all_is_there(tmp_path: Path) -> None:
    for name in ("bin/pip", ".runtime", ".dev", ".ready", "package-lock.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/.installed-lock.json").touch()
    here = [f"{name}={tmp_path}" for name in ("VENV", "MITM", "UNPACKED", "NODE_FOLDERS")]
    assert make("installs", *here, "DEBIAN=sh=dash") == ""


def test_it_is_said_before_anything_else_is_done() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    found = re.search(r"^test: (\S+)", text, re.MULTILINE)
    assert found is not None and found[1] == "installs"


def test_the_quick_tests_are_tests() -> None:
    command = make("test-quick", "--dry-run").splitlines()[-1]
    paths = re.findall(r"tests/[\w./]+", command)
    assert len(paths) > 5 and all((ROOT / path).exists() for path in paths)
