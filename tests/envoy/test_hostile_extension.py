"""Ways to snapshots, bootstraps and buckets of others, tried on Envoy."""

import pytest

from tests.envoy.repeated import repeated
from tests.helpers.rawhttp import PREFIX
from tests.hostile.gateway import test_extension as attacks
from tests.hostile.gateway.arena import Arena

globals().update(repeated(attacks))

READ = {
    "open//bootstrap": "open/bootstrap",
    "open/snapshot//5": "open/snapshot/5",
    "open/snapshot/..;/secret": "open/secret",
}
"""Paths that Envoy makes plain, where the gateway alone refuses them."""
_ROUND = "test_no_way_round_leads_to_what_belongs_to_another_stream"
WITHOUT = {
    **{f"{_ROUND}[{way}]": "see below" for way in READ},
    "test_a_large_publication_is_judged_before_it_is_taken_in[None-100000000000000-413]": (
        "without a token it ends at the first gate, with 401"
    ),
}


@pytest.mark.parametrize("way", READ)
def test_a_path_is_judged_as_envoy_has_read_it(arena: Arena, way: str) -> None:
    before = len(arena.origin.requests)
    attacks.ask(arena, "GET", PREFIX + way, attacks.all_on("open", "open/*"))
    targets = [request.target.split("?")[0] for request in arena.origin.requests[before:]]
    assert targets == [PREFIX + READ[way]]
    before = len(arena.origin.requests)
    reply = attacks.ask(arena, "GET", PREFIX + way, attacks.all_on("secret", "secret/*"))
    assert reply.status == 403 and arena.origin.requests[before:] == []
