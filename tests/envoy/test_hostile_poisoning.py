"""Poison for the cache, sent through Envoy."""

from tests.envoy.repeated import repeated
from tests.helpers.scripted_origin import Answer
from tests.hostile.gateway import test_poisoning as attacks
from tests.hostile.gateway.arena import Arena, check_refusal

globals().update(repeated(attacks))
WITHOUT = {
    "test_names_that_connection_lists_are_dropped_and_nothing_else": "some are refused, see below",
    "test_nobody_names_himself_to_the_origin[X_JWT_Sub]": "refused, see below",
    "test_nobody_names_himself_to_the_origin[X-Jwt_Sub]": "refused, see below",
}


def test_a_header_with_an_underscore_is_refused(arena: Arena) -> None:
    before = len(arena.origin.requests)
    for name in ("X_JWT_Sub", "X-Jwt_Sub"):
        check_refusal(arena.ask("secret", headers={name: "admin"}), 400)
    assert arena.origin.requests[before:] == []


def test_what_connection_lists_cannot_take_a_name_away(arena: Arena) -> None:
    arena.origin.on("POST", "/*", Answer(204, {"Stream-Next-Offset": "5"}))
    for listed in ("Authorization", "Host", "X-JWT-Sub", "X-Request-Id", "Stream-Seq"):
        before = len(arena.origin.requests)
        headers = {**attacks.TEXT, "Connection": f"close, {listed}", "Stream-Seq": "9"}
        reply = arena.ask("listed", method="POST", headers=headers, body=b"x")
        assert reply.status in (204, 400, 401), reply
        for request in arena.origin.requests[before:]:
            assert request.headers["x-jwt-sub"] == "alice"
