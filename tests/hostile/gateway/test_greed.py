"""Clients that take their time, or more room than they should: they harm nobody else."""

import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.gateway import bearer
from tests.helpers.keys import make_key
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import (
    PREFIX,
    Connection,
    encode_request,
    wait_until,
)
from tests.helpers.scripted_origin import Answer, Gate, SimpleStream
from tests.hostile.gateway.arena import CANARY, RESET, Arena, check_refusal
from tests.hostile.gateway.conftest import VICTIM, check_victim
from tests.hostile.oracle import TEXT


@pytest.mark.parametrize(
    "start",
    [
        "",
        "GET / HTTP/1.1\r\n",
        f"GET {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\nX: ",
        f"POST {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\nContent-Length: 500\r\n\r\n",
        f"POST {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n",
    ],
    ids=["nothing", "line", "header", "body", "chunk"],
)
def test_a_client_that_drips_is_cut_off(quick: Arena, start: str) -> None:
    began = time.monotonic()
    with quick.connect() as connection:
        token = f"Host: h\r\nAuthorization: Bearer {quick.token()}\r\n"
        connection.send(start.replace("Host: h\r\n", token).encode())
        with pytest.raises(OSError):
            while time.monotonic() - began < 30:
                connection.send(b"x")
                time.sleep(0.02)
    check_victim(quick)


def test_a_reader_that_never_reads_is_dropped_and_the_others_go_on(quick: Arena) -> None:
    stream = SimpleStream(quick.origin, PREFIX + "busy")
    stream.append(b"start")
    idle = [quick.connect() for _ in range(5)]
    for connection in idle:
        target = f"{PREFIX}busy?offset=-1&live=sse"
        connection.send(encode_request("GET", target, bearer(quick.token())))
    with quick.events("busy") as events:
        events.next_write()
        wait_until(lambda: quick.readers_of("busy") == (6, 0))
        while quick.readers_of("busy") > (1, 0):
            stream.append(b"x" * 100_000)
            while json.loads(events.next_write()[-1].data)["streamNextOffset"] != stream.tail:
                pass
    for connection in idle:
        connection.close()
    wait_until(lambda: len([line for line in quick.lines() if line.ended == "slow"]) == 5)
    check_victim(quick)


def test_resets_in_the_middle_of_a_fan_out_harm_nobody_else(quick: Arena) -> None:
    stream = SimpleStream(quick.origin, PREFIX + "fan")
    stream.append(b"start")
    with quick.events("fan") as lasting:
        lasting.next_write()
        for round_number in range(3):
            polls = [quick.poll("fan", stream.tail) for _ in range(10)]
            readers = [quick.events("fan", stream.tail) for _ in range(10)]
            wait_until(lambda: quick.readers_of("fan") == (11, 10))
            leaving = [reader.connection for reader in readers] + polls[:9]
            stream.append(b"news")
            for connection in leaving:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.close()
            assert polls[9].read_response().body == b"news"
            polls[9].close()
            assert lasting.next_write()[0].data == "news", round_number
            wait_until(lambda: quick.readers_of("fan") == (1, 0))
    check_victim(quick)
    assert quick.gateway.gateway.hubs.slots.total == 0 or wait_for_slots(quick)


def wait_for_slots(arena: Arena) -> bool:
    wait_until(lambda: arena.gateway.gateway.hubs.slots.total == 0)
    return True


def test_requests_behind_a_waiting_long_poll_wait_their_turn(quick: Arena) -> None:
    """They are answered in order, however many there are, and bounded in memory."""
    stream = SimpleStream(quick.origin, PREFIX + "piped")
    stream.append(b"start")
    behind = encode_request("GET", PREFIX + TEXT, bearer(quick.token()))
    with quick.poll("piped", stream.tail) as connection:
        connection.send(behind * 10)
        quick.wait_for_polls("piped", 1)
        stream.append(b"news")
        assert connection.read_response().body == b"news"
        assert [connection.read_response().body for _ in range(10)] == [VICTIM] * 10
    check_victim(quick)


def test_a_flood_behind_a_waiting_long_poll_is_not_taken_in(quick: Arena) -> None:
    stream = SimpleStream(quick.origin, PREFIX + "flooded")
    stream.append(b"start")
    behind = encode_request("GET", PREFIX + TEXT, bearer(quick.token()))
    with quick.poll("flooded", stream.tail) as connection:
        quick.wait_for_polls("flooded", 1)
        connection.socket.settimeout(0.3)
        sent = 0
        with pytest.raises(TimeoutError):  # the gateway stops reading
            while sent < 50_000_000:
                sent += connection.socket.send(behind * 100)
    check_victim(quick)


def test_too_large_a_head_is_refused_without_an_echo(quick: Arena) -> None:
    for data in (
        f"GET {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\n" + f"X: {CANARY}\r\n" * 2000 + "\r\n",
        f"GET {PREFIX}{CANARY * 2000} HTTP/1.1\r\nHost: h\r\n\r\n",
        f"GET {PREFIX}{TEXT}?{CANARY * 2000} HTTP/1.1\r\nHost: h\r\n\r\n",
        f"GET {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\nTE: x\r\nX: {CANARY * 2000}\r\n\r\n",
        CANARY * 3000,
    ):
        replies = quick.send(data.encode())
        assert len(replies) == 1
        check_refusal(replies[0], 431, 400)
    check_victim(quick)


@pytest.mark.parametrize("who", ["nobody", "forged", "expired", "two"])
@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5000000\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n4c4b40\r\n",
        "Content-Length: 5000000\r\nExpect: 100-continue\r\n\r\n",
    ],
    ids=["length", "chunked", "expect"],
)
def test_a_large_body_is_not_taken_in_before_its_token_is_good(
    arena: Arena, who: str, framing: str
) -> None:
    """Else anybody could have the gateway hold as many bytes as he has connections for."""
    tokens = {"nobody": [], "expired": [arena.token(ttl=-9)], "two": [arena.token()] * 2}
    tokens["forged"] = [arena.token(make_key("EdDSA", "test-key"))]
    head = f"POST {PREFIX}live HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
    head += "".join(f"Authorization: Bearer {token}\r\n" for token in tokens[who])
    with arena.connect() as connection:
        connection.send((head + framing).encode() + b"x" * 100_000)
        check_refusal(connection.read_response("POST"), 401)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_a_refused_upload_gets_one_answer_and_no_second_request(
    arena: Arena, chunked: bool, connection: str
) -> None:
    """What was still on its way is a body, whatever it looks like."""
    inner = encode_request("DELETE", PREFIX + "live", bearer(arena.token()))
    body = (inner + b"x" * 1000) * 200
    head = f"POST {PREFIX}live HTTP/1.1\r\nHost: h\r\nConnection: {connection}\r\n"
    head += "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    with arena.connect() as client:
        client.send(f"{head}\r\n\r\n".encode())
        client.send(framed[:1000])
        check_refusal(client.read_response(), 401)
        client.send(framed[1000:] + inner)
        assert client.wait_closed() == b""
    assert not arena.origin.find("DELETE")


def test_a_large_body_with_a_good_token_arrives_whole(arena: Arena) -> None:
    stream = SimpleStream(arena.origin, PREFIX + "large")
    token, body = arena.token(), b"x" * 3_000_000
    headers = {"Content-Type": "text/plain"}
    for size in (1, 2):  # the first time it is new, then it is known
        assert arena.ask("large", token=token, method="POST", headers=headers, body=body)
        assert stream.tail == nameless(size * len(body))


def test_live_readers_of_one_subject_are_limited(tmp_path: Path, arena_class: type[Arena]) -> None:
    serving = {"max_live_readers": 6, "max_live_readers_per_subject": 3}
    with arena_class(tmp_path, gateway=serving) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "a")
        stream.append(b"x")
        query = f"offset={stream.tail}&live=long-poll"
        hubs = arena.gateway.gateway.hubs
        open_polls: list[Connection] = []
        for subject, status in (("greedy", 429), ("other", 503)):
            for number in range(3):
                token = arena.token(sub=subject, jti=f"{subject}-{number}")
                open_polls.append(arena.poll("a", stream.tail, token=token))
            wait_until(lambda: hubs.reader_count == len(open_polls))
            reply = arena.ask("a", query, token=arena.token(sub=subject, jti="last"))
            check_refusal(reply, status, 429)
            assert "Retry-After" in reply
        assert arena.ask("a", query, token=arena.token(sub="third")).status == 503
        assert arena.ask("a").status == 200
        for connection in open_polls:
            connection.close()
        wait_until(lambda: hubs.slots.total == 0)


def test_one_subject_s_flood_does_not_slow_the_others(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """By subject, whatever tokens, connections and forwarded addresses he uses."""
    serving = {"requests_per_second": 1.0, "request_burst": 5}
    with arena_class(tmp_path, gateway=serving) as arena:
        SimpleStream(arena.origin, PREFIX + "a").append(b"x")
        statuses = []
        for number in range(12):
            token = arena.token(sub="greedy", jti=f"id-{number}")
            headers = {"X-Forwarded-For": f"10.0.0.{number}"}
            statuses.append(arena.ask("a", token=token, headers=headers).status)
        assert statuses[:5] == [200] * 5 and statuses.count(429) >= 6
        assert arena.ask("a", token=arena.token(sub="modest")).status == 200


def test_one_subject_leaves_connections_to_the_origin_for_the_others(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """He holds half of them as long as the origin takes, and waits; nobody waits with him, not
    even who shares a fetch that is on his account."""
    upstream = {"connections": 4, "first_byte_timeout_secs": 1.5, "idle_timeout_secs": 30.0}
    gate = Gate()
    with arena_class(tmp_path, upstream=upstream) as arena, ExitStack() as open_requests:
        greedy, modest = arena.token(sub="greedy"), arena.token(sub="modest")
        SimpleStream(arena.origin, PREFIX + "a").append(b"x")
        named = {"Content-Type": "text/plain", "Stream-Next-Offset": "0_9"}
        arena.origin.on("GET", PREFIX + "slow", Answer(200, named, pieces=[b"x", gate]))
        for target, held in (("slow?max_bytes=9", 1), ("slow?max_bytes=9", 2), ("a", 2)):
            connection = open_requests.enter_context(arena.connect())
            connection.send(encode_request("GET", PREFIX + target, bearer(greedy)))
            wait_until(lambda held=held: gate.waiting == held)  # type: ignore[misc]
        flights = arena.gateway.gateway.holdings.flights
        wait_until(lambda: len(flights) == 1, what="his read, which waits")
        assert arena.ask("a", token=modest).body == b"x"
        assert connection.read_response().body == b"x"  # and so he has it as well
        refused = arena.ask("a", "max_bytes=9", token=greedy)
        check_refusal(refused, 429)
        assert refused.json()["code"] == "origin-busy-for-subject" and "Retry-After" in refused
        assert arena.ask("a", token=modest, method="HEAD").status == 200
        gate.open()


def test_one_subject_cannot_follow_all_streams_there_is_a_connection_for(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    upstream = {"live_connections": 4, "first_byte_timeout_secs": 1.5}
    with arena_class(tmp_path, upstream=upstream) as arena, ExitStack() as polls:
        greedy, modest = arena.token(sub="greedy"), arena.token(sub="modest")
        streams = [SimpleStream(arena.origin, f"{PREFIX}s{number}") for number in range(4)]
        for number, stream in enumerate(streams[:2]):
            stream.append(b"x")
            polls.enter_context(arena.poll(f"s{number}", stream.tail, token=greedy))
        wait_until(lambda: all(stream.waiting == 1 for stream in streams[:2]))
        streams[2].append(b"x")
        refused = polls.enter_context(arena.poll("s2", streams[2].tail, token=greedy))
        check_refusal(refused.read_response(), 429)
        waiting = polls.enter_context(arena.poll("s2", streams[2].tail, token=greedy))
        hubs = arena.gateway.gateway.hubs
        wait_until(lambda: hubs.reader_count == 3)
        shared = polls.enter_context(arena.poll("s2", streams[2].tail, token=modest))
        wait_until(lambda: streams[2].waiting == 1, what="the hub, on the other's account")
        streams[2].append(b"news")
        assert [each.read_response().body for each in (waiting, shared)] == [b"news"] * 2


def test_half_open_and_aborted_requests_leave_nothing_behind(quick: Arena) -> None:
    whole = encode_request(
        "POST", PREFIX + TEXT, {**bearer(quick.token()), "Content-Type": "text/plain"}, b"abcdef"
    )
    before = len(quick.origin.find("POST"))
    for size in range(1, len(whole), 11):
        with quick.connect() as connection:
            connection.send(whole[:size])
            if size % 2:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    with quick.connect() as connection:
        connection.send(whole[:-1])
        connection.half_close()
        connection.wait_closed()  # whether it is told so or not
    assert len(quick.origin.find("POST")) == before
    check_victim(quick)
