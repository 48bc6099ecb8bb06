"""The lock files name versions and hashes, and no place to fetch them from."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ["requirements.lock", "requirements-spark.lock", "requirements-dev.lock"]
PYTHON_LOCKS = [*OURS, "loadtest/mitmproxy.lock"]
NODE_LOCKS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*/package-lock.json", "*/*/package-lock.json")
    for path in ROOT.glob(pattern)
)


def pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", PYTHON_LOCKS + NODE_LOCKS)
def test_no_addresses(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()


@pytest.mark.parametrize("name", PYTHON_LOCKS)
def test_every_package_has_a_version_and_a_hash(name: str) -> None:
    packages = (ROOT / name).read_text().replace("\\\n", "").splitlines()
    assert packages
    for package in packages:
        assert re.match(r"[\w.-]+==\S+ .*--hash=sha256:", package)


def test_our_locks_agree() -> None:
    runtime, spark, everything = (pins(name).items() for name in OURS)
    assert runtime <= spark <= everything


@pytest.mark.parametrize("name", NODE_LOCKS)
def test_every_node_package_has_a_version_and_a_hash(name: str) -> None:
    packages = json.loads((ROOT / name).read_text())["packages"]
    for path, package in packages.items():
        assert path == "" or {"version", "integrity"} <= package.keys()


def test_the_conformance_suite_is_the_agreed_one() -> None:
    lock = json.loads((ROOT / "tests/conformance/package-lock.json").read_text())
    suite = lock["packages"]["node_modules/@durable-streams/server-conformance-tests"]
    assert suite["version"] == "0.3.6"
