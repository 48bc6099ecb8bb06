"""The official transport of the AI SDK through the gateway: an answer outlives the page it was for.

The transport reads without any header, so its URL carries a token of its own.
"""

from tests.clients.conftest import Scenario
from tests.conformance.stacks import Gateway

FIRST, WHOLE = "A stream keeps ", "A stream keeps what was said: “é”."


def test_a_page_that_comes_back_gets_the_whole_answer(
    run: Scenario, gateway: Gateway, url: str
) -> None:
    stream = url.partition("/v1/stream/")[2]
    reader = gateway.token(scope=f"read:{stream}")
    seen = run("resume", script="chat.mjs", token=gateway.token(), read=f"{url}?token={reader}")
    assert seen == {"answers": [FIRST, WHOLE, ""], "status": "ready", "kept": WHOLE}


def test_a_page_without_a_token_in_its_url_is_refused(
    run: Scenario, gateway: Gateway, url: str
) -> None:
    seen = run("refused", script="chat.mjs", token=gateway.token(), read=url)
    assert seen == {"answer": "", "status": "error", "error": 401}
