"""The profile `analytics`: Spark's master and worker, and the report that is made on them.

By default until executors have begun: the report itself takes a minute, and tests of `weir report`
have it. `WEIR_WHOLE_REPORT=1` (`make analytics-check`) waits for it.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.accesslog import AccessRecord, encode_line, file_name
from tests.compose.composefile import Json, select
from tests.compose.native import ENDED_BY_TERM, Stack, running
from tests.helpers.rawhttp import Client, wait_until
from tests.helpers.require import need

NAMES = ("origin", "spark-master", "spark-worker", "report")
WHOLE = os.environ.get("WEIR_WHOLE_REPORT") == "1"
PATIENCE_S = 300.0
# Short lives: compiling well and collecting in parallel would not pay.
JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
HOUR_MS = 1_780_351_200_000
CHANGE = b'[{"type":"item","key":"1","value":{"n":1},"headers":{"operation":"insert"}}]'


def write_log(folder: Path) -> None:
    records = [
        AccessRecord(
            time_ms=HOUR_MS + number,
            gateway="edge",
            worker=0,
            seq=number,
            request_id=f"r{number}",
            method="GET",
            stream="items",
            mode="catch-up",
            status=200,
            verdict="hit" if number else "miss",
            bytes_sent=100,
        )
        for number in range(20)
    ]
    folder.mkdir()
    lines = b"".join(map(encode_line, records))
    (folder / file_name("edge", 0, HOUR_MS)).write_bytes(lines)


@pytest.fixture
def stack(compose: Json, programs: dict[str, Path], tmp_path: Path) -> Iterator[Stack]:
    need(shutil.which("java"), "Spark needs a Java runtime")
    chosen = select(compose, ["analytics"])
    with running({name: chosen[name] for name in ("keys", *NAMES)}, tmp_path, programs) as stack:
        stack.beside |= JAVA
        yield stack


@pytest.mark.timeout(900)
def test_the_report_is_made_on_the_cluster(stack: Stack) -> None:
    write_log(stack.folder / "volume-access-log")
    stack.run("keys")
    key = (stack.folder / "volume-shared/origin-key").read_text().strip()
    stack.start("origin")
    stack.wait_until_healthy("origin")
    with Client(stack.ports["origin", 4437]) as client:
        client.create("items", "application/json", host="localhost", weir_access_key=key)
        json, known = "application/json", {"host": "localhost", "weir_access_key": key}
        client.append("items", CHANGE, json, **known)
    for name in ("spark-master", "spark-worker"):
        stack.start(name)
        stack.wait_until_healthy(name, PATIENCE_S)
    stack.start("report")
    wait_until(lambda: "Asked to launch executor" in said(stack, "spark-worker"), PATIENCE_S)
    assert "Registered app weir report" in said(stack, "spark-master")
    assert not stack.check_health("report")  # nothing to show yet
    if WHOLE:
        stack.wait_until_healthy("report", PATIENCE_S)
        assert "items" in (stack.folder / "volume-report/report.html").read_text()
    assert stack.running["report"].poll() is None  # it works, or waits for the next time
    assert set(stack.stop(*reversed(NAMES))) <= set(ENDED_BY_TERM)


def said(stack: Stack, name: str) -> str:
    return stack.log(name).read_text(errors="replace")
