"""Tokens that must not be taken, tried on Envoy and so on both gates, one after the other.

What the first gate takes and the second does not (an unknown `crit`, a claim that comes twice, a
token for centuries) must get the same answer as what neither takes.
"""

import json
from pathlib import Path

from tests.envoy.conftest import EdgeArena
from tests.envoy.repeated import repeated
from tests.helpers.gateway import KEY
from tests.helpers.keys import jwks, make_token
from tests.helpers.rawhttp import PREFIX
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, SimpleStream
from tests.hostile.gateway import test_tokens as attacks
from tests.hostile.gateway.arena import Arena, check_refusal

globals().update(repeated(attacks))
WITHOUT = {
    "test_every_reason_looks_alike_but_is_told_apart_in_the_metrics": (
        "the gateway counts what reaches it, and most ends at the first gate"
    ),
    "test_a_flood_of_unknown_key_ids_fetches_the_keys_once": "two gates fetch, see below",
    "test_no_answer_of_the_real_process_nor_its_log_holds_a_token": "a gateway alone",
}


def test_a_flood_of_unknown_key_ids_fetches_no_keys(tmp_path: Path) -> None:
    """Envoy asks when it is time to, and the gateway behind it is not even reached."""
    with ScriptedOrigin() as issuer:
        issuer.on("GET", "/jwks.json", Answer(200, {}, json.dumps(jwks(KEY)).encode()))
        auth = {"jwks": f"{issuer.url}/jwks.json", "jwks_cooldown_secs": 60.0}
        with EdgeArena(tmp_path, auth=auth) as arena:
            SimpleStream(arena.origin, PREFIX + "a").append(b"x")
            assert arena.ask("a").status == 200
            before = issuer.count()
            for number in range(40):
                forged = make_token(attacks.THEIRS, headers={"kid": f"made-up-{number}"})
                check_refusal(arena.ask("a", token=forged), 401)
            assert arena.ask("a").status == 200
            assert issuer.count() == before
            assert arena.gateway.metric("token_failures", reason="unknown-key") == 0


def test_a_token_in_the_wrong_place_is_no_token(arena: Arena) -> None:
    for query, headers in attacks.wrong_places(arena.token()):
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
        (reply,) = arena.send(attacks.twice(first, second), 1)
        check_refusal(reply, 401)
