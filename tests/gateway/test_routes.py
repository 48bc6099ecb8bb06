"""One reading of method, path and query, whatever way they are spelled."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rules.routes import (
    ZERO,
    Read,
    Route,
    _recall_route,
    catch_up_target,
    long_poll_target,
    parse_read,
    parse_route,
)
from protocol.errors import ProtocolError
from protocol.offsets import NOW, START
from tests.helpers.scripted_origin import Recorded

PATH = "/v1/stream/a"
OFFSETS = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, blacklist_characters=",&=?/"),
    min_size=1,
    max_size=255,
)


def route(method: str = "GET", path: str = PATH, query: str = "") -> Route | None:
    return parse_route(method, path, query, 1024)


def refusal(method: str = "GET", path: str = PATH, query: str = "") -> tuple[int, str]:
    with pytest.raises(ProtocolError) as caught:
        parse_route(method, path, query, 1024)
    return caught.value.status, caught.value.code


# -- what a request is about ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "query", "mode", "action"),
    [
        ("GET", "", "catch-up", "read"),
        ("GET", "offset=-1", "catch-up", "read"),
        ("GET", "offset=now", "now", "read"),
        ("GET", "offset=5&live=long-poll", "long-poll", "read"),
        ("GET", "offset=now&live=long-poll", "long-poll", "read"),
        ("GET", "offset=now&live=sse", "sse", "read"),
        ("HEAD", "", "head", "read"),
        ("POST", "", "append", "write"),
        ("PUT", "", "create", "create"),
        ("DELETE", "", "delete", "delete"),
    ],
)
def test_method_and_query_say_mode_and_action(
    method: str, query: str, mode: str, action: str
) -> None:
    found = route(method, query=query)
    assert found is not None
    assert (found.mode, found.action, found.stream, found.path) == (mode, action, "a", PATH)


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/streams/a", "/v1/stream", "/V1/stream/a"])
def test_other_paths_are_nobodys_stream(path: str) -> None:
    assert route(path=path) is None


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "get", "CONNECT"])
def test_other_methods_are_refused(method: str) -> None:
    assert refusal(method) == (405, "method-not-allowed")


@pytest.mark.parametrize("path", ["%61", "a"])
def test_spellings_of_a_path_are_one_stream(path: str) -> None:
    found = route(path=f"/v1/stream/{path}")
    assert found is not None and (found.stream, found.path) == ("a", PATH)


@pytest.mark.parametrize("path", ["a%2Fb", "../a", "a/./b", "a//b", "%2e%2e/a", "a%00", ""])
def test_paths_that_servers_read_differently_are_refused(path: str) -> None:
    assert refusal(path=f"/v1/stream/{path}") == (400, "invalid-path")


# -- reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["", "offset=-1", f"offset={ZERO}", "offset=%2D1", "x=1&&offset=-1"]
)
def test_spellings_of_the_beginning_share_one_key(query: str) -> None:
    assert parse_read(query) == Read(START, None, None)


def test_the_beginning_of_a_live_read_stays_as_it_was_said() -> None:
    """It is where the reader stands, and a hub knows positions by their names."""
    assert parse_read(f"offset={ZERO}&live=sse").offset == ZERO


@given(st.permutations(["offset=7_7", "live=sse", "cursor=5", "x=1", "y"]))
def test_order_and_unknown_parameters_do_not_matter(pairs: list[str]) -> None:
    assert parse_read("&".join(pairs)) == Read("7_7", "sse", "5")


@pytest.mark.parametrize("name", ["offset", "live", "cursor"])
def test_a_repeated_parameter_is_refused_not_chosen_from(name: str) -> None:
    query = f"offset=1&live=sse&cursor=1&%{ord(name[0]):x}{name[1:]}=1"
    assert refusal(query=query) == (400, "repeated-parameter")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("offset=", "invalid-offset"),
        ("offset=a%2Cb", "invalid-offset"),
        ("offset=a%26b", "invalid-offset"),
        ("offset=a%3Db", "invalid-offset"),
        ("offset=a%3Fb", "invalid-offset"),
        ("offset=a%2Fb", "invalid-offset"),
        ("offset=a+b", "invalid-offset"),
        ("offset=%00", "invalid-offset"),
        ("offset=a%0D%0Ab", "invalid-offset"),
        ("offset=%FF", "invalid-offset"),
        ("offset=" + 256 * "1", "invalid-offset"),
        ("live=sse", "offset-required"),
        ("live=long-poll&cursor=1", "offset-required"),
        ("offset=-1&live=yes", "invalid-live"),
        ("offset=-1&live=", "invalid-live"),
    ],
)
def test_what_cannot_be_meant_is_refused(query: str, code: str) -> None:
    assert refusal(query=query) == (400, code)


@pytest.mark.parametrize("cursor", ["", "-1", "abc", "1" * 16, "1" * 10_000, "%D9%A1", "1.5"])
def test_a_cursor_that_is_none_counts_as_absent(cursor: str) -> None:
    assert parse_read(f"offset=1&live=sse&cursor={cursor}").cursor is None


@given(OFFSETS)
def test_an_offset_reaches_the_origin_as_the_client_meant_it(offset: str) -> None:
    """Offsets are the origin's own words."""
    for target in (catch_up_target(PATH, offset), long_poll_target(PATH, offset)):
        seen = Recorded("GET", target, {}, (), b"", 0.0, 0)
        assert (seen.path, seen.parameters["offset"]) == (PATH, offset)
        kept = START if offset == ZERO and not seen.live else offset
        assert parse_read(seen.query).offset == kept


@given(st.text(max_size=60))
def test_any_query_is_read_or_refused(query: str) -> None:
    try:
        read = parse_read(query)
    except ProtocolError as error:
        assert error.status == 400
    else:
        assert read.live in (None, "sse", "long-poll")
        assert 0 < len(read.offset) < 256 and read.offset.isascii()


def test_now_is_no_place_of_its_own() -> None:
    assert parse_read("offset=now") == Read(NOW, None, None)
    assert parse_read("offset=%6Eow").offset == NOW


# -- subscriptions -------------------------------------------------------------------------------


def test_a_service_path_is_passed_as_it_is() -> None:
    path = "/v1/stream/__ds/subscriptions/x/streams/manual%2Fb"
    found = route("DELETE", path, "a=1&b")
    assert found is not None
    assert (found.mode, found.action, found.path) == ("other", "delete", path + "?a=1&b")


@pytest.mark.parametrize(
    "path", ["__ds/../a", "__ds/%2e%2e/a", "__ds/./a", "__ds//a", "__ds/a/..", "__ds/a#b", "__ds/é"]
)
def test_a_service_path_leads_nowhere_else(path: str) -> None:
    assert refusal(path=f"/v1/stream/{path}") == (400, "invalid-path")


@pytest.mark.parametrize("query", ["a#b", "é", "a b", "a\r\nb", "\x00"])
def test_a_service_query_that_is_no_query_is_refused(query: str) -> None:
    assert refusal(path="/v1/stream/__ds/x", query=query) == (400, "invalid-query")


@pytest.mark.parametrize("name", ["__dsx", "a/__ds", "_ds"])
def test_only_the_reserved_segment_is_reserved(name: str) -> None:
    found = route(path=f"/v1/stream/{name}")
    assert found is not None and (found.mode, found.stream) == ("catch-up", name)


# -- memory --------------------------------------------------------------------------------------


def test_long_requests_are_not_remembered() -> None:
    chance = Random(7)
    before = _recall_route.cache_info().currsize
    for _ in range(100):
        assert route(query="x=" + chance.randbytes(5000).hex()) is not None
    assert _recall_route.cache_info().currsize == before
