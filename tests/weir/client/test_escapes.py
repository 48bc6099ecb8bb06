"""Nothing that a terminal obeys is ever printed, and JSON still means the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.client.escapes import shown, shown_json, shown_string, shown_word

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts)
def test_only_printable_characters_are_shown(text: str) -> None:
    for show in (shown, shown_word, shown_string):
        assert show(text).isprintable()
    assert shown_json(json.dumps(text, ensure_ascii=False).encode()).isprintable()


@given(st.recursive(texts | st.integers(), lambda inner: st.lists(inner, max_size=3)))
def test_json_keeps_its_meaning(value: object) -> None:
    raw = json.dumps(value, ensure_ascii=False, indent=1).encode()
    assert json.loads(shown_json(raw)) == value


@given(texts)
def test_strings_keep_their_meaning(text: str) -> None:
    assert json.loads(shown_string(text)) == text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("user:1", "user:1"),
        ("é", "é"),
        ("", '""'),
        ("a b", '"a b"'),
        ('"', '"\\""'),
        ("a\\b", '"a\\\\b"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\x7f\x9b", '"\\u007f\\u009b"'),
        ("\u202e\u2028", '"\\u202e\\u2028"'),
        ("\U000e0001", '"\\udb40\\udc01"'),
        ("a\nb", '"a\\nb"'),
    ],
)
def test_words(text: str, word: str) -> None:
    assert shown_word(text) == word
