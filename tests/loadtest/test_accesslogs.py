import gzip
from collections import Counter
from pathlib import Path

import pytest

from loadtest.analytics.accesslogs import (
    BAD_LINES,
    KINDS,
    LINES_PER_HOUR,
    WORKERS,
    Written,
    plan_sheets,
    write_logs,
)
from protocol.accesslog import (
    ENDINGS,
    MODES,
    ROLES,
    VERDICTS,
    AccessRecord,
    decode_line,
    file_name,
    parse_file_name,
)

LINES = 4000


def lines_of(path: Path) -> list[bytes]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.split(b"\n")[:-1]


def read(folder: Path) -> dict[str, list[bytes]]:
    return {
        str(path.relative_to(folder)): lines_of(path)
        for path in sorted(folder.rglob("*"))
        if parse_file_name(path.name)
    }


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write_logs(folder, LINES)
    return folder


def good(lines: list[bytes]) -> list[AccessRecord]:
    return [decode_line(line) for line in lines if line not in BAD_LINES]


def test_the_same_seed_writes_the_same_lines(logs: Path, tmp_path: Path) -> None:
    write_logs(tmp_path / "again", LINES)
    write_logs(tmp_path / "other", LINES, seed=2)
    assert read(tmp_path / "again") == read(logs)
    assert read(tmp_path / "other") != read(logs)


def test_several_processes_write_what_one_does(logs: Path, tmp_path: Path) -> None:
    written = write_logs(tmp_path, LINES, processes=2)
    assert read(tmp_path) == read(logs)
    assert written.requests == LINES


def test_what_was_written_is_what_is_told(tmp_path: Path) -> None:
    written = write_logs(tmp_path, LINES)
    files = read(tmp_path)
    lines = [line for each in files.values() for line in each]
    copies = [line for line, times in Counter(lines).items() if times > 1 and line not in BAD_LINES]
    bad = sum(line in BAD_LINES for line in lines)
    assert written == Written(
        requests=LINES,
        duplicates=len(copies),
        quarantined=bad + 1,  # the foreign file
        files=len(files) + 1,
        plain_bytes=sum(len(line) + 1 for line in lines),
    )
    assert written.lines == len(lines) + 1
    assert 0 < len(copies) < LINES


def test_lines_are_requests_of_their_worker_and_hour(logs: Path) -> None:
    for name, lines in read(logs).items():
        for record in good(lines):
            plain = Path(name).name.removesuffix(".gz")
            assert file_name(record.gateway, record.worker, record.time_ms) == plain
            assert record.mode in MODES
            assert record.verdict in VERDICTS
            assert record.role in ROLES
            assert record.ended in ENDINGS
            assert bool(record.ended) == (record.mode == "sse")


def test_a_worker_counts_its_lines(logs: Path) -> None:
    records = [
        record for name, lines in read(logs).items() if "/" not in name for record in good(lines)
    ]
    for worker in WORKERS:
        numbers = [each.seq for each in records if (each.gateway, each.worker) == worker]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_few_streams_get_most_requests_and_every_kind_comes_up(logs: Path) -> None:
    records = [record for lines in read(logs).values() for record in good(lines)]
    streams = Counter(record.stream for record in records)
    most = sum(count for _, count in streams.most_common(len(streams) // 10))
    assert most > len(records) / 3
    assert len(streams) > 200
    common = {kind.mode for kind in KINDS if kind.share >= 10}
    assert common <= {record.mode for record in records}


def test_ten_times_the_lines_are_ten_times_the_hours() -> None:
    few, many = (plan_sheets(Path(), hours * LINES_PER_HOUR, 1) for hours in (2, 20))
    assert (len(few), len(many)) == (2 * len(WORKERS), 20 * len(WORKERS))
    assert few == many[: len(few)]
    assert {sheet.is_packed for sheet in few} == {True, False}
