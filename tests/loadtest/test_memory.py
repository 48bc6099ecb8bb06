import mmap
import os
import subprocess
import sys
from pathlib import Path

from loadtest.peers.memory import (
    MachineTicks,
    OtherWork,
    bytes_read,
    parse_cpu_ticks,
    parse_machine,
    parse_parent,
    parse_read,
    parse_status,
    process_tree,
    resident_bytes,
    watch_memory,
)

STATUS = "Name:\tweir\nPPid:\t17\nVmHWM:\t  2000 kB\nVmRSS:\t   1000 kB\nThreads:\t3\n"


def test_status_sizes_are_bytes() -> None:
    assert parse_status(STATUS) == {"VmHWM": 2_048_000, "VmRSS": 1_024_000}


def test_status_names_the_parent() -> None:
    assert parse_parent(STATUS) == 17


def test_what_was_read_from_files_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1_000_000)
    before = bytes_read(os.getpid())
    (tmp_path / "file").read_bytes()
    assert bytes_read(os.getpid()) - before >= 1_000_000
    assert parse_read("rchar: 12\nwchar: 3\n") == 12


def test_a_process_that_was_just_forked_counts_once() -> None:
    """As its parent does: both have the same pages."""
    program = """if True:
        import os
        from loadtest.peers.memory import resident_bytes
        reading, writing = os.pipe()
        alone = resident_bytes(os.getpid())
        if not os.fork():
            os.read(reading, 1)
            os._exit(0)
        print(resident_bytes(os.getpid()) / alone)
        os.write(writing, b"x")
    """
    ratio = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    assert float(ratio) < 1.5


def test_cpu_ticks_with_a_nasty_name() -> None:
    assert parse_cpu_ticks("7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 30 12 0 0 20 0 1 0") == 42


def test_machine_ticks() -> None:
    line = "cpu  10 1 20 50 9 2 1 7 99 0\ncpu0 1\n"
    assert parse_machine(line) == MachineTicks(busy=34, stolen=7, total=100)


def test_own_work_is_not_that_of_others() -> None:
    others = OtherWork([])
    sum(range(3_000_000))
    assert 0.0 <= others.cores() <= (os.cpu_count() or 1)


def test_tree_starts_with_the_process() -> None:
    assert process_tree(os.getpid())[0] == os.getpid()
    assert resident_bytes(os.getpid()) > 1_000_000


def test_growth_is_seen() -> None:
    with watch_memory(os.getpid()) as peak:
        with mmap.mmap(-1, 40_000_000) as block:  # pages the process cannot have had before
            block.write(b"x" * 40_000_000)
    assert peak.highest - peak.start > 30_000_000
