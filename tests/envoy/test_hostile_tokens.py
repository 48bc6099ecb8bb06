"""Tokens that must not be taken, tried on Envoy and so on both gates, one after the other.

What the first gate takes and the second does not (an unknown `crit`, a claim that comes twice, a
token for centuries) must get the same answer as what neither takes.
"""

from tests.hostile.gateway import test_tokens as direct
from tests.hostile.gateway.arena import Arena, check_refusal

arena, lenient = direct.arena, direct.lenient

test_a_token_that_is_not_good_gets_the_one_answer_and_no_byte = (
    direct.test_a_token_that_is_not_good_gets_the_one_answer_and_no_byte
)
test_a_good_token_passes = direct.test_a_good_token_passes
test_a_bad_token_learns_nothing_about_streams = direct.test_a_bad_token_learns_nothing_about_streams
test_one_changed_character_of_a_remembered_token_is_enough = (
    direct.test_one_changed_character_of_a_remembered_token_is_enough
)
test_keys_and_urls_in_a_token_cause_no_request = (
    direct.test_keys_and_urls_in_a_token_cause_no_request
)
test_a_huge_token_is_refused_unread_and_not_echoed = (
    direct.test_a_huge_token_is_refused_unread_and_not_echoed
)
test_a_token_in_the_query_goes_no_further = direct.test_a_token_in_the_query_goes_no_further
test_a_token_in_the_query_does_not_reach_the_service_paths = (
    direct.test_a_token_in_the_query_does_not_reach_the_service_paths
)
test_a_token_in_the_query_is_in_no_location_and_no_error = (
    direct.test_a_token_in_the_query_is_in_no_location_and_no_error
)
test_tokens_in_two_places_are_refused_whoever_they_name = (
    direct.test_tokens_in_two_places_are_refused_whoever_they_name
)
test_a_token_in_a_cookie_is_taken_and_not_forwarded = (
    direct.test_a_token_in_a_cookie_is_taken_and_not_forwarded
)


def test_a_token_in_the_wrong_place_is_no_token(arena: Arena) -> None:
    for query, headers in direct.wrong_places(arena.token()):
        reply = arena.ask("secret", query, token=None, headers=headers)
        # A header with an underscore is refused whatever it is: servers read it as a hyphen.
        check_refusal(reply, 400 if "Authorization_" in headers else 401)


def test_two_authorization_headers_are_refused_even_when_they_agree(arena: Arena) -> None:
    one, other = arena.token(), arena.token(sub="bob")
    for first, second in (
        (f"Bearer {one}", f"Bearer {one}"),
        (f"Bearer {one}", f"Bearer {other}"),
        ("Basic eDp5", f"Bearer {one}"),
        (f"Bearer {one}", "x"),
    ):
        (reply,) = arena.send(direct.twice(first, second), 1)
        check_refusal(reply, 401)
