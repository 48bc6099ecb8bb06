from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.offsets import Offset
from protocol.producers import Producer
from protocol.requests import (
    MAX_PARAMETERS,
    Append,
    Create,
    ForkOf,
    Listing,
    Publish,
    Read,
    check_bootstrap_query,
    parse_append,
    parse_create,
    parse_listing,
    parse_publish,
    parse_read,
)

ZERO = "0000000000000000_0000000000000000"
FIVE = "0000000000000000_0000000000000005"
SOURCE = {"stream-forked-from": "/v1/stream/a/b"}
PRODUCER = {"producer-id": "p", "producer-epoch": "1", "producer-seq": "2"}


def refusal(parse: object, argument: object) -> str:
    assert callable(parse)
    with pytest.raises(ProtocolError) as caught:
        parse(argument)
    assert caught.value.status == 400
    return caught.value.code


def test_create_without_headers_asks_for_nothing() -> None:
    assert parse_create({}) == Create(None, None, None, False, None)
    assert parse_create({}).content_type_or_default == "application/octet-stream"


@pytest.mark.parametrize(
    ("headers", "field", "value"),
    [
        (
            {"content-type": "Text/Plain; charset=utf-8"},
            "content_type",
            "Text/Plain; charset=utf-8",
        ),
        ({"stream-ttl": "0"}, "ttl_s", 0),
        ({"stream-ttl": "9007199254740991"}, "ttl_s", 2**53 - 1),
        ({"stream-expires-at": "1970-01-01T00:00:01Z"}, "expires_at_ms", 1000),
        ({"stream-expires-at": "1970-01-01t01:00:01.5+01:00"}, "expires_at_ms", 1500),
        ({"stream-closed": "true"}, "closed", True),
        ({"stream-closed": "TRUE"}, "closed", True),
        ({"stream-closed": "false"}, "closed", False),
        ({"stream-closed": "1"}, "closed", False),
        ({"stream-closed": ""}, "closed", False),
        (SOURCE, "fork", ForkOf("a/b", None, 0)),
        (SOURCE | {"stream-fork-sub-offset": "0"}, "fork", ForkOf("a/b", None, 0)),
        (
            SOURCE | {"stream-fork-offset": FIVE, "stream-fork-sub-offset": "3"},
            "fork",
            ForkOf("a/b", Offset(5), 3),
        ),
        ({"stream-forked-from": "/ds/buck/s"}, "fork", ForkOf("/ds/buck/s", None, 0)),
        ({"stream-state": "strict"}, "strict_state", True),
        ({"stream-state": " Strict "}, "strict_state", True),
        ({}, "strict_state", False),
        ({"if-match": '"a"'}, "if_match", '"a"'),
        ({"if-none-match": "*"}, "if_none_match", "*"),
    ],
)
def test_create_header(headers: dict[str, str], field: str, value: object) -> None:
    assert getattr(parse_create(headers), field) == value


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        *(({"stream-ttl": text}, "invalid-integer") for text in ("00060", "+60", "60.5", "1e3")),
        *(({"stream-ttl": text}, "invalid-integer") for text in ("-1", "abc", "", "٣", "1 ")),
        ({"stream-ttl": "9007199254740992"}, "invalid-integer"),
        ({"stream-ttl": "9" * 5000}, "invalid-integer"),
        ({"stream-ttl": "1", "stream-expires-at": "2099-01-01T00:00:00Z"}, "ttl-and-expiry"),
        *(
            ({"stream-expires-at": text}, "invalid-expiry")
            for text in ("soon", "2099-13-01T00:00:00Z", "2099-01-01T00:00:00", "2099-01-01", "1")
        ),
        ({"stream-expires-at": "0001-01-01T00:00:00+23:59"}, "invalid-expiry"),
        *(
            ({"content-type": text}, "invalid-content-type")
            for text in ("", "text", "a/b/c", "text/plain\r\nX: y", "text/plàin", "a/" + "b" * 300)
        ),
        ({"stream-fork-sub-offset": "0"}, "fork-source-required"),
        ({"stream-fork-offset": FIVE}, "fork-source-required"),
        ({"stream-fork-offset": "nonsense"}, "fork-source-required"),
        ({"stream-forked-from": "/other/a"}, "invalid-fork-source"),
        ({"stream-forked-from": "http://h/v1/stream/a"}, "invalid-fork-source"),
        ({"stream-forked-from": "/v1/stream/../a"}, "invalid-path"),
        ({"stream-forked-from": "/ds/buck"}, "invalid-fork-source"),
        ({"stream-forked-from": "/ds/buck/streams"}, "invalid-fork-source"),
        ({"stream-forked-from": "/v1/stream/a/bootstrap"}, "invalid-fork-source"),
        ({"stream-forked-from": "/ds/b/s"}, "invalid-bucket"),
        *(
            ({"stream-state": text}, "invalid-state-mode")
            for text in ("", "true", "strict, strict")
        ),
        (SOURCE | {"stream-fork-sub-offset": "1"}, "fork-offset-required"),
        *(
            (SOURCE | {"stream-fork-offset": FIVE, "stream-fork-sub-offset": text}, code)
            for text, code in [("01", "invalid-integer"), ("-1", "invalid-integer")]
        ),
        *((SOURCE | {"stream-fork-offset": t}, "invalid-offset") for t in ("-1", "now", "x", "")),
    ],
)
def test_create_refusal(headers: dict[str, str], code: str) -> None:
    assert refusal(parse_create, headers) == code


def test_append_header_values() -> None:
    headers = {
        "content-type": "Application/JSON; charset=utf-8",
        "stream-seq": "a b",
        "stream-closed": "True",
    }
    expected = Append("application/json", Producer("p", 1, 2), "a b", True)
    assert parse_append(headers | PRODUCER) == expected
    assert parse_append({}) == Append(None, None, None, False)
    assert parse_append({"if-match": '"a", "b"'}).if_match == '"a", "b"'


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        *(
            ({k: v for k, v in PRODUCER.items() if k != missing}, "partial-producer")
            for missing in PRODUCER
        ),
        (PRODUCER | {"producer-id": ""}, "invalid-header"),
        (PRODUCER | {"producer-id": "é"}, "invalid-header"),
        (PRODUCER | {"producer-id": "x" * 257}, "invalid-header"),
        *((PRODUCER | {"producer-seq": t}, "invalid-producer") for t in ("", "-1", "1.0", "+1")),
        *((PRODUCER | {"producer-epoch": t}, "invalid-producer") for t in ("a", "٣", "1_0", " 1")),
        (PRODUCER | {"producer-seq": "9007199254740992"}, "invalid-producer"),
        ({"stream-seq": ""}, "invalid-header"),
        ({"stream-seq": "a\x00"}, "invalid-header"),
        ({"stream-seq": "x" * 257}, "invalid-header"),
    ],
)
def test_append_refusal(headers: dict[str, str], code: str) -> None:
    assert refusal(parse_append, headers) == code


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("", Read(0, None, None)),
        ("offset=-1", Read(0, None, None)),
        ("offset=%2D1", Read(0, None, None)),
        (f"offset={FIVE}", Read(5, None, None)),
        ("offset=now", Read(None, None, None)),
        ("offset=-1&live=sse", Read(0, "sse", None)),
        ("cursor=7&live=long-poll&offset=now", Read(None, "long-poll", "7")),
        ("x=1&offset=-1&x=2&&=", Read(0, None, None)),
        ("OFFSET=bad", Read(0, None, None)),
        ("max_bytes=1", Read(0, None, None, 1)),
        ("offset=now&live=long-poll&max_bytes=1000", Read(None, "long-poll", None, 1000)),
    ],
)
def test_query(query: str, read: Read) -> None:
    assert parse_read(query) == read


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("offset=", "invalid-offset"),
        ("offset", "invalid-offset"),
        ("offset=-2", "invalid-offset"),
        ("offset=NOW", "invalid-offset"),
        ("offset=5", "invalid-offset"),
        (f"offset={FIVE}%0A", "invalid-offset"),
        (f"offset={FIVE}%00", "invalid-offset"),
        (f"offset=+{FIVE}", "invalid-offset"),
        ("offset=a,b", "invalid-offset"),
        (f"offset={ZERO}&offset={FIVE}", "repeated-parameter"),
        (f"offset={ZERO}&o%66fset={ZERO}", "repeated-parameter"),
        ("offset=-1&live=sse&live=sse", "repeated-parameter"),
        ("offset=-1&live=websocket", "invalid-live"),
        ("offset=-1&live=", "invalid-live"),
        ("live=sse", "offset-required"),
        ("live=long-poll&cursor=1", "offset-required"),
        *(
            (f"max_bytes={text}", "invalid-max-bytes")
            for text in ("", "0", "-1", "01", "1.5", "1e3")
        ),
        ("max_bytes", "invalid-max-bytes"),
        ("max_bytes=" + "9" * 30, "invalid-max-bytes"),
        ("max_bytes=1&max_bytes=1", "repeated-parameter"),
        ("&" * MAX_PARAMETERS, "invalid-query"),
        ("cursor=%FF", "invalid-query"),
        ("offset=-1&live=sse&cursor=" + "9" * 33, "invalid-cursor"),
    ],
)
def test_query_refusal(query: str, code: str) -> None:
    assert refusal(parse_read, query) == code


# -- snapshots, bootstrap, listings --------------------------------------------------------------


def test_publication_names_a_position_and_a_type() -> None:
    kind = "Text/CSV; x=y"
    assert parse_publish(FIVE, {"content-type": kind}) == Publish(Offset(5), kind)
    assert parse_publish(ZERO, {}) == Publish(Offset(0), "application/octet-stream")


@pytest.mark.parametrize("offset", ["-1", "now", "", "5", "x", FIVE + "0", FIVE + "\n", " " + FIVE])
def test_publication_needs_a_real_offset(offset: str) -> None:
    assert refusal(lambda text: parse_publish(text, {}), offset) == "invalid-offset"


def test_publication_needs_a_media_type_if_any() -> None:
    for text in ("", "text", "a/b\r\nX: y"):
        assert refusal(lambda t: parse_publish(FIVE, {"content-type": t}), text) == (
            "invalid-content-type"
        )


@pytest.mark.parametrize(
    ("query", "listing"),
    [
        ("", Listing("", "", 1000)),
        ("prefix=user-", Listing("user-", "", 1000)),
        ("after=a%20b&limit=1", Listing("", "a b", 1)),
        ("prefix=caf%C3%A9&after=a+b&limit=1000", Listing("café", "a b", 1000)),
        ("x=1&prefix=&x=2", Listing("", "", 1000)),
    ],
)
def test_listing(query: str, listing: Listing) -> None:
    assert parse_listing(query) == listing


@pytest.mark.parametrize(
    ("query", "code"),
    [
        *((f"limit={t}", "invalid-limit") for t in ("", "0", "1001", "-1", "01", "x", "1.0", "٣")),
        ("limit=" + "9" * 5000, "invalid-limit"),
        ("limit=1&limit=2", "repeated-parameter"),
        ("prefix=a&prefix=a", "repeated-parameter"),
        ("prefix=%FF", "invalid-query"),
        ("after=%C3", "invalid-query"),
    ],
)
def test_listing_refusal(query: str, code: str) -> None:
    assert refusal(parse_listing, query) == code


@pytest.mark.parametrize("query", ["live=sse", "live=long-poll", "live=", "live", "x=1&l%69ve=no"])
def test_bootstrap_is_never_live(query: str) -> None:
    assert refusal(check_bootstrap_query, query) == "bootstrap-is-not-live"


@pytest.mark.parametrize("query", ["", "x=1", "offset=now", "liven=1", "max_bytes=0"])
def test_bootstrap_has_no_other_parameters(query: str) -> None:
    check_bootstrap_query(query)


headers_of_any_kind = st.dictionaries(
    st.sampled_from(
        [
            *("content-type", "stream-ttl", "stream-expires-at", "stream-closed", "stream-seq"),
            *("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset"),
            *("stream-state", "if-match", "if-none-match"),
            *PRODUCER,
        ]
    ),
    st.text(max_size=40)
    | st.sampled_from(["0", "1", "true", ZERO, "/v1/stream/a", "text/plain", "²", "9" * 4400]),
)


@given(headers_of_any_kind, st.text(max_size=60))
def test_any_input_is_understood_or_refused(headers: dict[str, str], query: str) -> None:
    parsers: list[Callable[[], object]] = [
        lambda: parse_create(headers),
        lambda: parse_append(headers),
        lambda: parse_read(query),
        lambda: parse_listing(query),
        lambda: parse_publish(query, headers),
        lambda: check_bootstrap_query(query),
    ]
    for parse in parsers:
        try:
            parse()
        except ProtocolError as error:
            assert error.status in (400, 404)
