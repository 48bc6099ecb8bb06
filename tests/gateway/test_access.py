from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rules.access import (
    ACTIONS,
    ANYONE,
    EVERYTHING,
    MAX_ENTRIES,
    MAX_SCOPE_CHARACTERS,
    NOTHING,
    Action,
    Scopes,
    scope_name,
)
from protocol.errors import ProtocolError
from protocol.paths import stream_name

segments = st.text("abé *%:.2A-'\"", min_size=1, max_size=5)  # few, so that names meet
actions = st.sampled_from(ACTIONS)


def is_canonical(name: str) -> bool:
    try:
        return stream_name(quote(name)) == name
    except ProtocolError:
        return False


names = st.lists(segments, min_size=1, max_size=4).map("/".join).filter(is_canonical)


@pytest.mark.parametrize(
    ("scope", "name", "allowed"),
    [
        pytest.param("read:a", "a", True, id="exact"),
        pytest.param("read:a", "a/b", False, id="exact-is-no-prefix"),
        pytest.param("read:a", "A", False, id="case-counts"),
        pytest.param("read:chat/*", "chat/room", True, id="below"),
        pytest.param("read:chat/*", "chat/room/1", True, id="further-below"),
        pytest.param("read:chat/*", "chat", False, id="the-folder-itself"),
        pytest.param("read:chat/*", "chatter", False, id="sibling"),
        pytest.param("read:chat/*", "xchat/room", False, id="not-at-the-start"),
        pytest.param("read:chat*", "chatter", True, id="prefix-without-slash"),
        pytest.param("read:*", "any/thing", True, id="everything-flat"),
        pytest.param("read:*", "/ds/bucket/x", True, id="everything-bucketed"),
        pytest.param("read:/*", "/ds/bucket/x", True, id="every-path-bucketed"),
        pytest.param("read:/*", "a", True, id="every-path-flat"),
        pytest.param("read:/v1/stream/a", "a", True, id="whole-path"),
        pytest.param("read:/v1/stream/a/*", "a/b", True, id="whole-path-below"),
        pytest.param("read:/v1/stream/a/*", "ab", False, id="whole-path-sibling"),
        pytest.param("read:/v1/stream/*", "a/b", True, id="all-flat"),
        pytest.param("read:/v1/stream/*", "/ds/bucket/x", False, id="all-flat-not-bucketed"),
        pytest.param("read:/v1/*", "a", True, id="prefix-of-the-prefix"),
        pytest.param("read:/v1/*", "/ds/bucket/x", False, id="prefix-of-another-path"),
        pytest.param("read:/v1/stream", "a", False, id="prefix-without-star"),
        pytest.param("read:/v1/stream/", "a", False, id="no-name"),
        pytest.param("read:/ds/bucket/x", "/ds/bucket/x", True, id="bucketed"),
        pytest.param("read:/ds/bucket/*", "/ds/bucket/x", True, id="whole-bucket"),
        pytest.param("read:/ds/bucket/*", "/ds/bucket2/x", False, id="sibling-bucket"),
        pytest.param("read:/ds/bucket/x", "ds/bucket/x", False, id="flat-name-like-a-bucket"),
        pytest.param("read:ds/bucket/*", "/ds/bucket/x", False, id="bucket-like-a-flat-name"),
        pytest.param("read:/v1/stream//ds/b/*", "/ds/b/x", False, id="bucket-inside-a-flat-path"),
        pytest.param("read:/v1/stream//*", "/ds/b/x", False, id="double-slash-star"),
        pytest.param("read:/ds/buck", "/ds/buck", True, id="the-bucket-itself"),
        pytest.param("read:/ds/buck", "/ds/buck/x", False, id="a-bucket-is-not-its-streams"),
        pytest.param("read:/ds/buck/*", "/ds/buck", False, id="streams-are-not-their-bucket"),
        pytest.param("read:/ds/buck*", "/ds/buck", True, id="bucket-by-prefix"),
        pytest.param("read:/ds/*", "/ds/buck/x", True, id="all-buckets"),
        pytest.param("read:/ds/*", "a", False, id="all-buckets-not-flat"),
        pytest.param("read:/ds/*", "ds/buck/x", False, id="all-buckets-not-a-flat-name-like-it"),
        pytest.param("read:ds/*", "/ds/buck/x", False, id="flat-pattern-like-all-buckets"),
        pytest.param("read:a/bootstrap", "a", False, id="a-part-grants-nothing-of-its-stream"),
        pytest.param("read:a%20b", "a b", True, id="escaped-space"),
        pytest.param("read:caf%C3%A9", "café", True, id="escaped-utf-8"),
        pytest.param("read:café", "café", True, id="plain-utf-8"),
        pytest.param("read:100%", "100%", True, id="lone-percent"),
        pytest.param("read:100%25", "100%", True, id="escaped-percent"),
        pytest.param("read:a%2A", "a*", True, id="escaped-star"),
        pytest.param("read:a%2A", "ab", False, id="escaped-star-is-no-wildcard"),
        pytest.param("read:%FF*", "a", False, id="escape-that-is-not-utf-8"),
        pytest.param("read:a:b", "a:b", True, id="colon-in-the-name"),
        pytest.param("read:a\nb", "a", False, id="line-feed-is-no-separator"),
        pytest.param("read:a\twrite:b", "a", False, id="tab-is-no-separator"),
        pytest.param("read:*/x", "a/x", False, id="star-in-front"),
        pytest.param("read:a*b", "a*b", False, id="star-inside"),
        pytest.param("read:a**", "ab", False, id="two-stars"),
        pytest.param("read:", "a", False, id="empty-pattern"),
        pytest.param("read", "a", False, id="no-pattern"),
        pytest.param(":a", "a", False, id="no-action"),
        pytest.param("READ:a", "a", False, id="upper-case-action"),
        pytest.param("admin:* openid x:y:z", "a", False, id="unknown-actions"),
        pytest.param("*:*", "a", False, id="star-is-no-action"),
        pytest.param("", "a", False, id="empty"),
        pytest.param("  read:a   read:b ", "b", True, id="spaces-around"),
        pytest.param("openid read:a", "a", True, id="known-beside-unknown"),
    ],
)
def test_read_scope_decides(scope: str, name: str, allowed: bool) -> None:
    assert Scopes.parse(scope).allows("read", name) is allowed


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read:/ds/buck/*", True),
        ("read:/ds/buck/streams", True),
        ("read:/ds/buck*", True),
        ("read:/ds/*", True),
        ("read:*", True),
        ("read:/*", True),
        ("read:/ds/buck", False),
        ("read:/ds/buck/s*", False),
        ("read:/ds/buck/streams*", False),
        ("read:/ds/buck/x", False),
        ("read:/ds/buck2/*", False),
        ("read:/v1/stream/*", False),
        ("read:ds/buck/*", False),
        ("write:/ds/buck/* create:* delete:*", False),
    ],
)
def test_a_listing_needs_the_whole_bucket_or_its_own_name(scope: str, allowed: bool) -> None:
    assert Scopes.parse(scope).allows_listing("/ds/buck") is allowed


@pytest.mark.parametrize("granted", ACTIONS)
def test_an_action_grants_no_other(granted: Action) -> None:
    scopes = Scopes.parse(f"{granted}:*")
    assert [action for action in ACTIONS if scopes.allows(action, "a")] == [granted]


def test_entries_add_up() -> None:
    scopes = Scopes.parse("read:a read:b/* write:a create:/v1/stream/*")
    assert scopes.allows("read", "a") and scopes.allows("read", "b/c")
    assert scopes.allows("write", "a") and not scopes.allows("write", "b/c")
    assert scopes.allows("create", "z") and not scopes.allows("delete", "a")


def test_fixed_scopes() -> None:
    assert all(EVERYTHING.allows(action, name) for action in ACTIONS for name in ("a", "/ds/b/c"))
    assert not any(NOTHING.allows(action, "a") for action in ACTIONS)
    assert ANYONE.scopes is EVERYTHING and ANYONE.expires_at > 1e18


@pytest.mark.parametrize(
    "text",
    [" ".join(["read:a"] * (MAX_ENTRIES + 1)), "x" * (MAX_SCOPE_CHARACTERS + 1)],
    ids=["entries", "characters"],
)
def test_scope_beyond_all_measure_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        Scopes.parse(text)


def test_as_many_entries_as_allowed_count() -> None:
    scopes = Scopes.parse(" ".join(f"read:s{index}/*" for index in range(MAX_ENTRIES)))
    assert scopes.allows("read", f"s{MAX_ENTRIES - 1}/x")


def test_one_endless_pattern_grants_nothing() -> None:
    assert Scopes.parse(f"read:{'x' * 10_000}* read:a") == Scopes.parse("read:a")


@pytest.mark.parametrize("text", ["read:\ud800", "read:%ED%A0%80", "read:\ud800* write:a"])
def test_half_a_character_is_harmless(text: str) -> None:
    assert not Scopes.parse(text).allows("read", "a")


@given(names, names)
def test_a_folder_pattern_never_matches_a_sibling(folder: str, name: str) -> None:
    scopes = Scopes.parse(scope_name("read", folder) + "/*")
    assert scopes.allows("read", name) is name.startswith(folder + "/")
    assert not scopes.allows("read", folder)
    assert not scopes.allows("read", folder + name)
    assert scopes.allows("read", f"{folder}/{name}")


@given(actions, names, names)
def test_the_named_scope_grants_just_that(action: Action, name: str, other: str) -> None:
    text = scope_name(action, name)
    assert text.isascii() and text.isprintable() and not set(text) & set(' "\\*')
    assert Scopes.parse(text).allows(action, name)
    assert Scopes.parse(text).allows(action, other) is (name == other)
