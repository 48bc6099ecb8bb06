"""Whom the origin listens to: not to every web page of the machine, and with a key to nobody else.

Each refusal is tried on every method, twice on one connection: the second time heads are recalled,
and the quick way must not know less than the slow one.
"""

import pytest

from origin.admission import Admission
from origin.config import OriginConfig, ServerConfig
from tests.conftest import StartOrigin
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import PREFIX, Connection, Response
from wire.sections import HttpConfig

KEY = "the-key-of-this-run"
TEXT = {"Content-Type": "text/plain"}
PAGE = {"Origin": "https://evil.example"}
REBOUND = {"Host": "evil.example:4437"}
LOCAL = {"Host": "localhost"}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


def ask(connection: Connection, method: str, headers: dict[str, str]) -> Response:
    body = b"theirs" if method in ("POST", "PUT") else b""
    return connection.request(method, PREFIX + "s", LOCAL | TEXT | headers, body)


def all_answers(origin: LocalOrigin, headers: dict[str, str]) -> list[Response]:
    """To each method twice, those that would do harm last."""
    with origin.connect() as connection:
        return [ask(connection, method, headers) for method in METHODS for _ in range(2)]


def check_untouched(origin: LocalOrigin, **headers: str) -> None:
    with origin.connect() as connection:
        read = connection.request("GET", PREFIX + "s", LOCAL | headers)
    assert (read.status, read.body) == (200, b"ours")


def with_stream(origin: LocalOrigin, **headers: str) -> LocalOrigin:
    with origin.connect() as connection:
        created = connection.request("PUT", PREFIX + "s", LOCAL | TEXT | headers, b"ours")
        assert created.status == 201
    return origin


@pytest.fixture
def plain(start_origin: StartOrigin) -> LocalOrigin:
    """As `weir origin` is without settings."""
    return with_stream(start_origin(server={"allowed_hosts": ()}))


@pytest.fixture
def locked(start_origin: StartOrigin) -> LocalOrigin:
    server = {"allowed_hosts": (), "access_key": KEY}
    return with_stream(start_origin(server=server), **{"Weir-Access-Key": KEY})


# -- web pages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["https://evil.example", "http://localhost:3000", "null", "", "*"])
def test_no_page_of_another_origin_reads_or_changes_anything(plain: LocalOrigin, page: str) -> None:
    answers = all_answers(plain, {"Origin": page})
    *most, asked, asked_again = answers
    assert {answer.status for answer in most} == {403}
    # A preflight is only a question: to name no origin is to say no.
    assert asked.status == asked_again.status == 204
    assert {answer.get("Access-Control-Allow-Origin") for answer in answers} == {None}
    assert b'"foreign-origin"' in answers[0].body
    check_untouched(plain)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_no_page_takes_a_stream_for_its_script_or_picture(plain: LocalOrigin, site: str) -> None:
    """For such a GET a browser names no origin. Old ones do not say either that it is one, so the
    answer tells them not to show it."""
    answers = all_answers(plain, {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": site})
    assert {answer.status for answer in answers[:-2]} == {403}
    check_untouched(plain)
    with plain.connect() as connection:
        for mode in ("navigate", "cors"):  # somebody's own look; fetch in Node
            for _ in range(3):
                seen = ask(connection, "GET", {"Sec-Fetch-Mode": mode})
                assert (seen.status, seen["Cross-Origin-Resource-Policy"]) == (200, "same-origin")


def test_a_name_that_was_pointed_at_this_machine_is_refused(plain: LocalOrigin) -> None:
    """DNS rebinding: to the browser the page and the server are then of one origin."""
    answers = all_answers(plain, REBOUND)
    assert {answer.status for answer in answers} == {421}
    assert b'"foreign-host"' in answers[0].body
    check_untouched(plain)


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_pages_learn_nothing_of_its_health_either(plain: LocalOrigin, path: str) -> None:
    with plain.connect() as connection:
        assert connection.request("GET", path, LOCAL).status == 200
        assert connection.request("GET", path, REBOUND).status == 421
        assert connection.request("GET", path, LOCAL | PAGE).status == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:4437", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:4437"]
)
def test_names_of_this_machine_are_good(plain: LocalOrigin, host: str) -> None:
    check_untouched(plain, Host=host)


def test_a_client_that_names_no_host_is_no_browser(plain: LocalOrigin) -> None:
    with plain.connect() as connection:
        connection.send(f"GET {PREFIX}s HTTP/1.0\r\n\r\n".encode())
        assert connection.read_response().body == b"ours"


@pytest.mark.parametrize(
    "listed", [("weir.internal",), ("WEIR.internal", "other"), ("*",)], ids=["one", "two", "any"]
)
def test_names_can_be_listed(start_origin: StartOrigin, listed: tuple[str, ...]) -> None:
    origin = with_stream(start_origin(server={"allowed_hosts": listed}))
    check_untouched(origin, Host="weir.internal:4437")
    with origin.connect() as connection:
        other = connection.request("GET", PREFIX + "s", REBOUND)
    assert other.status == (200 if listed == ("*",) else 421)


@pytest.mark.parametrize("origins", [("https://app.example",), ("*",)], ids=["one", "any"])
def test_pages_may_talk_to_it_by_configuration(
    start_origin: StartOrigin, origins: tuple[str, ...]
) -> None:
    """A stream server for browsers without a gateway before it."""
    origin = with_stream(start_origin(http={"cors_origins": origins}))
    with origin.connect() as connection:
        for _ in range(3):
            page = connection.request("GET", PREFIX + "s", {"Origin": "https://app.example"})
            assert (page.status, page["Access-Control-Allow-Origin"]) == (200, origins[0])
            asked = connection.request("OPTIONS", PREFIX + "s", {"Origin": "https://app.example"})
            assert asked.status == 204
            other = connection.request("GET", PREFIX + "s", PAGE)
            assert other.status == (200 if origins == ("*",) else 403)
            embedded = connection.request("GET", PREFIX + "s", {"Sec-Fetch-Mode": "no-cors"})
            assert embedded.status == (200 if origins == ("*",) else 403)


# -- the key -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "", KEY[:-1], KEY + "x", KEY.upper(), f"{KEY}, {KEY}", "é"])
def test_without_the_key_nothing_is_read_or_changed(locked: LocalOrigin, key: str | None) -> None:
    answers = all_answers(locked, {} if key is None else {"Weir-Access-Key": key})
    assert {answer.status for answer in answers} == {401}
    assert {answer["WWW-Authenticate"] for answer in answers} == {"Weir-Access-Key"}
    assert b'"access-key-required"' in answers[0].body
    assert KEY.encode() not in b"".join(answer.body for answer in answers)
    check_untouched(locked, **{"Weir-Access-Key": KEY})


def test_heads_of_who_has_the_key_are_not_those_of_who_has_not(locked: LocalOrigin) -> None:
    """What is remembered of one client's lines must not open the door to another's."""
    with locked.connect() as connection:
        for _ in range(4):
            assert ask(connection, "GET", {"Weir-Access-Key": KEY}).body == b"ours"
            assert ask(connection, "GET", {}).status == 401
            assert ask(connection, "GET", {"Weir-Access-Key": KEY} | PAGE).status == 403
            assert ask(connection, "GET", {"Weir-Access-Key": KEY} | REBOUND).status == 421


def test_a_body_is_not_waited_for_without_the_key(locked: LocalOrigin) -> None:
    with locked.connect() as connection:
        head = f"POST {PREFIX}s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
        connection.send(f"{head}Content-Length: 100000\r\n\r\nx".encode())
        assert connection.read_response("POST").status == 401


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_health_and_figures_need_no_key(locked: LocalOrigin, path: str) -> None:
    with locked.connect() as connection:
        assert connection.request("GET", path, LOCAL).status == 200


# -- by where it listens -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "host", "good"),
    [
        ("127.0.0.1", "origin:4437", False),
        ("127.0.0.5", "127.0.0.5:4437", True),
        ("::1", "[::1]:4437", True),
        ("localhost", "localhost", True),
        ("localhost", "localhost.evil.example", False),
        ("0.0.0.0", "origin:4437", True),
        ("10.0.0.7", "10.0.0.7:4437", True),
        ("10.0.0.7", "origin:4437", True),
    ],
)
def test_names_count_where_only_this_machine_should_come(bound: str, host: str, good: bool) -> None:
    admission = Admission(ServerConfig(host=bound), ())
    assert admission.admits({"host": host}) is good


def test_pages_are_let_in_by_default_only_where_tokens_are_asked_for() -> None:
    assert OriginConfig().cors_origins == ()
    assert OriginConfig(http=HttpConfig(cors_origins=("*",))).cors_origins == ("*",)
