"""A run that is killed at any of its steps loses nothing and counts nothing twice.

`WEIR_REPORT_KILLS=20` kills at each step and some more, `WEIR_REPORT_SEED` at other moments.
"""

import io
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.progress import Progress
from spark.run import run
from tests.helpers.server import ROOT
from tests.spark.conftest import KILLS, QUICK_JAVA
from tests.spark.dying import STEPS
from tests.spark.world import World

SEED = int(os.environ.get("WEIR_REPORT_SEED", "1"))
# Where a mistake is most likely: the tables have changed and Spark does not know, or almost have.
FIRST = ("batch: linked", "state: named")
MOST_TIMES = 6  # of writes in a phase
MOST_SECS = 0.5  # from the beginning of a write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 + 300 * KILLS)]


def chosen(chance: random.Random) -> list[str]:
    others = [step for step in STEPS if step not in FIRST]
    return [*FIRST, *chance.sample(others, len(others)), *chance.choices(STEPS, k=KILLS)][:KILLS]


def run_and_kill(world: World, out: Path, step: str, chance: random.Random) -> None:
    seconds = chance.uniform(0, MOST_SECS) if step.endswith("writing") else 0
    number = chance.randint(1, MOST_TIMES) if step.endswith(("writing", "wrote")) else 1
    command = [sys.executable, "-m", "tests.spark.dying", step, str(number), str(seconds)]
    report = ["report", "--master", "local[2]", "--logs", str(world.logs), "--out", str(out)]
    ran = subprocess.run(
        [*command, *report, "--origin", world.origin],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | QUICK_JAVA,
        process_group=0,
    )
    assert ran.returncode == -signal.SIGKILL, (step, number, ran.stderr)


def test_a_run_that_is_killed_again_and_again_makes_the_same_tables(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    for step in chosen(chance):
        world.grow()
        run_and_kill(world, tmp_path, step, chance)
    world.grow()
    run(spark, world.options(tmp_path), Progress(io.StringIO()))
    world.check(spark, tmp_path)
