"""What compaction is worth: the way to the same state before `weir compact` and after it.

One stream, one origin, one client. The replay comes first, because compaction takes away what it
reads. Through the gateway the replay is mostly served from its cache, the bootstrap never without
asking the origin: compaction is not flattered. Every read is made twice: counting its bytes only,
and materialising its messages as they come.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from loadtest.analytics.changes import History
from loadtest.errors import RunFailedError
from loadtest.load.client import ROOT, Client, WrongAnswerError, expect, reached_tail
from loadtest.load.connection import Target
from loadtest.load.contest import Launch, Plan, Sample, Sides, Trial
from loadtest.load.goals import at_least, less
from loadtest.load.replies import Reply
from loadtest.peers.memory import MB
from loadtest.peers.names import OURS, REPLAY
from loadtest.peers.process import Server
from loadtest.peers.servers import run_weir
from loadtest.peers.tokens import read_tokens
from protocol.multipart import MultipartError, split_parts
from protocol.names import JSON_TYPE
from protocol.offsets import START
from protocol.state import Materialised, parse_message, split_array

HISTORY = History()
PATH = "bench/state"  # within the scope of the tokens
BOOTSTRAPS = 20  # in a round: each takes too short a time to be believed alone
RECLAIM_TIMEOUT_SECS = 30.0
BLOCK_BYTES = 512  # of `st_blocks`, whatever the file system's are
EMPTY_BYTES = 100_000  # folders take room too


async def try_compacted(launch: Launch, plan: Plan, history: History = HISTORY) -> Sides:
    rounds = range(plan.crowd_rounds)
    with launch() as server:
        assert server.data_dir is not None
        async with Client(Target.local(server.write_port)) as client:
            await write_changes(client, history)
            replays = [await measure_way("replay", server, 1, history) for _ in rounds]
            before = measure_disk(server.data_dir)
            start = time.perf_counter()
            run_weir("compact", f"http://127.0.0.1:{server.write_port}{ROOT}{PATH}")
            compact_s = time.perf_counter() - start
            # Nobody can replay the stream any more: what is measured next is not that.
            expect(await client.fetch(client.request("GET", PATH, f"?offset={START}")), 410)
        await_reclaimed(server.data_dir)
        after = measure_disk(server.data_dir)
        bootstraps = [await measure_way("bootstrap", server, BOOTSTRAPS, history) for _ in rounds]
    return {
        REPLAY: [*replays, Sample(before)],
        OURS: [*bootstraps, Sample({**after, "weir compact": compact_s})],
    }


async def write_changes(client: Client, history: History) -> None:
    strict = ["Stream-State: strict"]
    request = client.request("PUT", PATH, body=b"", lines=strict, content_type=JSON_TYPE)
    expect(await client.fetch(request), 201)
    for batch in history.batches():
        await client.append(PATH, batch, JSON_TYPE)


async def measure_way(way: str, server: Server, times: int, history: History) -> Sample:
    """From the origin itself, and through the gateway."""
    tokens = read_tokens(server.tokens) if server.tokens else []
    expected = history.final_state()
    sides = []
    for port in (server.write_port, server.port):
        async with Client(Target.local(port), tokens) as client:
            sides.append(await measure_reads(client, way, times, expected))
    direct, through = sides
    figures = {
        "materialised": direct["materialised"],
        "bytes only": direct["bytes only"],
        "received": direct["received"],
        "gateway, materialised": through["materialised"],
        "gateway, bytes only": through["bytes only"],
    }
    return Sample(figures, client_cpu=direct["client_cpu"])


async def measure_reads(
    client: Client, way: str, times: int, expected: Materialised
) -> dict[str, float]:
    """Median times in ms of as many reads; each must come to the expected state."""
    cpu_before = time.process_time()
    counted = [await read_state(client, way, materialises=False) for _ in range(times)]
    cpu_s = time.process_time() - cpu_before
    materialised = [await read_state(client, way, materialises=True) for _ in range(times)]
    if any(reading.state != expected for reading in materialised):
        raise WrongAnswerError(f"the {way} came to another state than was written")
    sizes = {reading.received_bytes for reading in (*counted, *materialised)}
    if len(sizes) > 1:
        raise WrongAnswerError(f"the reads came to different sizes: {sizes}")
    return {
        "bytes only": median([reading.took_s for reading in counted]) * 1000,
        "materialised": median([reading.took_s for reading in materialised]) * 1000,
        "received": sizes.pop() / 1000,
        "client_cpu": cpu_s / sum(reading.took_s for reading in counted),
    }


@dataclass(slots=True)
class Reading:
    """What one read has brought."""

    took_s: float = 0.0
    received_bytes: int = 0
    state: Materialised = field(default_factory=Materialised)


async def read_state(client: Client, way: str, *, materialises: bool) -> Reading:
    reading = Reading()
    answers, split = WAYS[way]
    await client.open_idle(1)
    start = time.perf_counter()
    async for reply in answers(client, materialises):
        reading.received_bytes += reply.body_bytes
        if materialises:
            for message in split(reply):
                reading.state.apply(parse_message(message))
    reading.took_s = time.perf_counter() - start
    return reading


def replay(client: Client, keep_body: bool) -> AsyncIterator[Reply]:
    return client.follow(PATH, keep_body=keep_body)


async def bootstrap(client: Client, keep_body: bool) -> AsyncIterator[Reply]:
    request = client.request("GET", f"{PATH}/bootstrap")
    reply = expect(await client.fetch(request, keep_body=keep_body), 200)
    if not reached_tail(reply):
        raise WrongAnswerError("the bootstrap does not reach the tail")
    yield reply


def bootstrap_messages(reply: Reply) -> Sequence[bytes]:
    try:
        parts = split_parts(reply.headers.get("content-type", ""), bytes(reply.body))
    except MultipartError as error:
        raise WrongAnswerError(f"the bootstrap is no whole multipart entity: {error}") from error
    if not parts:
        raise WrongAnswerError("the bootstrap has no parts")
    snapshot, *updates = (part.body for part in parts)
    return [*(split_array(snapshot) if snapshot else ()), *updates]


Answers = Callable[[Client, bool], AsyncIterator[Reply]]
Split = Callable[[Reply], Sequence[bytes]]
WAYS: dict[str, tuple[Answers, Split]] = {
    "replay": (replay, lambda reply: split_array(bytes(reply.body))),
    "bootstrap": (bootstrap, bootstrap_messages),
}


def measure_disk(data_dir: Path) -> dict[str, float]:
    """Journal files are allocated in advance, whatever is in them."""
    whole, journal = allocated_bytes(data_dir), allocated_bytes(data_dir / "journal")
    return {"disk": whole / MB, "without journal": (whole - journal) / MB}


def allocated_bytes(folder: Path) -> int:
    """What the disk has given to the files, holes left out; files may go while we look."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * BLOCK_BYTES
        except FileNotFoundError:
            continue
    return total


def await_reclaimed(data_dir: Path) -> None:
    """The checkpoint after a snapshot gives back what it covers, here everything."""
    deadline = time.monotonic() + RECLAIM_TIMEOUT_SECS
    while allocated_bytes(data_dir / "segments") > EMPTY_BYTES:
        if time.monotonic() > deadline:
            raise RunFailedError("what the snapshot covers was not given back")
        time.sleep(0.05)


SCENARIOS = (
    Trial(
        "compacted",
        f"{len(HISTORY):,} changes of {HISTORY.entities:,} entities",
        (
            less("materialised", "ms", at_least(50, REPLAY)),
            less("bytes only", "ms", at_least(50, REPLAY)),
            less("received", "kB", at_least(100, REPLAY)),
            less("gateway, materialised", "ms", at_least(50, REPLAY)),
            less("gateway, bytes only", "ms"),
            less("disk", "MB"),
            less("without journal", "MB"),
            less("weir compact", "s"),
        ),
        try_compacted,
    ),
)
