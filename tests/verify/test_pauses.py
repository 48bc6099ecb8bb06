"""Pauses of shards, and the report of a cluster's run."""

from loadtest.verify.check import Findings
from loadtest.verify.cluster.clusterreport import Tally, describe_cluster
from loadtest.verify.cluster.pauses import PULSE, find_pauses, quantile
from loadtest.verify.history import Append, Record, Round
from loadtest.verify.timeline import Violation, sort_history
from protocol.clustermap import shard_of

SHARDS = 2
STREAMS = {shard_of(name, SHARDS): name for name in map(str, range(20))}


def beat(shard: int, at: float, outcome: str = "ok") -> Append:
    return Append(
        stream=STREAMS[shard],
        who=PULSE,
        door="node-1",
        began=at - 0.1,
        ended=at,
        outcome=outcome,  # type: ignore[arg-type]
        id=f"0.pulse.{int(at * 10)}",
    )


def kill(began: float, recovered: float, *shards: int) -> Round:
    return Round(
        fault="kill-owner",
        victims=["node-1"],
        shards=list(shards),
        began=began,
        healed=recovered,
        recovered=recovered,
    )


HISTORY: list[Record] = [
    *(beat(0, at / 2) for at in range(60)),  # all the time
    *(beat(1, at / 2) for at in range(20)),  # until 9.5 s
    beat(1, 12.0, "unknown"),
    *(beat(1, at / 2) for at in range(34, 60)),  # from 17 s on
    kill(10.0, 18.0, 1),
]


def test_a_pause_lasts_from_the_fault_to_the_next_acknowledgement() -> None:
    pauses = find_pauses(sort_history(HISTORY), SHARDS)
    assert [(each.shard, round(each.secs, 3), each.was_hit) for each in pauses] == [
        (0, 0.5, False),
        (1, 7.0, True),
    ]


def test_quantiles_of_few_values() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0], 0.9) == 1.0
    assert quantile([], 0.5) == 0.0


def test_a_report_has_a_row_for_each_fault_and_the_takeovers() -> None:
    lost = Violation("lost-acknowledgement", "s", 12.0, "gone")
    tally = Tally("all", sort_history(HISTORY), Findings([lost], [], []), SHARDS)
    head, row, total, _, takeovers = describe_cluster([tally.summary()]).splitlines()
    cells = dict(zip(head.replace("longest pause", "pause").split(), row.split(), strict=False))
    assert (cells["rounds"], cells["acknowledged"], cells["unknown"]) == ("1", "106", "1")
    assert (cells["lost"], cells["doubled"], cells["pause"]) == ("1", "0", "7.0")
    assert total.split()[1:] == row.split()[1:]
    assert takeovers == "takeover after kill-owner: 1 shards, p50 7.0 s, p90 7.0 s, max 7.0 s"
