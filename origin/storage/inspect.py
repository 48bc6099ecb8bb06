"""`weir fsck` and `weir dump`: inspect a data directory. Both only read."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from origin.storage.acid import open_shards
from origin.storage.base import DamagedData
from origin.storage.blobs import Blobs
from origin.storage.datafolder import DataFolder
from origin.storage.files import Files, refuse_unfinished
from origin.storage.format import block_boundaries
from origin.storage.recovery import recover
from origin.storage.segments import Segments
from origin.storage.stored import Stored
from protocol.offsets import format_offset
from protocol.stream import StreamState

PREVIEW_BYTES = 60


@dataclass(frozen=True, slots=True)
class FoundStream:
    """A stream with access to its appends, in any mode."""

    state: StreamState
    appends: Callable[[], Iterator[tuple[int, bytes]]]
    path: str
    blobs: Blobs


def fsck(data_dir: str, out: TextIO) -> int:
    """Verify all live bytes; 0 if they are intact, 1 otherwise."""
    damages = 0
    refuse_unfinished(data_dir)
    try:
        found = list(_find(data_dir))
    except DamagedData as error:
        print(f"damaged: {error}", file=out)
        return 1
    for stream in found:
        try:
            _check(stream)
        except DamagedData as error:
            damages += 1
            print(f"damaged: stream {stream.state.name}: {error}", file=out)
    size = sum(_size(stream.state) for stream in found)
    verdict = f"{damages} damaged" if damages else "sound"
    print(f"{verdict}: {len(found)} streams, {size} bytes", file=out)
    return 1 if damages else 0


def dump(data_dir: str, name: str | None, out: TextIO) -> int:
    """All streams with their state, or the appends of one."""
    streams = sorted(_find(data_dir), key=lambda stream: stream.state.name)
    chosen = [stream for stream in streams if name in (None, stream.state.name)]
    for stream in chosen:
        print(describe(stream.state), file=out)
        if name is not None:
            for position, data in stream.appends():
                offset = format_offset(stream.state.id, position)
                print(f"  {offset} {len(data):>8} {preview(data)}", file=out)
    if name is not None and not chosen:
        print(f"no stream {name}", file=out)
        return 1
    return 0


def _find(data_dir: str) -> Iterator[FoundStream]:
    folder = DataFolder(data_dir, Files())
    if os.path.isdir(os.path.join(data_dir, "acid")):
        for shard in open_shards(data_dir):
            for state in shard.states():
                yield FoundStream(state, partial(shard.appends, state.id), shard.path, folder.blobs)
        return
    if not os.path.exists(folder.catalog_path):
        raise DamagedData(folder.catalog_path, 0, "no catalog found")
    segments = folder.segments
    for stored in recover(folder.catalog_path, folder.journal).streams.values():
        path = segments.path(stored.state.id)
        yield FoundStream(stored.state, partial(_appends, stored, segments), path, folder.blobs)


def _check(stream: FoundStream) -> None:
    state = stream.state
    first = end = max(state.base, state.floor)
    for position, data in stream.appends():
        if position + len(data) <= first:  # not freed yet
            continue
        if max(position, first) != end:  # the floor may be within an append
            raise DamagedData(stream.path, 0, f"position {end} is missing")
        end = position + len(data)
    if end != state.tail:
        raise DamagedData(stream.path, 0, f"data ends at {end}, expected {state.tail}")
    if state.snapshot is not None:
        stream.blobs.verify(state.snapshot)


def _appends(stored: Stored, segments: Segments) -> Iterator[tuple[int, bytes]]:
    if stored.extent.end > stored.extent.first:
        for head, body, payload in segments.walk(stored.state.id, stored.extent):
            begin = head.start
            for end in block_boundaries(head, body):
                yield begin, bytes(payload[begin - head.start : end - head.start])
                begin = end
    if stored.recent is not None:
        position = stored.recent.start
        for part in stored.recent.parts:
            yield position, part
            position += len(part)


def describe(state: StreamState) -> str:
    facts: list[tuple[str, Callable[[], object], bool]] = [
        ("closed", lambda: "yes", state.closed),
        ("ttl", lambda: state.ttl_s, state.ttl_s is not None),
        ("expires", lambda: state.expires_at_ms, state.expires_at_ms is not None),
        ("producers", lambda: len(state.producers or ()), bool(state.producers)),
        ("seq", lambda: state.last_seq, state.last_seq is not None),
        ("fork-of", lambda: state.fork and state.fork.source_name, state.fork is not None),
        ("gone", lambda: "held by forks", state.gone),
        ("state", lambda: "strict", state.strict_state),
        ("snapshot", lambda: format_offset(state.id, state.earliest), state.snapshot is not None),
        ("floor", lambda: format_offset(state.id, state.floor), state.floor > 0),
    ]
    more = "".join(f" {name}={value()}" for name, value, there in facts if there)
    return (
        f"{state.name} id={state.incarnation} type={state.content_type} "
        f"bytes={_size(state)} tail={format_offset(state.id, state.tail)}{more}"
    )


def preview(data: bytes) -> str:
    text = ascii(data[:PREVIEW_BYTES].decode("utf-8", "replace"))
    return text + ("…" if len(data) > PREVIEW_BYTES else "")


def _size(state: StreamState) -> int:
    return state.stored_bytes
