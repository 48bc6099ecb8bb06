"""Resident memory and CPU time of a process and its children, and of the machine, from /proc."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SAMPLE_EVERY_SECS = 0.01
IDLE_FOR_SECS = 0.2
MB = 1_000_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MachineTicks:
    """All cores since boot; stolen is what the host gave to other machines."""

    busy: int
    stolen: int
    total: int


def parse_status(text: str) -> dict[str, int]:
    """The sizes in a /proc/PID/status file, in bytes."""
    sizes = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            sizes[name] = int(words[0]) * 1024
    return sizes


def parse_parent(text: str) -> int:
    """The process id in a /proc/PID/status file that started this process."""
    return int(text.partition("\nPPid:")[2].split(maxsplit=1)[0])


def parse_cpu_ticks(text: str) -> int:
    """User and system ticks in a /proc/PID/stat file; the name in it may hold any character."""
    words = text.rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def parse_read(text: str) -> int:
    """The bytes of all read calls in a /proc/PID/io file."""
    return int(text.partition("rchar:")[2].split(maxsplit=1)[0])


def parse_machine(text: str) -> MachineTicks:
    """The first line of /proc/stat."""
    ticks = [int(word) for word in text.splitlines()[0].split()[1:9]]
    user, nice, system, idle, io_wait, hard, soft, stolen = ticks
    busy = user + nice + system + hard + soft
    return MachineTicks(busy, stolen, busy + stolen + idle + io_wait)


def read_machine() -> MachineTicks:
    return parse_machine(Path("/proc/stat").read_text())


def process_tree(pid: int) -> list[int]:
    tree = [pid]
    for parent in tree:
        for listing in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                tree += map(int, listing.read_text().split())
    return tree


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    total = 0
    spaces: dict[int, int] = {}
    for member in process_tree(pid):
        with suppress(OSError):
            status = Path(f"/proc/{member}/status").read_text()
            sizes, parent = parse_status(status), parse_parent(status)
            spaces[member] = sizes.get("VmSize", 0)
            # A child that was forked this very moment has its parent's pages, not its own.
            if spaces[member] != spaces.get(parent):
                total += sizes.get(field, 0)
    return total


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for member in process_tree(pid):
        with suppress(OSError):
            ticks += parse_cpu_ticks(Path(f"/proc/{member}/stat").read_text())
    return ticks / TICKS_PER_S


def bytes_read(pid: int) -> int:
    """What it has read from files by now, be they in the page cache or not; mapped ones apart."""
    total = 0
    for member in process_tree(pid):
        with suppress(OSError):
            total += parse_read(Path(f"/proc/{member}/io").read_text())
    return total


class OtherWork:
    """How many cores everyone but us keeps busy, from its making on: a test of the figures."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = self._now()

    def cores(self) -> float:
        busy, ours, at = (now - then for now, then in zip(self._now(), self._before, strict=True))
        return max(busy - ours, 0.0) / at if at > 0 else 0.0

    def _now(self) -> tuple[float, float, float]:
        own = sum(os.times()[:4]) + sum(cpu_seconds(pid) for pid in self._pids)
        return read_machine().busy / TICKS_PER_S, own, time.monotonic()


def await_idle(pid: int, limit_s: float) -> None:
    """Wait until the process has finished what it does in the background."""
    deadline = time.monotonic() + limit_s
    before = cpu_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(IDLE_FOR_SECS)
        now = cpu_seconds(pid)
        if now - before < IDLE_FOR_SECS * 0.1:
            return
        before = now


class PeakMemory:
    """The highest resident size seen so far, in bytes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.start = self.highest = resident_bytes(pid)

    def sample(self, field: str = "VmRSS") -> None:
        self.highest = max(self.highest, resident_bytes(self._pid, field))


@contextmanager
def watch_memory(pid: int) -> Iterator[PeakMemory]:
    """Sample until the block ends; where the kernel lets us, also its own high-water mark."""
    exact = _reset_high_water(pid)
    peak = PeakMemory(pid)
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLE_EVERY_SECS):
            peak.sample()

    watcher = threading.Thread(target=watch, name="memory watcher", daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()
        peak.sample("VmHWM" if exact else "VmRSS")


def _reset_high_water(pid: int) -> bool:
    try:
        for member in process_tree(pid):
            Path(f"/proc/{member}/clear_refs").write_text("5")
    except OSError:
        return False
    return True
