"""The gateway's part of the TOML files in configs/ is what the code says it is."""

import tomllib
import typing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gateway.config import FOREIGN_SECTIONS, GatewayConfig, load_config
from wire.settings import SettingsError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PROFILES = sorted(p.stem for p in CONFIGS.glob("*.toml") if p.stem not in ("default", "local"))
KEYS = {"DS_AUTH__JWKS": "keys.json"}


def defaults() -> dict[str, dict[str, Any]]:
    """Section by section: the whole is not valid without keys."""
    sections = typing.get_type_hints(GatewayConfig)
    return {name: as_toml(asdict(section())) for name, section in sections.items()}


def as_toml(table: dict[str, Any]) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in table.items()}


def copy_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / f"{name}.toml").write_bytes((CONFIGS / f"{name}.toml").read_bytes())
    return folder


def test_default_file_shows_every_key_with_its_default() -> None:
    tables = tomllib.loads((CONFIGS / "default.toml").read_text())
    own = {name: table for name, table in tables.items() if name not in FOREIGN_SECTIONS}
    assert own == defaults()


def test_default_file_keeps_the_order_of_the_code() -> None:
    tables = tomllib.loads((CONFIGS / "default.toml").read_text())
    for section, table in defaults().items():
        assert list(tables[section]) == list(table)


def test_default_file_changes_nothing(tmp_path: Path) -> None:
    with_file = load_config({}, KEYS, configs_dir=copy_files(tmp_path, "default"))
    assert with_file == load_config({}, KEYS, configs_dir=tmp_path / "none")


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_loads(profile: str, tmp_path: Path) -> None:
    folder = copy_files(tmp_path, "default", profile)
    plain = load_config({}, KEYS, configs_dir=folder)
    assert load_config({}, KEYS, profile=profile, configs_dir=folder) != plain


@pytest.mark.parametrize("profile", PROFILES)
def test_no_profile_turns_tokens_off_or_brings_a_key(profile: str, tmp_path: Path) -> None:
    folder = copy_files(tmp_path, "default", profile)
    with pytest.raises(SettingsError, match=r"auth\.jwks"):
        load_config({}, {}, profile=profile, configs_dir=folder)


def test_production_refuses_redis_without_a_key(tmp_path: Path) -> None:
    """Anyone who can write there could forge what clients read."""
    folder = copy_files(tmp_path, "default", "prod")
    environ = {**KEYS, "DS_CACHE__REDIS_URL": "redis://redis:6379"}
    with pytest.raises(SettingsError, match=r"cache\.redis_key: must be set"):
        load_config({}, environ, profile="prod", configs_dir=folder)
    environ["DS_CACHE__REDIS_KEY"] = "s3cret"
    assert load_config({}, environ, profile="prod", configs_dir=folder).cache.redis_key == "s3cret"
