"""The checker can fail: each bug that is planted in what makes a cluster safe is found.

It takes minutes: `make verify-cluster` runs it.
"""

import os
import sys
from pathlib import Path

import pytest

from loadtest.verify.cluster.clusterrun import Campaign, verify_faults
from loadtest.verify.cluster.machines import Shape
from tests.verify.mutants import MUTANTS

# Which faults show it, and what may be seen of it. A shard that cannot be opened any more because
# its journal contradicts itself is `unrecovered`.
LOST = {"lost-acknowledgement", "unrecovered"}
SHOWN = {
    "two-in-flight": (["freeze-nats"] * 4, LOST),
    "no-epoch-record": (["wake-owner"] * 4, LOST | {"missed-write"}),
    "early-purge": (["kill-flushing"] * 3, LOST),
    "lease-only": (["pause-owner"] * 3, LOST | {"missed-write"}),
    "stale-tail": (["pause-owner"] * 6, {"missed-write"}),
}

pytestmark = pytest.mark.skipif(
    os.environ.get("WEIR_CLUSTER_MUTANTS") != "1", reason="takes minutes: make verify-cluster"
)


def test_each_mutant_is_looked_for() -> None:
    assert set(SHOWN) == set(MUTANTS)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
async def test_a_planted_bug_is_found(tmp_path: Path, name: str) -> None:
    faults, shown = SHOWN[name]
    origin = [sys.executable, "-m", "tests.verify.mutants", name, "origin"]
    campaign = Campaign(seed=1, sequence=faults)
    told: list[str] = []
    findings = await verify_faults(
        tmp_path, campaign, Shape(gateways=0, origin=origin), told.append
    )
    assert shown & {violation.name for violation in findings.violations}, told
