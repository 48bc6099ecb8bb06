"""Streams behind Envoy: one gateway for each, live data at once, nothing lost when one leaves."""

import statistics
import time

import pytest

from protocol.sse import Decoder
from tests.envoy.conftest import Fleet
from tests.helpers.http2 import Exchange, Http2
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import PREFIX, Connection

TEXT = {"Content-Type": "text/plain"}
ON_ONE_CONNECTION = 200


def create(fleet: Fleet, client: Http2, name: str) -> str:
    """The path of a stream that is new."""
    reply = client.request("PUT", PREFIX + name, fleet.headers | TEXT)
    assert reply.status == 201, reply
    assert reply["Location"] == f"https://localhost{PREFIX}{name}"
    return PREFIX + name


def follow(fleet: Fleet, client: Http2, path: str) -> Exchange:
    """A reader of events who is at the tail."""
    reader = client.send("GET", f"{path}?offset=-1&live=sse", fleet.headers)
    client.wait_for(lambda: b"event: control" in reader.body, f"the first event of {path}")
    return reader


def test_an_event_is_there_at_once(fleet: Fleet) -> None:
    """Through TLS, Envoy and gateway within 50 ms of what an append takes that nobody follows; a
    busy machine may try again."""
    with fleet.http2() as writer, fleet.http2() as watcher:
        path, alone = create(fleet, writer, "quick"), create(fleet, writer, "alone")
        reader = follow(fleet, watcher, path)
        for _ in range(10):
            usual = statistics.median(time_alone(fleet, writer, alone) for _ in range(10))
            waits = [time_append(fleet, writer, path, watcher, reader) for _ in range(10)]
            if statistics.median(waits) < usual + 0.05:
                return
        pytest.fail(f"the last ten took {waits}")


def time_alone(fleet: Fleet, writer: Http2, path: str) -> float:
    """Seconds from before the append to its answer."""
    began = time.monotonic()
    appended = writer.send("POST", path, fleet.headers | TEXT, b"x")
    writer.wait_for(lambda: appended.ended)
    return time.monotonic() - began


def time_append(fleet: Fleet, writer: Http2, path: str, watcher: Http2, reader: Exchange) -> float:
    """Seconds from before the append to its event."""
    word = f"<{len(reader.body)}>".encode()
    began = time.monotonic()
    appended = writer.send("POST", path, fleet.headers | TEXT, word)
    watcher.wait_for(lambda: word in reader.body)
    waited = time.monotonic() - began
    writer.wait_for(lambda: appended.ended)
    return waited


def test_200_event_streams_share_one_connection(fleet: Fleet) -> None:
    """And there is room for requests beside them."""
    with fleet.http2() as writer, fleet.http2() as client:
        paths = [create(fleet, writer, f"shared/{number}") for number in range(10)]
        headers = fleet.headers
        readers = [
            client.send("GET", f"{path}?offset=-1&live=sse", headers)
            for path in paths
            for _ in range(ON_ONE_CONNECTION // len(paths))
        ]
        client.wait_for(lambda: all(b"event: control" in r.body for r in readers), "all streams")
        assert len(readers) == ON_ONE_CONNECTION < client.max_streams
        for path in paths:
            assert writer.request("POST", path, headers | TEXT, b"to everyone").status == 204
        client.wait_for(lambda: all(b"to everyone" in r.body for r in readers), "all events")
        assert client.request("GET", paths[0], headers).body == b"to everyone"
        assert not any(reader.ended for reader in readers)
        for reader in readers:
            kinds = [event.kind for event in Decoder().feed(bytes(reader.body))]
            assert kinds == ["control", "data", "control"]


def test_all_requests_of_a_stream_meet_one_gateway(fleet: Fleet) -> None:
    """Whatever they ask for and however they came; streams are spread over all gateways."""
    homes = set()
    with fleet.http2() as client, Connection(fleet.envoy.plain_port) as plain:
        for number in range(12):
            path = create(fleet, client, f"room/{number}")
            asked = [
                client.request(method, path + tail, fleet.headers | TEXT, body)
                for method, tail, body in (
                    ("POST", "", b"hello"),
                    ("GET", "", b""),
                    ("GET", "?offset=-1", b""),
                    ("GET", f"?x={number}&offset=now", b""),
                    ("HEAD", "", b""),
                    ("PUT", f"/snapshot/{nameless(5)}", b"a snapshot"),
                    ("GET", "/snapshot", b""),
                    ("GET", f"/snapshot/{nameless(5)}", b""),
                    ("GET", "/bootstrap?x=y", b""),
                )
            ]
            asked.append(plain.request("GET", f"{path}?offset=now", fleet.headers))
            assert all(reply.status < 400 for reply in asked), asked
            found = {*fleet.gateways_of(*asked)}
            assert len(found) == 1, (path, found)
            homes |= found
    assert len(homes) == 2


def test_a_read_sees_every_write_before_it_while_gateways_come_and_go(fleet: Fleet) -> None:
    """Only the streams of a gateway that is away are served by another, and they come back."""
    written: dict[str, bytes] = {}

    def write_and_read(client: Http2) -> dict[str, str]:
        replies = []
        for path in written:
            word = f"{len(written[path])},".encode()
            assert client.request("POST", path, fleet.headers | TEXT, word).status == 204
            written[path] += word
            replies.append(client.request("GET", path, fleet.headers))
            assert replies[-1].body == written[path]
        return dict(zip(written, fleet.gateways_of(*replies), strict=True))

    with fleet.http2() as client:
        # So many that not all of them have the same home by chance.
        written |= {create(fleet, client, f"wander/{n}"): b"" for n in range(24)}
        before = write_and_read(client)
        fleet.take_out(0)
        try:
            without = write_and_read(client)
        finally:
            fleet.bring_back(0)
        after = write_and_read(client)
    gone, stays = (gateway.url.removeprefix("http://") for gateway in fleet.gateways)
    assert {*before.values()} == {gone, stays}
    assert {*without.values()} == {stays}
    assert after == before


def test_the_console_needs_no_token_but_its_figures_do(fleet: Fleet) -> None:
    """And whoever comes through a proxy is not at this machine: no token is signed for him."""
    with fleet.http2() as client:
        assert client.request("GET", "/console/").status == 200
        for guarded in ("/console/stats", "/console/streams"):
            assert client.request("GET", guarded).status == 401
            assert client.request("GET", guarded, fleet.headers).status in (200, 403)
        assert client.request("POST", "/console/token", {}, b"{}").status == 404
