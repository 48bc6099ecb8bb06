import pytest

from protocol.media import media_type, text_like


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/plain", "text/plain"),
        ("Text/PLAIN", "text/plain"),
        ("application/json ; charset=utf-8", "application/json"),
        ("application/json;x", "application/json"),
    ],
)
def test_parameters_and_case_do_not_count(content_type: str, expected: str) -> None:
    assert media_type(content_type) == expected


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/plain", True),
        ("text/html; charset=utf-8", True),
        ("TEXT/Plain", True),
        ("application/json", True),
        ("Application/JSON ; charset=utf-8", True),
        ("application/jsonl", False),
        ("application/ndjson", False),
        ("application/xml", False),
        ("application/octet-stream", False),
        ("image/png", False),
        ("textual/plain", False),
        ("", False),
    ],
)
def test_only_text_and_json_are_text_like(content_type: str, expected: bool) -> None:
    assert text_like(content_type) is expected
