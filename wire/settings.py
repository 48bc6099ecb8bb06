"""Layered settings: dataclass defaults < TOML files < DS_SECTION__KEY variables < flags.

A configuration is a frozen dataclass whose fields are sections, each a frozen dataclass of plain
values. Every mistake is a SettingsError: one line that names the source and the key. Which keys
there are, and their ranges, is the business of the services, not of this module.
"""

import difflib
import math
import re
import tomllib
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar

from wire.rustlog import with_level

PREFIX = "DS_"
COMMAND_LINE = "command line"
DEFAULTS = "defaults"
REPO_CONFIGS = Path(__file__).resolve().parent.parent / "configs"

Config = TypeVar("Config")
Key = tuple[str, str]


class SettingsError(Exception):
    """A mistake in the configuration, told in one line."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(" ".join(f"{source}: {problem}".splitlines()))


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The tables of one TOML file and the name it has in messages."""

    source: str
    tables: Mapping[str, object]


def find_configs_dir() -> Path:
    """./configs where the service was started, else the folder beside the packages."""
    local = Path("configs")
    return local if local.is_dir() else REPO_CONFIGS


def read_layers(configs_dir: Path, profile: str | None, extra: str | None) -> list[SettingsFile]:
    """Read the files that apply, weakest first; only those asked for by name must exist."""
    paths = [path for path in [configs_dir / "default.toml"] if path.exists()]
    if profile is not None:
        paths.append(_profile_path(configs_dir, profile))
    paths += [path for path in [configs_dir / "local.toml"] if path.exists()]
    if extra is not None:
        paths.append(Path(extra))
    return [read_toml(path) for path in paths]


def read_toml(path: Path) -> SettingsFile:
    source = str(path)
    try:
        return SettingsFile(source, tomllib.loads(path.read_bytes().decode()))
    except OSError as error:
        raise SettingsError(source, f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingsError(source, "is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(source, f"is not valid TOML: {error}") from error


def load(
    config_type: type[Config],
    *,
    ignored: Collection[str] = (),
    files: Iterable[SettingsFile] = (),
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[Key, object] | None = None,
) -> Config:
    """Build the configuration from its layers; sections named in `ignored` are not looked at.

    An override that is None counts as not given.
    """
    sections: dict[str, type] = typing.get_type_hints(config_type)
    types = {name: typing.get_type_hints(section) for name, section in sections.items()}
    values: dict[str, dict[str, object]] = {name: {} for name in sections}
    given: dict[Key, tuple[int, _Setting]] = {}
    layers = chain(
        chain.from_iterable(_settings_of_file(file, types, ignored) for file in files),
        _settings_of_environ(with_level(environ or {}), types, ignored),
        _settings_of_overrides(overrides or {}),
    )
    for rank, setting in enumerate(layers):
        values[setting.section][setting.key] = _checked_value(setting, types)
        given[setting.section, setting.key] = (rank, setting)
    try:
        built = {name: _build_section(name, sections[name], values[name]) for name in sections}
        return config_type(**built)
    except ValueError as error:
        raise _blame(str(error), given) from error


def load_layers(
    config_type: type[Config],
    ignored: Collection[str],
    overrides: Mapping[Key, object],
    environ: Mapping[str, str],
    *,
    profile: str | None = None,
    config_file: str | None = None,
    configs_dir: Path | None = None,
) -> Config:
    """Read all layers; raises SettingsError with one line for the person who started us."""
    return load(
        config_type,
        ignored=ignored,
        files=read_layers(configs_dir or find_configs_dir(), profile, config_file),
        environ=environ,
        overrides=overrides,
    )


# For __post_init__ of sections (key) and of whole configurations (section.key).


def check(ok: bool, key: str, problem: str) -> None:
    if not ok:
        raise ValueError(f"{key}: {problem}")


def check_range(section: object, low: float, high: float, *keys: str) -> None:
    for key in keys:
        value = getattr(section, key)
        check(low <= value <= high, key, f"{value} is not between {low} and {high}")


def check_at_least(section: object, low: float, *keys: str) -> None:
    for key in keys:
        value = getattr(section, key)
        check(value >= low, key, f"{value} is less than {low}")


def check_positive(section: object, *keys: str) -> None:
    for key in keys:
        value = getattr(section, key)
        check(value > 0, key, f"{value} is not above 0")


def check_choice(section: object, key: str, choices: Collection[str]) -> None:
    value = getattr(section, key)
    check(value in choices, key, f"{value!r} is not one of {', '.join(choices)}")


def check_secret(section: object, key: str) -> None:
    """Never shown, also when it is wrong."""
    ok = re.fullmatch(r"([!-~]{16,256})?", getattr(section, key))
    check(bool(ok), key, "is 16 to 256 visible ASCII characters")


class _Layer(Enum):
    FILE = 1
    ENVIRON = 2
    FLAGS = 3


@dataclass(frozen=True, slots=True)
class _Setting:
    layer: _Layer
    source: str
    section: str
    key: str
    value: object

    @property
    def is_text(self) -> bool:
        """Variables and flags are text to be parsed; TOML values have types of their own."""
        return isinstance(self.value, str) and self.layer is not _Layer.FILE

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    def error(self, problem: str) -> SettingsError:
        """A mistake in this very setting; the name of a variable is source and key at once."""
        if self.layer is _Layer.ENVIRON:
            return SettingsError(self.source, problem)
        return SettingsError(self.source, f"{self.name}: {problem}")


_Types = Mapping[str, Mapping[str, Any]]


def _settings_of_file(
    file: SettingsFile, types: _Types, ignored: Collection[str]
) -> Iterator[_Setting]:
    for section, table in file.tables.items():
        if section in ignored:
            continue
        if section not in types:
            raise SettingsError(file.source, f"{section}: unknown section{_hint(section, types)}")
        if not isinstance(table, Mapping):
            raise SettingsError(file.source, f"{section}: must be a table")
        for key, value in table.items():
            yield _Setting(_Layer.FILE, file.source, section, key, value)


def _settings_of_environ(
    environ: Mapping[str, str], types: _Types, ignored: Collection[str]
) -> Iterator[_Setting]:
    single = {_variable(s, k).replace("__", "_"): _variable(s, k) for s in types for k in types[s]}
    for name in sorted(environ):
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if name in single:
            raise SettingsError(name, f"unknown variable (did you mean {single[name]}?)")
        if not name.startswith(PREFIX) or not separator or section in ignored:
            continue
        if section not in types:
            raise SettingsError(name, f"unknown section {section}{_hint(section, types)}")
        yield _Setting(_Layer.ENVIRON, name, section, key, environ[name])


def _settings_of_overrides(overrides: Mapping[Key, object]) -> Iterator[_Setting]:
    for (section, key), value in overrides.items():
        if value is not None:
            yield _Setting(_Layer.FLAGS, COMMAND_LINE, section, key, value)


def _checked_value(setting: _Setting, types: _Types) -> object:
    known = types[setting.section]
    if setting.key not in known:
        raise setting.error(f"unknown key{_hint(setting.key, known)}")
    try:
        return _convert(known[setting.key], setting.value, setting.is_text)
    except ValueError as error:
        raise setting.error(str(error)) from error


def _convert(kind: Any, value: object, is_text: bool) -> object:
    if typing.get_origin(kind) in (UnionType, typing.Union):
        if is_text and value in ("", "none"):
            return None
        (inner,) = (kind for kind in typing.get_args(kind) if kind is not NoneType)
        return _convert(inner, value, is_text)
    if typing.get_origin(kind) is tuple:
        return _convert_list(value)
    parse, name = _SCALARS[kind]
    try:
        if is_text:
            return parse(str(value))
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is kind and not _is_endless(value):
            return value
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{_show(value)} is not {name}")


def _convert_list(value: object) -> tuple[str, ...]:
    """A TOML list, or text with commas."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"{_show(value)} is not a list of strings")
    return tuple(item.strip() for item in items if item.strip())


def _is_endless(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _parse_int(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9][0-9_]*", text.strip()):
        raise ValueError
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if _is_endless(number):
        raise ValueError
    return number


def _parse_bool(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True}
    words |= {"false": False, "0": False, "no": False, "off": False}
    word = text.strip().lower()
    if word not in words:
        raise ValueError
    return words[word]


_SCALARS: dict[type, tuple[Callable[[str], object], str]] = {
    int: (_parse_int, "an integer"),
    float: (_parse_float, "a number"),
    bool: (_parse_bool, "true or false"),
    str: (str, "a string"),
}


def _build_section(name: str, section: type, values: Mapping[str, object]) -> object:
    try:
        return section(**values)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from error


def _blame(message: str, given: Mapping[Key, tuple[int, _Setting]]) -> SettingsError:
    """Name the last source that set a key of the message: it is the one that broke the rule."""
    named = re.findall(r"\b([a-z_]+)\.([a-z_]+)\b", message)
    suspects = [given[key] for key in named if key in given]
    if not suspects:
        return SettingsError(DEFAULTS, message)
    _, setting = max(suspects, key=lambda suspect: suspect[0])
    name, _, problem = message.partition(": ")
    return (
        setting.error(problem) if name == setting.name else SettingsError(setting.source, message)
    )


def _profile_path(configs_dir: Path, profile: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", profile):
        raise SettingsError("--profile", f"{_show(profile)} is not a profile name")
    path = configs_dir / f"{profile}.toml"
    if not path.is_file():
        raise SettingsError(f"--profile {profile}", f"{path} not found")
    return path


def _variable(section: str, key: str) -> str:
    return f"{PREFIX}{section}__{key}".upper()


def _hint(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
