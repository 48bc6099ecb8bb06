"""The project's compose file, and the programs that stand in for those of its images."""

import shutil
from pathlib import Path

import pytest

from loadtest.errors import UnavailableError
from loadtest.faults.proxy import find_program
from loadtest.peers.debian import unpack_debian
from loadtest.peers.servers import find_envoy, find_redis
from tests.compose.composefile import Json, read_compose
from tests.compose.native import ROOT, venv_program
from tests.helpers.require import need


@pytest.fixture(scope="session")
def compose() -> Json:
    return read_compose(ROOT / "docker-compose.yml")


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """By the names that commands have for them."""
    try:
        prometheus = unpack_debian("prometheus", ROOT / ".bench" / "debian") / "usr" / "bin"
        found = {
            "envoy": find_envoy(),
            "mitmweb": find_program("mitmweb"),
            "prometheus": prometheus / "prometheus",
            "promtool": prometheus / "promtool",
            "redis-server": find_redis(),
            "redis-cli": find_redis().with_name("redis-cli"),
        }
    except UnavailableError as error:
        need(False, str(error))
    found |= {name: venv_program(name) for name in ("weir", "spark-class", "python3")}
    missing = [name for name, path in found.items() if not shutil.which(path)]
    need(not missing, f"not installed: {', '.join(missing)}")
    return found
