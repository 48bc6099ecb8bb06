"""Which promises a history shows to be broken. Pure: the same history has the same verdict.

The order of a stream is what the origin itself said at the end of each incarnation (`Truth`).
Everything else is held against that: what writers were told, and each answer that a reader got. An
operation that overlaps a change may see either side of it; one that began after a change was
acknowledged may not see the time before it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loadtest.verify import (
    check_access,
    check_answers,
    check_cluster,
    check_freshness,
    check_writes,
)
from loadtest.verify.completeness import find_missing
from loadtest.verify.timeline import Timeline, Violation

CHECKS: tuple[Callable[[Timeline], Iterator[Violation]], ...] = (
    check_writes.lost_acknowledgements,
    check_writes.written_twice,
    check_writes.never_sent,
    check_writes.out_of_order,
    check_writes.wrong_offsets,
    check_writes.lost_producers,
    check_writes.torn_streams,
    check_answers.torn_answers,
    check_answers.truncated_answers,
    check_answers.mixed_answers,
    check_answers.broken_runs,
    check_answers.went_back,
    check_freshness.stale_incarnations,
    check_freshness.missed_writes,
    check_freshness.unfinished_looks,
    check_freshness.undelivered,
    check_freshness.reopened,
    check_freshness.vanished,
    check_access.leaked_scopes,
    check_access.dead_tokens,
    check_access.shut_out,
    check_cluster.hangs,
    check_cluster.unrecovered,
    check_cluster.wrong_forks,
)


@dataclass(frozen=True, slots=True)
class Findings:
    violations: list[Violation]
    tolerated: list[Violation]  # what the documentation excepts from its promises
    missing: list[str]  # without which the silence of the checks means nothing


def check_history(line: Timeline) -> Findings:
    found = [violation for check in CHECKS for violation in check(line)]
    excused = list(check_freshness.stale_incarnations(line, excused=True))
    by_time = sorted(found, key=lambda violation: violation.at)
    return Findings(by_time, excused, find_missing(line))
