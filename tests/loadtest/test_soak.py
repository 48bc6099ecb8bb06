"""The soak's verdict: what it forgives, and what it complains of."""

import os
import random
from collections.abc import Mapping

import pytest

from loadtest.load.records import Gauges, Run, Second, Started
from loadtest.soak.judge import TOLERANCES, Tolerance, describe, find_trend, judge
from loadtest.soak.run import TASKS, Process, Watch
from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.origin import LocalOrigin

STARTED = Started("soak", "weir", "http://127.0.0.1:1", 0.0, {}, {})
WARM_UP_SECS = 600


def run_of(growth: Mapping[str, float], *, waiting: float = 2000.0, failed: int = 0) -> Run:
    """Forty minutes of one process; after a wild warm-up its measures climb by so much."""
    records: list[Second | Gauges] = []
    for minute in range(41):
        share, wild = (minute - 10) / 30, 1000.0 * (minute < 10)
        seen = {
            f"gateway {name}": 100.0 + growth.get(name, 0.0) * share + wild for name in TOLERANCES
        }
        records.append(Gauges(minute * 60, {**seen, "waiting": waiting, "generator_cores": 0.5}))
    records.append(Second(60, "append", 10, failed={"reset": 10}))  # before it counts
    records.append(Second(1200, "append", 10_000, failed={"503": failed} if failed else {}))
    return Run([STARTED, *records])


def test_steady_processes_pass() -> None:
    verdict = judge(run_of({"memory_mb": 4.0, "descriptors": -50.0}), WARM_UP_SECS, 2000)
    assert verdict.complaints == [] and len(verdict.trends) == len(TOLERANCES)
    assert "nothing grew" in describe(verdict)


@pytest.mark.parametrize("measure", TOLERANCES)
def test_growth_of_any_kind_is_named(measure: str) -> None:
    verdict = judge(run_of({measure: 30.0}), WARM_UP_SECS, 2000)
    [complaint] = verdict.complaints
    assert complaint.startswith(f"gateway {measure} grew by 30.0")
    assert "GREW" in describe(verdict)


def test_failed_requests_count() -> None:
    assert judge(run_of({}, failed=5), WARM_UP_SECS, 2000).complaints == []
    assert "append: 503" in judge(run_of({}, failed=50), WARM_UP_SECS, 2000).complaints[0]


def test_a_crowd_that_was_not_there_proves_nothing() -> None:
    assert "1500 readers" in judge(run_of({}, waiting=1500.0), WARM_UP_SECS, 2000).complaints[0]


def test_no_samples_are_no_proof() -> None:
    run = Run([STARTED, Gauges(WARM_UP_SECS, {"waiting": 2000.0})])
    assert judge(run, WARM_UP_SECS, 2000).complaints == ["nothing was sampled after the warm-up"]


async def test_gateways_are_looked_at_together(origin: LocalOrigin) -> None:
    origin_process = Process("origin", os.getpid(), origin.port)
    first, second = (Process(f"gateway-{number}", os.getpid()) for number in range(2))
    seen = await Watch([origin_process, first, second]).look()
    assert seen["origin tasks"] > 0
    assert seen["gateway descriptors"] >= 2 * (await first.look())["gateway descriptors"] - 20
    gone = Process("gateway-2", os.getpid(), metrics_port=9)
    assert await Watch([first, gone]).look() == {}


def test_both_services_tell_their_tasks(origin: LocalOrigin) -> None:
    with LocalGateway(make_gateway_config(f"http://127.0.0.1:{origin.port}")) as gateway:
        with origin.connect() as connection:
            text = connection.request("GET", "/metrics").body.decode()
        [tasks] = TASKS.findall(text)
        assert float(tasks) > 0
        assert gateway.metric("tasks") > 0


# -- what counts as growth -------------------------------------------------------------------------

FIVE_PERCENT = Tolerance(share=0.05, least=5.0)


def every_second(values: list[float]) -> list[tuple[float, float]]:
    return list(enumerate(values))


def test_a_climb_is_measured_from_its_beginning_to_its_end() -> None:
    trend = find_trend(every_second([100 + 0.5 * n for n in range(101)]), FIVE_PERCENT)
    assert (trend.level, trend.growth) == (125.0, 50.0)
    assert not trend.is_flat


def test_noise_is_flat() -> None:
    rng = random.Random(1)
    trend = find_trend(every_second([rng.gauss(100, 10) for _ in range(200)]), FIVE_PERCENT)
    assert trend.is_flat and abs(trend.growth) < 5


def test_a_climb_within_noise_is_found() -> None:
    rng = random.Random(2)
    values = [rng.gauss(100, 10) + n / 10 for n in range(400)]
    trend = find_trend(every_second(values), FIVE_PERCENT)
    assert not trend.is_flat and 30 < trend.growth < 50


def test_a_sawtooth_is_flat() -> None:
    assert find_trend(every_second([100 + n % 20 for n in range(200)]), FIVE_PERCENT).is_flat


def test_one_jump_at_the_end_moves_nothing() -> None:
    assert find_trend(every_second([100.0] * 50 + [10_000.0]), FIVE_PERCENT).growth == 0.0


def test_what_falls_is_flat() -> None:
    assert find_trend(every_second([200.0 - n for n in range(100)]), FIVE_PERCENT).is_flat


def test_a_small_level_may_grow_by_a_fixed_amount() -> None:
    points = every_second([10.0, 12.0, 14.0])
    assert find_trend(points, FIVE_PERCENT).is_flat
    assert not find_trend(points, Tolerance(share=0.05, least=3.0)).is_flat


def test_nothing_can_be_said_of_no_samples_or_one() -> None:
    assert not find_trend([], FIVE_PERCENT).is_flat
    assert not find_trend([(0.0, 1.0)], FIVE_PERCENT).is_flat
