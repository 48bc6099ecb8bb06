"""`weir compact`: replace a stream's State messages with a snapshot at its tail.

New readers then start from the snapshot. Messages appended after the tail was read stay in the
stream. Malformed messages would be lost, so they are an error unless they may be skipped.
"""

import argparse
import asyncio
from contextlib import aclosing

from protocol.state import snapshot_messages
from weir.client.access import token_of
from weir.client.replay import Replay
from weir.client.stream import StreamClient, open_stream
from weir.exits import Malformed, RequestFailed, warn


def run(arguments: argparse.Namespace) -> int:
    print(asyncio.run(_compact(arguments)))
    return 0


async def _compact(arguments: argparse.Namespace) -> str:
    """Return what was done."""
    replay = Replay(_skip if arguments.skip_malformed else _refuse)
    async with open_stream(arguments.url, token_of(arguments), warn) as stream:
        async with aclosing(stream.events(follow=False)) as events:
            async for event in events:
                replay.take(event)
        if replay.begun.by_replay:
            raise RequestFailed(f"{stream.url}/bootstrap is missing: the server has no snapshots")
        if not replay.messages or replay.begun.snapshot_offset == stream.offset:
            return f"{stream.url} has nothing to compact"
        snapshot = snapshot_messages(replay.state, stream.offset)
        await stream.publish(stream.offset, snapshot)
    return _report(stream, replay, len(snapshot))


def _refuse(text: str) -> None:
    raise Malformed(f"{text}; a snapshot would lose it (--skip-malformed accepts that)")


def _skip(text: str) -> None:
    warn(f"{text}; skipped")


def _report(stream: StreamClient, replay: Replay, snapshot_bytes: int) -> str:
    lines = [
        f"{stream.url}: snapshot at {stream.offset}",
        f"messages read   {replay.messages:,}",
        f"live entities   {len(replay.state):,}",
        f"bytes before    {replay.size_bytes:,}",
        f"bytes after     {snapshot_bytes:,}",
    ]
    if replay.state.snapshot_open:
        lines.append("The stream ends inside a snapshot of its own, and so does the new one.")
    return "\n".join(lines)
