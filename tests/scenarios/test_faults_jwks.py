"""The endpoint of the keys is gone, slow or talks nonsense: who is known goes on."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from gateway import jwks
from tests.helpers.gateway import LocalGateway
from tests.helpers.keys import Key, make_key, make_token
from tests.helpers.keys import jwks as key_set
from tests.helpers.rawhttp import wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, dropped, simple_stream
from tests.scenarios.conftest import StartGateway

OLD, NEW, STRANGER = make_key(kid="old"), make_key("ES256", "new"), make_key(kid="stranger")
PATH = "/jwks.json"


@pytest.fixture
def issuer(scripted: ScriptedOrigin) -> Iterator[ScriptedOrigin]:
    simple_stream(scripted, "/v1/stream/a", "text/plain", b"one.")
    with ScriptedOrigin() as issuer:
        publish(issuer, OLD)
        yield issuer


def publish(issuer: ScriptedOrigin, *keys: Key) -> None:
    issuer.on("GET", PATH, Answer(200, {}, json.dumps(key_set(*keys)).encode()))


@pytest.fixture
def gateway(issuer: ScriptedOrigin, start_gateway: StartGateway) -> LocalGateway:
    return start_gateway(jwks_path=issuer.url + PATH, auth={"jwks_cooldown_secs": 0.1})


def status(gateway: LocalGateway, key: Key, sub: str = "alice") -> int:
    with gateway.client(make_token(key, sub=sub)) as client:
        return client.read("a").status


AILMENTS: dict[str, Callable[[ScriptedOrigin], None]] = {
    "gone": lambda issuer: issuer.down(),
    "silent": lambda issuer: issuer.on("GET", PATH, Answer(hold=30.0)),
    "resetting": lambda issuer: issuer.on("GET", PATH, dropped(reset=True)),
    "failing": lambda issuer: issuer.on("GET", PATH, Answer(500)),
    "nonsense": lambda issuer: issuer.on("GET", PATH, Answer(200, {}, b"<html>")),
    "redirecting": lambda issuer: issuer.on("GET", PATH, Answer(302, {"Location": "/x"})),
    "cut": lambda issuer: issuer.on("GET", PATH, Answer(200, {}, b"{" * 99, cut_after=9)),
}


@pytest.mark.parametrize("ailment", AILMENTS)
def test_known_keys_keep_working_and_unknown_ones_are_refused_soon(
    ailment: str,
    issuer: ScriptedOrigin,
    gateway: LocalGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwks, "FETCH_TIMEOUT_SECS", 0.3)
    assert status(gateway, OLD) == 200
    AILMENTS[ailment](issuer)
    time.sleep(0.1)  # the cooldown after the start
    for number in range(3):
        begun = time.monotonic()
        assert status(gateway, STRANGER) == 401
        assert time.monotonic() - begun < 20.0
        assert status(gateway, OLD, f"never seen {number}".replace(" ", "-")) == 200
    if ailment == "gone":
        issuer.up()
    publish(issuer, OLD, NEW)
    wait_until(lambda: status(gateway, NEW) == 200)
    assert status(gateway, OLD) == 200


def test_known_keys_do_not_wait_for_a_silent_endpoint(
    issuer: ScriptedOrigin, gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_TIMEOUT_SECS", 60.0)
    gate = issuer.hold()
    time.sleep(0.1)
    with gateway.connect() as waiting:
        token = make_token(STRANGER)
        head = f"GET /v1/stream/a?offset=-1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
        waiting.send(f"{head}\r\n\r\n".encode())
        wait_until(lambda: gate.waiting == 1)
        assert status(gateway, OLD, "bob") == 200
        assert gate.waiting == 1  # and the endpoint is silent still
        issuer.release()
        assert waiting.read_response().status == 401


def test_a_crowd_of_unknown_keys_is_one_question(
    issuer: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(jwks_path=issuer.url + PATH, auth={"jwks_cooldown_secs": 60.0})
    before = issuer.count()
    for number in range(20):
        assert status(gateway, make_key(kid=f"unknown-{number}")) == 401
    assert issuer.count() == before


def test_without_any_key_the_gateway_is_not_ready_and_says_so(
    issuer: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    issuer.down()
    gateway = start_gateway(jwks_path=issuer.url + PATH)
    with gateway.connect() as service, gateway.client(make_token(OLD)) as client:
        refused = client.read("a")
        assert refused.status == 503 and refused["Content-Type"] == "application/problem+json"
        assert "Retry-After" in refused
        assert not gateway.gateway.ready
        assert service.request("GET", "/healthz").status == 200
        assert service.request("GET", "/readyz").status == 503
        issuer.up()
        wait_until(lambda: client.read("a").status == 200)
        assert service.request("GET", "/readyz").status == 200


def test_a_key_that_was_taken_away_stops_working_at_the_next_refresh(
    issuer: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(jwks_path=issuer.url + PATH, auth={"jwks_refresh_secs": 0.1})
    assert status(gateway, OLD) == 200
    publish(issuer, NEW)
    wait_until(lambda: status(gateway, OLD) == 401)
    assert status(gateway, NEW) == 200
