"""Real servers, real traffic, a whole run: the report says what the gateway's own counters say."""

import asyncio
import io
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from loadtest.demo import ARCHIVES, STREAMS, make_tokens, start_servers, stop_servers, visit
from spark.progress import Progress
from spark.run import Options, run

SECONDS = 8.0
LINE = re.compile(
    r'weir_gateway_requests_total\{mode="([^"]*)",status="([^"]*)",verdict="([^"]*)"\} (\S+)'
)
ASKED = re.compile(r"^weir_gateway_upstream_requests_total\{.*\} (\S+)", re.MULTILINE)
GAUGE = re.compile(r"^weir_gateway_(?:live_readers|connections)(?:\{.*\})? (\S+)", re.MULTILINE)

pytestmark = pytest.mark.timeout(900)


def fetch(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def settled(admin: str) -> str:
    """The metrics when everybody has left."""
    until = time.monotonic() + 30
    while True:
        text = fetch(admin)
        if not any(map(float, GAUGE.findall(text))):
            return text
        assert time.monotonic() < until, "somebody is still there"
        time.sleep(0.1)


def test_the_report_and_the_metrics_agree(spark: SparkSession, tmp_path: Path) -> None:
    process, urls = start_servers(tmp_path)
    try:
        asyncio.run(visit(urls["gateway"], make_tokens(tmp_path, 2), SECONDS))
        metrics = settled(urls["gateway admin"])
        counted = {
            (mode, int(status), verdict): int(float(value))
            for mode, status, verdict, value in LINE.findall(metrics)
        }
        said = io.StringIO()
        options = Options(tmp_path / "logs", tmp_path / "out", origin=urls["origin"])
        wait_for_lines(tmp_path / "logs", sum(counted.values()))
        run(spark, options, Progress(said))
        command = [sys.executable, "-m", "weir", "state", "--json"]
        shown = subprocess.run(
            [*command, f"{urls['origin']}/v1/stream/team/0"], capture_output=True, check=True
        )
    finally:
        stop_servers(process)
    rows = spark.read.parquet(str(tmp_path / "out/tables/requests"))
    logged = Counter(
        {
            (row.mode, row.status, row.verdict): row["count"]
            for row in (rows.groupBy("mode", "status", "verdict").count().collect())
        }
    )
    assert logged == {key: count for key, count in counted.items() if count}
    state: dict[str, dict[str, object]] = {}
    for row in spark.read.parquet(str(tmp_path / "out/tables/state")).collect():
        if row.stream == "team/0":
            state.setdefault(row.type, {})[row.key] = json.loads(row.value)
    assert state == json.loads(shown.stdout) and state
    assert f"of {STREAMS + ARCHIVES} streams have news" in said.getvalue()
    asked = sum(row.upstream_requests for row in rows.select("upstream_requests").collect())
    # A hub may have asked when the only reader it had was just gone.
    assert 0 <= sum(int(float(value)) for value in ASKED.findall(metrics)) - asked <= 2
    assert (tmp_path / "out/report.html").stat().st_size > 50_000


def wait_for_lines(folder: Path, count: int) -> None:
    """They are written a moment after the answers."""
    until = time.monotonic() + 30
    while sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl")) < count:
        assert time.monotonic() < until, "lines are missing"
        time.sleep(0.1)
