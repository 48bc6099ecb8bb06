"""The official TypeScript client through the gateway, with tokens."""

import pytest

from tests.clients.conftest import Ends, Scenario
from tests.conformance.stacks import Gateway

JSON = "application/json"
TYPES = pytest.mark.parametrize("kind", [JSON, "text/plain", "application/octet-stream"])
LIVE = [*(f"live {number} é" for number in range(5)), "the end"]


@TYPES
def test_catch_up_reads_every_chunk(run: Scenario, gateway: Gateway, kind: str) -> None:
    hits = gateway.count_requests(mode="catch-up", verdict="hit")
    seen = run("catchUp", token=gateway.token(), type=kind, count=50)
    assert seen["complete"] and seen["type"] == kind
    assert list(seen["asked"]) == ["catch-up"] and seen["asked"]["catch-up"] >= 10
    assert gateway.count_requests(mode="catch-up", verdict="hit") > hits


@TYPES
@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_live_reader_sees_each_message_and_the_end(
    run: Scenario, gateway: Gateway, live: str, kind: str
) -> None:
    seen = run("follow", token=gateway.token(), type=kind, live=live)
    assert seen["messages"] == LIVE
    assert seen["closed"]
    assert set(seen["asked"]) == {"catch-up", live}


def test_sse_reader_loses_nothing_when_its_connection_rotates(
    run: Scenario, gateway: Gateway, ends: Ends
) -> None:
    token = gateway.token()
    seen = run("reconnect", token=token, tokens=[token])
    assert seen == {"complete": True, "asked": {"catch-up": 1, "sse": 2}}
    assert ends(2) == ["rotated", "closed"]


def test_producer_writes_once_and_in_order_through_repeats(run: Scenario, gateway: Gateway) -> None:
    seen = run("produce", token=gateway.token(), count=30)
    assert seen == {"messages": [*range(30), "the end"], "errors": [], "closed": True}


def test_newer_producer_shuts_the_older_one_out(run: Scenario, gateway: Gateway) -> None:
    seen = run("fence", token=gateway.token())
    assert seen == {"messages": ["a", "b"], "errors": ["StaleEpochError"]}


def test_closed_stream_refuses_appends_and_ends_live_reads(run: Scenario, gateway: Gateway) -> None:
    seen = run("close", token=gateway.token())
    refused = {"name": "FetchError", "status": 409}
    assert seen == {"messages": ["first"], "refused": refused, "closed": True, "same": True}


def test_deleted_stream_is_gone(run: Scenario, gateway: Gateway) -> None:
    seen = run("remove", token=gateway.token())
    assert seen == {"error": {"name": "FetchError", "status": 404}}


def test_refusals_reach_the_application(run: Scenario, gateway: Gateway) -> None:
    refusals = {
        401: ["", "not.a.token", gateway.token(ttl=-60)],
        403: [gateway.token(scope="read:other write:*")],
    }
    for status, tokens in refusals.items():
        for token in tokens:
            seen = run("read", token=token)
            assert seen == {"error": {"name": "FetchError", "status": status}}


def test_unknown_events_and_comments_are_passed_over(run: Scenario, strange_events: str) -> None:
    """One connection is enough: nothing in it made the client come back."""
    seen = run("watch", url=strange_events)
    assert seen == {"messages": ["a", "b"], "offset": "2", "asked": {"catch-up": 1, "sse": 1}}
