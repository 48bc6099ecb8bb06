"""Crowds that share a flight or a hub, behind Envoy."""

from tests.envoy.repeated import repeated
from tests.hostile.gateway import test_collapsing_abuse as attacks

globals().update(repeated(attacks))
