import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import accesslog
from gateway.accesslog import AccessLog, NoAccessLog, open_access_log
from protocol.accesslog import HOUR_MS, AccessRecord, decode_line, file_name

FIVE = 1_794_805_200_000  # 2026-11-16 05:00 UTC
FILE = "access-gw-0-20261116T05.jsonl"

StartLog = Callable[..., AccessLog]


def record(seq: int = 0, time_ms: int = FIVE, **fields: Any) -> AccessRecord:
    return AccessRecord(
        time_ms=time_ms,
        gateway="gw",
        worker=0,
        seq=seq,
        request_id=f"r{seq}",
        method="GET",
        mode="catch-up",
        status=200,
        verdict="hit",
        **fields,
    )


def numbers(path: Path) -> list[int]:
    return [decode_line(line).seq for line in path.read_bytes().splitlines()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartLog]:
    started: list[AccessLog] = []

    def start_log(**options: Any) -> AccessLog:
        log = AccessLog(tmp_path, "gw", 0, **{"pause_secs": 0.001} | options)
        started.append(log)
        return log

    yield start_log
    for log in started:
        asyncio.run(log.close())


async def test_lines_are_in_the_file_in_order_after_close(start: StartLog, tmp_path: Path) -> None:
    log = start(pause_secs=60)
    for seq in range(1000):
        log.write(record(seq))
    assert log.waiting == 1000
    await log.close()
    assert numbers(tmp_path / FILE) == list(range(1000))
    assert (log.written, log.dropped, log.waiting) == (1000, 0, 0)


async def test_lines_appear_without_close(start: StartLog, tmp_path: Path) -> None:
    log = start()
    for seq in range(3):
        log.write(record(seq))
        await until(lambda: log.waiting == 0)
    assert numbers(tmp_path / FILE) == [0, 1, 2]


async def test_many_lines_do_not_wait_for_the_pause(start: StartLog) -> None:
    log = start(pause_secs=60)
    while log.written == 0:
        for _ in range(100):
            log.write(record())
        await asyncio.sleep(0.001)
    assert log.dropped == 0


async def test_each_record_goes_to_the_file_of_its_own_hour(
    start: StartLog, tmp_path: Path
) -> None:
    log = start()
    for seq, time_ms in enumerate([FIVE - 1, FIVE, FIVE - 1, FIVE + HOUR_MS - 1, FIVE + HOUR_MS]):
        log.write(record(seq, time_ms))
    await log.close()
    assert numbers(tmp_path / file_name("gw", 0, FIVE - HOUR_MS)) == [0, 2]
    assert numbers(tmp_path / FILE) == [1, 3]
    assert numbers(tmp_path / file_name("gw", 0, FIVE + HOUR_MS)) == [4]


async def test_one_batch_is_one_system_call(
    start: StartLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = os.write

    def write(file: int, data: bytes) -> int:
        sizes.append(len(data))
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    log = start(pause_secs=60)
    for seq in range(100):
        log.write(record(seq))
    await log.close()
    assert sizes == [(tmp_path / FILE).stat().st_size]


async def test_a_restart_appends(start: StartLog, tmp_path: Path) -> None:
    for seq in range(3):
        log = start()
        log.write(record(seq))
        await log.close()
    assert numbers(tmp_path / FILE) == [0, 1, 2]


async def test_a_torn_last_line_spoils_no_other(start: StartLog, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"v":1,"time_')
    log = start()
    log.write(record(7))
    await log.close()
    torn, whole = (tmp_path / FILE).read_bytes().splitlines()
    assert torn == b'{"v":1,"time_'
    assert decode_line(whole).seq == 7


async def test_a_full_memory_drops_and_counts(start: StartLog, tmp_path: Path) -> None:
    log = start(pause_secs=60, max_lines=10)
    for seq in range(25):
        log.write(record(seq))
    assert (log.waiting, log.dropped) == (10, 15)
    await log.close()
    assert numbers(tmp_path / FILE) == list(range(10))
    assert (log.written, log.dropped) == (10, 15)


async def test_memory_is_bounded_in_bytes_too(start: StartLog, tmp_path: Path) -> None:
    log = start(pause_secs=60, max_bytes=10_000)
    for seq in range(100):
        log.write(record(seq, stream="s" * 1000))
    await log.close()
    assert (tmp_path / FILE).stat().st_size < 12_000
    assert log.written + log.dropped == 100


async def test_lines_that_a_stuck_disk_holds_still_count_as_waiting(
    start: StartLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave, real = threading.Event(), threading.Event(), os.write

    def stuck(file: int, data: bytes) -> int:
        entered.set()
        leave.wait(10)
        return real(file, data)

    monkeypatch.setattr(os, "write", stuck)
    log = start(max_lines=2)
    log.write(record(0))
    await until(entered.is_set)
    log.write(record(1))
    log.write(record(2))
    assert (log.waiting, log.dropped) == (2, 1)
    leave.set()


async def test_a_failing_disk_is_counted_told_once_a_minute_and_survived(
    start: StartLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    log = start(clock=lambda: now[0])
    (tmp_path / FILE).mkdir()
    for seq, now[0] in enumerate([0.0, 59.0, 60.0]):
        log.write(record(seq))
        await until(lambda: log.waiting == 0)
    (tmp_path / FILE).rmdir()
    log.write(record(9))
    await log.close()
    assert (log.written, log.dropped) == (1, 3)
    assert numbers(tmp_path / FILE) == [9]
    assert [entry.levelno for entry in caplog.records] == [logging.ERROR] * 2


async def test_a_write_cut_short_by_a_full_disk_loses_only_what_is_missing(
    start: StartLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, room = os.write, [1000]

    def write(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        sent = real(file, data[: room[0]])
        room[0] -= sent
        return sent

    log = start(pause_secs=60)
    for seq in range(10):
        log.write(record(seq))
    size = len(log._batches[FIVE // HOUR_MS].data) // 10
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        log._wake.set()
        await until(lambda: log.waiting == 0)
    whole = 1000 // size
    assert (log.written, log.dropped) == (whole, 10 - whole)
    log.write(record(99))
    await log.close()
    lines = (tmp_path / FILE).read_bytes().splitlines()
    assert [decode_line(line).seq for line in lines[:whole]] == list(range(whole))
    assert decode_line(lines[-1]).seq == 99 and len(lines) == whole + 2


async def test_a_file_that_is_moved_away_is_begun_anew(start: StartLog, tmp_path: Path) -> None:
    log = start()
    log.write(record(0))
    await until(lambda: log.waiting == 0)
    (tmp_path / FILE).rename(tmp_path / "moved")
    log.write(record(1))
    await log.close()
    assert numbers(tmp_path / "moved") == [0]
    assert numbers(tmp_path / FILE) == [1]


async def test_nothing_is_lost_or_mixed_while_the_writer_takes(
    start: StartLog, tmp_path: Path
) -> None:
    log = start(pause_secs=0.00001)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.000001)  # so that the writer cuts in wherever it can
    for seq in range(20_000):
        log.write(record(seq, user_agent="\udce9" if seq % 7 == 0 else ""))
    sys.setswitchinterval(interval)
    await log.close()
    assert numbers(tmp_path / FILE) == list(range(20_000))
    assert log.written == 20_000


async def test_lines_after_close_are_dropped(start: StartLog) -> None:
    log = start()
    await log.close()
    log.write(record())
    await log.close()
    assert (log.written, log.dropped) == (0, 1)


async def test_a_stuck_disk_does_not_hold_close_up(
    start: StartLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave, real = threading.Event(), os.write
    monkeypatch.setattr(accesslog, "CLOSE_SECS", 0.01)

    def stuck(file: int, data: bytes) -> int:
        leave.wait(10)
        return real(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", stuck)
        log = start()
        log.write(record())
        await log.close()
        assert "1 lines not written" in caplog.text
        leave.set()
        await until(lambda: log.written == 1)


def test_others_may_not_read_the_files(start: StartLog, tmp_path: Path) -> None:
    log = start()
    log.write(record())
    asyncio.run(log.close())
    assert (tmp_path / FILE).stat().st_mode & 0o007 == 0


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError):
        AccessLog(tmp_path / "file" / "logs", "gw", 0)
    with pytest.raises(ValueError):
        AccessLog(tmp_path, "../gw", 0)


async def test_a_log_that_is_not_kept_has_the_same_face(tmp_path: Path) -> None:
    log = open_access_log("", "gw", 0)
    assert isinstance(log, NoAccessLog)
    log.write(record())
    await log.close()
    assert (log.written, log.dropped, log.waiting) == (0, 0, 0)
    kept = open_access_log(tmp_path / "new" / "folder", "gw", 0)
    kept.write(record())
    await kept.close()
    assert numbers(tmp_path / "new" / "folder" / FILE) == [0]
