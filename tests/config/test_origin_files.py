"""The TOML files in configs/ are what the code says they are."""

import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from origin.config import FOREIGN_SECTIONS, OriginConfig, load_config
from wire.addresses import is_loopback

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PROFILES = sorted(p.stem for p in CONFIGS.glob("*.toml") if p.stem not in ("default", "local"))


def test_default_file_shows_every_key_with_its_default() -> None:
    tables = tomllib.loads((CONFIGS / "default.toml").read_text())
    own = {name: table for name, table in tables.items() if name not in FOREIGN_SECTIONS}
    defaults = asdict(OriginConfig())
    for section, key in (
        ("http", "cors_origins"),
        ("http", "stream_prefixes"),
        ("server", "allowed_hosts"),
        ("cluster", "nats_urls"),
        ("cluster", "nats_monitor_urls"),
    ):
        defaults[section][key] = list(defaults[section][key])
    assert own == defaults


def test_default_file_keeps_the_order_of_the_code() -> None:
    tables = tomllib.loads((CONFIGS / "default.toml").read_text())
    for section, defaults in asdict(OriginConfig()).items():
        assert list(tables[section]) == list(defaults)


def test_there_are_a_development_and_a_production_profile() -> None:
    assert {"dev", "prod"} <= set(PROFILES)


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_loads(profile: str, tmp_path: Path) -> None:
    for name in ("default", profile):
        (tmp_path / f"{name}.toml").write_bytes((CONFIGS / f"{name}.toml").read_bytes())
    assert load_config({}, {}, profile=profile, configs_dir=tmp_path) != OriginConfig()


@pytest.mark.parametrize("profile", [None, *PROFILES])
def test_no_profile_opens_the_origin_to_the_network(profile: str | None) -> None:
    """It asks for no token: only a person may put it on another address."""
    assert is_loopback(load_config({}, {}, profile=profile, configs_dir=CONFIGS).server.host)
