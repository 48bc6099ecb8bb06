"""What one may not see is not in any answer, cached or not; behind Envoy."""

from tests.envoy.repeated import repeated
from tests.hostile.gateway import test_cache_isolation as attacks

globals().update(repeated(attacks))
