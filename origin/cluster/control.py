"""What the nodes of a cluster share: a lease per node, the assignment of shards, and how far the
journals have come.

All of it is in one JetStream stream, so one quorum decides about it. A lease is a message that the
servers remove unless it is renewed. Its holder counts from before it sent the renewal, by its own
clock, and stops a margin earlier: it never believes in a lease that the servers have given up, as
long as their clocks differ by less than the margin.

A journal cannot tell by itself that its end is missing. So each node keeps a record, for good, of
the last batches that it knows to be stored.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from origin.cluster.assignment import Assignment
from origin.storage.cluster.jetstream import (
    WRONG_LAST_SEQUENCE,
    JetStream,
    Refused,
)

log = logging.getLogger("weir.cluster")

MARGIN_SECS = 2.0
LEFT_SECS = 1.0  # how long a farewell is kept
NEVER = 0.0


def clock() -> float:
    """Seconds that go on while the process is stopped or the machine sleeps. The event loop's time
    does not: it is read once per turn."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NodeRecord(Struct, frozen=True):
    """A node's lease: who it is, and what it has."""

    id: str
    url: str
    pid: int
    machine: str
    start: str  # random, of this process
    streams: int = 0
    stored_bytes: int = 0
    has_left: bool = False


class Conflict(Exception):
    """Somebody else changed it first."""


class Replaced(Exception):
    """Another process runs under our node id."""


class Lease:
    """How long this node may speak for its shards."""

    def __init__(self, now: Callable[[], float] = clock) -> None:
        self._now = now
        self._until = NEVER
        self.renewed_at = now()

    @property
    def is_valid(self) -> bool:
        return self._now() < self._until

    @property
    def age_secs(self) -> float:
        return self._now() - self.renewed_at

    def renew(self, sent_at: float, secs: float) -> None:
        self.renewed_at = sent_at
        self._until = sent_at + secs

    def end(self) -> None:
        self._until = NEVER


_record_decoder = msgspec.json.Decoder(NodeRecord)
_assignment_decoder = msgspec.json.Decoder(Assignment)
_tails_decoder = msgspec.json.Decoder(dict[int, int])


class Noted(NamedTuple):
    """The last batches that a node has noted, by shard."""

    revision: int
    numbers: dict[int, int]


class Control:
    def __init__(self, jetstream: JetStream, cluster: str, node: str, lease_secs: float) -> None:
        self._jetstream = jetstream
        self._stream = f"WEIR-{cluster}"
        self._nodes = f"weir.{cluster}.node"
        self._map = f"weir.{cluster}.map"
        self._tails = f"weir.{cluster}.tails"
        self._hint = f"weir.{cluster}.hint"
        self._node = node
        self._subject = f"{self._nodes}.{node}"
        self._lease_secs = lease_secs
        self._revision = 0  # of our lease's message
        self._has_held = False
        self._noted: Noted | None = None  # by this node
        self.lease = Lease()

    async def create(self, replicas: int) -> None:
        subjects = [f"{self._nodes}.*", self._map, f"{self._tails}.*"]
        await self._jetstream.ensure_stream(
            self._stream,
            subjects=subjects,
            num_replicas=replicas,
            max_msgs_per_subject=1,
            max_bytes=64 * 1024 * 1024,
            storage="file",
            discard="old",
            allow_msg_ttl=True,
        )
        await self._jetstream.ensure_subjects(self._stream, subjects)

    async def watch(self, act: Callable[[], None]) -> None:
        """Call `act` soon after somebody has changed something; a hint may get lost."""
        await self._jetstream.on_hint(self._hint, act)

    # -- leases --------------------------------------------------------------------------------

    async def renew(self, record: NodeRecord) -> float:
        """Renew our lease, or take it; returns the time before it was sent. The caller decides
        when it counts. Raises Conflict if the next attempt may succeed, Replaced if none will."""
        sent_at = clock()
        try:
            await self._put(record, self._lease_secs)
        except Conflict:
            await self._find_revision(record)
            raise
        self._has_held = True
        return sent_at

    async def _put(self, record: NodeRecord, secs: float) -> None:
        """Only after our own last one, or the one that `_find_revision` allows."""
        headers = {
            "Nats-TTL": f"{secs:g}s",
            "Nats-Expected-Last-Subject-Sequence": str(self._revision),
        }
        data = msgspec.json.encode(record)
        try:
            self._revision = await self._jetstream.publish(self._subject, data, headers)
        except Refused as refused:
            if refused.code in WRONG_LAST_SEQUENCE:
                raise Conflict from refused
            raise

    async def _find_revision(self, record: NodeRecord) -> None:
        """After a restart, after a lapse, or when the answer to a renewal was lost."""
        found = await self._jetstream.last(self._stream, self._subject)
        if found is None:
            self._revision = 0
            return
        holder = _record_decoder.decode(found.data)
        if holder.start != record.start and self._has_held and not holder.has_left:
            raise Replaced(f"another process has taken node id {self._node}: {holder.url}")
        ended = holder.has_left or _has_ended(holder, record.machine)
        if holder.start == record.start or ended:
            self._revision = found.seq
        # Else it may be alive: wait until its lease runs out.

    async def resign(self, record: NodeRecord) -> None:
        """Others need not wait until the lease runs out."""
        if not self._has_held:
            return
        self.lease.end()
        farewell = replace(record, has_left=True)
        try:
            await self._put(farewell, LEFT_SECS)
        except Conflict:  # a renewal that was cut off has landed
            with suppress(Conflict, Replaced):  # or a new process has our id already
                await self._find_revision(record)
                await self._put(farewell, LEFT_SECS)
        await self._jetstream.hint(self._hint)

    async def nodes(self) -> dict[str, tuple[int, NodeRecord]]:
        """Revision and content of the leases that hold, by node id."""
        found = {}
        for subject in await self._jetstream.subjects(self._stream, f"{self._nodes}.*"):
            stored = await self._jetstream.last(self._stream, subject)
            if stored is not None:
                record = _record_decoder.decode(stored.data)
                if not record.has_left:
                    found[record.id] = stored.seq, record
        return found

    # -- assignment ----------------------------------------------------------------------------

    async def assignment(self) -> tuple[int, Assignment] | None:
        """Its version and content."""
        found = await self._jetstream.last(self._stream, self._map)
        return None if found is None else (found.seq, _assignment_decoder.decode(found.data))

    async def assign(self, version: int, assignment: Assignment) -> int:
        """Replace this version; returns the new one. Raises Conflict."""
        headers = {"Nats-Expected-Last-Subject-Sequence": str(version)}
        data = msgspec.json.encode(assignment)
        try:
            version = await self._jetstream.publish(self._map, data, headers)
        except Refused as refused:
            if refused.code in WRONG_LAST_SEQUENCE:
                raise Conflict from refused
            raise
        await self._jetstream.hint(self._hint)
        return version

    # -- journals ------------------------------------------------------------------------------

    async def note_tails(self, numbers: Mapping[int, int]) -> None:
        """The last batches of these shards that are known to be stored. Nothing that was noted
        before is taken back."""
        subject = f"{self._tails}.{self._node}"
        if self._noted is None:
            self._noted = await self._read_tails(subject)
        revision, known = self._noted
        now = known | {shard: max(n, known.get(shard, 0)) for shard, n in numbers.items()}
        if now == known:
            return
        self._noted = None  # unless this succeeds: another process with our id may have noted more
        headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        try:
            seq = await self._jetstream.publish(subject, msgspec.json.encode(now), headers)
        except Refused as refused:
            if refused.code not in WRONG_LAST_SEQUENCE:
                raise
        else:
            self._noted = Noted(seq, now)

    async def noted_tail(self, shard: int) -> int:
        """The last batch of a shard that any node has noted, or 0."""
        subjects = await self._jetstream.subjects(self._stream, f"{self._tails}.*")
        noted = await asyncio.gather(*map(self._read_tails, subjects))
        return max([numbers.get(shard, 0) for _, numbers in noted], default=0)

    async def _read_tails(self, subject: str) -> Noted:
        found = await self._jetstream.last(self._stream, subject)
        if found is None:
            return Noted(0, {})
        return Noted(found.seq, _tails_decoder.decode(found.data))


def this_machine() -> str:
    """Where process ids mean the same: this boot of this machine, or of this container."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def _has_ended(holder: NodeRecord, machine: str) -> bool:
    """Whether the process that holds a lease is known to be gone."""
    if holder.machine != machine:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return holder.pid == os.getpid()
