import json
import logging
import sys

import pytest

from wire.logs import JsonLines


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("weir.x", logging.WARNING, __file__, 1, message, arguments, None)


@pytest.mark.parametrize("text", ["plain", 'a "quote"', "two\nlines", "\x00\x1b", "é"])
def test_any_message_is_one_json_line(text: str) -> None:
    line = JsonLines().format(record("said %s", text))
    assert len(line.splitlines()) == 1
    told = json.loads(line)
    assert told["message"] == f"said {text}"
    assert (told["level"], told["logger"]) == ("warning", "weir.x")


def test_a_traceback_is_part_of_the_line() -> None:
    failed = record("failed")
    try:
        raise RuntimeError("a mistake")
    except RuntimeError:
        failed.exc_info = sys.exc_info()
    assert "RuntimeError: a mistake" in json.loads(JsonLines().format(failed))["error"]
