"""The Dockerfile, as far as that can be said without an engine."""

import json
import re
import tomllib

import pytest

from tests.compose.dockerfile import Stage, entrypoint_of, read_stages
from tests.compose.native import ROOT
from weir.cli import make_parser

STAGES = read_stages(ROOT / "Dockerfile")
IMAGES = ("weir", "weir-spark")
USER = "10001:10001"


def sources(stage: Stage) -> list[str]:
    """What is copied from the repository."""
    plain = [copy.split() for copy in stage.all("COPY") if not copy.startswith("--from")]
    return [source for *found, _ in plain for source in found]


def ignored(path: str) -> bool:
    """By .dockerignore: the last line that fits wins."""
    verdict = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if pattern == "*" or path == pattern or path.startswith(f"{pattern}/"):
            verdict = not line.startswith("!")
    return verdict


def test_the_stages_build_on_each_other() -> None:
    assert list(STAGES) == ["base", "build", "build-spark", "weir", "weir-spark"]
    for number, stage in enumerate(STAGES.values()):
        before = list(STAGES)[:number]
        assert stage.base in before or re.fullmatch(r"[\w./-]+:\d[\w.-]+", stage.base)
        for copy in stage.all("COPY"):
            if found := re.match(r"--from=(\S+)", copy):
                assert found[1] in before


@pytest.mark.parametrize("stage", STAGES.values(), ids=list(STAGES))
def test_what_is_copied_is_there_and_not_ignored(stage: Stage) -> None:
    for source in sources(stage):
        assert (ROOT / source).exists(), source
        assert not ignored(source), source


def test_every_package_is_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {pattern.rstrip("*") for pattern in patterns} <= set(sources(STAGES["build"]))


@pytest.mark.parametrize("path", [".git", "data", "tests", "configs/local.toml", ".venv", "docs"])
def test_the_rest_stays_outside(path: str) -> None:
    assert ignored(path)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_nobody_special(name: str) -> None:
    stage = STAGES[name]
    assert stage.instructions[-3][0] != "RUN"
    users = [rest for keyword, rest in stage.instructions if keyword == "USER"]
    assert users == [USER]
    after = stage.instructions[[k for k, _ in stage.instructions].index("USER") :]
    assert not {"RUN", "COPY", "ADD"} & {keyword for keyword, _ in after}


def test_the_user_owns_what_compose_mounts() -> None:
    [made] = [run for run in STAGES["base"].all("RUN") if "install -d" in run]
    assert "useradd --uid 10001" in made
    for folder in ("/etc/weir", "/var/lib/weir", "/var/lib/weir-key", "/var/log/weir"):
        assert f"{folder} " in f"{made} "


@pytest.mark.parametrize("name", ["build", "build-spark"])
def test_everything_is_installed_by_hash(name: str) -> None:
    locked = [run for run in STAGES[name].all("RUN") if "-r requirements" in run]
    assert locked and all("--require-hashes" in run for run in locked)
    others = [run for run in STAGES[name].all("RUN") if "pip install" in run and run not in locked]
    assert all("--no-deps --no-build-isolation ." in run for run in others)


def test_the_health_check_and_the_default_command_are_commands_of_weir() -> None:
    stage = STAGES["weir"]
    check = stage.last("HEALTHCHECK")
    assert check is not None
    program, *words = json.loads(check.partition(" CMD ")[2])
    assert program == "weir" and make_parser().parse_args(words).url.endswith(":4437/readyz")
    assert entrypoint_of(stage) == ["weir"]
    make_parser().parse_args(json.loads(stage.last("CMD") or "[]"))
