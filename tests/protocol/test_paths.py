from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.paths import (
    PREFIX,
    Kind,
    Resource,
    bucket_of,
    parse_path,
    parse_source,
    stream_name,
    stream_url,
)

names = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("/.%\\_ds2F"))
raws = st.lists(
    st.sampled_from(
        ["a", "__ds", "/", ".", "..", "%2e", "%2F", "%2f", "%25", "%", "%00", "%C3%A9", "%C3"]
        + ["%41", "\\", "%5c", "%7F", "é", " ", "?", "#", "~", "%20", "41", "%C2%85", "\n"]
    ),
    max_size=8,
).map("".join)


def canonical(raw: str) -> str | None:
    try:
        return stream_name(raw)
    except ProtocolError:
        return None


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        pytest.param("a", "a", id="one-letter"),
        pytest.param("orders/2024/eu-1", "orders/2024/eu-1", id="segments"),
        pytest.param("a.b/c..d", "a.b/c..d", id="dots-inside"),
        pytest.param(".a", ".a", id="dot-first"),
        pytest.param("...", "...", id="three-dots"),
        pytest.param("a!$&'()*+,;=:@~-_", "a!$&'()*+,;=:@~-_", id="all-plain-marks"),
        pytest.param("%61", "a", id="needless-escape"),
        pytest.param("a%20b", "a b", id="space"),
        pytest.param("a%3Fb%23c", "a?b#c", id="question-mark-and-hash"),
        pytest.param("caf%C3%A9", "café", id="two-byte-character"),
        pytest.param("%f0%9f%98%80", "😀", id="lower-case-escapes"),
        pytest.param("100%25", "100%", id="percent-at-the-end"),
        pytest.param("100%25/x", "100%/x", id="percent-before-a-slash"),
        pytest.param("a%25zz", "a%zz", id="percent-before-letters"),
        pytest.param("x/__ds", "x/__ds", id="reserved-word-further-on"),
        pytest.param("__ds2", "__ds2", id="longer-than-the-reserved-word"),
        pytest.param("a|b", "a|b", id="unusual-but-harmless"),
        pytest.param("x" * 1024, "x" * 1024, id="longest"),
        pytest.param("%C3%A9" * 512, "é" * 512, id="longest-encoded"),
    ],
)
def test_path_gives_its_canonical_name(raw: str, name: str) -> None:
    assert stream_name(raw) == name


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("", id="empty"),
        pytest.param("/", id="slash"),
        pytest.param("/a", id="leading-slash"),
        pytest.param("a/", id="trailing-slash"),
        pytest.param("a//b", id="empty-segment"),
        pytest.param(".", id="dot"),
        pytest.param("a/./b", id="dot-segment"),
        pytest.param("..", id="dot-dot"),
        pytest.param("a/..", id="dot-dot-at-the-end"),
        pytest.param("../a", id="dot-dot-first"),
        pytest.param("a/%2e%2E/b", id="encoded-dot-dot"),
        pytest.param("a/.%2e", id="half-encoded-dot-dot"),
        pytest.param("%2e", id="encoded-dot"),
        pytest.param("a%2Fb", id="encoded-slash"),
        pytest.param("a%2fb", id="encoded-slash-lower-case"),
        pytest.param("a\\b", id="backslash"),
        pytest.param("a%5Cb", id="encoded-backslash"),
        pytest.param("a%00", id="nul"),
        pytest.param("a%0Ab", id="line-feed"),
        pytest.param("a%1F", id="control"),
        pytest.param("a%7F", id="delete"),
        pytest.param("a%C2%85", id="c1-control"),
        pytest.param("a\n", id="raw-line-feed-at-the-end"),
        pytest.param("a b", id="raw-space"),
        pytest.param("a?b", id="raw-question-mark"),
        pytest.param("a#b", id="raw-hash"),
        pytest.param("é", id="raw-non-ascii"),
        pytest.param("a\udcff", id="raw-byte-smuggled-as-surrogate"),
        pytest.param("a%", id="lone-percent"),
        pytest.param("a%4", id="short-escape"),
        pytest.param("a%4g", id="bad-escape"),
        pytest.param("a%+1", id="sign-in-escape"),
        pytest.param("%FF", id="not-utf-8"),
        pytest.param("%C3", id="cut-character"),
        pytest.param("%C0%AF", id="overlong-slash"),
        pytest.param("%ED%A0%80", id="surrogate"),
        pytest.param("a%252Fb", id="double-encoded-slash"),
        pytest.param("a%2541", id="double-encoded-letter"),
        pytest.param("a%25%34%31", id="double-encoding-in-disguise"),
        pytest.param("x" * 1025, id="too-long"),
        pytest.param("%C3%A9" * 513, id="too-long-decoded"),
        pytest.param("%61" * 100_000, id="far-too-long"),
    ],
)
def test_ambiguous_path_is_refused(raw: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        stream_name(raw)
    assert (caught.value.status, caught.value.code) == (400, "invalid-path")


@pytest.mark.parametrize("raw", ["__ds", "__ds/jwks.json", "%5F%5Fds/x", "__d%73"])
def test_reserved_first_segment_is_not_found(raw: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        stream_name(raw)
    assert (caught.value.status, caught.value.code) == (404, "reserved-path")


@pytest.mark.parametrize(("raw", "fits"), [("abc", True), ("abcd", False), ("%C3%A9%C3%A9", False)])
def test_limit_counts_decoded_bytes(raw: str, fits: bool) -> None:
    if fits:
        assert stream_name(raw, max_bytes=3) == raw
    else:
        with pytest.raises(ProtocolError):
            stream_name(raw, max_bytes=3)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("a/b", "/v1/stream/a/b"),
        ("a b", "/v1/stream/a%20b"),
        ("é", "/v1/stream/%C3%A9"),
        ("100%", "/v1/stream/100%25"),
        (".a:b@c", "/v1/stream/.a:b@c"),
        ("a?b#c", "/v1/stream/a%3Fb%23c"),
    ],
)
def test_url_is_the_encoded_name(name: str, url: str) -> None:
    assert stream_url(name) == url


@given(names)
def test_quoted_name_comes_back_or_is_refused(name: str) -> None:
    assert canonical(quote(name)) in (name, None)


@given(names | raws)
def test_canonical_url_is_a_fixed_point(raw: str) -> None:
    name = canonical(raw)
    if name is not None:
        url = stream_url(name)
        assert url.isascii()
        assert stream_name(url.removeprefix(PREFIX)) == name


@given(raws)
def test_accepted_names_are_safe_to_compare(raw: str) -> None:
    name = canonical(raw)
    if name is not None:
        assert not {"", ".", ".."} & set(name.split("/"))
        assert name.isprintable()
        assert "\\" not in name
        assert name.split("/")[0] != "__ds"
        assert name.count("/") == raw.count("/")


# -- both surfaces: what a path names -----------------------------------------------------------

LONGEST = "s" * (122 - len("buck/"))


def resource(path: str) -> Resource | None:
    try:
        return parse_path(path)
    except ProtocolError:
        return None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/stream/a/b", Resource(Kind.STREAM, "a/b")),
        ("/v1/stream/a/b/snapshot", Resource(Kind.LATEST_SNAPSHOT, "a/b")),
        ("/v1/stream/a/b/snapshot/7", Resource(Kind.SNAPSHOT, "a/b", "7")),
        ("/v1/stream/a/b/bootstrap", Resource(Kind.BOOTSTRAP, "a/b")),
        ("/v1/stream/a/snap%73hot/%37", Resource(Kind.SNAPSHOT, "a", "7")),
        ("/v1/stream/a/%62ootstrap", Resource(Kind.BOOTSTRAP, "a")),
        ("/v1/stream/snapshot", Resource(Kind.STREAM, "snapshot")),
        ("/v1/stream/bootstrap", Resource(Kind.STREAM, "bootstrap")),
        ("/v1/stream/snapshot/7", Resource(Kind.STREAM, "snapshot/7")),
        ("/v1/stream/snapshot/snapshot", Resource(Kind.LATEST_SNAPSHOT, "snapshot")),
        ("/v1/stream/bootstrap/bootstrap", Resource(Kind.BOOTSTRAP, "bootstrap")),
        ("/v1/stream/a/snapshot/snapshot", Resource(Kind.SNAPSHOT, "a", "snapshot")),
        ("/v1/stream/a/snapshot/bootstrap", Resource(Kind.SNAPSHOT, "a", "bootstrap")),
        ("/v1/stream/a/snapshots", Resource(Kind.STREAM, "a/snapshots")),
        ("/v1/stream/a/Snapshot", Resource(Kind.STREAM, "a/Snapshot")),
        ("/v1/stream/a/snapshot/b/c", Resource(Kind.STREAM, "a/snapshot/b/c")),
        ("/v1/stream/a/bootstrap/b", Resource(Kind.STREAM, "a/bootstrap/b")),
        ("/v1/stream/ds/buck", Resource(Kind.STREAM, "ds/buck")),
        ("/ds/buck", Resource(Kind.BUCKET, "/ds/buck")),
        ("/ds/%62uck", Resource(Kind.BUCKET, "/ds/buck")),
        ("/ds/" + "b" * 64, Resource(Kind.BUCKET, "/ds/" + "b" * 64)),
        ("/ds/_-09", Resource(Kind.BUCKET, "/ds/_-09")),
        ("/ds/buck/streams", Resource(Kind.LISTING, "/ds/buck")),
        ("/ds/buck/s", Resource(Kind.STREAM, "/ds/buck/s")),
        ("/ds/buck/caf%C3%A9", Resource(Kind.STREAM, "/ds/buck/café")),
        ("/ds/buck/__ds", Resource(Kind.STREAM, "/ds/buck/__ds")),
        ("/ds/buck/a.b", Resource(Kind.STREAM, "/ds/buck/a.b")),
        ("/ds/buck/streams2", Resource(Kind.STREAM, "/ds/buck/streams2")),
        ("/ds/buck/" + LONGEST, Resource(Kind.STREAM, "/ds/buck/" + LONGEST)),
        ("/ds/buck/snapshot", Resource(Kind.STREAM, "/ds/buck/snapshot")),
        ("/ds/buck/bootstrap", Resource(Kind.STREAM, "/ds/buck/bootstrap")),
        ("/ds/buck/s/snapshot", Resource(Kind.LATEST_SNAPSHOT, "/ds/buck/s")),
        ("/ds/buck/s/snapshot/0_1", Resource(Kind.SNAPSHOT, "/ds/buck/s", "0_1")),
        ("/ds/buck/s/snapshot/%30%5F1", Resource(Kind.SNAPSHOT, "/ds/buck/s", "0_1")),
        ("/ds/buck/s/snapshot/-1", Resource(Kind.SNAPSHOT, "/ds/buck/s", "-1")),
        ("/ds/buck/s/bootstrap", Resource(Kind.BOOTSTRAP, "/ds/buck/s")),
        ("/ds/buck/" + LONGEST + "/bootstrap", Resource(Kind.BOOTSTRAP, "/ds/buck/" + LONGEST)),
        ("/healthz", None),
        ("/v1/stream", None),
        ("/ds", None),
        ("/dsx/buck", None),
    ],
)
def test_path_names_one_thing(path: str, expected: Resource | None) -> None:
    assert parse_path(path) == expected


@pytest.mark.parametrize(
    ("path", "code"),
    [
        *(
            (f"/ds/{bucket}{rest}", "invalid-bucket")
            for bucket in ("abc", "b" * 65, "Buck", "bu.k", "bu%20k", "b%C3%BCck", "bu:ck", "buck;")
            for rest in ("", "/streams", "/s", "/s/bootstrap")
        ),
        ("/ds/", "invalid-path"),
        ("/ds//s", "invalid-path"),
        ("/ds/buck/", "invalid-path"),
        ("/ds/buck//s", "invalid-path"),
        ("/ds/../buck", "invalid-path"),
        ("/ds/buck/..", "invalid-path"),
        ("/ds/buck/%2e%2e", "invalid-path"),
        ("/ds/buck/a..b", "invalid-path"),
        ("/ds/buck/a/b", "invalid-path"),
        ("/ds/buck/a%2Fb", "invalid-path"),
        ("/ds/buck/a%00", "invalid-path"),
        ("/ds/buck/%FF", "invalid-path"),
        ("/ds/buck/a%252Fb", "invalid-path"),
        ("/ds/buck/streams/", "invalid-path"),
        ("/ds/buck/streams/snapshot", "invalid-path"),
        ("/ds/buck/streams/snapshot/7", "invalid-path"),
        ("/ds/buck/streams/bootstrap", "invalid-path"),
        ("/ds/buck/streams/x", "invalid-path"),
        ("/ds/buck/s/snapshot/", "invalid-path"),
        ("/ds/buck/s/snapshot/1%2F2", "invalid-path"),
        ("/ds/buck/s/snapshot/a/b", "invalid-path"),
        ("/ds/buck/s/bootstrap/x", "invalid-path"),
        ("/ds/buck/" + LONGEST + "s", "invalid-path"),
        ("/ds/buck/" + LONGEST + "s/bootstrap", "invalid-path"),
        ("/ds/buck/" + "%C3%A9" * 59, "invalid-path"),
        ("/v1/stream//ds/buck/s", "invalid-path"),
        ("/v1/stream/a/snapshot/", "invalid-path"),
        ("/v1/stream/a/snapshot%2F7", "invalid-path"),
        ("/v1/stream/a%2Fbootstrap", "invalid-path"),
    ],
)
def test_path_that_names_nothing_is_refused(path: str, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_path(path)
    assert (caught.value.status, caught.value.code) == (400, code)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("/v1/stream/a/b", "a/b"),
        ("/ds/buck/s", "/ds/buck/s"),
        ("/ds/buck", None),
        ("/ds/buck/streams", None),
        ("/ds/buck/s/bootstrap", None),
        ("/v1/stream/a/snapshot/7", None),
        ("/other", None),
    ],
)
def test_only_streams_can_be_sources(path: str, source: str | None) -> None:
    assert parse_source(path) == source


def test_bucket_of_a_name() -> None:
    names = ("a/b", "ds/buck/s", "/ds/buck/s", "/ds/buck")
    assert [bucket_of(name) for name in names] == ["", "", "/ds/buck", ""]


rests = st.lists(
    st.sampled_from(
        ["a", "buck", "/", "/a", "/snapshot", "/bootstrap", "/streams", "/0_1", "snapshot", "s"]
        + ["..", ".", "%2F", "%73", "%C3%A9", "%25", "__ds"]
    ),
    max_size=5,
).map("".join)
paths = st.builds(
    str.__add__, st.sampled_from(["/v1/stream/a", "/v1/stream/", "/ds/buck", "/ds/buck/a"]), rests
)


@given(paths)
def test_a_resource_leads_back_to_itself(path: str) -> None:
    """So two paths with one name are one resource, and no name is reached as two kinds."""
    found = resource(path)
    if found is None:
        return
    url = stream_url(found.name)
    match found.kind:
        case Kind.STREAM | Kind.BUCKET:
            assert resource(url) == found
        case Kind.LISTING:
            assert resource(f"{url}/streams") == found
        case Kind.LATEST_SNAPSHOT:
            assert resource(f"{url}/snapshot") == found
        case Kind.SNAPSHOT:
            assert resource(f"{url}/snapshot/{quote(found.offset, safe='')}") == found
        case Kind.BOOTSTRAP:
            assert resource(f"{url}/bootstrap") == found


@given(rests, rests)
def test_the_surfaces_never_meet(one: str, other: str) -> None:
    flat, bucketed = resource("/v1/stream/" + one), resource("/ds/buck" + other)
    if flat is not None and bucketed is not None:
        assert flat.name != bucketed.name
        assert bucket_of(flat.name) == ""
