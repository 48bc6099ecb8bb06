"""Each scenario, small, against a real gateway in front of a real origin."""

import asyncio
import io
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from loadtest.load.connection import Target
from loadtest.load.paced import SCENARIOS
from loadtest.load.readers import Events
from loadtest.load.run import Order, Witness, find_scenario, run_order, turn_knobs
from loadtest.load.session import Session, SetupFailed
from loadtest.load.summary import summarise
from loadtest.peers.names import ENVOY, NGINX, NODE, OURS, VARNISH
from tests.helpers.gateway import KEY, LocalGateway, make_gateway_config
from tests.helpers.keys import make_token
from tests.helpers.origin import LocalOrigin

SMALL = {
    "polls": {"readers": 20, "rate": 4},
    "fanout": {"readers": 20, "rate": 5},
    "stampede": {"readers": 10, "rate": 2, "size": 100_000},
    "zipf": {"streams": 20, "rate": 100},
    "append": {"streams": 5, "rate": 50},
    "browsers": {"readers": 10, "streams": 3, "rate": 10},
    "rotation": {"readers": 10, "rate": 5},
    "cold": {"streams": 10, "rate": 50},
    "tokens": {"streams": 5, "rate": 50},
}
ALL = "read:* write:* create:*"


@pytest.fixture
def gateway(origin: LocalOrigin) -> Iterator[LocalGateway]:
    # Event streams end early, so that readers come back within the second that a test has.
    config = make_gateway_config(
        f"http://127.0.0.1:{origin.port}", gateway={"sse_rotation_secs": 0.5}
    )
    with LocalGateway(config) as gateway:
        yield gateway


def make_order(name: str, gateway: LocalGateway, origin: LocalOrigin, out: Path) -> Order:
    async def restart() -> None:
        pass

    scenario = find_scenario(name)
    return Order(
        scenario,
        gateway.url,
        tokens=[make_token(KEY, scope=ALL, sub=f"reader-{n}") for n in range(5)],
        knobs=turn_knobs(scenario, {"seconds": 1.2, **SMALL[name]}),
        witness=Witness(Target("127.0.0.1", origin.port), os.getpid),
        restart=restart,
        out=out / "run.jsonl",
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_without_a_failure(
    name: str, gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path
) -> None:
    sink = io.StringIO()
    order = make_order(name, gateway, origin, tmp_path)
    run = run_order(order, sink)
    summary = summarise(run, order.scenario.headline)
    assert run.failures() == {}
    assert summary.done > 0 and summary.p99_ms >= summary.p50_ms > 0
    assert run.ended is not None and run.gauge("memory_mb")
    assert f"{order.scenario.headline}: {summary.done:,}" in sink.getvalue()


def test_waiting_readers_share_what_the_origin_is_asked(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path
) -> None:
    order = make_order("polls", gateway, origin, tmp_path)
    summary = summarise(run_order(order, io.StringIO()), "delivered")
    assert summary.done == 5 * 20  # each append reached each reader
    assert summary.upstream < summary.asked / 5


def test_a_terminal_shows_every_second(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path
) -> None:
    ours, theirs = os.openpty()
    order = make_order("polls", gateway, origin, tmp_path)
    with open(ours, "rb", buffering=0) as screen, open(theirs, "w") as sink:
        run = run_order(order, sink)
        shown = screen.read(100_000).decode()
    assert run.done("delivered") == 5 * 20
    assert "1 of 1 s" in shown and "one read at the origin for" in shown


def test_a_view_that_breaks_ends_the_run_loudly(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtest.load.view.View.line", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_order(make_order("polls", gateway, origin, tmp_path), io.StringIO())


def test_messages_that_never_arrive_are_failures(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep_through(session: Session, path: str, offset: str) -> None:
        session.waiting += 1
        await asyncio.Event().wait()

    monkeypatch.setattr("loadtest.load.paced.wait_for_news", sleep_through)
    monkeypatch.setattr("loadtest.load.session.DELIVERY_TIMEOUT_SECS", 0.1)
    order = make_order("polls", gateway, origin, tmp_path)
    assert run_order(order, io.StringIO()).failures() == {"delivered: never arrived": 5 * 20}


def test_a_run_leaves_no_streams_behind(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path
) -> None:
    order = replace(
        make_order("zipf", gateway, origin, tmp_path),
        tokens=[make_token(KEY, scope=f"{ALL} delete:*")],
    )
    before = count_streams(origin)
    run_order(order, io.StringIO())
    assert count_streams(origin) == before


def count_streams(origin: LocalOrigin) -> float:
    with urlopen(f"http://127.0.0.1:{origin.port}/metrics") as reply:
        found = re.search(rb"^weir_origin_streams (\S+)", reply.read(), re.M)
    assert found
    return float(found[1])


def test_too_few_tokens_are_told(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path
) -> None:
    run = run_order(make_order("tokens", gateway, origin, tmp_path), io.StringIO())
    assert "there were only 5 tokens, so they came again" in summarise(run, "read").limits


def test_rates_and_times_need_not_be_whole() -> None:
    knobs = turn_knobs(SCENARIOS["polls"], {"rate": 0.5, "seconds": 2.5, "readers": 7.0})
    assert (knobs.rate, knobs.seconds, repr(knobs.readers)) == (0.5, 2.5, "7")


def test_a_server_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    order = Order(find_scenario("zipf"), "http://127.0.0.1:9", out=tmp_path / "run.jsonl")
    with pytest.raises(SetupFailed, match="refused"):
        run_order(order, io.StringIO())


def test_a_token_without_rights_is_told(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path
) -> None:
    order = make_order("polls", gateway, origin, tmp_path)
    powerless = replace(order, tokens=[make_token(KEY, scope="read:*")])
    with pytest.raises(SetupFailed, match="answered with 403"):
        run_order(powerless, io.StringIO())


def test_cold_needs_a_way_to_restart(
    gateway: LocalGateway, origin: LocalOrigin, tmp_path: Path
) -> None:
    order = replace(make_order("cold", gateway, origin, tmp_path), restart=None)
    with pytest.raises(SetupFailed, match="--restart"):
        run_order(order, io.StringIO())


def test_events_come_whole_whatever_the_pieces() -> None:
    text = (
        b"event: data\ndata: 1\n\nevent: control\n"
        b'data: {"streamNextOffset":"0_5","upToDate":true}\n\n'
    )
    for cut in range(len(text)):
        events = Events("-1")
        blocks = events.feed(text[:cut]) + events.feed(text[cut:])
        assert len(blocks) == 2 and events.offset == "0_5"


def test_scenarios_are_compared_with_those_they_concern() -> None:
    assert SCENARIOS["polls"].peers == (OURS, NODE, NGINX, VARNISH, ENVOY)
    assert SCENARIOS["cold"].peers == (OURS, NGINX, VARNISH, ENVOY)
    assert SCENARIOS["tokens"].peers == (OURS, ENVOY)
