"""Access logs of a busy fleet, as many lines as one likes, the same for the same seed.

`python -m loadtest.analytics.accesslogs FOLDER LINES` prints one JSON line. A file first draws a
pool of requests, streams and subjects by Zipf's law, and then its lines from that pool: only time,
number and request id are a line's own, so writing costs a microsecond a line. Every second hour is
compressed. One file is there twice, one is foreign, and now and then a line is broken.
"""

import argparse
import gzip
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate, cycle
from math import ceil
from pathlib import Path

from protocol.accesslog import HOUR_MS, AccessRecord, cut_line, file_name, join_line

START_MS = 1_780_351_200_000  # 2026-06-01T22:00Z: more than two hours go over midnight
WORKERS = (("edge-1", 0), ("edge-1", 1), ("edge-2", 0), ("edge-2", 1))
LINES_PER_HOUR = 500_000  # of the fleet
STREAMS, SUBJECTS, CLIENTS = 5_000, 20_000, 30_000
STREAMS_EACH = 12  # that a subject uses
AREAS = ("chat", "orders", "agents", "documents", "sensors")
USES_OF_A_REQUEST = 5  # lines that are drawn from one in the pool
BAD_EVERY = 20_000
COPIED_WORKER = 0
BAD_LINES = (
    b'{"v":1,"time_ms":17803512',
    b"",
    b'{"v":1,"time_ms":1780351200000}',
    b"Nov 16 03:12:07 edge-1 kernel: out of memory",
)
GZIP_LEVEL = 1
ROOM_PER_LINE = 700  # bytes on the disk

AGENTS = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.4 Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/126.0.0.0 Safari/537.36",
    "node",
    "python-httpx/0.27.0",
    "okhttp/4.12.0",
)
TAIL_ENDINGS = ("rotated", "rotated", "rotated", "client-left", "client-left", "token-expired")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request: how many of 1,000 there are, and what all of them have in common."""

    share: float
    mode: str
    verdict: str
    role: str = ""
    method: str = "GET"
    status: int = 200
    error: str = ""
    typical_ms: float = 0.0  # 0: answered at once
    typical_bytes: int = 0
    longest_ms: float = 0.0  # of those that wait for news
    is_known: bool = True  # there was a valid token


KINDS = (
    Kind(430, "catch-up", "hit", typical_bytes=8_000),
    Kind(35, "catch-up", "miss", "leader", typical_ms=4, typical_bytes=8_000),
    Kind(45, "catch-up", "miss", "follower", typical_ms=3, typical_bytes=8_000),
    Kind(40, "catch-up", "revalidated", "leader", typical_ms=2, typical_bytes=2_000),
    Kind(4, "catch-up", "stale", typical_bytes=8_000),
    Kind(12, "now", "pass", typical_ms=2),
    Kind(190, "long-poll", "hub", "hub", typical_bytes=400, longest_ms=25_000),
    Kind(40, "long-poll", "hit", typical_bytes=1_500),
    Kind(30, "long-poll", "hub", "hub", status=204, longest_ms=25_000),
    Kind(55, "sse", "hub", "hub", typical_bytes=20_000, longest_ms=65_000),
    Kind(15, "head", "pass", method="HEAD", typical_ms=2),
    Kind(60, "append", "pass", method="POST", status=204, typical_ms=6),
    Kind(3, "create", "pass", method="PUT", status=201, typical_ms=7),
    Kind(2, "close", "pass", method="POST", status=204, typical_ms=6),
    Kind(4, "bootstrap", "pass", typical_ms=9, typical_bytes=60_000),
    Kind(6, "preflight", "pass", method="OPTIONS", status=204, is_known=False),
    Kind(14, "catch-up", "refused", status=401, error="invalid-token", is_known=False),
    Kind(3, "append", "refused", method="POST", status=403, error="insufficient-scope"),
    Kind(8, "catch-up", "miss", "leader", status=404, error="not-found", typical_ms=2),
    Kind(2, "long-poll", "refused", status=429, error="too-many-requests"),
    Kind(2, "catch-up", "error", "leader", status=502, error="upstream-failed", typical_ms=30),
)


@dataclass(frozen=True, slots=True)
class Written:
    """Good lines count in `requests`, and in `duplicates` where they come again."""

    requests: int
    duplicates: int
    quarantined: int
    files: int
    plain_bytes: int  # unpacked

    @property
    def lines(self) -> int:
        return self.requests + self.duplicates + self.quarantined

    def __add__(self, other: "Written") -> "Written":
        mine, theirs = asdict(self), asdict(other)
        return Written(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True, slots=True)
class Sheet:
    """One file: the lines of one worker in one hour."""

    folder: Path
    seed: int
    worker: int  # in WORKERS
    hour: int  # since START_MS
    lines: int
    first_seq: int

    @property
    def path(self) -> Path:
        name = file_name(*WORKERS[self.worker], START_MS + self.hour * HOUR_MS)
        return self.folder / (name + ".gz" if self.is_packed else name)

    @property
    def late_path(self) -> Path:
        return self.folder / "late" / self.path.name.removesuffix(".gz")

    @property
    def is_packed(self) -> bool:
        return self.hour % 2 == 1


def plan_sheets(folder: Path, lines: int, seed: int) -> list[Sheet]:
    """More lines are more hours, as many a worker and hour as in the others, or one less."""
    hours = ceil(lines / LINES_PER_HOUR)
    count = hours * len(WORKERS)
    first_seq = [1] * len(WORKERS)
    sheets = []
    for number in range(count):
        hour, worker = divmod(number, len(WORKERS))
        share = lines * (number + 1) // count - lines * number // count
        sheets.append(Sheet(folder, seed, worker, hour, share, first_seq[worker]))
        first_seq[worker] += share
    return sheets


def write_logs(folder: Path, lines: int, seed: int = 1, processes: int = 1) -> Written:
    """That many good lines, and a little that is wrong or double."""
    folder.mkdir(parents=True, exist_ok=True)
    sheets = plan_sheets(folder, lines, seed)
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            written = list(pool.map(write_sheet, sheets))
    else:
        written = list(map(write_sheet, sheets))
    (folder / "README.txt").write_text("Logs of the edge. Ask Ada before you remove any.\n")
    return sum(written, Written(0, 0, 1, 1, 0))


def write_sheet(sheet: Sheet) -> Written:
    """In blocks that end with a bad line. The first block of a gateway is there twice, as if
    somebody had copied the file by hand while it grew; its bad line is bad twice."""
    rng = random.Random(f"{sheet.seed} {sheet.worker} {sheet.hour}")
    bad_lines = cycle(BAD_LINES)
    written = Written(0, 0, 0, 1, 0)
    sheet.path.parent.mkdir(parents=True, exist_ok=True)
    opened = gzip.open(sheet.path, "wb", GZIP_LEVEL) if sheet.is_packed else sheet.path.open("wb")
    with opened as file:
        for number, lines in enumerate(_blocks(sheet, rng)):
            block = b"".join(lines) + next(bad_lines) + b"\n"
            file.write(block)
            written += Written(len(lines), 0, 1, 0, len(block))
            if number == 0 and sheet.worker == COPIED_WORKER:
                sheet.late_path.parent.mkdir(exist_ok=True)
                sheet.late_path.write_bytes(block)
                written += Written(0, len(lines), 1, 1, len(block))
    return written


def _blocks(sheet: Sheet, rng: random.Random) -> Iterator[list[bytes]]:
    gateway, worker = WORKERS[sheet.worker]
    opening = f',"gateway":"{gateway}","worker":{worker},"seq":'.encode()
    prefix = f"{rng.getrandbits(32):08x}-"
    first_ms = START_MS + sheet.hour * HOUR_MS
    pool = [_what(rng) for _ in range(ceil(sheet.lines / USES_OF_A_REQUEST))]
    for start in range(0, sheet.lines, BAD_EVERY):
        numbers = range(start, min(start + BAD_EVERY, sheet.lines))
        drawn = rng.choices(pool, k=len(numbers))
        yield [
            join_line(
                first_ms + number * HOUR_MS // sheet.lines,
                sheet.first_seq + number,
                f"{prefix}{number:x}",
                opening,
                what,
                b"",
                b"",
            )
            for number, what in zip(numbers, drawn, strict=True)
        ]


def _what(rng: random.Random) -> bytes:
    """A line from behind its request id on."""
    [kind] = rng.choices(KINDS, cum_weights=_shares())
    [subject] = rng.choices(range(SUBJECTS), cum_weights=_zipf(SUBJECTS))
    stream = _stream_of(subject, min(int(rng.expovariate(0.5)), STREAMS_EACH - 1))
    shared = f"{'hub-' if kind.role == 'hub' else ''}{rng.randrange(100_000)}"
    waited_ms = rng.random() * kind.longest_ms
    spent_ms = rng.lognormvariate(0, 0.8) * kind.typical_ms
    duration_ms = round(waited_ms + spent_ms, 3)
    is_leader = kind.role == "leader" or kind.verdict == "pass" and kind.mode != "preflight"
    is_waiting = kind.role in ("follower", "hub")
    has_body = kind.status in (200, 404, 502)
    record = AccessRecord(
        time_ms=0,
        gateway="",
        worker=0,
        seq=0,
        request_id="",
        flight_id=shared if kind.role else "",
        role=kind.role,
        client=_address(rng.randrange(CLIENTS)),
        subject=f"user-{subject}" if kind.is_known else "",
        method=kind.method,
        stream=stream,
        mode=kind.mode,
        offset=_offset(rng) if kind.method == "GET" else "",
        status=kind.status,
        verdict=kind.verdict,
        bytes_sent=int(rng.lognormvariate(0, 1.2) * kind.typical_bytes) if has_body else 0,
        bytes_received=int(rng.lognormvariate(5, 1)) if kind.mode == "append" else 0,
        duration_ms=duration_ms,
        wait_ms=duration_ms if is_waiting else 0.0,
        upstream_ms=round(spent_ms * 0.9, 3) if is_leader else 0.0,
        upstream_requests=int(is_leader or (kind.role == "hub" and rng.random() < 0.05)),
        encoding="gzip" if kind.typical_bytes > 1_000 and rng.random() < 0.7 else "",
        ended=rng.choice(TAIL_ENDINGS) if kind.mode == "sse" else "",
        error=kind.error,
        user_agent=rng.choice(AGENTS),
    )
    parts = cut_line(record)
    return parts.who + parts.what + parts.agent


@cache
def _stream_of(subject: int, choice: int) -> str:
    """A subject uses few streams, and popular ones more likely."""
    rng = random.Random(subject * STREAMS_EACH + choice)
    [stream] = rng.choices(range(STREAMS), cum_weights=_zipf(STREAMS))
    return f"{AREAS[stream % len(AREAS)]}/{stream}"


def _offset(rng: random.Random) -> str:
    return "-1" if rng.random() < 0.1 else f"{0:016d}_{rng.randrange(10**7):016d}"


def _address(number: int) -> str:
    return f"198.18.{number // 250 % 250}.{number % 250 + 1}"


@cache
def _shares() -> list[float]:
    return list(accumulate(kind.share for kind in KINDS))


@cache
def _zipf(count: int) -> list[float]:
    return list(accumulate(1 / rank for rank in range(1, count + 1)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.analytics.accesslogs")
    parser.add_argument("folder", type=Path)
    parser.add_argument("lines", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    written = write_logs(options.folder, options.lines, options.seed, os.cpu_count() or 1)
    print(json.dumps({**asdict(written), "lines": written.lines}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
