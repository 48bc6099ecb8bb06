"""Requests of the data source: what is tried again, what is followed, what an error says."""

import json

import pytest

from spark.http import LAST_WAIT_SECS, Address, Client, Response, SourceError
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, dropped, until

TOKEN = "very-secret"
GOOD = Answer(200, {"Stream-Next-Offset": "7"}, b"hello")


class Patient(Client):
    """Notes how long it would have waited."""

    def __init__(self, server: ScriptedOrigin, *, retries: int = 3, path: str = "") -> None:
        self.waits: list[float] = []
        address = Address(server.url + path, TOKEN, timeout_s=5, retries=retries)
        super().__init__(address, sleep=self.waits.append, chance=lambda: 1.0)


@pytest.mark.parametrize(
    "failure",
    [
        Answer(503),
        Answer(500),
        Answer(429),
        dropped(),
        dropped(reset=True),
        Answer(200, body=b"half an answer", cut_after=4),
        Answer(200, body=b"half an answer", cut_after=4, reset=False),
    ],
    ids=["503", "500", "429", "ended", "reset", "cut by reset", "cut by end"],
)
def test_what_may_pass_is_tried_again_with_growing_pauses(
    server: ScriptedOrigin, failure: Answer
) -> None:
    server.on("GET", "/x", [failure, failure, GOOD])
    with Patient(server) as client:
        answer = client.get("it", "/x")
    assert (answer.status, answer.body, answer.headers["stream-next-offset"]) == (
        200,
        b"hello",
        "7",
    )
    assert client.waits == [0.1, 0.2]


def test_the_server_may_say_how_long_to_wait_within_reason(server: ScriptedOrigin) -> None:
    waits = ["3", "99999", "Mon, 16 Nov 2026 13:00:00 GMT", "-1"]
    server.on("GET", "/x", [*(Answer(503, {"Retry-After": wait}) for wait in waits), GOOD])
    with Patient(server, retries=4) as client:
        client.get("it", "/x")
    assert client.waits == [3.0, LAST_WAIT_SECS, 0.4, 0.8]


def test_retries_are_bounded(server: ScriptedOrigin) -> None:
    server.on("GET", "/x", Answer(503))
    with Patient(server, retries=2) as client:
        assert client.get("it", "/x").status == 503
    assert server.count() == 3


def test_a_server_that_is_away_is_an_error_that_names_what_was_asked(
    server: ScriptedOrigin,
) -> None:
    server.down()
    with Patient(server, retries=2) as client, pytest.raises(SourceError) as caught:
        client.get("stream 'a'", "/x")
    server.up()
    assert len(client.waits) == 2
    assert str(caught.value).startswith(f"stream 'a': 127.0.0.1:{server.port} failed: Connection")


@pytest.mark.parametrize("status", [200, 304, 400, 401, 403, 404, 410, 501])
def test_answers_that_would_not_change_are_not_asked_for_again(
    server: ScriptedOrigin, status: int
) -> None:
    server.on("GET", "/x", Answer(status))
    with Patient(server) as client:
        assert client.get("it", "/x").status == status
    assert server.count() == 1


def test_requests_share_a_connection_and_one_that_was_closed_in_between_costs_no_try(
    server: ScriptedOrigin,
) -> None:
    server.on("*", "/x", GOOD)
    with Patient(server, retries=0) as client:
        client.get("it", "/x")
        client.head("it", "/x")
        assert server.accepted == 1
        server.drop_connections()
        assert client.get("it", "/x").body == b"hello"
    assert server.accepted == 2


async def test_no_connection_outlives_its_client(server: ScriptedOrigin) -> None:
    server.on("GET", "/x", GOOD)
    with Patient(server) as client:
        client.get("it", "/x")
        assert server.connections == 1
    await until(lambda: server.connections == 0)


def test_the_token_goes_with_each_request_below_the_given_path(server: ScriptedOrigin) -> None:
    server.on("*", "/base/x", GOOD)
    with Patient(server, path="/base/") as client:
        client.head("it", "/x")
        client.get("it", "/x", If_None_Match="*")
    sent = [request.headers for request in server.requests]
    assert [headers["authorization"] for headers in sent] == [f"Bearer {TOKEN}"] * 2
    assert [headers.get("if-none-match") for headers in sent] == [None, "*"]


@pytest.mark.parametrize("absolute", [True, False])
def test_a_redirect_is_followed_on_the_same_server(server: ScriptedOrigin, absolute: bool) -> None:
    server.on("GET", "/x/7", GOOD)
    location = (server.url if absolute else "") + "/x/7?a=b"
    with Patient(server) as client:
        assert client.follow("it", "/x", location).body == b"hello"
    assert server.requests[-1].target == "/x/7?a=b"


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/x",
        "http://localhost:{port}/x",
        "https://127.0.0.1:{port}/x",
        "//user:pass@example.com/x",
        "ftp://127.0.0.1:{port}/x",
    ],
)
def test_a_redirect_elsewhere_is_refused_so_no_token_goes_there(
    server: ScriptedOrigin, location: str
) -> None:
    with Patient(server) as client, pytest.raises(SourceError, match="another server") as caught:
        client.follow("it", "/x", location.format(port=server.port))
    assert server.count() == 0
    assert "pass" not in str(caught.value)


def test_the_key_of_an_origin_goes_along(server: ScriptedOrigin) -> None:
    server.on("GET", "/x", GOOD)
    with Client(Address(server.url, access_key="k" * 16)) as client:
        client.get("it", "/x")
    [request] = server.requests
    assert request.headers["weir-access-key"] == "k" * 16
    assert "authorization" not in request.headers


def test_nothing_shows_the_token(server: ScriptedOrigin) -> None:
    address = Address(server.url, TOKEN, access_key="k" * 16)
    assert TOKEN not in f"{address!r} {address}" and "kkk" not in f"{address!r} {address}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (json.dumps({"title": "No", "detail": "Not so."}).encode(), "Not so."),
        (json.dumps({"title": "No"}).encode(), "No"),
        (b"plain words\nand more", "plain words"),
        (b"[1]", "[1]"),
        (b"\x1b[2J\xff", "\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"),
        (b"", ""),
        (b"x" * 5000, "x" * 300),
    ],
)
def test_what_a_server_said_fits_one_line(body: bytes, said: str) -> None:
    assert Response(400, {}, body).detail() == said
