"""What every response carries, and what browsers are told."""

import pytest

from tests.conftest import StartOrigin
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import PREFIX, Client, Response

ANY_PAGE = {"cors_origins": ("*",)}
APP = "https://app.test"


def allowed(reply: Response, name: str) -> set[str]:
    return {item.strip().lower() for item in reply[name].split(",")}


@pytest.mark.parametrize(
    ("method", "name", "query"),
    [
        ("GET", "s", ""),
        ("GET", "s", "offset=now"),
        ("GET", "s", "offset=now&live=long-poll"),
        ("HEAD", "s", ""),
        ("PUT", "s", ""),
        ("POST", "s", ""),
        ("GET", "missing", ""),
        ("GET", "a//b", ""),
        ("DELETE", "missing", ""),
        ("PATCH", "s", ""),
    ],
)
def test_every_answer_is_safe_in_a_browser(
    start_origin: StartOrigin, method: str, name: str, query: str
) -> None:
    origin = start_origin(server={"long_poll_timeout_secs": 0.05}, http=ANY_PAGE)
    with origin.client() as client:
        client.create("s")
        reply = client(method, name, query=query)
        assert reply["X-Content-Type-Options"] == "nosniff"
        assert reply["Cross-Origin-Resource-Policy"] == "cross-origin"
        assert reply["Access-Control-Allow-Origin"] == "*"
        assert reply["Date"].endswith(" GMT")


def test_the_preflight_names_what_clients_send(start_origin: StartOrigin) -> None:
    with start_origin(http=ANY_PAGE).client() as client:
        reply = client("OPTIONS", "never/created", {"Origin": APP})
    assert (reply.status, reply.body) == (204, b"")
    assert reply["Access-Control-Allow-Origin"] == "*"
    names = allowed(reply, "Access-Control-Allow-Headers")
    assert {"if-none-match", "authorization", "content-type", "producer-id", "stream-seq"} <= names
    assert {"get", "head", "put", "post", "delete"} <= allowed(
        reply, "Access-Control-Allow-Methods"
    )


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("sender", [APP, "https://evil.test", "null", None])
def test_configured_origins_are_reflected_and_no_others_heard(
    start_origin: StartOrigin, method: str, sender: str | None
) -> None:
    origin = start_origin(http={"cors_origins": (APP, "http://localhost:3000")})
    with origin.client() as client:
        client.create("s")
        headers = {"Content-Type": "text/plain"} | ({"Origin": sender} if sender else {})
        reply = client(method, "s", headers, b"x" if method == "POST" else b"")
        heard = sender in (APP, None) or method == "OPTIONS"  # which asks whether it may
        assert reply.status in ((200, 204) if heard else (403,))
        assert reply["Vary"] == "Origin"
        assert reply.get("Access-Control-Allow-Origin") == (APP if sender == APP else None)
        if sender == APP and method != "OPTIONS":
            exposed = allowed(reply, "Access-Control-Expose-Headers")
            assert {"stream-next-offset", "etag", "retry-after", "producer-epoch"} <= exposed


def test_errors_are_problems(client: Client) -> None:
    reply = client.read("missing")
    assert (reply.status, reply["Content-Type"]) == (404, "application/problem+json")
    assert reply["Cache-Control"] == "no-store"
    problem = reply.json()
    assert set(problem) == {"type", "title", "status", "detail", "code"}
    assert (problem["status"], problem["code"]) == (404, "not-found")


def test_another_method_is_405_and_told_which(origin: LocalOrigin) -> None:
    with origin.connect() as connection:
        for method, target in (("PATCH", PREFIX + "s"), ("POST", "/healthz")):
            reply = connection.request(method, target)
            assert reply.status == 405
            assert "GET" in reply["Allow"]


def test_head_has_no_body_even_for_errors(origin: LocalOrigin) -> None:
    with origin.connect() as connection:
        for name in ("missing", "a//b", "__ds/x"):
            assert connection.request("HEAD", PREFIX + name).status in (400, 404)
        assert connection.request("GET", "/healthz").body == b"ok"


def test_the_location_is_what_is_configured(start_origin: StartOrigin) -> None:
    origin = start_origin(http={"public_url": "https://streams.test/base/"})
    with origin.client() as client:
        reply = client("PUT", "a b".replace(" ", "%20"))
        assert reply["Location"] == "https://streams.test/base" + PREFIX + "a%20b"


def test_a_long_name_is_refused(start_origin: StartOrigin) -> None:
    with start_origin(limits={"max_path_bytes": 20}).client() as client:
        client.create("x" * 20)
        assert client("PUT", "x" * 21).status == 400
        assert client("GET", "x" * 21).status == 400
