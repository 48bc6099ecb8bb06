from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from wire.settings import (
    SettingsError,
    SettingsFile,
    check,
    check_at_least,
    check_choice,
    check_positive,
    check_range,
    find_configs_dir,
    load,
    read_layers,
    read_toml,
    resolve_secret,
)


@dataclass(frozen=True)
class Server:
    host: str = "localhost"
    port: int = 80
    wait_secs: float = 1.5
    quiet: bool = False
    origins: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        check_range(self, 0, 65535, "port")
        check_positive(self, "wait_secs")
        check(self.host != "", "host", "must not be empty")


@dataclass(frozen=True)
class Store:
    kind: str = "file"
    size: int = 10

    def __post_init__(self) -> None:
        check_choice(self, "kind", ("file", "memory"))
        check_at_least(self, 1, "size")


@dataclass(frozen=True)
class Config:
    server: Server = field(default_factory=Server)
    store: Store = field(default_factory=Store)

    def __post_init__(self) -> None:
        size, port = self.store.size, self.server.port
        check(size <= port, "store.size", f"{size} is above server.port ({port})")


def a_file(name: str = "a.toml", **tables: object) -> SettingsFile:
    return SettingsFile(name, tables)


def message(
    *files: SettingsFile,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[tuple[str, str], object] | None = None,
) -> str:
    with pytest.raises(SettingsError) as caught:
        load(Config, ignored=["gateway"], files=files, environ=environ, overrides=overrides)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def test_no_layers_give_the_defaults() -> None:
    assert load(Config) == Config()


def test_later_layers_win_key_by_key() -> None:
    config = load(
        Config,
        files=[
            a_file(server={"host": "a", "port": 1001, "wait_secs": 1, "quiet": True}),
            a_file(server={"host": "b", "port": 1002, "wait_secs": 2}),
        ],
        environ={"DS_SERVER__HOST": "c", "DS_SERVER__PORT": "1003"},
        overrides={("server", "host"): "d"},
    )
    assert config.server == Server("d", 1003, 2.0, True)


def test_override_of_none_counts_as_not_given() -> None:
    config = load(Config, environ={"DS_SERVER__PORT": "99"}, overrides={("server", "port"): None})
    assert config.server.port == 99


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("host", "::1", "::1"),
        ("port", "8080", 8080),
        ("port", "8_080", 8080),
        ("wait_secs", "0.5", 0.5),
        ("wait_secs", "2", 2.0),
        ("wait_secs", ".5", 0.5),
        ("quiet", "TRUE", True),
        ("quiet", "off", False),
        ("origins", "https://a, https://b,", ("https://a", "https://b")),
        ("origins", "", ()),
    ],
)
def test_variables_and_flags_are_parsed(key: str, text: str, value: object) -> None:
    from_environ = load(Config, environ={f"DS_SERVER__{key.upper()}": text})
    from_flags = load(Config, overrides={("server", key): text})
    assert getattr(from_environ.server, key) == value
    assert from_environ == from_flags


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("port", 8080, 8080),
        ("wait_secs", 2, 2.0),
        ("quiet", True, True),
        ("origins", ["a", "b"], ("a", "b")),
        ("origins", "a,b", ("a", "b")),
    ],
)
def test_toml_values_keep_their_types(key: str, given: object, value: object) -> None:
    got = getattr(load(Config, files=[a_file(server={key: given})]).server, key)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("PORT", "abc", "'abc' is not an integer"),
        ("PORT", "", "'' is not an integer"),
        ("PORT", "1.5", "'1.5' is not an integer"),
        ("PORT", "٣", "'٣' is not an integer"),
        ("PORT", "1" * 5000, f"'{'1' * 56}... is not an integer"),
        ("PORT", "70000", "70000 is not between 0 and 65535"),
        ("WAIT_SECS", "soon", "'soon' is not a number"),
        ("WAIT_SECS", "nan", "'nan' is not a number"),
        ("WAIT_SECS", "1e999", "'1e999' is not a number"),
        ("WAIT_SECS", "0", "0.0 is not above 0"),
        ("QUIET", "maybe", "'maybe' is not true or false"),
        ("HOST", "", "must not be empty"),
        ("PROT", "1", "unknown key (did you mean port?)"),
        ("ZZZ\nX", "1", "unknown key"),
        ("", "1", "unknown key"),
    ],
)
def test_bad_variable_is_named(key: str, text: str, problem: str) -> None:
    said = message(environ={f"DS_SERVER__{key}": text})
    assert said.startswith(f"DS_SERVER__{key}".replace("\n", " "))
    assert said.endswith(f": {problem}")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"port": "80"}, "server.port: '80' is not an integer"),
        ({"port": True}, "server.port: True is not an integer"),
        ({"port": 1.0}, "server.port: 1.0 is not an integer"),
        ({"wait_secs": True}, "server.wait_secs: True is not a number"),
        ({"wait_secs": float("inf")}, "server.wait_secs: inf is not a number"),
        ({"wait_secs": 10**400}, f"server.wait_secs: 1{'0' * 56}... is not a number"),
        ({"quiet": 1}, "server.quiet: 1 is not true or false"),
        ({"host": 1}, "server.host: 1 is not a string"),
        ({"origins": [1]}, "server.origins: [1] is not a list of strings"),
        ({"origins": 1}, "server.origins: 1 is not a list of strings"),
        ({"port": {"a": 1}}, "server.port: {'a': 1} is not an integer"),
        ({"prot": 1}, "server.prot: unknown key (did you mean port?)"),
        ({"zzz": 1}, "server.zzz: unknown key"),
        ({"port": -1}, "server.port: -1 is not between 0 and 65535"),
    ],
)
def test_bad_value_in_a_file_is_named(table: dict[str, object], problem: str) -> None:
    assert message(a_file(server=table)) == f"a.toml: {problem}"


def test_bad_value_is_refused_even_if_a_later_layer_replaces_it() -> None:
    said = message(a_file(server={"port": "x"}), environ={"DS_SERVER__PORT": "1"})
    assert said == "a.toml: server.port: 'x' is not an integer"


def test_bad_flag_is_named() -> None:
    said = message(overrides={("server", "port"): "x"})
    assert said == "command line: server.port: 'x' is not an integer"


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (a_file(sever={}), "sever: unknown section (did you mean server?)"),
        (a_file(port=1), "port: unknown section"),
        (a_file(server=1), "server: must be a table"),
    ],
)
def test_unknown_section_in_a_file_is_named(file: SettingsFile, problem: str) -> None:
    assert message(file) == f"a.toml: {problem}"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("DS_SEVER__PORT", "unknown section sever (did you mean server?)"),
        ("DS_OTHER__PORT", "unknown section other"),
        ("DS_SERVER_PORT", "unknown variable (did you mean DS_SERVER__PORT?)"),
    ],
)
def test_unknown_variable_is_named(name: str, problem: str) -> None:
    assert message(environ={name: "1"}) == f"{name}: {problem}"


def test_sections_of_the_other_service_are_not_looked_at() -> None:
    files = [a_file(gateway={"anything": object()})]
    environ = {"DS_GATEWAY__ANYTHING": "1", "DS_ELSEWHERE": "1", "PATH": "/bin", "DSX__Y": "1"}
    assert load(Config, ignored=["gateway"], files=files, environ=environ) == Config()


def test_out_of_range_value_is_blamed_on_the_layer_that_set_it() -> None:
    files = [a_file("a.toml", store={"kind": "file"}), a_file("b.toml", store={"kind": "tape"})]
    assert message(*files) == "b.toml: store.kind: 'tape' is not one of file, memory"


def test_conflict_of_two_keys_is_blamed_on_the_later_source() -> None:
    said = message(a_file(store={"size": 50}), environ={"DS_SERVER__PORT": "20"})
    assert said == "DS_SERVER__PORT: store.size: 50 is above server.port (20)"


def test_conflict_with_a_default_is_blamed_on_the_key_that_was_set() -> None:
    said = message(environ={"DS_STORE__SIZE": "90"})
    assert said == "DS_STORE__SIZE: 90 is above server.port (80)"


def test_file_named_like_a_variable_is_still_a_file() -> None:
    file = a_file("DS_LOCAL.toml", server={"port": "80"})
    assert message(file) == "DS_LOCAL.toml: server.port: '80' is not an integer"


def test_files_are_read_weakest_first(tmp_path: Path) -> None:
    for name in ("default", "dev", "local", "extra", "prod"):
        (tmp_path / f"{name}.toml").write_text(f"[server]\nhost = '{name}'\n")
    layers = read_layers(tmp_path, "dev", str(tmp_path / "extra.toml"))
    assert [Path(layer.source).stem for layer in layers] == ["default", "dev", "local", "extra"]
    assert load(Config, files=layers).server.host == "extra"


def test_empty_folder_gives_no_layers(tmp_path: Path) -> None:
    assert read_layers(tmp_path / "missing", None, None) == []


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("staging", "--profile staging: {folder}/staging.toml not found"),
        ("../dev", "--profile: '../dev' is not a profile name"),
        ("", "--profile: '' is not a profile name"),
    ],
)
def test_missing_profile_is_named(tmp_path: Path, profile: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_layers(tmp_path, profile, None)
    assert str(caught.value) == problem.format(folder=tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"\xff", "is not UTF-8 text"),
        (b"[server\n", "is not valid TOML: "),
        (b"a = 1\na = 2\n", "is not valid TOML: "),
    ],
)
def test_unreadable_file_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_toml(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert len(str(caught.value).splitlines()) == 1


def test_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_toml(tmp_path)


def test_configs_folder_is_the_working_directory_s_or_the_repository_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (find_configs_dir() / "default.toml").is_file()
    (tmp_path / "configs").mkdir()
    assert find_configs_dir() == Path("configs")


def test_secrets_by_the_name_of_a_variable() -> None:
    environ = {"S3_SECRET": "hidden", "EMPTY": ""}
    assert resolve_secret("cold.key", "$S3_SECRET", environ) == "hidden"
    assert resolve_secret("cold.key", "plain", environ) == "plain"
    assert resolve_secret("cold.key", "", environ) == ""
    for unset in ("$EMPTY", "$MISSING", "$"):
        with pytest.raises(SettingsError, match=r"^cold\.key: the environment variable"):
            resolve_secret("cold.key", unset, environ)
