"""`weir state` as people and scripts use it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from tests.helpers.rawhttp import wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, SimpleStream, simple_stream
from tests.helpers.server import ROOT
from tests.weir.conftest import Done, Weir

PATH = "/v1/stream/s"
JSON = "application/json"
MARK = {"control": "snapshot-start", "offset": "0"}


def change(key: str, value: object = None, kind: str = "user", operation: str = "insert") -> bytes:
    message = {"type": kind, "key": key, "value": value, "headers": {"operation": operation}}
    return json.dumps(message, ensure_ascii=False).encode()


def control(**headers: str) -> bytes:
    return json.dumps({"headers": headers}).encode()


@pytest.fixture
def stream(scripted: ScriptedOrigin) -> SimpleStream:
    messages = change("1", {"name": "Alice"}), change("2", 7), change("1", 8, "flag")
    return simple_stream(scripted, PATH, JSON, *messages)


@pytest.fixture
def url(scripted: ScriptedOrigin, stream: SimpleStream) -> str:
    return scripted.url + PATH


def test_a_table(weir: Weir, url: str) -> None:
    lines = ["TYPE  KEY   VALUE", "flag  1     8", 'user  1     {"name": "Alice"}', "user  2     7"]
    assert weir("state", url) == Done(0, lines, [])


def test_json_by_type_and_key(weir: Weir, url: str) -> None:
    code, [line], err = weir("state", url, "--json")
    assert (code, err) == (0, [])
    assert json.loads(line) == {"flag": {"1": 8}, "user": {"1": {"name": "Alice"}, "2": 7}}


def test_half_an_emoji_is_a_value_like_others(weir: Weir, scripted: ScriptedOrigin) -> None:
    half = change("1", "HALF").replace(b"HALF", rb"\ud83d")
    simple_stream(scripted, PATH, JSON, half, change("2", 7))
    lines = ["TYPE  KEY   VALUE", r'user  1     "\ud83d"', "user  2     7"]
    assert weir("state", scripted.url + PATH) == Done(0, lines, [])


def test_one_type(weir: Weir, url: str) -> None:
    assert weir("state", url, "--type", "flag").out == ["TYPE  KEY   VALUE", "flag  1     8"]
    assert weir("state", url, "--type", "none", "--json").out == ["{}"]


def test_9_malformed_messages_are_told_and_skipped(
    weir: Weir, url: str, stream: SimpleStream
) -> None:
    stream.append(b"5")
    stream.append(change(""))
    stream.append(change("3", 9))
    code, out, err = weir("state", url, "--type", "user")
    assert (code, out[-1]) == (0, "user  3     9")
    assert err == [
        "weir: message 4 after offset -1: must be a well-formed JSON object; skipped",
        "weir: message 5 after offset -1: key must be a non-empty string; skipped",
    ]


def test_9_strangers_do_not_write_to_the_terminal(
    weir: Weir, url: str, stream: SimpleStream, tmp_path: Path
) -> None:
    """Not by keys, types and values, nor by what is said about them."""
    (tmp_path / "schema.json").write_text('{"bad": {"type": "null"}}')
    odd = "\x1b]0;title\x07\x9b31m\u202e\r\n"
    stream.append(change(odd, odd, odd))
    stream.append(change(odd, odd, "bad"))
    for flags in ([], ["--json"], ["--schema", str(tmp_path / "schema.json")]):
        done = weir("state", url, *flags)
        assert all(line.isprintable() for line in done.out + done.err)


def test_7_values_that_break_a_schema_are_told_and_skipped(
    weir: Weir, url: str, stream: SimpleStream, tmp_path: Path
) -> None:
    path = tmp_path / "schemas.json"
    path.write_text('{"user": {"required": ["name"], "type": "object"}}')
    stream.append(change("1", {"nickname": "Al"}, operation="update"))
    code, out, err = weir("state", url, "--schema", str(path))
    assert (code, out[1:]) == (0, ["flag  1     8", 'user  1     {"name": "Alice"}'])
    assert err == [
        "weir: message 2 after offset -1: user 2: value: 7 is not of type 'object'; skipped",
        "weir: message 4 after offset -1: user 1: value: 'name' is a required property; skipped",
    ]


def test_4_2_1_a_stream_that_ends_inside_a_snapshot_is_told(
    weir: Weir, url: str, stream: SimpleStream
) -> None:
    stream.append(control(**MARK))
    code, _, err = weir("state", url)
    assert (code, err) == (0, ["weir: the stream ends inside a snapshot: this is only part of it"])


def test_the_token_comes_from_flag_or_environment(
    weir: Weir, url: str, scripted: ScriptedOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    weir("state", url)
    monkeypatch.setenv("WEIR_TOKEN", "from-environment")
    weir("state", url)
    weir("state", url, "--token", "from-flag")
    sent = [r.headers.get("authorization") for r in scripted.find(path=PATH)]
    assert sent == [None, "Bearer from-environment", "Bearer from-flag"]


def test_failures_are_one_line_each(weir: Weir, url: str, tmp_path: Path) -> None:
    not_schema = tmp_path / "schema.json"
    not_schema.write_text("[]")
    for code, arguments, names in [
        (2, ["h:1/a"], "URL: "),
        (2, [url, "--schema", "missing.json"], "--schema: missing.json: "),
        (2, [url, "--schema", str(not_schema)], "is not a JSON object of types and schemas"),
        (4, ["http://127.0.0.1:1/v1/stream/s"], "Cannot connect"),
        (4, [url + "/missing"], "404 Not Found"),
    ]:
        done = weir("state", *arguments)
        assert (done.code, done.out, len(done.err)) == (code, [], 1)
        assert done.err[0].startswith("weir: ") and names in done.err[0]


def test_schemas_cost_nothing_until_they_are_asked_for() -> None:
    imports = "import sys, weir.commands.compact, weir.commands.state"
    code = f"{imports}; sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=30).returncode == 0


# -- as a process --------------------------------------------------------------------------------


class Followed(NamedTuple):
    process: "subprocess.Popen[str]"
    out: IO[str]

    def lines(self, count: int) -> list[str]:
        return [self.out.readline().rstrip("\n") for _ in range(count)]


@contextmanager
def following(url: str, *flags: str) -> Iterator[Followed]:
    command = [sys.executable, "-m", "weir", "state", url, "--follow", *flags]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Followed(process, process.stdout)
        finally:
            process.kill()


def test_following_goes_on_until_it_is_interrupted(url: str, stream: SimpleStream) -> None:
    with following(url, "--type", "user") as followed:
        assert followed.lines(3)[0] == "TYPE  KEY   VALUE"
        stream.append(change("3", "x", operation="update"))
        stream.append(change("1", 1, "flag"))
        stream.append(change("3", operation="delete"))
        stream.append(control(control="reset", offset="0"))
        stream.append(b"5")
        stream.append(control(**MARK))
        assert followed.lines(4) == [
            'update  user  3  "x"',
            "delete  user  3",
            "reset  0",
            "snapshot-start  0",
        ]
        followed.process.send_signal(signal.SIGINT)
        out, err = followed.process.communicate(timeout=60)
        assert (followed.process.returncode, out) == (0, "")
        [line] = err.splitlines()
        assert line.endswith(": must be a well-formed JSON object; skipped")


def test_following_as_json_forgets_what_a_snapshot_replaced(
    url: str, scripted: ScriptedOrigin, stream: SimpleStream
) -> None:
    snapshot = b"--b\r\nContent-Type: application/json\r\n\r\n[" + change("9") + b"]\r\n--b--"
    headers = {
        "Content-Type": "multipart/mixed; boundary=b",
        "Stream-Snapshot-Offset": "9",
        "Stream-Next-Offset": "9",
        "Stream-Up-To-Date": "true",
    }
    scripted.on("GET", f"{PATH}/bootstrap", [Answer(404), Answer(200, headers, snapshot)])
    with following(url, "--json") as followed:
        [first] = followed.lines(1)
        assert set(json.loads(first)) == {"flag", "user"}
        wait_until(lambda: stream.waiting == 1)
        closed = {"Stream-Next-Offset": "9", "Stream-Closed": "true"}
        scripted.on("GET", PATH, [Answer(410, {}, b"{}"), Answer(204, closed)])
        stream.append(change("3", "x"))
        assert json.loads(followed.lines(1)[0])["key"] == "3"
        assert [json.loads(line) for line in followed.lines(2)] == [
            {"control": "reset"},
            {"operation": "insert", "type": "user", "key": "9", "value": None},
        ]
        out, err = followed.process.communicate(timeout=60)
        assert (followed.process.returncode, out) == (0, "")
        assert err.splitlines() == [f"weir: GET {PATH}: 410 Gone; starting over"]


def test_a_reader_that_leaves_early_is_no_error(url: str, stream: SimpleStream) -> None:
    for number in range(200):
        stream.append(change(str(number), "x" * 1000))
    command = [sys.executable, "-m", "weir", "state", url]
    reading, writing = os.pipe()
    with subprocess.Popen(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        os.close(reading)
        assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 0
