"""Where a fork begins: at a message boundary of its source, or a little behind one."""

from collections.abc import Mapping

from origin.chunks import Chunks
from origin.messages import prefix_length
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.requests import ForkOf

MAX_FORK_DEPTH = 256  # a read may walk all of it


def check_depth(streams: Mapping[int, Stream], source: Stream) -> None:
    """Refuse a fork of the last of too many forks."""
    above = source.state.fork
    for _ in range(MAX_FORK_DEPTH - 1):
        if above is None:
            return
        above = streams[above.source_id].state.fork
    if above is not None:
        raise ProtocolError(
            413, "fork-too-deep", f"Forks of forks may be {MAX_FORK_DEPTH} deep at most."
        )


async def fork_position(chunks: Chunks, source: Stream, earliest: int, asked: ForkOf) -> int:
    tail = source.tail
    start = tail
    if asked.offset is not None:
        chunks.check_identity(source, asked.offset)
        start = asked.offset.position
    if start > tail:
        raise ProtocolError(400, "offset-beyond-tail", "Stream-Fork-Offset is beyond the tail.")
    if start < earliest:
        raise replies.offset_gone(source.state, earliest)
    # At `earliest` there is one; what is below it may just be going.
    if start != earliest and not await chunks.is_boundary(source, start):
        raise ProtocolError(400, "invalid-offset", "Stream-Fork-Offset is inside a message.")
    if not asked.sub_offset:
        return start
    end = await chunks.boundary(source, start + 1, tail) if start < tail else start
    length: int | None = asked.sub_offset
    if source.is_json:
        batch = await chunks.raw(source, start, end)
        length = await prefix_length(batch, asked.sub_offset)
    if length is None or start + length > end:
        raise ProtocolError(
            400, "sub-offset-too-large", "Stream-Fork-Sub-Offset exceeds the next append."
        )
    return start + length
