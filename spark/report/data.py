"""The input of the report: plain numbers from the tables. Pure.

Counts are here, ratios are computed in the report. Lists of streams, subjects and pairs have only
the largest ones, with the total number next to them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pages.times import MINUTE_MS, STEPS_MS

# Boundaries between the bars of the SSE session histogram; the last bar is open-ended.
SESSION_BORDERS_MS = (1_000, 5_000, 15_000, 30_000, 45_000, 60_000, 90_000, 300_000, 3_600_000)

MAX_SLOTS = 120  # most slots of a chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of `duration_ms`."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of everything in the tables."""

    requests: int  # log lines without duplicates and quarantined ones
    verdicts: Mapping[str, int]  # requests by verdict
    hits: int  # these three are disjoint parts of the reads, as in StreamTraffic
    hub: int
    collapsed: int
    origin_requests: int  # sum of `upstream_requests`
    origin_reads: int  # of it, for reads
    requests_saved: int  # reads that caused no origin request
    bytes_received: int  # bodies, from clients
    bytes_sent: int  # bodies, to clients
    bytes_saved: int  # of it, for reads that caused no origin request
    latency: Percentiles | None  # without long-polls and SSE, which wait by design
    errors: int  # status 500 and above, and verdict `error`
    token_failures: int  # status 401 and 403
    streams: int  # distinct
    subjects: int  # distinct, without the empty one
    first_ms: int  # earliest and latest `time_ms` in charts; both 0 without requests
    last_ms: int
    gateways: Sequence[str]
    workers: int  # pairs of gateway and worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Traffic of one step of `ReportData.step_ms`; steps without requests may be absent."""

    at_ms: int  # its beginning, a multiple of the step
    verdicts: Mapping[str, int]
    hits: int  # as in the totals
    hub: int
    collapsed: int
    origin_reads: int
    requests_saved: int
    bytes_sent: int
    bytes_saved: int
    errors: int  # as in the totals
    token_failures: int
    latency: Percentiles | None  # as in the totals


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeTimes:
    """Where the time of one mode's requests went, summed over all its requests."""

    mode: str
    requests: int
    latency: Percentiles
    duration_ms: float
    wait_ms: float
    upstream_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTraffic:
    """One stream; hits, hub and collapsed are disjoint parts of `reads`."""

    stream: str
    requests: int
    reads: int
    hits: int  # verdicts `hit` and `stale`, without collapsed ones
    hub: int  # verdict `hub`
    collapsed: int  # role `follower`: waited for another request's fetch
    origin_requests: int
    bytes_sent: int
    bytes_saved: int
    readers: int  # distinct subjects
    latency: Percentiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectUsage:
    subject: str  # empty: no valid token
    requests: int
    streams: int
    bytes_sent: int
    bytes_received: int
    errors: int  # status 400 and above
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """SSE responses that were opened."""

    sessions: int
    bytes_sent: int
    median_ms: float  # truncated to two digits
    longest_ms: float
    lengths: Sequence[int]  # one more than SESSION_BORDERS_MS; a boundary belongs to the upper bar
    endings: Mapping[str, int]  # by reason, one of protocol.accesslog.ENDINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Requests with the same failure."""

    error: str  # code of the problem; may be empty
    status: int
    mode: str
    requests: int
    most_streams: int  # on one day
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeState:
    """Entities of one type, in all streams read."""

    type: str
    streams: int
    entities: int
    inserts: int
    updates: int
    deletes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMoment:
    """One step of `State.step_ms`; steps without changes may be absent."""

    at_ms: int
    entities: Mapping[str, int]  # by type, at its end; types are those of `State.types`
    inserts: int
    updates: int
    deletes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    streams: int  # that were read
    messages: int  # of them, changes and controls
    quarantined: Mapping[str, int]  # invalid messages, by reason
    types: Sequence[TypeState]  # the largest ones; an empty name stands for all others
    all_types: int  # how many there are
    step_ms: int
    moments: Sequence[StateMoment]  # empty if the messages have no times
    left_out: int  # changes with future times, which are in no moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One stream's traffic and state; the streams with the most reads, the most entities, and the
    most unread entities."""

    stream: str
    requests: int
    reads: int
    readers: int
    bytes_sent: int
    entities: int
    changes: int  # inserts, updates and deletes
    # On the days of the log; None if the stream's messages have no times.
    changed: int | None  # entities
    growth: int | None  # of the number of entities


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Missing numbers in one worker's `seq`."""

    gateway: str
    worker: int
    lines: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """lines = accepted + duplicates + quarantined"""

    files: int
    lines: int
    duplicates: int
    quarantined: Mapping[str, int]  # lines by reason
    gaps: Sequence[Gap]  # of all workers, including those without gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    made_ms: int
    logs: str  # where the lines came from
    origin: str  # where the streams came from, without secrets; empty if none were read
    notes: Sequence[str]  # remarks of the run, in full sentences
    totals: Totals
    step_ms: int  # see choose_step
    moments: Sequence[Moment]
    modes: Sequence[ModeTimes]
    streams: Sequence[StreamTraffic]  # by requests, the most first; `totals.streams` are there
    subjects: Sequence[SubjectUsage]  # by requests, the most first; `totals.subjects` are there
    sessions: Sessions
    failures: Sequence[Failure]  # every status of 400 and above, and verdict `error`
    state: State | None  # None if no streams were read
    pairs: Sequence[Pair]
    paired: int  # streams that the join has
    quality: Quality


def choose_days(requests: Mapping[date, int], files: Sequence[date], today: date) -> set[date]:
    """The days shown in charts. A line's time should match its file and not be in the future: one
    line from a wrong clock would stretch every chart. If most lines do not match, the file names
    or our own clock are wrong."""
    if not files:
        return set(requests)
    last = min(max(files), today + timedelta(days=1))
    drawn = {day for day in requests if min(files) <= day <= last}
    most = 2 * sum(requests[day] for day in drawn) > sum(requests.values())
    return drawn if most else set(requests)


def choose_step(first_ms: int, last_ms: int, finest_ms: int = MINUTE_MS) -> int:
    """The finest step with at most MAX_SLOTS between the two times."""
    for step in STEPS_MS:
        if step >= finest_ms and last_ms // step - first_ms // step < MAX_SLOTS:
            return step
    return last_ms - first_ms + 1
