"""The gateway's log of those who come through Envoy."""

from tests.envoy.repeated import repeated
from tests.helpers.gateway import bearer
from tests.helpers.rawhttp import PREFIX, Connection
from tests.hostile.gateway import test_access_log as attacks
from tests.hostile.gateway.arena import Arena

globals().update(repeated(attacks))
WITHOUT = {
    "test_the_last_hop_that_is_trusted_names_the_client": "Envoy is a hop more, see below",
}


def test_the_gateway_logs_the_client_that_envoy_saw(arena: Arena) -> None:
    """Neither Envoy's own address nor what the client made up."""
    forged = {"X-Forwarded-For": "10.1.1.1, 10.2.2.2", "X-Real-IP": "10.1.1.1"}
    with Connection(arena.port, source="127.0.0.2") as connection:
        reply = connection.request("GET", PREFIX + "secret", bearer(arena.token()) | forged)
    assert arena.line_of(reply["X-Request-Id"]).client == "127.0.0.2"
