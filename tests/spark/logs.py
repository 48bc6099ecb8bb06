"""Access logs as a fleet would leave them, with every oddity that readers must live with.

What is wrong or missing is known by construction, so that tests can compare.
"""

import gzip
import os
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from protocol.accesslog import (
    ENDINGS,
    HOUR_MS,
    MODES,
    VERDICTS,
    AccessRecord,
    encode_line,
    file_name,
)

START_MS = 1_780_351_200_000  # 2026-06-01T22:00Z: the hours go over midnight
HOURS = 4
STRAY_MS = 4_070_908_800_000  # 2099: a clock that went wrong for a moment
WORKERS = (("edge-1", 0), ("edge-1", 1), ("edge-2", 0))
OLD_S = 1_700_000_000  # files that were left alone long ago

WRONG_LINES = {
    "not-json": [b"what is this", b'{"v":1,"time_ms":17', b'{"v":1}{"v":1}', b"{'v':1}"],
    "not-an-object": [b"[1,2]", b"17", b'"text"', b"null"],
    "empty": [b"", b"  "],
    "not-utf-8": [b'{"v":1,"client":"\xff\xfe"}'],
    "missing:gateway": [b'{"v":1,"time_ms":1780351200000}'],
    "missing:time_ms": [b"{}"],
}
WRONG_FIELDS = {
    "wrong-type:seq": {"seq": "7"},
    "wrong-type:status": {"status": 200.5},
    "wrong-type:duration_ms": {"duration_ms": "fast"},
    "wrong-type:bytes_sent": {"bytes_sent": {"n": 1}},
    "version": {"v": 2},
    "bad-time": {"time_ms": 17},
    "bad-value:bytes_sent": {"bytes_sent": -1},
    "bad-value:upstream_requests": {"upstream_requests": 2**60},
}


@dataclass
class Truth:
    requests: int = 0
    duplicates: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    missing: Counter[tuple[str, int]] = field(default_factory=Counter)
    starts: Counter[tuple[str, int]] = field(default_factory=Counter)


def record(rng: random.Random, gateway: str, worker: int, seq: int, time_ms: int) -> AccessRecord:
    mode = rng.choice(MODES[:9]) if rng.random() < 0.8 else rng.choice(MODES)
    verdict = rng.choice(VERDICTS)
    failed = verdict in ("refused", "error")
    role = rng.choice(("", "leader", "follower", "hub"))
    return AccessRecord(
        time_ms=time_ms,
        gateway=gateway,
        worker=worker,
        seq=seq,
        request_id=f"{rng.getrandbits(64):016x}",
        flight_id=str(rng.randrange(1000)) if role else "",
        role=role,
        client=f"192.0.2.{rng.randrange(50)}",
        subject=rng.choice(("", "alice", "bob", "zoë", 'x"y', *(f"u{n}" for n in range(30)))),
        method={"create": "PUT", "append": "POST", "close": "POST", "delete": "DELETE"}.get(
            mode, "GET"
        ),
        stream="" if mode in MODES[-3:] else f"s{min(int(rng.expovariate(0.1)), 99)}",
        mode=mode,
        offset=rng.choice(("-1", "now", "0000000000000000_0000000000000042")),
        status=rng.choice((401, 403, 404, 409, 499, 502, 503)) if failed else 200,
        verdict=verdict,
        bytes_sent=rng.randrange(100_000),
        bytes_received=rng.randrange(1000) if mode == "append" else 0,
        duration_ms=round(rng.lognormvariate(1.0, 2.5), 3),
        wait_ms=round(rng.random() * 20, 3),
        upstream_ms=round(rng.random() * 20, 3),
        upstream_requests=int(role == "leader") + int(rng.random() < 0.1),
        encoding=rng.choice(("", "gzip", "zstd")),
        ended=rng.choice(ENDINGS[1:]) if mode == "sse" else "",
        error=rng.choice(("invalid-token", "not-found", "upstream-failed")) if failed else "",
        user_agent="curl/8 \u2028\n",
    )


def odd_lines(rng: random.Random, truth: Truth) -> list[bytes]:
    """Lines that are not requests, and requests that are written in another way."""
    import msgspec

    lines = []
    for reason, texts in WRONG_LINES.items():
        lines += texts
        truth.quarantined[reason] += len(texts)
    for reason, change in WRONG_FIELDS.items():
        whole = msgspec.to_builtins(record(rng, "edge-1", 0, 1, START_MS))
        lines.append(msgspec.json.encode(whole | change))
        truth.quarantined[reason] += 1
    lines.append(b'{"v":1,"user_agent":"' + b"x" * (1024 * 1024 + 1) + b'"}')
    truth.quarantined["too-long"] += 1
    return lines


def other_writers(rng: random.Random, truth: Truth) -> list[bytes]:
    """An older gateway lacks fields that have defaults, a newer one has more."""
    import msgspec

    lines = []
    for number in range(20):
        whole = msgspec.to_builtins(record(rng, "edge-9", 3, number + 1, START_MS + number))
        for name in ("v", "role", "bytes_sent", "duration_ms", "subject"):
            if rng.random() < 0.5:
                del whole[name]
        lines.append(msgspec.json.encode({"new": {"deep": [1, None]}, **whole, "zone": "eu"}))
    truth.requests += len(lines)
    truth.starts["edge-9", 3] = 1
    return lines


def write_logs(folder: Path, lines: int, seed: int = 1) -> Truth:
    rng = random.Random(seed)
    truth = Truth()
    folder.mkdir(parents=True, exist_ok=True)
    for gateway, worker in WORKERS:
        _write_worker(folder, gateway, worker, lines // len(WORKERS), rng, truth)
    old = file_name("edge-9", 3, START_MS)
    stray = encode_line(record(rng, "edge-9", 3, 21, STRAY_MS))
    (folder / old).write_bytes(b"\n".join([*other_writers(rng, truth), stray]))
    truth.requests += 1
    odd = file_name("odd", 7, START_MS)
    cut = b'{"v":1,"time_ms":178035'
    (folder / odd).write_bytes(b"\n".join([*odd_lines(rng, truth), cut]))
    truth.quarantined["truncated"] += 1
    _copy(folder, truth)
    for name in ("README.txt", "access-edge-1-0.log", "access-edge-1-0-20260699T00.jsonl"):
        (folder / name).write_text("not ours\n")
        truth.quarantined["foreign-file"] += 1
    for path in folder.rglob("*"):
        os.utime(path, (OLD_S, OLD_S))
    return truth


def _write_worker(
    folder: Path, gateway: str, worker: int, lines: int, rng: random.Random, truth: Truth
) -> None:
    """Two processes, one after the other; each loses some lines. Long requests are written late,
    to the file of the hour they began in."""
    files: dict[str, bytearray] = {}
    seq = 0
    for number in range(lines):
        if number == lines * 5 // 8 or number == 0:
            seq = 0
            truth.starts[gateway, worker] += 1
        seq += 1
        if seq > 1 and rng.random() < 0.001 and number not in (lines * 5 // 8 - 1, lines - 1):
            truth.missing[gateway, worker] += 1
            continue
        now_ms = START_MS + number * HOURS * HOUR_MS // lines
        made = record(rng, gateway, worker, seq, now_ms)
        # None begins before its process did.
        if made.mode == "sse" and seq > lines // 8:
            made.time_ms -= rng.randrange(60_000)
        made.time_ms = max(made.time_ms, START_MS)
        name = file_name(gateway, worker, made.time_ms)
        files.setdefault(name, bytearray()).extend(encode_line(made))
        truth.requests += 1
    for name, data in files.items():
        (folder / name).write_bytes(data)


def _copy(folder: Path, truth: Truth) -> None:
    """A file copied by hand; one compressed; one compressed and still there; one torn."""
    first, second, third = (
        folder / file_name("edge-1", 0, START_MS + hour * HOUR_MS) for hour in (0, 1, 2)
    )
    late = folder / "late"
    late.mkdir(exist_ok=True)
    data = first.read_bytes()
    (late / first.name).write_bytes(data)
    truth.duplicates += data.count(b"\n")
    packed = second.with_name(second.name + ".gz")
    packed.write_bytes(gzip.compress(second.read_bytes(), 1))
    second.unlink()
    with gzip.open(third.with_name(third.name + ".gz"), "wb") as file:
        file.write(third.read_bytes())  # a whole copy beside it is not even read
    torn = gzip.compress(data, 1)
    torn = torn[: len(torn) // 2]
    (late / (first.name + ".gz")).write_bytes(torn)
    truth.duplicates += zlib.decompressobj(wbits=31).decompress(torn).count(b"\n")
    truth.quarantined["damaged-gzip"] += 1
