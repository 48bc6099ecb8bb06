"""A shard on a real NATS server, its objects in a folder: commits, flushes, take-overs, trouble."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from origin.staging import storage_problem
from origin.storage.base import (
    DamagedData,
    OutcomeUnknown,
    StorageAway,
    StorageFull,
    StorageLost,
)
from origin.storage.cluster import clusterstore, depot, flushes, merges
from origin.storage.cluster.clusterstore import MAX_PENDING_BYTES, ClusterStorage
from origin.storage.cluster.jetstream import Away, JetStream
from origin.storage.cluster.journal import Journal, JournalLost
from origin.storage.cluster.objects import Objects, ObjectsUnavailable
from tests.origin.storage.driver import Driver, ShardOnDisk, opened, until

NEVER = 3600.0
MIB = 1024 * 1024


def store_of(driver: Driver) -> ClusterStorage:
    assert isinstance(driver.storage, ClusterStorage)
    return driver.storage


def objects_in(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*/000/{kind}/*"))


async def flushed(driver: Driver) -> None:
    await store_of(driver).flushes.flushed()


async def test_a_flush_moves_bytes_from_journal_and_memory_to_objects(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"first,")
        await driver.append("a", b"second,")
        store, state = store_of(driver), driver.states["a"]
        assert store.read_now(state.id, 0, state.tail) == b"first,second,"
        await flushed(driver)
        assert store.read_now(state.id, 0, state.tail) is None
        assert await driver.read("a") == b"first,second,"
        assert store.flushes.used_bytes == 0
        found = await store._jetstream.state(store._journal.stream)  # type: ignore[attr-defined]
        assert found is not None and found.messages == 1  # the checkpoint's record
        assert len(objects_in(tmp_path, "packs")) == 1


async def test_a_taken_over_shard_has_everything_that_was_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(5)
    expected: dict[str, bytes] = {}
    for _ in range(6):  # each time another owner, which is killed
        async with opened("cluster", tmp_path, checkpoint_secs=0.05) as driver:
            assert {name: await driver.read(name) for name in driver.states} == expected
            for name in "abc":
                if name not in driver.states:
                    await driver.begin(name)
                    expected[name] = b""
            for _ in range(30):
                name = rng.choice("abc")
                data = rng.randbytes(rng.choice([1, 50, 3000]))
                await driver.append_when_admitted(name, data)
                expected[name] += data
            store_of(driver).abandon()


async def test_the_old_owner_is_told_that_it_lost(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as old:
        await old.begin("a", b"mine,")
        lost: list[Exception] = []
        store_of(old)._tell_lost = lost.append
        async with opened("cluster", tmp_path) as new:
            await new.append("a", b"theirs,")
            with pytest.raises(StorageLost):
                await old.append("a", b"late,")
            assert len(lost) == 1
            with pytest.raises(StorageLost):
                store_of(old).admits(1)
            assert await new.read("a") == b"mine,theirs,"


async def test_an_owner_that_lost_does_not_commit_its_flush(tmp_path: Path) -> None:
    """It has uploaded what no record names: the new owner's checkpoint stays the last one."""
    async with opened("cluster", tmp_path) as old:
        await old.begin("a", b"mine,")
        async with opened("cluster", tmp_path) as new:
            await new.append("a", b"theirs,")
            store_of(old).flushes.want()
            await until(lambda: store_of(old).failure is not None)
            await flushed(new)
        async with opened("cluster", tmp_path) as third:
            assert await third.read("a") == b"mine,theirs,"


async def test_an_append_larger_than_a_message(tmp_path: Path) -> None:
    large = bytes(range(256)) * 40_000
    async with opened("cluster", tmp_path, journal_bytes=64 * 1024 * 1024) as driver:
        await driver.begin("a", large)
        await driver.append("a", b"end")
        store_of(driver).abandon()
    async with opened("cluster", tmp_path, journal_bytes=64 * 1024 * 1024) as driver:
        assert await driver.read("a") == large + b"end"


class Silent:
    """A NATS server that does not answer publishes, until it is told to."""

    def __init__(self, storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        jetstream: JetStream = storage._jetstream  # type: ignore[attr-defined]
        self._publish = jetstream.publish
        self.is_silent = True
        monkeypatch.setattr(jetstream, "publish", self._answer)

    async def _answer(self, subject: str, data: bytes, headers: dict[str, str]) -> int:
        if self.is_silent:
            raise Away("silent")
        return await self._publish(subject, data, headers)


async def test_a_silent_journal_refuses_at_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a")
        store = store_of(driver)
        nats = Silent(store, monkeypatch)
        landed = driver.append("a", b"waits")
        await asyncio.sleep(0)
        monkeypatch.setattr(type(store._journal), "silent_secs", 60.0)
        with pytest.raises(StorageAway):
            store.admits(1)
        assert store.backpressure == "journal-silent"
        monkeypatch.undo()
        nats.is_silent = False
        await landed
        assert store.admits(1) and store.backpressure is None
        assert await driver.read("a") == b"waits"


async def fail(*_: object) -> None:
    raise ObjectsUnavailable("away")


async def test_without_objects_appends_go_on_until_the_journal_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushes, "RETRY_SECS", 0.02)
    put = Objects.put
    async with opened("cluster", tmp_path, journal_bytes=64 * 1024) as driver:
        await driver.begin("a")
        monkeypatch.setattr(Objects, "put", fail)
        stored = 0
        with pytest.raises(StorageFull, match="away"):
            while True:
                if store_of(driver).admits(1200):
                    await driver.append("a", b"x" * 1000)
                    stored += 1000
                else:
                    await asyncio.sleep(0.01)
        assert stored > 24 * 1024
        assert store_of(driver).backpressure == "objects-away"
        assert await driver.read("a") == b"x" * stored  # still in memory
        monkeypatch.setattr(Objects, "put", put)
        await until(lambda: store_of(driver).flushes.error is None)
        await driver.append_when_admitted("a", b"again")
        await flushed(driver)
        assert await driver.read("a") == b"x" * stored + b"again"


async def test_a_waiting_append_goes_on_when_a_flush_has_made_room(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path, journal_bytes=64 * 1024) as driver:
        await driver.begin("a")
        for _ in range(300):
            await driver.append_when_admitted("a", b"y" * 1000)
        assert await driver.read("a") == b"y" * 300_000


async def test_small_appends_do_not_judge_large_ones_again_that_wait_for_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, put = asyncio.Event(), Objects.put

    async def put_slowly(self: Objects, key: str, buffers: object) -> None:
        await slow.wait()
        await put(self, key, buffers)  # type: ignore[arg-type]

    monkeypatch.setattr(Objects, "put", put_slowly)
    async with opened("cluster", tmp_path, journal_bytes=64 * 1024) as driver:
        await driver.begin("a")
        store, tries, large = store_of(driver), 0, 30_000
        while store.admits(large):
            await driver.append("a", b"x" * large)

        def judge() -> None:
            nonlocal tries
            tries += 1
            if not store.admits(large):
                store.when_room(judge)

        judge()
        for _ in range(20):
            assert store.admits(10)
            await driver.append("a", b"small")
        assert tries <= 3  # not with each
        slow.set()
        await until(lambda: store.admits(large))


async def test_what_is_being_written_takes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened("cluster", tmp_path, journal_bytes=MIB) as driver:
        await driver.begin("a")
        nats = Silent(store_of(driver), monkeypatch)
        landed = driver.append("a", b"x" * 600_000)
        await asyncio.sleep(0)  # it is sealed
        assert not store_of(driver).admits(600_000)
        assert store_of(driver).admits(100_000)
        nats.is_silent = False
        await landed


async def test_an_append_above_the_limit_of_what_waits_is_taken_by_itself(tmp_path: Path) -> None:
    large = MAX_PENDING_BYTES + 1
    async with opened("cluster", tmp_path, journal_bytes=3 * large) as driver:
        assert store_of(driver).admits(large)
        landed = driver.begin("a", b"x")
        assert not store_of(driver).admits(large)
        await landed


async def test_a_shard_is_closed_at_once_while_objects_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has everything."""
    monkeypatch.setattr(clusterstore, "CLOSE_SECS", 3600.0)
    monkeypatch.setattr(flushes, "RETRY_SECS", 0.02)
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"data")
        monkeypatch.setattr(Objects, "put", fail)
    monkeypatch.undo()
    async with opened("cluster", tmp_path) as driver:
        assert await driver.read("a") == b"data"


async def test_a_new_owner_purges_what_the_last_one_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        await asyncio.Event().wait()

    async with opened("cluster", tmp_path) as driver:
        for number in range(5):
            await driver.begin(f"s{number}", b"data")
        monkeypatch.setattr(Journal, "purge", die)
        store_of(driver).flushes.want()
        await until(lambda: len(objects_in(tmp_path, "checkpoints")) == 1)
        await until(lambda: store_of(driver)._journal.next_number == 9)  # its record is there
        monkeypatch.undo()
        store_of(driver).abandon()
    async with opened("cluster", tmp_path) as driver:
        found = await store_of(driver)._jetstream.state(  # type: ignore[attr-defined]
            store_of(driver)._journal.stream
        )
        assert found.messages == 2  # that record, and the epoch's
        assert len(await driver.contents()) == 5


async def test_many_flushes_leave_few_blocks(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a")
        await driver.begin("b")
        expected = b""
        for number in range(60):
            part = b"%d," % number
            await driver.append("a", part)
            expected += part
            if number % 7 == 0:
                await driver.append("b", part)
            await flushed(driver)
        blocks = store_of(driver)._streams[driver.states["a"].id].extents
        assert len(blocks) <= 8
        assert await driver.read("a") == expected
    async with opened("cluster", tmp_path) as driver:
        assert await driver.read("a") == expected


def kept_for(secs: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushes, "KEPT_SECS", secs)


async def test_packs_that_nothing_uses_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_for(0.0, monkeypatch)
    async with opened("cluster", tmp_path) as driver:
        for name in ("keep", "drop"):
            await driver.begin(name, b"x" * 1000)
            await flushed(driver)
        assert len(objects_in(tmp_path, "packs")) == 2
        await driver.remove("drop")
        await flushed(driver)
        await until(lambda: len(objects_in(tmp_path, "packs")) == 1)
        assert await driver.read("keep") == b"x" * 1000


async def test_old_checkpoints_are_deleted(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a")
        for number in range(3 * flushes.DELTAS):
            await driver.append("a", b"%d," % number)
            await flushed(driver)
        assert len(objects_in(tmp_path, "checkpoints")) <= flushes.DELTAS + 1


def sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flush sweeps, and age does not matter."""
    monkeypatch.setattr(flushes, "FIRST_SWEEP_SECS", 0.0)
    monkeypatch.setattr(flushes, "SWEEP_SECS", 0.0)
    monkeypatch.setattr(depot, "UNNAMED_SECS", -60.0)


async def flush_twice(driver: Driver, name: str) -> None:
    """What nothing names is deleted by the second sweep that finds it."""
    for _ in range(2):
        await driver.append(name, b".")
        await flushed(driver)


async def test_objects_that_an_owner_left_behind_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeping(monkeypatch)
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"data")
        await driver.publish("a", 4, b"snapshot")
        await driver.append("a", b"more")
        await flushed(driver)
        stray = objects_in(tmp_path, "packs")[0].with_name("00000001-000000ff")
        stray.write_bytes(b"never named")
        (objects_in(tmp_path, "blobs")[0].with_name("00000000000000ff")).write_bytes(b"stray")
        await flush_twice(driver, "a")
        assert not stray.exists()
        assert len(objects_in(tmp_path, "blobs")) == 1
        assert await driver.snapshot("a") == b"snapshot"


async def test_packs_that_are_mostly_garbage_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeping(monkeypatch)
    kept_for(0.0, monkeypatch)
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("small", b"s" * 100)
        await driver.begin("large", b"l" * 20_000)
        await driver.begin("other", b"o")
        await flushed(driver)
        shared = objects_in(tmp_path, "packs")
        await driver.remove("large")
        await flush_twice(driver, "other")
        await flush_twice(driver, "other")
        await until(lambda: shared[0] not in objects_in(tmp_path, "packs"))
        assert await driver.read("small") == b"s" * 100


async def test_sparse_packs_of_quiet_streams_are_written_again_by_and_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One flush does not write all of them, and what is left is not forgotten."""
    kept_for(0.0, monkeypatch)
    monkeypatch.setattr(flushes, "MERGE_BYTES", 4_000)
    monkeypatch.setattr(merges, "MERGE_BYTES", 4_000)
    packs = 8
    async with opened("cluster", tmp_path, journal_bytes=MIB) as driver:
        for n in range(packs):
            driver.begin(f"quiet{n}", b"q" * 1500)
            await driver.begin(f"garbage{n}", b"g" * 10_000)
            await flushed(driver)
        sparse = objects_in(tmp_path, "packs")
        for n in range(packs):
            await driver.remove(f"garbage{n}")
        store_of(driver).flushes._sweep_at = 0.0
        await driver.begin("other")
        await flushed(driver)  # and a sweep
        for flush in range(packs):
            await driver.append("other", b".")
            await flushed(driver)
            left = len(set(sparse) & set(objects_in(tmp_path, "packs")))
            assert left >= packs - 3 * (flush + 1)
        await until(lambda: set(sparse).isdisjoint(objects_in(tmp_path, "packs")))
        for n in range(packs):
            assert await driver.read(f"quiet{n}") == b"q" * 1500


@pytest.mark.parametrize("how", ["damaged", "missing"])
async def test_a_pack_that_cannot_be_read_does_not_keep_others_from_being_merged(
    tmp_path: Path, how: str
) -> None:
    async with opened("cluster", tmp_path, journal_bytes=MIB) as driver:
        await driver.begin("bad", b"x" * 100)
        await flushed(driver)
        await driver.begin("good")
        (pack,) = objects_in(tmp_path, "packs")
        spoil(pack) if how == "damaged" else pack.unlink()
        for number in range(60):
            driver.append("good", b"%03d," % number)
            await driver.append("bad", b"%03d," % number)
            await flushed(driver)
        stored = store_of(driver)._streams
        counts = {name: len(stored[state.id].extents) for name, state in driver.states.items()}
        assert max(counts.values()) <= 8, counts
        state = driver.states["bad"]
        later = await store_of(driver).read(state.id, 100, state.tail)
        assert later == b"".join(b"%03d," % number for number in range(60))


@pytest.mark.parametrize("seed", range(3))
async def test_what_packs_hold_is_counted_as_blocks_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A pack that is thought to be unused is deleted."""
    sweeping(monkeypatch)
    monkeypatch.setattr(merges, "MERGE_BYTES", 8_000)
    rng = random.Random(seed)
    async with opened("cluster", tmp_path, journal_bytes=MIB) as driver:
        for step in range(300):
            name = f"s{rng.randrange(6)}"
            state = driver.states.get(name)
            if state is None:
                driver.begin(name, rng.randbytes(rng.choice([0, 10, 3000])))
            elif (choice := rng.random()) < 0.8:
                driver.append(name, rng.randbytes(rng.choice([1, 100, 3000])))
            elif choice < 0.9:
                driver.trim(name, rng.randint(state.floor, state.tail))
            elif choice < 0.93:
                driver.remove(name)
            if step % 5 == 0:
                await driver.barrier()
                await flushed(driver)
                used: Counter[int] = Counter()
                for stored in store_of(driver)._streams.values():
                    for block in stored.extents:
                        used[block.pack] += block.size_bytes
                assert store_of(driver).flushes.usage._used_bytes == used
        await driver.barrier()
        expected = {name: await driver.read(name) for name in driver.states}
        store_of(driver).abandon()
    async with opened("cluster", tmp_path) as driver:
        assert {name: await driver.read(name) for name in driver.states} == expected


async def test_a_pack_that_does_not_come_does_not_keep_others_from_being_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its stream is in every flush, because it is to be written again."""
    async with opened("cluster", tmp_path, journal_bytes=MIB) as driver:
        await driver.begin("bad", b"x" * 100)
        await flushed(driver)
        await driver.begin("good")
        store = store_of(driver)
        (bad,), get_range = store.flushes.usage.packs(), store._depot.get_range

        async def give_others(pack: int, start: int, size_bytes: int) -> bytes:
            if pack == bad:
                raise ObjectsUnavailable("an error of its own")
            return await get_range(pack, start, size_bytes)

        monkeypatch.setattr(store._depot, "get_range", give_others)
        store.flushes._sparse = {bad}
        store.flushes._scattered = {driver.states["bad"].id: 100}
        for number in range(60):
            await driver.append("good", b"%03d," % number)
            await flushed(driver)
        assert len(store._streams[driver.states["good"].id].extents) <= 8


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(bytes(data))


async def test_a_damaged_pack_is_never_served(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"data" * 100)
        await flushed(driver)
        pack = objects_in(tmp_path, "packs")[0]
        spoil(pack)
        with pytest.raises(DamagedData, match=pack.name):
            await driver.read("a")


async def test_a_damaged_checkpoint_keeps_the_shard_closed(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"data")
        await flushed(driver)
    damaged = objects_in(tmp_path, "checkpoints")[0]
    spoil(damaged)
    with pytest.raises(DamagedData, match=damaged.name):
        await ShardOnDisk(tmp_path, 64 * 1024, NEVER).recover()
    damaged.unlink()
    with pytest.raises(DamagedData, match=damaged.name):
        await ShardOnDisk(tmp_path, 64 * 1024, NEVER).recover()


@pytest.mark.parametrize("how", ["damaged", "missing"])
async def test_an_owner_writes_a_checkpoint_anew_that_it_cannot_read_back(
    tmp_path: Path, how: str
) -> None:
    """It has everything in memory, so it loses neither the shard nor time."""
    expected = {"a": b"first", "b": b"quiet"}
    async with opened("cluster", tmp_path, journal_bytes=MIB) as driver:
        lost: list[Exception] = []
        store_of(driver)._tell_lost = lost.append
        for name, data in expected.items():
            await driver.begin(name, data)
        await driver.begin("gone", b"removed later")
        await flush_twice(driver, "a")
        expected["a"] += b".."
        delta = objects_in(tmp_path, "checkpoints")[1]
        spoil(delta) if how == "damaged" else delta.unlink()
        await driver.remove("gone")
        while not store_of(driver).flushes.is_spoiled:
            await driver.append("a", b".")
            expected["a"] += b"."
            done = store_of(driver).flushes.completed
            store_of(driver).flushes.want()
            await until(lambda: store_of(driver).flushes.completed > done)  # noqa: B023
        assert lost == []  # and it is closed before anything else is written
    async with opened("cluster", tmp_path) as new:
        assert {name: await new.read(name) for name in new.states} == expected


async def test_a_journal_purged_too_far_keeps_the_shard_closed(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"data")
        await flushed(driver)
        await driver.append("a", b"more")
        await driver.append("a", b"last")
        store = store_of(driver)
        await store._journal.purge(store._journal.seq)
        store.abandon()
    with pytest.raises(JournalLost):
        await ShardOnDisk(tmp_path, 64 * 1024, NEVER).recover()


async def test_removed_before_it_was_flushed(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"x")
        await driver.begin("b", b"y")
        driver.remove("a")
        await flushed(driver)
        assert list(driver.states) == ["b"]
    async with opened("cluster", tmp_path) as driver:
        assert list(driver.states) == ["b"]


async def test_an_append_whose_batch_is_on_its_way_may_be_stored_when_the_shard_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client must not be told that it can repeat it; one that still waits here is told so."""
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a")
        Silent(store_of(driver), monkeypatch)
        sent = asyncio.ensure_future(driver.append("a", b"sent"))
        await asyncio.sleep(0)  # it is staged
        await asyncio.sleep(0)  # its batch is sealed, and has a task
        waiting = asyncio.ensure_future(driver.append("a", b"waiting"))
        await asyncio.sleep(0)
        store_of(driver).abandon()
        with pytest.raises(OutcomeUnknown) as unknown:
            await asyncio.wait_for(sent, 30)
        with pytest.raises(StorageLost) as lost:
            await asyncio.wait_for(waiting, 30)
        codes = [storage_problem(each.value).body for each in (unknown, lost)]
        assert b"unknown-outcome" in codes[0] and b"no-owner" in codes[1]


async def test_a_shard_that_was_lost_flushes_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its states are ahead of what was written: such a checkpoint would have a hole."""
    async with opened("cluster", tmp_path) as driver:
        store = store_of(driver)
        await driver.begin("a", b"first,")
        await flushed(driver)
        written = asyncio.ensure_future(driver.append("a", b"second,"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # its batch is on its way
        refused = asyncio.ensure_future(driver.append("a", b"never,"))
        await asyncio.sleep(0)
        store.flushes.want()
        # As Python 3.11 does with a cancellation that comes together with the answer.
        monkeypatch.setattr(store._writer, "abandon", lambda: None)
        store.abandon()
        await written
        with pytest.raises(StorageLost):
            await refused
        await store._writer.close()
        assert not store.flushes.is_running
    async with opened("cluster", tmp_path) as driver:
        assert await driver.read("a") == b"first,second,"
        await driver.append("a", b"third")
        await flushed(driver)
        assert await driver.read("a") == b"first,second,third"


async def test_a_cut_that_is_ahead_of_its_bytes_is_never_committed(tmp_path: Path) -> None:
    async with opened("cluster", tmp_path) as driver:
        await driver.begin("a", b"first,")
        store = store_of(driver)
        lost: list[Exception] = []
        store._tell_lost = lost.append
        driver.states["a"].tail += 5
        store.flushes.want()
        await until(lambda: lost != [])
        assert "do not reach" in str(lost[0])
    async with opened("cluster", tmp_path) as driver:
        assert await driver.read("a") == b"first,"
