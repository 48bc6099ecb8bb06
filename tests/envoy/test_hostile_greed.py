"""Slow, greedy and rude clients behind Envoy."""

from tests.envoy.repeated import repeated
from tests.hostile.gateway import test_greed as attacks

globals().update(repeated(attacks))
