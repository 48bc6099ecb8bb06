"""The gateway's log of those who come through Envoy."""

from tests.envoy.repeated import repeated
from tests.hostile.gateway import test_access_log as attacks

globals().update(repeated(attacks))
WITHOUT = {
    "test_the_last_hop_that_is_trusted_names_the_client": "Envoy is a hop more (test_edge has it)",
}
