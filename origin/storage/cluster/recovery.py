"""From checkpoint and journal to the streams of a shard, as its new owner."""

import logging
import time
from dataclasses import dataclass, field

import msgspec

from origin.storage.base import DamagedData, StorageAway
from origin.storage.cluster.depot import Depot
from origin.storage.cluster.envelope import CheckpointRecord, Kind, decode_checkpoint
from origin.storage.cluster.flush import ColdStored
from origin.storage.cluster.journal import DamagedJournal, Journal, JournalLost, stored_bytes
from origin.storage.cluster.objects import ObjectMissing, ObjectsUnavailable
from origin.storage.cluster.packs import Extents
from origin.storage.cluster.steps import in_steps
from origin.storage.format import decode_records, decode_state
from origin.storage.stored import replay

log = logging.getLogger("weir.storage")


@dataclass(slots=True)
class Recovered:
    checkpoint: CheckpointRecord | None
    streams: dict[int, ColdStored] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    journal_bytes: int = 0


async def recover(journal: Journal, depot: Depot, node: str) -> Recovered:
    """The epoch first: from then on nobody else can write, and what is read is complete."""
    began = time.monotonic()
    end_seq = await journal.begin_epoch(node)
    found = await journal.last_checkpoint()
    record = None if found is None else decode_checkpoint(found[1])
    recovered = Recovered(record)
    if record is not None:
        await _load(recovered, depot, record)
    await _replay(recovered, journal, end_seq, 1 if record is None else record.next_batch)
    log.log(
        logging.INFO if recovered.streams else logging.DEBUG,
        "shard %d: %d streams, %d bytes replayed, %.3f s",
        journal.shard,
        len(recovered.streams),
        recovered.journal_bytes,
        time.monotonic() - began,
    )
    return recovered


async def _load(recovered: Recovered, depot: Depot, record: CheckpointRecord) -> None:
    try:
        saved = await depot.load(record)
    except ObjectsUnavailable as error:
        raise StorageAway(str(error)) from error
    except ObjectMissing as error:
        raise DamagedData(str(error), 0, "a checkpoint's object is missing") from error
    async for stream in in_steps(saved.streams):
        try:
            state = decode_state(stream.state)
            extents = Extents.from_raw(msgspec.msgpack.decode(stream.blocks))
        except ValueError as error:
            raise DamagedData(record.base, 0, f"stream {stream.id:016x}: {error}") from error
        recovered.streams[stream.id] = ColdStored(
            state, stream.flushed, state.floor, extents=extents
        )


async def _replay(recovered: Recovered, journal: Journal, end_seq: int, next_batch: int) -> None:
    """Every batch that the checkpoint does not have; a missing one is never skipped."""
    expected, covered_seq = next_batch, 0
    async for seq, batch in journal.replay(end_seq):
        if batch.number > expected:
            raise JournalLost(f"{journal.stream}: batch {expected} is missing")
        if batch.number < expected:  # the checkpoint has it
            covered_seq = seq
            continue
        expected += 1
        if batch.kind is not Kind.RECORDS:
            continue
        recovered.journal_bytes += stored_bytes(len(batch.payload))
        try:
            for each in decode_records(batch.payload):
                replay(each, recovered.streams, recovered.touched, recovered.removed, ColdStored)
        except (ValueError, KeyError) as error:
            raise DamagedJournal(journal.stream, seq, f"batch {batch.number}: {error!r}") from error
    if covered_seq:  # the owner before us did not come so far, and its journal may be full
        await journal.purge(covered_seq + 1)
