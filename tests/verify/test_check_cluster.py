"""What a cluster promises beyond one machine, over histories written by hand."""

from typing import Any

import pytest

from loadtest.verify.check import check_history
from loadtest.verify.check_cluster import GRACE_SECS, HANG_SECS
from loadtest.verify.history import End, ForkResult, Record, Round, Stall
from loadtest.verify.timeline import Violation, sort_history
from tests.verify.honest import STREAM, Honest, offset

TOO_LONG = HANG_SECS + GRACE_SECS + 0.1


@pytest.fixture
def stream() -> Honest:
    honest = Honest()
    honest.create()
    for producer in ("p0", "p0", "plain"):
        honest.append(producer)
    return honest


def find(honest: Honest, *more: Record) -> list[Violation]:
    records = [*honest.records, *more, End(at=honest.moment()[1])]
    return check_history(sort_history(records)).violations


def names(honest: Honest, *more: Record) -> set[str]:
    return {violation.name for violation in find(honest, *more)}


def round_of(**different: Any) -> Round:
    told = {"fault": "kill-owner", "victims": ["node-1"], "shards": [1], "began": 0.0}
    return Round(**{**told, "healed": 1000.0, "recovered": 1001.0, **different})


# -- writers without numbers -----------------------------------------------------------------------


def test_a_plain_writer_may_leave_gaps_but_must_find_what_was_acknowledged(stream: Honest) -> None:
    stream.append("plain", outcome="unknown", status=503)
    stream.ids.pop()
    stream.append("plain")
    stream.audit()
    assert names(stream) == set()
    stream.append("plain", status=204)
    stream.ids.pop()
    stream.audit()
    assert "lost-acknowledgement" in names(stream)


def test_a_plain_append_that_is_there_twice_is_found(stream: Honest) -> None:
    stream.ids.append(stream.ids[-1])
    stream.audit()
    assert "written-twice" in names(stream)


def test_what_a_plain_writer_was_told_is_seen_by_readers_after_it(stream: Honest) -> None:
    stream.append("plain", status=204)
    stream.read(next=offset(3), ids=stream.ids[:3], up_to_date=True)
    stream.audit()
    assert names(stream) == {"missed-write"}


def test_a_head_has_the_tail(stream: Honest) -> None:
    head: dict[str, Any] = {"asked": "", "mode": "head", "ids": [], "up_to_date": True}
    stream.read(next=offset(3), **head)
    stream.audit()
    assert names(stream) == set()
    stream.read(next=offset(2), **head)
    assert names(stream) == {"missed-write"}


# -- time ------------------------------------------------------------------------------------------


def test_a_request_that_waits_too_long_hangs(stream: Honest) -> None:
    stream.audit()
    read = stream.read(door="node-2")
    read.ended = read.began + TOO_LONG
    assert names(stream, round_of()) == {"hang"}
    assert names(stream) == set()  # in front of one origin other limits hold


def test_a_large_body_may_take_its_time_once_it_has_begun(stream: Honest) -> None:
    stream.audit()
    read = stream.read(door="node-2")
    read.answered, read.ended = read.began + 1, read.began + TOO_LONG
    assert names(stream, round_of()) == set()
    read.answered = read.ended
    assert names(stream, round_of()) == {"hang"}


@pytest.mark.parametrize("mode", ["snapshot", "bootstrap"])
def test_what_takes_two_requests_may_take_twice_as_long(stream: Honest, mode: str) -> None:
    stream.audit()
    read = stream.read(door="gateway-1", mode=mode)
    read.ended = read.began + 2 * HANG_SECS
    assert names(stream, round_of()) == set()
    read.ended = read.began + 2 * TOO_LONG
    assert names(stream, round_of()) == {"hang"}


def test_a_client_that_did_not_run_says_nothing_about_servers(stream: Honest) -> None:
    stream.audit()
    read = stream.read(door="node-2")
    read.ended = read.began + TOO_LONG
    stall = Stall(began=read.began + 1, ended=read.began + 3)
    assert names(stream, round_of(), stall) == set()


def test_who_waits_for_news_does_not_hang(stream: Honest) -> None:
    stream.audit()
    stream.read(door="node-2", mode="long-poll").ended += TOO_LONG
    assert names(stream, round_of()) == set()


def test_a_stopped_process_cannot_answer(stream: Honest) -> None:
    stream.audit()
    read = stream.read(door="node-1")
    read.ended = read.began + TOO_LONG
    assert names(stream, round_of(paused=True)) == set()
    assert names(stream, round_of(paused=True, victims=["node-2"])) == {"hang"}
    assert names(stream, round_of(paused=True, healed=1.0)) == {"hang"}


def test_a_shard_that_takes_no_writes_again_is_told_with_its_reason(stream: Honest) -> None:
    stream.audit()
    [found] = find(stream, round_of(recovered=0.0, stuck=["shard 3 is offline"]))
    assert found.name == "unrecovered" and "shard 3 is offline" in found.text


# -- forks -----------------------------------------------------------------------------------------


def fork_of(honest: Honest, **different: Any) -> ForkResult:
    """After two messages of its source, with two of its own."""
    began, ended = honest.moment()
    own = ["0.e0.0", "0.e0.1"]
    told = {
        **{"stream": "fork", "source": STREAM, "generation": 0, "offset": offset(2)},
        **{"door": "node-1", "began": began, "ended": ended, "acknowledged": own},
        "ids": [f"{STREAM}/{id_}" for id_ in honest.ids[:2]] + own,
    }
    return ForkResult(**{**told, **different})


def test_a_whole_fork_breaks_no_promise(stream: Honest) -> None:
    fork = fork_of(stream)
    stream.audit()
    assert names(stream, fork) == set()


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        (["0.p0.0", "+0.e0.0", "+0.e0.1"], "wrong-fork"),
        (["0.p0.0", "0.p0.1", "0.plain.0", "+0.e0.0", "+0.e0.1"], "wrong-fork"),
        (["0.p0.0", "0.p0.1", "+0.e0.0"], "lost-acknowledgement"),
        (["0.p0.0", "0.p0.1", "+0.e0.0", "+0.e0.0", "+0.e0.1"], "written-twice"),
        (["0.p0.0", "0.p0.1", "+0.e0.1", "+0.e0.0"], "out-of-order"),
        (["0.p0.0", "+0.e0.0", "0.p0.1", "+0.e0.1"], "fork-order"),
    ],
    ids=["short", "long", "lost", "doubled", "reordered", "mixed"],
)
def test_a_broken_fork_is_found(stream: Honest, ids: list[str], name: str) -> None:
    shown = [id_[1:] if id_.startswith("+") else f"{STREAM}/{id_}" for id_ in ids]
    fork = fork_of(stream, ids=shown)
    stream.audit()
    assert names(stream, fork) == {name}


def test_a_fork_of_another_incarnation_is_not_judged(stream: Honest) -> None:
    fork = fork_of(stream, generation=1, ids=["0.e0.0", "0.e0.1"])
    stream.audit()
    assert names(stream, fork) == set()
