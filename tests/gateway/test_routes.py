"""One reading of method, path and query, whatever way they are spelled."""

from random import Random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rules.routes import (
    ZERO,
    ReadQuery,
    Route,
    _recall_route,
    is_ahead,
    is_replaced,
    long_poll_target,
    own_offset,
    parse_read,
    parse_route,
    part_target,
)
from protocol.errors import ProtocolError
from protocol.offsets import NOW, START, format_offset
from protocol.paths import Kind, Resource, parse_path
from tests.helpers.offsets import nameless
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


# -- what belongs to a stream, and buckets -------------------------------------------------------

STREAMS = pytest.mark.parametrize(
    ("path", "name"), [("/v1/stream/a/b", "a/b"), ("/ds/buck/s", "/ds/buck/s")]
)


@STREAMS
@pytest.mark.parametrize(
    ("method", "rest", "mode", "action", "cacheable"),
    [
        ("GET", "/snapshot", "snapshot", "read", False),
        ("HEAD", "/snapshot", "snapshot", "read", False),
        ("GET", "/snapshot/7_7", "snapshot", "read", True),
        ("HEAD", "/snapshot/7_7", "snapshot", "read", False),
        ("PUT", "/snapshot/7_7", "publish", "snapshot", False),
        ("DELETE", "/snapshot/7_7", "withdraw", "delete", False),
        ("GET", "/bootstrap", "bootstrap", "read", True),
        ("HEAD", "/bootstrap", "bootstrap", "read", False),
    ],
)
def test_what_belongs_to_a_stream_has_its_name(
    path: str, name: str, method: str, rest: str, mode: str, action: str, cacheable: bool
) -> None:
    found = route(method, path + rest, "unknown=1" if action == "read" else "")
    assert found is not None
    assert (found.mode, found.action, found.cacheable) == (mode, action, cacheable)
    assert (found.stream, found.path, found.target) == (name, path, path + rest)
    assert found.offset == ("7_7" if "7_7" in rest else "")


@pytest.mark.parametrize(
    ("method", "rest", "mode", "action"),
    [
        ("GET", "", "bucket", "read"),
        ("HEAD", "", "bucket", "read"),
        ("PUT", "", "bucket", "create"),
        ("DELETE", "", "bucket", "delete"),
        ("GET", "/streams", "list", "read"),
        ("HEAD", "/streams", "list", "read"),
    ],
)
def test_a_bucket_has_a_name_like_a_path(method: str, rest: str, mode: str, action: str) -> None:
    found = route(method, "/ds/buck" + rest)
    assert found is not None and not found.cacheable
    assert (found.mode, found.action, found.stream) == (mode, action, "/ds/buck")
    assert (found.target, found.lists) == ("/ds/buck" + rest, rest != "")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
def test_a_stream_of_a_bucket_is_a_stream(method: str) -> None:
    flat, bucketed = route(method, PATH), route(method, "/ds/buck/s%20t")
    assert flat is not None and bucketed is not None
    assert (bucketed.stream, bucketed.path) == ("/ds/buck/s t", "/ds/buck/s%20t")
    assert (flat.mode, flat.action) == (bucketed.mode, bucketed.action)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/stream/a/bootstrap", "GET, HEAD, OPTIONS"),
        ("PUT", "/v1/stream/a/bootstrap", "GET, HEAD, OPTIONS"),
        ("PUT", "/v1/stream/a/snapshot", "GET, HEAD, OPTIONS"),
        ("DELETE", "/ds/buck/s/snapshot", "GET, HEAD, OPTIONS"),
        ("POST", "/v1/stream/a/snapshot/1_1", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("POST", "/ds/buck", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("PUT", "/ds/buck/streams", "GET, HEAD, OPTIONS"),
        ("DELETE", "/ds/buck/streams", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_method_that_makes_no_sense_there_is_refused(
    method: str, path: str, allowed: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        route(method, path)
    assert (caught.value.status, caught.value.headers) == (405, (("Allow", allowed),))


@pytest.mark.parametrize(
    ("path", "name", "part"),
    [
        ("/v1/stream/a/%62ootstrap", "a", "/bootstrap"),
        ("/v1/stream/a/snapsho%74/7_7", "a", "/snapshot/7_7"),
        ("/v1/stream/a/snapshot/%37_7", "a", "/snapshot/7_7"),
        ("/v1/stream/a/snapshot/a:b", "a", "/snapshot/a%3Ab"),
        ("/v1/stream/bootstrap", "bootstrap", "-1"),
        ("/v1/stream/a/bootstrap/b", "a/bootstrap/b", "-1"),
        ("/v1/stream/a/snapshot/b/c", "a/snapshot/b/c", "-1"),
        ("/ds/buck/snapshot", "/ds/buck/snapshot", "-1"),
        ("/ds/buck/bootstrap", "/ds/buck/bootstrap", "-1"),
    ],
)
def test_spellings_of_a_part_share_one_key(path: str, name: str, part: str) -> None:
    found = route("GET", path)
    assert found is not None and (found.stream, found.part) == (name, part)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/stream/a/snapshot/a%2Cb", "invalid-offset"),
        ("/v1/stream/a/snapshot/a%20b", "invalid-offset"),
        ("/v1/stream/a/snapshot/%C3%A9", "invalid-offset"),
        ("/v1/stream/a%2Fbootstrap", "invalid-path"),
        ("/v1/stream/a/./bootstrap", "invalid-path"),
        ("/v1/stream/a/snapshot/..", "invalid-path"),
        ("/ds/buc", "invalid-bucket"),
        ("/ds/", "invalid-path"),
        ("/ds/BUCK/s", "invalid-bucket"),
        ("/ds/buck/", "invalid-path"),
        ("/ds/buck/a/b", "invalid-path"),
        ("/ds/buck/streams/bootstrap", "invalid-path"),
    ],
)
def test_what_is_no_part_and_no_bucket_is_refused(path: str, code: str) -> None:
    assert refusal(path=path) == (400, code)


@given(OFFSETS)
def test_a_snapshots_offset_reaches_the_origin_as_the_client_meant_it(offset: str) -> None:
    try:
        found = route("GET", f"{PATH}/snapshot/{quote(offset, safe='')}")
    except ProtocolError as error:  # what other servers would read otherwise
        assert error.code == "invalid-path"
        return
    assert found is not None and found.offset == offset
    assert parse_path(found.target) == Resource(Kind.SNAPSHOT, "a", offset)


@pytest.mark.parametrize("query", ["live=sse", "live=long-poll", "live=", "%6Cive=x"])
def test_a_bootstrap_is_not_live(query: str) -> None:
    found = refusal(path=f"{PATH}/bootstrap", query=query)
    assert found == (400, "bootstrap-is-not-live")


@pytest.mark.parametrize(
    ("query", "target"),
    [
        ("", ""),
        ("limit=1000&offset=5&x=1", ""),
        ("limit=5&prefix=a%26b&after=%C3%A9", "?prefix=a%26b&after=%C3%A9&limit=5"),
        ("after=a+b", "?after=a%20b"),
        ("prefix=a#b%23", "?prefix=a%23b%23"),
    ],
)
def test_a_listing_is_asked_for_by_its_own_parameters_only(query: str, target: str) -> None:
    found = route("GET", "/ds/buck/streams", query)
    assert found is not None and found.target == "/ds/buck/streams" + target


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "invalid-limit"),
        ("limit=1001", "invalid-limit"),
        ("limit=", "invalid-limit"),
        ("prefix=a&prefix=b", "repeated-parameter"),
        ("after=%FF", "invalid-query"),
        ("after=\udcff", "invalid-query"),
    ],
)
def test_a_listing_that_cannot_be_meant_is_refused(query: str, code: str) -> None:
    assert refusal(path="/ds/buck/streams", query=query) == (400, code)


# -- what a snapshot replaces --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "replaced"),
    [
        (START, True),
        (nameless(4), True),
        (nameless(5), False),
        (nameless(6), False),
        (NOW, False),
        ("/snapshot/" + nameless(4), True),
        ("/snapshot/" + nameless(5), True),
        ("/bootstrap", True),
    ],
)
def test_a_snapshot_replaces_what_begins_before_it(part: str, replaced: bool) -> None:
    assert is_replaced(part, nameless(5)) is replaced


# -- methods and spellings -----------------------------------------------------------------------


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
    assert parse_read(query) == ReadQuery(START, None, None)


def test_the_beginning_of_a_live_read_stays_as_it_was_said() -> None:
    """It is where the reader stands, and a hub knows positions by their names."""
    assert parse_read(f"offset={ZERO}&live=sse").offset == ZERO


@given(st.permutations(["offset=7_7", "live=sse", "cursor=5", "x=1", "y"]))
def test_order_and_unknown_parameters_do_not_matter(pairs: list[str]) -> None:
    assert parse_read("&".join(pairs)) == ReadQuery("7_7", "sse", "5")


@pytest.mark.parametrize("name", ["offset", "live", "cursor", "max_bytes"])
def test_a_repeated_parameter_is_refused_not_chosen_from(name: str) -> None:
    query = f"offset=1&live=sse&cursor=1&max_bytes=1&%{ord(name[0]):x}{name[1:]}=1"
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
        ("offset=%FF", "invalid-query"),
        ("offset=" + 256 * "1", "invalid-offset"),
        ("live=sse", "offset-required"),
        ("live=long-poll&cursor=1", "offset-required"),
        ("offset=-1&live=yes", "invalid-live"),
        ("offset=-1&live=", "invalid-live"),
        ("offset=-1&live=sse&cursor=" + "9" * 33, "invalid-cursor"),
        ("max_bytes=0", "invalid-max-bytes"),
        ("max_bytes=", "invalid-max-bytes"),
        ("max_bytes=01", "invalid-max-bytes"),
        ("max_bytes=-1", "invalid-max-bytes"),
        ("max_bytes=1e3", "invalid-max-bytes"),
        ("max_bytes=" + 17 * "1", "invalid-max-bytes"),
        ("max_bytes=%D9%A1", "invalid-max-bytes"),
    ],
)
def test_what_cannot_be_meant_is_refused(query: str, code: str) -> None:
    assert refusal(query=query) == (400, code)


@pytest.mark.parametrize("cursor", ["5", "9" * 16, str(2**53 - 1), "9" * 32])
def test_a_cursor_is_a_number_of_any_sensible_length(cursor: str) -> None:
    assert parse_read(f"offset=1&live=sse&cursor={cursor}").cursor == cursor


def test_a_catch_up_read_has_no_cursor() -> None:
    for cursor in ("5", "9" * 33):
        assert parse_read(f"offset=1&cursor={cursor}") == parse_read("offset=1")


@pytest.mark.parametrize("cursor", ["", "-1", "abc", "%D9%A1", "1.5"])
def test_a_cursor_that_is_none_counts_as_absent(cursor: str) -> None:
    assert parse_read(f"offset=1&live=sse&cursor={cursor}").cursor is None


@given(OFFSETS)
def test_an_offset_reaches_the_origin_as_the_client_meant_it(offset: str) -> None:
    """Offsets are the origin's own words."""
    for target in (part_target(PATH, offset), long_poll_target(PATH, offset)):
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


def test_a_limited_read_is_passed_with_its_limit_and_not_stored() -> None:
    found = route(query="max_bytes=7&offset=1_1")
    assert found is not None and not found.cacheable
    assert (found.mode, found.target) == ("catch-up", f"{PATH}?offset=1_1&max_bytes=7")
    assert long_poll_target(PATH, "1_1", 7).endswith("&live=long-poll&max_bytes=7")


def test_now_is_no_place_of_its_own() -> None:
    assert parse_read("offset=now") == ReadQuery(NOW, None, None)
    assert parse_read("offset=%6Eow").offset == NOW


# -- writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "query", ["awareness=default", "a=1&a=2&b", "offset=5&live=x", "q=%C3%A9+%26"]
)
def test_the_query_of_a_write_reaches_the_origin_as_it_is(method: str, query: str) -> None:
    """An origin may know parameters that the protocol does not."""
    found = route(method, query=query)
    assert found is not None and found.stream == "a"
    assert (found.path, found.target) == (PATH, f"{PATH}?{query}")


def test_the_query_of_a_publication_follows_its_offset() -> None:
    found = route("PUT", f"{PATH}/snapshot/5", "tag=x")
    assert found is not None and found.target == f"{PATH}/snapshot/5?tag=x"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_query_of_a_read_holds_what_the_protocol_knows_and_nothing_else(method: str) -> None:
    found = route(method, query="awareness=default")
    assert found is not None and "awareness" not in found.target


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "query", ["a#b", "é", "a b", "a\r\nb", "\x00", "a=%0D%0Ab", "%00=1", "a=%7F"]
)
def test_the_query_of_a_write_that_servers_read_differently_is_refused(
    method: str, query: str
) -> None:
    assert refusal(method, query=query) == (400, "invalid-query")


@pytest.mark.parametrize("name", ["offset", "live", "cursor", "max_bytes"])
def test_a_write_too_may_repeat_nothing_that_has_a_meaning(name: str) -> None:
    assert refusal("POST", query=f"{name}=1&{name}=2") == (400, "repeated-parameter")


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


# -- offsets that do not name one stream ---------------------------------------------------------

FIRST, LAST = format_offset(0, 5), format_offset(2**64 - 1, 5)  # of two streams, in their order


@pytest.mark.parametrize("part", [FIRST, LAST, nameless(5), nameless(9)])
@pytest.mark.parametrize("earliest", [format_offset(7, 5), format_offset(7, 1)])
def test_what_cannot_be_compared_with_a_snapshot_is_taken_for_replaced(
    part: str, earliest: str
) -> None:
    assert is_replaced(part, earliest)
    assert not is_replaced(earliest, earliest)


@pytest.mark.parametrize("other", [FIRST, LAST, nameless(1), nameless(9)])
def test_nobody_is_ahead_of_an_offset_of_another_stream(other: str) -> None:
    own = format_offset(7, 5)
    assert not is_ahead(own, other) and not is_ahead(other, own)
    assert is_ahead(own, format_offset(7, 4)) and is_ahead(own, START)


@pytest.mark.parametrize("asked", [START, FIRST, LAST, nameless(5)])
def test_a_place_is_called_as_the_origin_calls_it(asked: str) -> None:
    own = format_offset(7, 5)
    assert own_offset(asked, own) == own


@pytest.mark.parametrize("asked", ["9", nameless(9)])
def test_a_place_beyond_the_tail_keeps_its_name(asked: str) -> None:
    assert own_offset(asked, asked.replace("9", "5")) == asked


# -- memory --------------------------------------------------------------------------------------


def test_long_requests_are_not_remembered() -> None:
    chance = Random(7)
    before = _recall_route.cache_info().currsize
    for _ in range(100):
        assert route(query="x=" + chance.randbytes(5000).hex()) is not None
    assert _recall_route.cache_info().currsize == before
