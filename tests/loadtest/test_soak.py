"""The soak's verdict: what it forgives, and what it complains of."""

from collections import Counter

import pytest

from loadtest.soak.run import TASKS, TOLERANCES, Process, Record, add_up, describe, judge
from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.origin import LocalOrigin


def record_of(**growth: float) -> Record:
    """Half an hour of one process; its measures climb by so much."""
    record = Record(done=Counter({"append": 10_000}))
    for minute in range(31):
        seen = {name: 100.0 + growth.get(name, 0.0) * minute / 30 for name in TOLERANCES}
        record.add(minute * 60.0, "gateway-0", seen)
        record.waiting.append(2000.0)
    return record


def test_steady_processes_pass() -> None:
    record = record_of(memory_mb=4.0, descriptors=-50.0)
    verdict = judge(record, 2000)
    assert verdict.complaints == []
    assert "nothing grew" in describe(verdict, record)


@pytest.mark.parametrize("measure", TOLERANCES)
def test_growth_of_any_kind_is_named(measure: str) -> None:
    record = record_of(**{measure: 30.0})
    [complaint] = judge(record, 2000).complaints
    assert complaint.startswith(f"{measure} of gateway-0 grew by 30.0")
    assert "GREW" in describe(judge(record, 2000), record)


def test_gateways_are_judged_together() -> None:
    names = ("origin", "gateway-0", "gateway-1")
    looks = [(Process(name, 1), {"tasks": 10.0 + n}) for n, name in enumerate(names)]
    assert add_up(looks) == {"origin": {"tasks": 10.0}, "gateway": {"tasks": 23.0}}


def test_failed_requests_count() -> None:
    record = record_of()
    record.failed = Counter({"append: 503": 5})
    assert judge(record, 2000).complaints == []
    record.failed = Counter({"append: 503": 50})
    assert "append: 503" in judge(record, 2000).complaints[0]


def test_a_crowd_that_was_not_there_proves_nothing() -> None:
    record = record_of()
    record.waiting = [1500.0] * 31
    assert "1500 readers" in judge(record, 2000).complaints[0]


def test_no_samples_are_no_proof() -> None:
    assert judge(Record(waiting=[2000.0]), 2000).complaints == [
        "nothing was sampled after the warm-up"
    ]


def test_both_services_tell_their_tasks(origin: LocalOrigin) -> None:
    with LocalGateway(make_gateway_config(f"http://127.0.0.1:{origin.port}")) as gateway:
        with origin.connect() as connection:
            text = connection.request("GET", "/metrics").body.decode()
        [tasks] = TASKS.findall(text)
        assert float(tasks) > 0
        assert gateway.metric("tasks") > 0
