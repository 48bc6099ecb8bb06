"""Which journal file takes the next batch, told without a disk."""

import asyncio
import errno
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import cast

from origin.storage.format import BATCH_HEADER, JOURNAL_HEADER_BYTES
from origin.storage.journal import Journal, JournalFile
from origin.storage.journalfiles import JournalFiles
from origin.storage.opening import Opened
from origin.storage.recovery import Recovered
from tests.origin.storage.driver import until

ROOM_BYTES = 1000
CAPACITY = JOURNAL_HEADER_BYTES + BATCH_HEADER.size + ROOM_BYTES


def make_file(number: int) -> JournalFile:
    return JournalFile(number, f"{number}.journal", -1, salt=7, capacity=CAPACITY)


class FakeJournal:
    def __init__(self) -> None:
        self.errors: list[OSError] = []

    def create_file(self, number: int) -> JournalFile:
        if self.errors:
            raise self.errors.pop()
        return make_file(number)


class World:
    def __init__(self, workers: ThreadPoolExecutor, max_files: int) -> None:
        self.journal = FakeJournal()
        self.changes = 0
        recovered = Recovered({}, 5, 0, frozenset(), b"")
        self.files = JournalFiles(
            cast(Journal, self.journal),
            Opened(recovered, [], make_file(1), make_file(2), None),
            workers,
            max_files=max_files,
            retry_s=0.01,
            on_change=self._count,
        )

    def _count(self) -> None:
        self.changes += 1

    async def spare(self) -> None:
        await until(lambda: self.files.spare is not None)


@asynccontextmanager
async def opened(max_files: int = 3) -> AsyncIterator[World]:
    with ThreadPoolExecutor(1) as workers:
        world = World(workers, max_files)
        yield world
        await world.files.close()


def numbers(files: list[JournalFile]) -> list[int]:
    return [file.number for file in files]


async def test_a_batch_that_does_not_fit_goes_to_the_next_file() -> None:
    async with opened() as world:
        places = [world.files.place(size) for size in (600, 600, 100)]
        found = [(p.file.number, p.number, p.position) for p in places if p]
        second = JOURNAL_HEADER_BYTES + BATCH_HEADER.size + 600
        assert found == [(1, 5, JOURNAL_HEADER_BYTES), (2, 6, JOURNAL_HEADER_BYTES), (2, 7, second)]
        assert numbers(world.files.older) == [1]
        await world.spare()
        assert world.changes == 1 and world.files.spare and world.files.spare.number == 3


async def test_without_a_spare_only_the_current_file_admits() -> None:
    async with opened() as world:
        assert world.files.admits(ROOM_BYTES) and not world.files.admits(ROOM_BYTES + 1)
        world.files.place(600)
        assert world.files.admits(ROOM_BYTES)  # in the spare
        world.files.place(600)
        room = ROOM_BYTES - 600 - BATCH_HEADER.size
        assert world.files.admits(room) and not world.files.admits(room + 1)
        assert world.files.place(room + 1) is None
        await world.spare()
        assert world.files.place(room + 1) is not None


async def test_a_hand_over_takes_all_files_but_the_spare() -> None:
    async with opened() as world:
        world.files.place(600)
        world.files.place(600)
        await world.spare()
        assert numbers(world.files.hand_over()) == [1, 2]
        assert (world.files.current.number, world.files.older) == (3, [])


async def test_files_pile_up_to_the_limit_while_others_are_retired() -> None:
    async with opened(max_files=2) as world:
        world.files.hand_over()
        world.files.begin_retiring()
        await world.spare()
        world.files.place(600)
        world.files.place(600)  # in the last file that there may be
        await asyncio.sleep(0.05)
        assert world.files.spare is None and world.files.place(600) is None
        world.files.end_retiring()
        await world.spare()


async def test_a_spare_that_cannot_be_made_is_tried_again() -> None:
    async with opened() as world:
        world.journal.errors = [OSError(errno.ENOSPC, "full") for _ in range(2)]
        world.files.hand_over()
        await until(lambda: world.changes == 1)
        assert world.files.no_space is not None and world.files.spare is None
        await world.spare()
        assert world.files.no_space is None and world.changes == 3
