import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.etags import (
    bootstrap_etag,
    format_etag,
    incarnation_of_etag,
    matches,
    permits,
    snapshot_etag,
    stream_etag,
)

TAG = format_etag("ab12", 0, 42, closed=False)
CLOSED = format_etag("ab12", 0, 42, closed=True)
others = st.text(st.characters(codec="latin-1", exclude_characters='"', min_codepoint=0x21))


def test_tag_names_incarnation_and_range_in_quotes() -> None:
    assert TAG == '"ab12:0:42"'


def test_closing_changes_the_tag() -> None:
    assert CLOSED == '"ab12:0:42:c"'
    assert not matches(TAG, CLOSED)
    assert not matches(CLOSED, TAG)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(TAG, id="same"),
        pytest.param("*", id="star"),
        pytest.param(" *\t", id="star-with-blanks"),
        pytest.param(f"W/{TAG}", id="weak"),
        pytest.param(f'"x", {TAG}', id="last-of-a-list"),
        pytest.param(f'{TAG}, "x"', id="first-of-a-list"),
        pytest.param(f'"x",W/{TAG},"y"', id="weak-in-a-tight-list"),
        pytest.param(f'  "x"  ,\t {TAG}  ', id="sloppy-blanks"),
        pytest.param(f', ,"x",,{TAG},', id="empty-members"),
        pytest.param(f'"a,b", {TAG}', id="comma-inside-quotes"),
        pytest.param(f'"", {TAG}', id="empty-tag-first"),
        pytest.param(f'"\u00e9", {TAG}', id="obs-text"),
    ],
)
def test_header_matches(header: str) -> None:
    assert matches(header, TAG)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("", id="empty"),
        pytest.param('"other"', id="other"),
        pytest.param("ab12:0:42", id="unquoted"),
        pytest.param('"ab12:0:4"', id="shorter"),
        pytest.param('"ab12:0:420"', id="longer"),
        pytest.param('"AB12:0:42"', id="other-case"),
        pytest.param(f"w/{TAG}", id="lower-case-weak-mark"),
        pytest.param(f'"x,{TAG}', id="unbalanced-quote-before"),
        pytest.param('"ab12:0:42', id="unterminated"),
        pytest.param(f"{TAG}x", id="garbage-after"),
        pytest.param('"x", *', id="star-in-a-list"),
        pytest.param('"*"', id="quoted-star"),
        pytest.param("," * 100_000, id="many-commas"),
        pytest.param('"' * 100_001, id="many-quotes"),
    ],
)
def test_header_does_not_match(header: str) -> None:
    assert not matches(header, TAG)


def test_a_weak_tag_matches_its_strong_form() -> None:
    assert matches(TAG, f"W/{TAG}")


@given(st.lists(others, max_size=5), st.lists(others, max_size=5), st.sampled_from(["", "W/"]))
def test_found_wherever_it_stands_in_a_list(before: list[str], after: list[str], weak: str) -> None:
    members = [f'"{tag}"' for tag in before] + [weak + TAG] + [f'"{tag}"' for tag in after]
    assert matches(", ".join(members), TAG)


@given(st.lists(others.filter(lambda tag: f'"{tag}"' != TAG), max_size=5))
def test_never_found_where_it_is_not(tags: list[str]) -> None:
    assert not matches(", ".join(f'"{tag}"' for tag in tags), TAG)


# -- the stream itself, its snapshot, its bootstrap ----------------------------------------------

STREAM = stream_etag("ab12", 42, closed=False)


def test_stream_tag_changes_with_each_append_and_with_the_end() -> None:
    assert STREAM == '"ab12:42"'
    tags = {stream_etag("ab12", tail, closed) for tail in (42, 43) for closed in (False, True)}
    assert len(tags) == 4
    assert stream_etag("ab13", 42, closed=False) not in tags


def test_no_two_kinds_of_tag_are_equal() -> None:
    """A tag of one answer must never be good for another."""
    tags = [
        *(format_etag("ab12", 0, 42, c) for c in (False, True)),
        *(stream_etag("ab12", 42, c) for c in (False, True)),
        *(snapshot_etag("ab12", 42, t) for t in (False, True)),
        *(bootstrap_etag("ab12", 42, 42, c) for c in (False, True)),
        *(bootstrap_etag("ab12", 0, 42, c) for c in (False, True)),
    ]
    assert not any(matches(one, other) for one in tags for other in tags if one is not other)
    assert all(matches(tag, tag) for tag in tags)


def test_bootstrap_tag_is_weak_because_boundaries_differ() -> None:
    tag = bootstrap_etag("ab12", 7, 42, closed=False)
    assert tag.startswith("W/")
    assert matches(tag.removeprefix("W/"), tag)
    assert not permits(tag, tag.removeprefix("W/"))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(STREAM, id="same"),
        pytest.param("*", id="star"),
        pytest.param(" * ", id="star-with-blanks"),
        pytest.param(f'"x", {STREAM}', id="in-a-list"),
        pytest.param(f', "x",,{STREAM},', id="empty-members"),
        pytest.param(f'W/"x", {STREAM}', id="after-a-weak-one"),
        pytest.param(f"W/{STREAM}, {STREAM}", id="weak-and-strong"),
    ],
)
def test_condition_permits_the_write(header: str) -> None:
    assert permits(header, STREAM)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("", id="empty"),
        pytest.param('"other"', id="other"),
        pytest.param(f"W/{STREAM}", id="weak"),
        pytest.param(f'"x", W/{STREAM}', id="weak-in-a-list"),
        pytest.param("ab12:42", id="unquoted"),
        pytest.param('"ab12:42:c"', id="closed"),
        pytest.param('"ab12:420"', id="longer"),
        pytest.param(f"{STREAM}x", id="garbage-after"),
        pytest.param('"x", *', id="star-in-a-list"),
        pytest.param("," * 100_000, id="many-commas"),
    ],
)
def test_condition_forbids_the_write(header: str) -> None:
    assert not permits(header, STREAM)


@pytest.mark.parametrize("header", ["*", STREAM, '"x"'])
def test_condition_on_nothing_is_never_met(header: str) -> None:
    assert not permits(header, None)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.booleans(),
    st.data(),
)
def test_our_tags_name_the_incarnation(
    n: int, start: int, end: int, flag: bool, data: st.DataObject
) -> None:
    incarnation = f"{n:016x}"
    tag = data.draw(
        st.sampled_from(
            [
                format_etag(incarnation, start, end, flag),
                stream_etag(incarnation, end, flag),
                snapshot_etag(incarnation, start, flag),
                bootstrap_etag(incarnation, start, end, flag),
            ]
        )
    )
    assert incarnation_of_etag(tag) == incarnation
    assert incarnation_of_etag("W/" + tag.removeprefix("W/")) == incarnation
    assert incarnation_of_etag(f'{tag[:-1]}-gzip"') == incarnation


@pytest.mark.parametrize(
    "tag",
    [
        pytest.param("", id="none"),
        pytest.param('"', id="half-a-tag"),
        pytest.param("00c0ffee00c0ffee:0:5", id="unquoted"),
        pytest.param('"0000000000000000_0000000000000005"', id="an-offset"),
        pytest.param('"L3YxL3N0cmVhbS9h:0:5"', id="not-hexadecimal"),
        pytest.param('"L3YxL3N0cmVhbS9h:-1:0000000000000000_0000000000000009"', id="a-path"),
        pytest.param('"00112233445566aa"', id="hexadecimal-alone"),
        pytest.param('"00112233445566aa:"', id="nothing-after-the-colon"),
        pytest.param('"00112233445566aa:x5"', id="unknown-kind"),
        pytest.param('"00112233445566AA:0:5"', id="upper-case"),
        pytest.param('"9a21f52d18ef33fb0a44c92da5a704d5"', id="a-gateway's-digest"),
    ],
)
def test_other_tags_name_no_incarnation(tag: str) -> None:
    assert incarnation_of_etag(tag) == ""
