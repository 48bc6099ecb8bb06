"""Ways out of a scope, tried on Envoy."""

from tests.envoy.repeated import repeated
from tests.hostile.gateway import test_scopes as attacks

globals().update(repeated(attacks))
WITHOUT = {
    # It reads open/private/x, and passes that on to be judged: that one may be read.
    "test_no_way_round_leads_out_of_a_scope[open//../private/x]": "merged slashes",
}
