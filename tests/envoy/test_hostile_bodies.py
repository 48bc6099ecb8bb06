"""Bodies of those who may not send them, and more than there is room for, behind Envoy."""

from tests.envoy.repeated import repeated
from tests.hostile.gateway import test_bodies as attacks

globals().update(repeated(attacks))
