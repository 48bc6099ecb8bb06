"""Layered settings: dataclass defaults < TOML files < DS_SECTION__KEY variables < flags.

A configuration is a frozen dataclass whose fields are sections, each a frozen dataclass of plain
values. Every error is a SettingsError: one line that names the source and the key. Keys and their
ranges are defined by the services.
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
from typing import Any, TypeVar

import msgspec

from wire.rustlog import with_level

PREFIX = "DS_"
COMMAND_LINE = "command line"
DEFAULTS = "defaults"
REPO_CONFIGS = Path(__file__).resolve().parent.parent / "configs"

Config = TypeVar("Config")
Key = tuple[str, str]


class SettingsError(Exception):
    """An error in the configuration, in one line."""

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
    """Read the files that apply, weakest first; only explicitly named files must exist."""
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
    """Build the configuration from its layers. Sections in `ignored` are skipped, and so are
    overrides that are None."""
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
    """Read all layers and build the configuration."""
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
    """Secrets are never shown, even if invalid."""
    ok = re.fullmatch(r"([!-~]{16,256})?", getattr(section, key))
    check(bool(ok), key, "is 16 to 256 visible ASCII characters")


def resolve_secret(name: str, value: str, environ: Mapping[str, str]) -> str:
    """The secret itself: `$NAME` stands for that variable, which must be set."""
    if not value.startswith("$"):
        return value
    secret = environ.get(value[1:], "")
    if not secret:
        raise SettingsError(name, f"the environment variable {value[1:]} is not set")
    return secret


_LIST = tuple[str, ...]


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

    def is_text(self, kind: Any) -> bool:
        """Variables and flags are text to be parsed; TOML values are typed. A list may always be
        comma-separated text."""
        return isinstance(self.value, str) and (self.layer is not _Layer.FILE or kind == _LIST)

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    def error(self, problem: str) -> SettingsError:
        """An error in this setting. A variable's name is both source and key."""
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
    kind = known[setting.key]
    try:
        return _convert(kind, setting.value, setting.is_text(kind))
    except ValueError as error:
        raise setting.error(str(error)) from error


def _convert(kind: Any, value: object, is_text: bool) -> object:
    parse, name = _KINDS[kind]
    try:
        converted = msgspec.convert(parse(str(value)) if is_text else value, kind)
        if isinstance(converted, float) and not math.isfinite(converted):
            raise ValueError
    except ValueError:
        raise ValueError(f"{_show(value)} is not {name}") from None
    if isinstance(converted, tuple):
        return tuple(item.strip() for item in converted if item.strip())
    return converted


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES + _NO:
        raise ValueError
    return word in _YES


# How text becomes a value, and the name of the type in messages. msgspec itself accepts only JSON
# spellings: neither `.5` nor `8_080` nor `off`.
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_KINDS: dict[Any, tuple[Callable[[str], object], str]] = {
    int: (lambda text: int(text.encode("ascii")), "an integer"),
    float: (float, "a number"),
    bool: (_parse_bool, "true or false"),
    str: (str, "a string"),
    _LIST: (lambda text: text.split(","), "a list of strings"),
}


def _build_section(name: str, section: type, values: Mapping[str, object]) -> object:
    try:
        return section(**values)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from error


def _blame(message: str, given: Mapping[Key, tuple[int, _Setting]]) -> SettingsError:
    """Blame the last source that set a key named in the message: it broke the rule."""
    named = re.findall(r"\b([a-z_]+)\.([a-z_]+)\b", message)
    suspects = [given[key] for key in named if key in given]
    if not suspects:
        return SettingsError(DEFAULTS, message)
    _, setting = max(suspects, key=lambda suspect: suspect[0])
    name, _, problem = message.partition(": ")
    if name == setting.name:
        return setting.error(problem)
    return SettingsError(setting.source, message)


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
