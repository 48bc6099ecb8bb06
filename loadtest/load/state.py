"""What compaction is worth: the way to the same state before `weir compact` and after it.

One stream, one origin, one client. The replay comes first, because compaction takes away what it
reads. Through the gateway the replay is mostly served from its cache, the bootstrap never without
asking the origin: compaction is not flattered.
"""

import subprocess
import time
from pathlib import Path

from loadtest.analytics.changes import History
from loadtest.errors import RunFailedError
from loadtest.load.catchup import fingerprint
from loadtest.load.client import ROOT, SETUP_TIMEOUT_S, WrongAnswerError, build_request, expect
from loadtest.load.exchange import Script, run_scripts
from loadtest.load.goals import OURS, REPLAY
from loadtest.load.origin import Launch, Plan, Sample, Sides, Trial, run_load
from loadtest.peers.memory import MB
from loadtest.peers.process import Server, weir_start
from protocol.names import JSON_TYPE
from protocol.offsets import START

HISTORY = History()
PATH = "bench/state"  # within the scope of the tokens
BOOTSTRAPS = 20  # in a round: each takes too short a time to be believed alone
COMPACT_TIMEOUT_S = 120
RECLAIM_TIMEOUT_S = 30.0
BLOCK_BYTES = 512  # of `st_blocks`, whatever the file system's are
EMPTY_BYTES = 100_000  # folders take room too


def try_compacted(launch: Launch, plan: Plan, history: History = HISTORY) -> Sides:
    rounds = range(plan.crowd_rounds)
    with launch() as server:
        assert server.data_dir is not None
        run_scripts(server.write_port, [write_changes(history)], timeout_s=SETUP_TIMEOUT_S)
        replays = [measure_reads("replay", server, 1, history) for _ in rounds]
        before = measure_disk(server.data_dir)
        start = time.perf_counter()
        compact(server.write_port)
        compact_s = time.perf_counter() - start
        run_scripts(server.write_port, [expect_gone()], timeout_s=SETUP_TIMEOUT_S)
        await_reclaimed(server.data_dir)
        after = measure_disk(server.data_dir)
        bootstraps = [measure_reads("bootstrap", server, BOOTSTRAPS, history) for _ in rounds]
    return {
        REPLAY: [*replays, Sample(before)],
        OURS: [*bootstraps, Sample({**after, "weir compact": compact_s})],
    }


def write_changes(history: History) -> Script:
    strict = ["Stream-State: strict"]
    reply = yield build_request("PUT", PATH, b"", lines=strict, content_type=JSON_TYPE)
    expect(reply, 201)
    for batch in history.batches():
        reply = yield build_request("POST", PATH, batch, content_type=JSON_TYPE)
        expect(reply, 200, 204)


def expect_gone() -> Script:
    """Nobody can replay the stream any more: what is measured next is not that."""
    reply = yield build_request("GET", PATH, query=f"?offset={START}")
    expect(reply, 410)


def measure_reads(way: str, server: Server, times: int, history: History) -> Sample:
    """From the origin itself, and through the gateway."""
    direct = run_reads(way, server.write_port, server, times, history)
    through = run_reads(way, server.port, server, times, history)
    figures = {
        "materialised": direct["materialised_s"] * 1000,
        "bytes only": direct["counted_s"] * 1000,
        "received": direct["received_bytes"] / 1000,
        "gateway, materialised": through["materialised_s"] * 1000,
        "gateway, bytes only": through["counted_s"] * 1000,
    }
    return Sample(figures, client_cpu=direct["client_cpu"])


def run_reads(
    way: str, port: int, server: Server, times: int, history: History
) -> dict[str, float]:
    result = run_load("loadtest.load.catchup", way, str(port), PATH, str(times), str(server.tokens))
    if result["fingerprint"] != fingerprint(history.final_state()):
        raise WrongAnswerError(f"the {way} came to another state than was written")
    return result


def compact(port: int) -> None:
    command = [*weir_start(), "compact", f"http://127.0.0.1:{port}{ROOT}{PATH}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPACT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError("weir compact did not end") from error
    if done.returncode:
        raise RunFailedError(f"weir compact: {done.stderr.strip()[-300:]}")


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
    deadline = time.monotonic() + RECLAIM_TIMEOUT_S
    while allocated_bytes(data_dir / "segments") > EMPTY_BYTES:
        if time.monotonic() > deadline:
            raise RunFailedError("what the snapshot covers was not given back")
        time.sleep(0.05)


STATE_SCENARIOS: tuple[Trial, ...] = (
    Trial("compacted", f"{len(HISTORY):,} changes of {HISTORY.entities:,} entities", try_compacted),
)
