"""Merging small blocks, so that an old stream is a few reads and not thousands."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable

from origin.storage.base import DamagedData
from origin.storage.cluster.depot import Depot
from origin.storage.cluster.flush import Flush
from origin.storage.cluster.objects import ObjectMissing, ObjectsUnavailable
from origin.storage.cluster.packs import Block, PackWriter, decode_block, merge_runs

log = logging.getLogger("weir.storage")

MERGE_BYTES = 16 * 1024 * 1024  # read and written again by one flush, at most
NEAR_BYTES = 64 * 1024  # blocks this near to each other are one read
READ_BYTES = 8 * 1024 * 1024

Place = tuple[int, int]  # pack and offset


async def merge(
    depot: Depot, flushes: Iterable[Flush], sparse: Collection[int], writer: PackWriter
) -> None:
    """Write runs of small blocks, and blocks of sparse packs, into this pack as well."""
    runs = list(_runs(flushes, sparse))
    try:
        found = await _fetch(depot, [block for _, _, _, blocks in runs for block in blocks])
    except (ObjectsUnavailable, ObjectMissing, DamagedData) as error:
        log.warning("blocks were not merged: %s", error)
        return
    for flush, first, last, blocks in runs:
        stream_id = flush.stored.state.id
        try:
            parts = [
                part
                for block in blocks
                for part in decode_block(
                    found[block.pack, block.offset], stream_id, block, depot.pack_key(block.pack)
                ).parts()
            ]
        except DamagedData as error:  # its readers are told; the flush goes on
            log.error("blocks were not merged: %s", error)
            continue
        flush.merged.append((first, last, writer.add(stream_id, blocks[0].start, parts)))


def _runs(
    flushes: Iterable[Flush], sparse: Collection[int]
) -> Iterable[tuple[Flush, int, int, list[Block]]]:
    """(flush, first and last index, blocks), up to a limit of bytes; a block may be larger."""
    budget, is_first = MERGE_BYTES, True
    for flush in flushes:
        blocks = list(flush.stored.extents)
        taken = -1
        runs = merge_runs(flush.stored.extents)
        if sparse:
            runs += [(at, at) for at, block in enumerate(blocks) if block.pack in sparse]
        for first, last in sorted(runs):
            if first <= taken:
                continue
            run = blocks[first : last + 1]
            size_bytes = sum(block.size_bytes for block in run)
            if size_bytes > budget and not is_first:
                continue
            budget, is_first = budget - size_bytes, False
            taken = last
            yield flush, first, last, run


async def _fetch(depot: Depot, blocks: Iterable[Block]) -> dict[Place, bytes]:
    """The bytes of each block, in few reads."""
    by_pack: defaultdict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        by_pack[block.pack].append(block)
    found: dict[Place, bytes] = {}
    for pack, wanted in by_pack.items():
        wanted.sort(key=lambda block: block.offset)
        for group in _near(wanted):
            start = group[0].offset
            size = group[-1].offset + group[-1].size_bytes - start
            data = await depot.get_range(pack, start, size)
            for block in group:
                at = block.offset - start
                found[pack, block.offset] = data[at : at + block.size_bytes]
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
