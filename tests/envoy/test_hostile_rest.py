"""More of the gateway's hostile tests behind Envoy: ways out of a scope, poison for the cache, slow
and greedy clients, tokens that end while their readers wait.
"""

import pytest

from tests.hostile.gateway import test_cache_isolation as isolation
from tests.hostile.gateway import test_greed as greed
from tests.hostile.gateway import test_live_expiry as expiry
from tests.hostile.gateway import test_poisoning as poisoning
from tests.hostile.gateway import test_scopes as scopes
from tests.hostile.gateway.arena import Arena

fork_token, mirror = scopes.fork_token, poisoning.mirror
name, stream = expiry.name, expiry.stream


# Envoy makes open/private/x of the one that is left out, and that may be read.
@pytest.mark.parametrize("way", [w for w in scopes.ROUNDABOUT if w != "open//../private/x"])
def test_no_way_round_leads_out_of_a_scope(arena: Arena, way: str) -> None:
    scopes.test_no_way_round_leads_out_of_a_scope(arena, way)


test_a_needless_escape_is_the_same_stream_and_the_same_key = (
    scopes.test_a_needless_escape_is_the_same_stream_and_the_same_key
)
test_a_source_that_one_may_not_read_is_not_forked = (
    scopes.test_a_source_that_one_may_not_read_is_not_forked
)

test_a_header_that_is_no_part_of_the_key_changes_nothing = (
    poisoning.test_a_header_that_is_no_part_of_the_key_changes_nothing
)
test_a_doubtful_question_is_refused_and_reaches_nobody = (
    poisoning.test_a_doubtful_question_is_refused_and_reaches_nobody
)
test_a_body_with_a_read_is_refused = poisoning.test_a_body_with_a_read_is_refused


@pytest.mark.parametrize("header", ["X-JWT-Sub", "x-jwt-sub", "X-JWT-Subject", "X-JWT-Scope"])
def test_nobody_names_himself_to_the_origin(arena: Arena, mirror: str, header: str) -> None:
    """Names with an underscore do not even come so far (see test_hostile_tokens)."""
    poisoning.test_nobody_names_himself_to_the_origin(arena, mirror, header)


test_a_hot_chunk_gives_a_stranger_no_byte = isolation.test_a_hot_chunk_gives_a_stranger_no_byte

test_a_client_that_drips_is_cut_off = greed.test_a_client_that_drips_is_cut_off
test_a_reader_that_never_reads_is_dropped_and_the_others_go_on = (
    greed.test_a_reader_that_never_reads_is_dropped_and_the_others_go_on
)
test_requests_behind_a_waiting_long_poll_wait_their_turn = (
    greed.test_requests_behind_a_waiting_long_poll_wait_their_turn
)
test_a_large_body_is_not_taken_in_before_its_token_is_good = (
    greed.test_a_large_body_is_not_taken_in_before_its_token_is_good
)
test_a_large_body_with_a_good_token_arrives_whole = (
    greed.test_a_large_body_with_a_good_token_arrives_whole
)

test_an_event_stream_ends_when_its_token_does_and_says_so = (
    expiry.test_an_event_stream_ends_when_its_token_does_and_says_so
)
test_a_waiting_long_poll_is_judged_again_at_delivery = (
    expiry.test_a_waiting_long_poll_is_judged_again_at_delivery
)
