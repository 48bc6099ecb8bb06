"""Merging small blocks, so that an old stream is a few reads and not thousands."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from origin.storage.base import DamagedData
from origin.storage.cluster.depot import Depot
from origin.storage.cluster.flush import Flush
from origin.storage.cluster.objects import ObjectMissing, ObjectsUnavailable
from origin.storage.cluster.packs import Block, PackWriter, decode_block, merge_runs
from origin.storage.cluster.steps import in_steps

log = logging.getLogger("weir.storage")

MERGE_BYTES = 16 * 1024 * 1024  # read and written again by one flush, at most
NEAR_BYTES = 64 * 1024  # blocks this near to each other are one read
READ_BYTES = 8 * 1024 * 1024
MOST_AWAY = 2  # packs that are tried although object storage did not give them

Place = tuple[int, int]  # pack and offset


class Run(NamedTuple):
    """Neighbouring blocks of a stream, to be written as one."""

    flush: Flush
    first: int
    last: int
    blocks: list[Block]


async def merge(
    depot: Depot,
    flushes: Sequence[Flush],
    sparse: Collection[int],
    unreadable: set[int],
    writer: PackWriter,
) -> None:
    """Write runs of small blocks, and blocks of sparse packs, into this pack as well. Packs that
    cannot be read are added to `unreadable`; their blocks stay where they are."""
    runs = await _find_runs(flushes, sparse, unreadable)
    found = await _fetch(depot, [block for run in runs for block in run.blocks], unreadable)
    for run in runs:
        if all((block.pack, block.offset) in found for block in run.blocks):
            _write(depot, run, found, unreadable, writer)
            await asyncio.sleep(0)


def _write(
    depot: Depot,
    run: Run,
    found: Mapping[Place, bytes],
    unreadable: set[int],
    writer: PackWriter,
) -> None:
    stream_id = run.flush.stored.state.id
    parts: list[bytes] = []
    for block in run.blocks:
        data, key = found[block.pack, block.offset], depot.pack_key(block.pack)
        try:
            parts += decode_block(data, stream_id, block, key).parts()
        except DamagedData as error:  # its readers are told; the flush goes on
            log.error("blocks were not merged: %s", error)
            unreadable.add(block.pack)
            return
    blocks = writer.add(stream_id, run.blocks[0].start, parts)
    run.flush.merged.append((run.first, run.last, blocks))


async def _find_runs(
    flushes: Sequence[Flush], sparse: Collection[int], unreadable: Collection[int]
) -> list[Run]:
    """Up to a limit of bytes for small blocks, and one for sparse packs; a block may be larger."""
    small, rare = _Budget(), _Budget()
    found = []
    async for flush in in_steps(flushes):
        extents, taken = flush.stored.extents, -1
        runs = [(first, last, small) for first, last in merge_runs(extents, unreadable=unreadable)]
        if sparse:
            wanted = set(sparse) - set(unreadable)
            runs += [(at, at, rare) for at, pack in enumerate(extents.packs()) if pack in wanted]
            runs.sort(key=itemgetter(0, 1))
        for first, last, budget in runs:
            if first <= taken:
                continue
            blocks = [extents[index] for index in range(first, last + 1)]
            if budget.allows(sum(block.size_bytes for block in blocks)):
                taken = last
                found.append(Run(flush, first, last, blocks))
    return found


class _Budget:
    def __init__(self) -> None:
        self._left_bytes = MERGE_BYTES
        self._is_first = True

    def allows(self, size_bytes: int) -> bool:
        if size_bytes > self._left_bytes and not self._is_first:
            return False
        self._left_bytes -= size_bytes
        self._is_first = False
        return True


async def _fetch(depot: Depot, blocks: Iterable[Block], unreadable: set[int]) -> dict[Place, bytes]:
    """The bytes of each block, in few reads, without those that cannot be read."""
    by_pack: defaultdict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        by_pack[block.pack].append(block)
    found: dict[Place, bytes] = {}
    away: set[int] = set()
    for pack, wanted in by_pack.items():
        if len(away) >= MOST_AWAY:  # it is object storage, and not these packs
            break
        wanted.sort(key=lambda block: block.offset)
        for group in _near(wanted):
            start = group[0].offset
            size = group[-1].offset + group[-1].size_bytes - start
            try:
                data = await depot.get_range(pack, start, size)
            except (ObjectMissing, DamagedData) as error:
                log.error("a pack stays as it is: %s", error)
                unreadable.add(pack)
                break
            except ObjectsUnavailable as error:
                log.warning("blocks were not merged: %s", error)
                away.add(pack)
                break
            for block in group:
                at = block.offset - start
                found[pack, block.offset] = data[at : at + block.size_bytes]
    if found:  # others can be read: these must not delay every flush
        unreadable |= away
    return found


def _near(blocks: list[Block]) -> Iterable[list[Block]]:
    group: list[Block] = []
    for block in blocks:
        if group:
            end = group[-1].offset + group[-1].size_bytes
            size = block.offset + block.size_bytes - group[0].offset
            if block.offset - end > NEAR_BYTES or size > READ_BYTES:
                yield group
                group = []
        group.append(block)
    if group:
        yield group
