"""YAML for people must still be the same values to programs."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.edge.yamltext import WIDTH, to_yaml

texts = st.text(st.characters(max_codepoint=0xD7FF), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | texts | st.sampled_from(["no", "~", "1s"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8
)


@settings(max_examples=60)
@given(values)
def test_it_is_read_as_it_was_meant(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": {"b": [1, "x"]}}, "a: {b: [1, x]}\n"),
        ({"on": "off", "@type": "a/b", "c": "1s"}, '"on": "off"\n"@type": a/b\nc: "1s"\n'),
        ([{"a": "x" * WIDTH, "b": []}], f"- a: {'x' * WIDTH}\n  b: []\n"),
        ({"a": ["x" * WIDTH, "z"]}, f"a:\n  - {'x' * WIDTH}\n  - z\n"),
    ],
)
def test_what_fits_on_a_line_stands_on_one(value: Any, text: str) -> None:
    assert to_yaml(value) == text
