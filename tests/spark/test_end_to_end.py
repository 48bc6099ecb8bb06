"""Real servers, real traffic, `weir report`: the page that comes out says what the gateway's own
counters say."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loadtest.analytics.duck import connect
from loadtest.demo import ARCHIVES, STREAMS, make_tokens, servers, visit
from pages.figures import count, plural, ratio, share
from protocol.accesslog import READ_VERDICTS
from tests.helpers.chromium import Chromium, Page
from tests.helpers.require import need
from tests.spark.conftest import QUICK_JAVA
from tests.spark.drawn import drawn_charts
from weir.client.access import FILE_VARIABLE, ORIGIN_KEY_FILE

SECONDS = 8.0
LINE = re.compile(
    r'weir_gateway_requests_total\{mode="([^"]*)",status="([^"]*)",verdict="([^"]*)"\} (\S+)'
)
GAUGE = re.compile(r"^weir_gateway_(?:live_readers|connections)(?:\{.*\})? (\S+)", re.MULTILINE)
CHARTS = {
    *("Requests by verdict", "Hit ratio", "Bytes to clients", "Collapse factor"),
    *("Reads that reached the origin, and reads that did not", "Latency over time"),
    *("How long they lasted", "Failures over time", "Growth", "Churn", "Reads and entities"),
}
# What a person reads: the tiles, keys of a chart, and a column of numbers by its row's name.
TILES = """Object.fromEntries([...document.querySelectorAll(".tile")].map((tile) =>
    [...tile.querySelectorAll(".label, strong, small")].map((part) => part.textContent))
    .map(([label, ...told]) => [label, told]))"""
KEYS = """Object.fromEntries(
    [...document.querySelector("#traffic figure").querySelectorAll(".legend li")].map((key) =>
        [key.childNodes[1].textContent, key.querySelector("b").textContent]))"""
COLUMN = """[...document.querySelectorAll(%s)].flatMap((table) => {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
    const at = heads.indexOf("Requests");
    return [...table.tBodies[0].rows].map((row) =>
        [row.cells[0].textContent, Number(row.cells[at].dataset.value)]);
  })"""

pytestmark = pytest.mark.timeout(900)


class Metrics:
    """What the gateway has counted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.requests = Counter(
            {
                (mode, int(status), verdict): int(float(value))
                for mode, status, verdict, value in LINE.findall(text)
                if float(value)
            }
        )

    def sum(self, name: str) -> int:
        values = re.findall(rf"^weir_gateway_{name}(?:{{.*}})? (\S+)", self._text, re.MULTILINE)
        assert values, name
        return sum(int(float(value)) for value in values)

    def by(self, field: int) -> Counter[Any]:
        found = Counter[Any]()
        for labels, number in self.requests.items():
            found[labels[field]] += number
        return found


def settled(admin: str) -> Metrics:
    """The metrics when everybody has left."""
    until = time.monotonic() + 30
    while True:
        with urllib.request.urlopen(f"{admin}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        if not any(map(float, GAUGE.findall(text))):
            return Metrics(text)
        assert time.monotonic() < until, "somebody is still there"
        time.sleep(0.1)


def test_the_report_and_the_metrics_agree(tmp_path: Path) -> None:
    need(shutil.which("java"), "Spark needs a Java runtime")
    with servers(tmp_path) as urls:
        asyncio.run(visit(urls["gateway"], make_tokens(tmp_path, 2), SECONDS))
        metrics = settled(urls["gateway admin"])
        wait_for_lines(tmp_path / "logs", metrics.requests.total())
        told = weir(
            *("report", "--master", "local[2]", "--origin", urls["origin"]),
            *("--logs", str(tmp_path / "logs"), "--out", str(tmp_path / "out")),
        )
        (key,) = tmp_path.rglob(ORIGIN_KEY_FILE)
        url = f"{urls['origin']}/v1/stream/team/0"
        shown = weir("state", "--json", url, key_file=key)
    assert f"of {STREAMS + ARCHIVES} streams changed" in told.stderr
    check_permissions(tmp_path / "out")
    followers = check_tables(tmp_path / "out/tables", metrics, json.loads(shown.stdout))
    with Chromium() as browser:
        page = browser.open((tmp_path / "out/report.html").as_uri())
        check_figures(page, metrics, followers)
        assert drawn_charts(page) == dict.fromkeys(CHARTS, True)
        assert page.complaints == []


def check_permissions(out: Path) -> None:
    """What it makes is not for everyone."""
    made = [out, *out.rglob("*")]
    assert {path.suffix for path in made} >= {".html", ".parquet", ".log"}
    assert not [path for path in made if not path.is_symlink() and path.stat().st_mode & 0o027]


def weir(*arguments: str, key_file: Path | None = None) -> subprocess.CompletedProcess[str]:
    settings = {} if key_file is None else {FILE_VARIABLE: str(key_file)}
    ran = subprocess.run(
        [sys.executable, "-m", "weir", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | QUICK_JAVA | settings,
        umask=0o022,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran


def check_tables(tables: Path, metrics: Metrics, state: dict[str, dict[str, object]]) -> int:
    """How many reads were collapsed."""
    db = connect()
    requests = f"read_parquet('{tables}/requests/*/*.parquet')"
    rows = db.execute(
        f"SELECT mode, status, verdict, count(*) FROM {requests} GROUP BY ALL"
    ).fetchall()
    assert {row[:3]: row[3] for row in rows} == metrics.requests
    [[asked]] = db.execute(f"SELECT sum(upstream_requests)::BIGINT FROM {requests}").fetchall()
    # The hub of each stream may have asked when the only reader it had was just gone.
    assert 0 <= metrics.sum("upstream_requests_total") - asked <= STREAMS
    [[followers]] = db.execute(
        f"SELECT count(*) FROM {requests} WHERE role = 'follower'"
    ).fetchall()
    # Readers of events share fetches while they catch up, too; their lines say that a hub followed.
    assert 0 < followers <= metrics.sum("collapsed_readers_total")
    found: dict[str, dict[str, object]] = {}
    held = f"SELECT type, key, value FROM '{tables}/state/*.parquet' WHERE stream = 'team/0'"
    for kind, key, value in db.execute(held).fetchall():
        found.setdefault(kind, {})[key] = json.loads(value)
    assert found == state and state
    return int(followers)


def check_figures(page: Page, metrics: Metrics, followers: int) -> None:
    """Numbers as the page shows them, rounded as it does."""
    whole, verdicts = metrics.requests.total(), metrics.by(2)
    reads = sum(verdicts[verdict] for verdict in READ_VERDICTS)
    tiles = page.evaluate(TILES)
    assert tiles["Requests"] == [count(whole), plural(reads, "read")]
    assert tiles["Token failures"][0] == count(metrics.sum("token_failures_total"))
    errors = sum(
        number
        for (_, status, verdict), number in metrics.requests.items()
        if status >= 500 or verdict == "error"
    )
    assert tiles["Errors"][0] == count(errors)
    hub = share(ratio(verdicts["hub"], reads))
    collapsed = share(ratio(followers, reads))
    assert tiles["Hit ratio"][1] == f"and {hub} by hubs, {collapsed} collapsed"
    shares = {verdict: share(ratio(number, whole)) for verdict, number in verdicts.items()}
    assert page.evaluate(KEYS) == shares
    modes = page.evaluate(COLUMN % "'#latency .sortable'")
    assert dict(modes) == metrics.by(0)
    failed = Counter[str]()
    for code, number in page.evaluate(COLUMN % "'#errors .sortable'"):
        failed[code] += number
    statuses = metrics.by(1)
    assert failed.total() == sum(n for status, n in statuses.items() if status >= 400)


def wait_for_lines(folder: Path, count: int) -> None:
    """They are written a moment after the answers."""
    until = time.monotonic() + 30
    while sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl")) < count:
        assert time.monotonic() < until, "lines are missing"
        time.sleep(0.1)
