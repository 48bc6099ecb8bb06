"""Envoy's configuration: what it shares with the gateway's, and that the real binary takes it."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.config import AuthConfig, GatewayConfig, ServingConfig
from protocol.paths import parse_path, stream_url
from tests.helpers.envoy import need_envoy
from tests.helpers.gateway import key_set
from tests.helpers.server import ROOT
from weir.cli import make_parser
from weir.edge.bootstrap import render
from weir.edge.certificates import CERTIFICATE_FILE, ensure_dev_certificate
from weir.edge.clusters import GATEWAYS
from weir.edge.envoy import find_envoy, write_config
from weir.edge.routes import STREAM_OF_PATH, stream_path
from weir.edge.settings import EnvoySettings
from wire.sections import HttpConfig
from wire.settings import SettingsError

COMMITTED = ROOT / "envoy" / "envoy.json"
README = ROOT / "envoy" / "README.md"
CONFIG = GatewayConfig(auth=AuthConfig(jwks="/keys/jwks.json", issuer="i", audience="a"))
SETTINGS = EnvoySettings(("127.0.0.1:8080",), CONFIG, "/tls/cert.pem", "/tls/key.pem")
LISTENERS = 2  # with TLS and without


def find(value: Any, name: str) -> list[Any]:
    """Whatever has this name, wherever it is."""
    if isinstance(value, list):
        return [found for item in value for found in find(item, name)]
    if not isinstance(value, dict):
        return []
    deeper = [found for member in value.values() for found in find(member, name)]
    return ([value[name]] if name in value else []) + deeper


def with_auth(**auth: Any) -> Any:
    return render(replace(SETTINGS, config=replace(CONFIG, auth=replace(CONFIG.auth, **auth))))


# -- the file ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nobody's local.toml is."""
    (tmp_path / "configs").mkdir()
    for name in ("default.toml", "prod.toml"):
        shutil.copy(ROOT / "configs" / name, tmp_path / "configs" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_committed_file_is_what_its_command_prints(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = re.search(r"    (DS_AUTH.*) > envoy/envoy.json", README.read_text(), re.DOTALL)
    assert shown
    words = shown[1].replace("\\\n", " ").split()
    for setting in words[:3]:
        monkeypatch.setenv(*setting.split("=", 1))
    arguments = make_parser().parse_args(words[4:])
    assert (words[3], arguments.run(arguments)) == (".venv/bin/weir", 0)
    assert capsys.readouterr().out == COMMITTED.read_text()


def test_envoy_takes_the_committed_file(tmp_path: Path) -> None:
    """With the files that it names in another place."""
    ensure_dev_certificate(tmp_path, datetime.now(UTC))
    shutil.copy(key_set(), tmp_path / "dev-jwks.json")
    text = COMMITTED.read_text()
    assert f"/etc/weir/{CERTIFICATE_FILE}" in text and "/etc/weir/dev-jwks.json" in text
    (tmp_path / "envoy.json").write_text(text.replace("/etc/weir", str(tmp_path)))
    validate(tmp_path / "envoy.json")


@pytest.mark.parametrize(
    "sections",
    [
        {"auth": AuthConfig(jwks="https://issuer.test/keys", cookie="c", query_parameter="t")},
        {"auth": AuthConfig(mode="off")},
        {"http": HttpConfig(cors_origins=("https://a.test", "https://b.test"))},
        {"http": HttpConfig(stream_prefixes=("/v1/streams/", "/a.b/"))},
    ],
    ids=["url-and-other-places", "no-tokens", "origins", "prefixes"],
)
def test_envoy_takes_other_settings_as_well(tmp_path: Path, sections: dict[str, Any]) -> None:
    certificate = str(ensure_dev_certificate(tmp_path, datetime.now(UTC)))
    config = GatewayConfig(**{"auth": AuthConfig(jwks=str(key_set())), **sections})
    gateways = ("https://gateway.test", "https://gateway.test:8443")
    settings = EnvoySettings(gateways, config, certificate, certificate, plain_port=None)
    validate(write_config(settings, tmp_path / "envoy.json"))


def validate(path: Path) -> None:
    need_envoy()
    command = [str(find_envoy()), "--mode", "validate", "--config-path", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower(), done.stderr


def test_the_certificate_is_in_a_file_that_is_watched(tmp_path: Path) -> None:
    config = json.loads(write_config(SETTINGS, tmp_path / "envoy.json").read_text())
    (path,) = find(find(config, "sds_config"), "path")
    (secret,) = json.loads(Path(path).read_text())["resources"]
    certificate = secret["tls_certificate"]
    assert certificate["certificate_chain"] == {"filename": "/tls/cert.pem"}
    assert certificate["watched_directory"] == {"path": "/tls"}


# -- what both gates must agree on ---------------------------------------------------------------


@pytest.mark.parametrize(("leeway", "skew"), [(10.0, 10), (0.5, 1), (0.0, 1)])
def test_envoy_allows_clocks_to_differ_as_the_gateway_does(leeway: float, skew: int) -> None:
    """Never by its default of a minute, which it also takes 0 for."""
    assert {*find(with_auth(leeway_secs=leeway), "clock_skew_seconds")} == {skew}


def test_envoy_asks_for_what_the_gateway_asks_for() -> None:
    for provider in find(with_auth(query_parameter="t", cookie="c"), "providers"):
        assert provider["weir"]["issuer"] == "i"
        assert provider["weir"]["audiences"] == ["a"]
        assert provider["weir"]["require_expiration"] is True
        assert provider["weir"]["forward"] is True
        assert (provider["weir"]["from_params"], provider["weir"]["from_cookies"]) == (["t"], ["c"])
    for provider in find(with_auth(issuer="", audience=""), "providers"):
        assert not {"issuer", "audiences", "from_params", "from_cookies"} & {*provider["weir"]}


def test_without_tokens_nothing_checks_them() -> None:
    assert find(with_auth(mode="off", jwks=""), "providers") == []


@pytest.mark.parametrize("rotation", [5.0, 60.0, 600.0])
def test_no_live_reader_is_cut_off_before_the_gateway_rotates_it(rotation: float) -> None:
    serving = ServingConfig(sse_rotation_secs=rotation, long_poll_timeout_secs=25.0)
    made = render(replace(SETTINGS, config=replace(CONFIG, gateway=serving)))
    idle = [float(value.removesuffix("s")) for value in find(made, "stream_idle_timeout")]
    assert len(idle) == LISTENERS and min(idle) > max(rotation * 1.1, 25.0)
    routes = [to["route"] for table in find(made, "routes") for to in table if "route" in to]
    assert len(routes) == LISTENERS * 6
    assert {(route["cluster"], route["timeout"]) for route in routes} == {(GATEWAYS, "0s")}


def test_envoy_lets_go_of_an_idle_connection_before_the_gateway_does() -> None:
    (cluster, _) = render(SETTINGS)["static_resources"]["clusters"]
    (idle,) = find(cluster["typed_extension_protocol_options"], "idle_timeout")
    assert float(idle.removesuffix("s")) < CONFIG.gateway.idle_timeout_secs


# -- streams and gateways ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/stream/a",
        "/v1/stream/a/b.c/d",
        "/v1/stream/a/snapshot",
        "/v1/stream/a/snapshot/0000000000000000_0000000000000005",
        "/v1/stream/a/bootstrap",
        "/v1/stream/a/snapshot/bootstrap",
        "/v1/stream/snapshot/x",
        "/v1/stream/snapshots",
        "/v1/stream/bootstrap",
        "/v1/stream/a/snapshot/b/c",
        "/ds/bucket/a",
        "/ds/bucket/a/snapshot/7",
        "/ds/bucket/a/bootstrap",
        "/ds/bucket",
    ],
)
@pytest.mark.parametrize("query", ["", "?offset=-1", "?x=/snapshot", "?"])
def test_a_path_is_hashed_by_the_stream_that_it_is_about(path: str, query: str) -> None:
    place = parse_path(path)
    assert place is not None
    assert re.sub(STREAM_OF_PATH, r"\1", path + query) == stream_url(place.name)


@pytest.mark.parametrize(
    ("gateways", "fixed"),
    [
        (("10.0.0.1:8080", "http://[::1]:8080"), True),
        (("gateway:8080",), False),
        (("10.0.0.1:8080", "gateway:8080"), False),
    ],
)
def test_names_are_asked_for_again_and_addresses_are_not(
    gateways: tuple[str, ...], fixed: bool
) -> None:
    cluster = render(replace(SETTINGS, gateways=gateways))["static_resources"]["clusters"][0]
    assert ("type" in cluster, "cluster_type" in cluster) == (fixed, not fixed)
    assert len(find(cluster, "socket_address")) == len(gateways)


@pytest.mark.parametrize("other", ["https://b.test", "http://a.test", "a.test:80"])
def test_gateways_that_one_certificate_cannot_cover_are_refused(other: str) -> None:
    with pytest.raises(SettingsError, match="the same host"):
        render(replace(SETTINGS, gateways=("https://a.test", other)))
    with pytest.raises(SettingsError, match="the same host"):
        render(replace(SETTINGS, gateways=(other, "https://a.test:8443")))


def test_envoy_wants_a_token_where_the_console_wants_one() -> None:
    """Each path of the console that is guarded comes before the rule that lets the rest pass."""
    rules = find(render(SETTINGS), "rules")[0]
    free = next(at for at, rule in enumerate(rules) if rule["match"].get("prefix") == "/console/")
    guarded = {rule["match"].get("path") for rule in rules[:free] if "requires" in rule}
    assert guarded == {"/console/stats", "/console/streams"}


def test_streams_are_passed_by_every_prefix_that_is_configured() -> None:
    usual, more = re.compile(stream_path(())), re.compile(stream_path(("/v1/streams/", "/a.b/")))
    for path in ("/v1/stream/a", "/ds/b/c"):
        assert usual.fullmatch(path) and more.fullmatch(path)
    for path in ("/v1/streams/a", "/a.b/c"):
        assert more.fullmatch(path) and not usual.fullmatch(path)
    assert not more.fullmatch("/axb/c") and not more.fullmatch("/other/c")


def test_only_the_loopback_reaches_envoys_own_pages() -> None:
    made = render(replace(SETTINGS, host="0.0.0.0"))
    assert made["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
