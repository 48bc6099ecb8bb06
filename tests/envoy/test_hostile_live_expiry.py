"""Tokens that end while their readers wait behind Envoy."""

from tests.envoy.repeated import repeated
from tests.hostile.gateway import test_live_expiry as attacks

globals().update(repeated(attacks))
