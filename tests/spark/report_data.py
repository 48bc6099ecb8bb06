"""Sample data for the report: a busy day, nothing at all, and values that nobody expects."""

import math
from dataclasses import replace
from functools import cache
from random import Random

from pages.times import HOUR_MS, MINUTE_MS
from protocol.accesslog import ENDINGS, READ_VERDICTS
from spark.report.data import (
    SESSION_BORDERS_MS,
    Failure,
    Gap,
    ModeTimes,
    Moment,
    Pair,
    Percentiles,
    Quality,
    ReportData,
    Sessions,
    State,
    StateMoment,
    StreamTraffic,
    SubjectUsage,
    Totals,
    TypeState,
    choose_step,
)

FIRST_MS = 1_795_046_400_000  # 19 November 2026, midnight UTC
DAY_MS = 24 * HOUR_MS
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script></style></title><svg onload=alert(3)>",
    "' onmouseover='alert(4)",
    "javascript:alert(5)//]]>-->",
    "gnp.\u202etxt\u2066\u200b\x00\x1b[31m",
    "\ud800half a pair",
    "&lt;b&gt;&amp;",
    "x" * 4096,
    "😀/ünïcödé/漢字",
)


def percentiles(p50_ms: float, p95_ms: float, p99_ms: float) -> Percentiles:
    return Percentiles(p50_ms=p50_ms, p95_ms=p95_ms, p99_ms=p99_ms)


def nothing() -> ReportData:
    """A first run over an empty folder, without an origin."""
    totals = Totals(
        requests=0,
        verdicts={},
        hits=0,
        hub=0,
        collapsed=0,
        origin_requests=0,
        origin_reads=0,
        requests_saved=0,
        bytes_sent=0,
        bytes_received=0,
        bytes_saved=0,
        latency=None,
        errors=0,
        token_failures=0,
        streams=0,
        subjects=0,
        first_ms=0,
        last_ms=0,
        gateways=(),
        workers=0,
    )
    return ReportData(
        made_ms=FIRST_MS,
        logs="logs",
        origin="",
        notes=(),
        totals=totals,
        step_ms=MINUTE_MS,
        moments=(),
        modes=(),
        streams=(),
        subjects=(),
        sessions=Sessions(
            sessions=0,
            bytes_sent=0,
            median_ms=0.0,
            longest_ms=0.0,
            lengths=[0] * (len(SESSION_BORDERS_MS) + 1),
            endings={},
        ),
        failures=(),
        state=None,
        pairs=(),
        paired=0,
        quality=Quality(files=0, lines=0, duplicates=0, quarantined={}, gaps=()),
    )


def one_request() -> ReportData:
    """The least that can be in a log: one hit, answered at once."""
    empty = nothing()
    at_once = percentiles(0.0, 0.0, 0.0)
    return replace(
        empty,
        totals=replace(
            empty.totals,
            requests=1,
            verdicts={"hit": 1},
            hits=1,
            requests_saved=1,
            bytes_sent=12,
            bytes_saved=12,
            latency=at_once,
            streams=1,
            subjects=1,
            first_ms=FIRST_MS,
            last_ms=FIRST_MS,
            gateways=("edge1",),
            workers=1,
        ),
        step_ms=1000,
        moments=[
            Moment(
                at_ms=FIRST_MS,
                verdicts={"hit": 1},
                hits=1,
                hub=0,
                collapsed=0,
                origin_reads=0,
                requests_saved=1,
                bytes_sent=12,
                bytes_saved=12,
                errors=0,
                token_failures=0,
                latency=at_once,
            )
        ],
        modes=[replace(_modes()[0], requests=1, latency=at_once, duration_ms=0.0, wait_ms=0.0)],
        streams=[
            StreamTraffic(
                stream="a",
                requests=1,
                reads=1,
                hits=1,
                hub=0,
                collapsed=0,
                origin_requests=0,
                bytes_sent=12,
                bytes_saved=12,
                readers=1,
                latency=at_once,
            )
        ],
        quality=Quality(
            files=1,
            lines=1,
            duplicates=0,
            quarantined={},
            gaps=[Gap(gateway="edge1", worker=0, lines=1, missing=0)],
        ),
    )


@cache
def busy_day() -> ReportData:
    """What an operator would see after a day with an outage in the afternoon."""
    chance = Random(5)
    step = choose_step(FIRST_MS, FIRST_MS + DAY_MS - 1)
    moments = [_moment(chance, at, step) for at in range(FIRST_MS, FIRST_MS + DAY_MS, step)]
    streams = [_stream(chance, number) for number in range(60)]
    state = _state(chance, step)
    return replace(
        nothing(),
        made_ms=FIRST_MS + DAY_MS,
        logs="/var/log/weir",
        origin="http://origin.internal:4437",
        notes=("Two streams answered 410 and were read from their snapshots.",),
        totals=_totals(moments),
        step_ms=step,
        moments=moments,
        modes=_modes(),
        streams=streams,
        subjects=[_subject(chance, number) for number in range(40)],
        sessions=_sessions(),
        failures=_failures(),
        state=state,
        pairs=[*(_pair(chance, stream) for stream in streams), *_unread(chance)],
        paired=4211,
        quality=Quality(
            files=96,
            lines=sum(sum(m.verdicts.values()) for m in moments) + 20_831,
            duplicates=20_480,
            quarantined={"truncated": 212, "not JSON": 96, "foreign": 31, "missing field": 12},
            gaps=[
                Gap(gateway=f"edge{g}", worker=w, lines=900_000 + 11_000 * w, missing=g * w * 401)
                for g in (1, 2, 3)
                for w in range(4)
            ],
        ),
    )


def hostile() -> ReportData:
    """Every text that somebody else chooses, as somebody hostile would choose it."""
    day = busy_day()
    assert day.state is not None
    pairs = [
        replace(day.pairs[n], stream=text, reads=n % 3 * 10**n) for n, text in enumerate(HOSTILE)
    ]
    types = [replace(day.state.types[n % 7], type=text) for n, text in enumerate(HOSTILE)]
    entities = {text: 10 + n for n, text in enumerate(HOSTILE)}
    reasons = dict.fromkeys(HOSTILE, 3)
    return replace(
        day,
        logs=HOSTILE[0],
        origin=HOSTILE[1],
        notes=HOSTILE,
        totals=replace(day.totals, gateways=HOSTILE, verdicts={**day.totals.verdicts, **reasons}),
        moments=[replace(m, verdicts={**m.verdicts, **reasons}) for m in day.moments],
        modes=[replace(day.modes[0], mode=text) for text in HOSTILE],
        streams=[replace(day.streams[0], stream=text) for text in HOSTILE],
        subjects=[replace(day.subjects[0], subject=text) for text in HOSTILE],
        sessions=replace(day.sessions, endings=reasons),
        failures=[replace(day.failures[0], error=text, mode=text) for text in HOSTILE],
        state=replace(
            day.state,
            types=types,
            all_types=len(types),
            quarantined=reasons,
            moments=[replace(m, entities=entities) for m in day.state.moments],
        ),
        pairs=pairs,
        quality=replace(
            day.quality,
            quarantined=reasons,
            gaps=[replace(day.quality.gaps[0], gateway=text) for text in HOSTILE],
        ),
    )


def extremes() -> ReportData:
    """One request at the epoch, 10²⁰ of them at the end of the calendar; times from 0 to years."""
    many = 10**20
    last = 253_402_300_799_000
    step = choose_step(0, last)
    huge = percentiles(0.0, 1e-9, 1e14)
    day = busy_day()
    first = replace(
        day.moments[0],
        at_ms=0,
        verdicts={"hit": 1},
        hits=1,
        hub=0,
        collapsed=0,
        origin_reads=0,
        requests_saved=1,
        bytes_sent=0,
        bytes_saved=0,
        latency=percentiles(0.0, 0.0, 0.0),
    )
    end = replace(
        first,
        at_ms=last // step * step,
        verdicts={"miss": many, "hit": 1},
        origin_reads=many,
        bytes_sent=many,
        latency=huge,
    )
    return replace(
        day,
        step_ms=step,
        moments=[first, end],
        totals=replace(
            day.totals,
            requests=many + 2,
            verdicts={"hit": 2, "miss": many},
            hits=2,
            hub=0,
            collapsed=0,
            origin_reads=many,
            requests_saved=2,
            bytes_sent=many,
            latency=huge,
            first_ms=0,
            last_ms=last,
        ),
        modes=[replace(day.modes[0], latency=huge, duration_ms=0.0, wait_ms=0.0, upstream_ms=0.0)],
        streams=[
            replace(day.streams[0], requests=many, reads=0, hits=0, latency=huge),
            replace(day.streams[1], requests=1, bytes_sent=0, latency=None),
        ],
        pairs=[replace(day.pairs[0], entities=0, reads=many, changes=0, changed=0, growth=-many)],
    )


def _moment(chance: Random, at_ms: int, step_ms: int) -> Moment:
    hour = (at_ms - FIRST_MS) / HOUR_MS
    crowd = 1.25 + math.sin((hour - 8) / 24 * 2 * math.pi) + 0.1 * chance.random()
    reads = int(crowd * 60_000)
    down = 15 <= hour < 15.75
    cold = 0.05 + 0.05 * chance.random() + (0.2 if 6 <= hour < 7 else 0)
    miss = int(reads * cold)
    verdicts = {
        "hit": int(reads * (0.52 - cold / 2)),
        "hub": int(reads * (0.42 - cold / 2)),
        "stale": int(reads * (0.2 if down else 0.02)),
        "revalidated": int(reads * 0.04),
        "miss": 0 if down else miss,
        "pass": int(crowd * 4_000),
        "refused": int(400 + 300 * chance.random()),
        "error": int(crowd * 5_200) if down else int(3 * chance.random()),
    }
    origin_reads = 0 if down else int(miss * 0.35) + int(reads * 0.004)
    sent = int(reads * 5_100)
    slow = 18.0 if down else 1 + chance.random()
    return Moment(
        at_ms=at_ms,
        verdicts=verdicts,
        hits=verdicts["hit"] + verdicts["stale"],
        hub=verdicts["hub"],
        collapsed=int(verdicts["miss"] * 0.6),
        origin_reads=origin_reads,
        requests_saved=sum(verdicts[v] for v in READ_VERDICTS) - origin_reads,
        bytes_sent=sent,
        bytes_saved=int(sent * (1 - cold)),
        errors=verdicts["error"],
        token_failures=int(verdicts["refused"] * 0.8),
        latency=percentiles(0.31 * slow, 4.2 * slow, 31 * slow * (1 + chance.random())),
    )


def _totals(moments: list[Moment]) -> Totals:
    verdicts: dict[str, int] = {}
    for moment in moments:
        for verdict, requests in moment.verdicts.items():
            verdicts[verdict] = verdicts.get(verdict, 0) + requests
    origin_reads = sum(m.origin_reads for m in moments)
    return Totals(
        requests=sum(verdicts.values()),
        verdicts=verdicts,
        hits=sum(m.hits for m in moments),
        hub=sum(m.hub for m in moments),
        collapsed=sum(m.collapsed for m in moments),
        origin_requests=origin_reads + verdicts["pass"],
        origin_reads=origin_reads,
        requests_saved=sum(m.requests_saved for m in moments),
        bytes_sent=sum(m.bytes_sent for m in moments),
        bytes_received=1_802_113_402,
        bytes_saved=sum(m.bytes_saved for m in moments),
        latency=percentiles(0.42, 7.9, 88.3),
        errors=sum(m.errors for m in moments),
        token_failures=sum(m.token_failures for m in moments),
        streams=3_872,
        subjects=18_204,
        first_ms=FIRST_MS + 112,
        last_ms=FIRST_MS + DAY_MS - 391,
        gateways=("edge1", "edge2", "edge3"),
        workers=12,
    )


def _modes() -> list[ModeTimes]:
    rows = (
        ("catch-up", 3_950_112, (0.3, 6.1, 61.0), (0.15, 0.55)),
        ("long-poll", 1_201_440, (9_800.0, 19_990.0, 20_004.0), (0.97, 0.01)),
        ("sse", 40_231, (59_100.0, 65_800.0, 66_012.0), (0.9, 0.002)),
        ("append", 402_118, (2.1, 11.0, 48.2), (0.0, 0.83)),
        ("head", 18_204, (1.4, 5.2, 20.0), (0.0, 0.7)),
        ("bootstrap", 9_120, (14.0, 80.3, 402.0), (0.3, 0.5)),
        ("create", 612, (4.4, 21.0, 77.0), (0.0, 0.9)),
    )
    return [
        ModeTimes(
            mode=mode,
            requests=requests,
            latency=percentiles(*latency),
            duration_ms=requests * latency[0],
            wait_ms=requests * latency[0] * wait,
            upstream_ms=requests * latency[0] * upstream,
        )
        for mode, requests, latency, (wait, upstream) in rows
    ]


def _stream(chance: Random, number: int) -> StreamTraffic:
    kinds = ("chat/room", "docs/page", "/ds/game/match", "feeds/market", "agents/run")
    requests = int(2_100_000 / (number + 1) ** 1.3)
    reads = int(requests * 0.94)
    hits, hub = int(reads * chance.uniform(0.2, 0.6)), int(reads * chance.uniform(0.05, 0.3))
    slow = chance.uniform(0.5, 4)
    return StreamTraffic(
        stream=f"{kinds[number % 5]}-{chance.randrange(1, 9_999)}",
        requests=requests,
        reads=reads,
        hits=hits,
        hub=hub,
        collapsed=int((reads - hits - hub) * chance.uniform(0.3, 0.9)),
        origin_requests=int(requests * chance.uniform(0.01, 0.1)),
        bytes_sent=int(requests * chance.uniform(400, 22_000)),
        bytes_saved=int(requests * 390),
        readers=int(requests**0.6),
        latency=percentiles(0.3 * slow, 4 * slow, 40 * slow),
    )


def _subject(chance: Random, number: int) -> SubjectUsage:
    requests = int(90_000 / (number + 1) ** 0.8)
    return SubjectUsage(
        subject="" if number == 4 else f"user-{chance.randrange(10**6):06}",
        requests=requests,
        streams=chance.randrange(1, 40),
        bytes_sent=requests * chance.randrange(300, 9_000),
        bytes_received=requests * chance.randrange(0, 80),
        errors=int(requests * 0.002),
        last_ms=FIRST_MS + DAY_MS - chance.randrange(10**7),
    )


def _sessions() -> Sessions:
    endings = dict.fromkeys(ENDINGS[1:], 0) | {
        "rotated": 31_220,
        "client-left": 7_402,
        "closed": 902,
        "token-expired": 431,
        "slow": 221,
        "drained": 55,
    }
    return Sessions(
        sessions=40_231,
        bytes_sent=18_220_113_882,
        median_ms=59_100.0,
        longest_ms=66_012.0,
        lengths=[611, 902, 1_411, 1_930, 2_280, 19_902, 13_195, 0, 0, 0],
        endings=endings,
    )


def _failures() -> list[Failure]:
    rows = (
        ("upstream-timeout", 504, "catch-up", 60_112),
        ("upstream-unavailable", 502, "append", 11_902),
        ("not-found", 404, "catch-up", 4_011),
        ("offset-beyond-tail", 400, "long-poll", 902),
        ("", 499, "catch-up", 811),
        ("invalid-token", 401, "sse", 21_402),
        ("token-required", 401, "catch-up", 9_913),
        ("insufficient-scope", 403, "append", 1_204),
    )
    return [
        Failure(
            error=error,
            status=status,
            mode=mode,
            requests=requests,
            most_streams=requests // 90 + 1,
            last_ms=FIRST_MS + 16 * HOUR_MS,
        )
        for error, status, mode, requests in rows
    ]


def _state(chance: Random, step_ms: int) -> State:
    names = ("message", "presence", "player", "page", "reaction", "quote", "run")
    sizes = {name: 120_000 / (n + 1) ** 1.4 for n, name in enumerate(names)}
    moments = []
    for at in range(FIRST_MS, FIRST_MS + DAY_MS, step_ms):
        inserts, deletes = chance.randrange(2_000, 5_000), chance.randrange(500, 1_600)
        for name in names:
            sizes[name] *= 1 + chance.uniform(-0.002, 0.012)
        moments.append(
            StateMoment(
                at_ms=at,
                entities={name: int(number) for name, number in sizes.items()},
                inserts=inserts,
                updates=chance.randrange(4_000, 12_000),
                deletes=deletes,
            )
        )
    types = [
        TypeState(
            type=name,
            streams=chance.randrange(40, 900),
            entities=int(number),
            inserts=int(number * 1.4),
            updates=int(number * chance.uniform(0.1, 9)),
            deletes=int(number * 0.4),
        )
        for name, number in sizes.items()
    ]
    return State(
        streams=4_090,
        messages=2_204_118,
        quarantined={"headers must be an object": 12, "key must be a non-empty string": 3},
        types=types,
        all_types=len(types),
        step_ms=step_ms,
        moments=moments,
        left_out=0,
    )


def _pair(chance: Random, stream: StreamTraffic) -> Pair:
    entities = int(10 ** chance.uniform(0, 4.6))
    return Pair(
        stream=stream.stream,
        requests=stream.requests,
        reads=stream.reads,
        readers=stream.readers,
        bytes_sent=stream.bytes_sent,
        entities=entities,
        changes=int(entities * chance.uniform(1, 8)),
        changed=int(entities * chance.uniform(0, 1)),
        growth=int(entities * chance.uniform(-0.2, 0.5)),
    )


def _unread(chance: Random) -> list[Pair]:
    return [
        Pair(
            stream=f"archive/{2010 + number}",
            requests=number % 3,
            reads=0,
            readers=0,
            bytes_sent=0,
            entities=int(50_000 / (number + 1)),
            changes=int(60_000 / (number + 1)),
            changed=0,
            growth=0,
        )
        for number in range(14)
    ]
