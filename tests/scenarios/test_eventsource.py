"""A plain `EventSource` repeats the URL it was given, and says in a header where it stood."""

from collections.abc import Iterator

import pytest

from protocol.sse import Event
from tests.conftest import StartOrigin
from tests.helpers.chromium import Chromium
from tests.helpers.gateway import KEY, LocalGateway, bearer
from tests.helpers.keys import make_token
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import EventStream, wait_until
from tests.scenarios.conftest import StartGateway


@pytest.fixture
def origin(start_origin: StartOrigin) -> LocalOrigin:
    return start_origin()


@pytest.fixture(params=["origin", "gateway"])
def port(request: pytest.FixtureRequest, origin: LocalOrigin, start_gateway: StartGateway) -> int:
    """Both give ids and take them."""
    if request.param == "origin":
        return origin.port
    return start_gateway(f"http://127.0.0.1:{origin.port}").port


def come_back(port: int, last_event_id: str, offset: str = "-1", live: str = "") -> list[Event]:
    headers = {**bearer(make_token(KEY)), "Last-Event-ID": last_event_id}
    with EventStream(port, "a", offset, live, headers) as events:
        return events.next_write()


@pytest.fixture
def offsets(origin: LocalOrigin) -> Iterator[list[str]]:
    """After each of three appends."""
    with origin.client() as client:
        client.create("a")
        yield [client.append("a", body) for body in (b"one.", b"two.", b"three.")]


def test_the_id_of_an_event_is_where_to_go_on(port: int, offsets: list[str]) -> None:
    with EventStream(port, "a", "-1", "", bearer(make_token(KEY))) as events:
        raw = next(events.writes)
    assert raw.count(b"\nid:") == 1
    assert raw.endswith(b"\nid:" + offsets[-1].encode() + b"\n\n")


@pytest.mark.parametrize("offset", ["-1", "now", "first"])
def test_where_a_reader_stood_goes_before_the_offset_of_its_url(
    port: int, offsets: list[str], offset: str
) -> None:
    asked = offsets[0] if offset == "first" else offset
    assert come_back(port, offsets[1], asked)[0] == Event("data", "three.")


@pytest.mark.parametrize("event_id", ["", "-1", "now", "a,b", "a/b", "x" * 300])
def test_an_id_that_nobody_can_have_given_out_is_passed_over(
    port: int, offsets: list[str], event_id: str
) -> None:
    assert come_back(port, event_id, offsets[1])[0] == Event("data", "three.")


def test_other_reads_take_no_notice(port: int, offsets: list[str], origin: LocalOrigin) -> None:
    with origin.client() as client:
        for query in ("offset=-1", "offset=-1&live=long-poll"):
            reply = client("GET", "a", {"Last-Event-ID": offsets[1]}, query=query)
            assert reply.body == b"one.two.three."


FOLLOW = """
  got = []; opened = 0;
  source = new EventSource("/v1/stream/a?offset=-1&live=sse");
  source.onopen = () => opened++;
  source.addEventListener("data", (event) => got.push(event.data));
"""


def test_a_browsers_event_source_goes_on_where_it_stood(
    origin: LocalOrigin, offsets: list[str], start_gateway: StartGateway
) -> None:
    gateway: LocalGateway = start_gateway(
        f"http://127.0.0.1:{origin.port}",
        auth={"mode": "off"},
        gateway={"sse_rotation_secs": 0.3},
    )
    with Chromium() as browser, origin.client() as client:
        page = browser.open(f"{gateway.url}/healthz")
        page.evaluate(FOLLOW)
        wait_until(lambda: page.evaluate("opened") >= 2, 30, "a second connection")
        client.append("a", b"four.")
        wait_until(lambda: page.evaluate("got.length") >= 2, 30, "what is new")
        assert page.evaluate("got") == ["one.two.three.", "four."]
        page.evaluate("source.close()")
