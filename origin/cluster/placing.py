"""PUT over several shards: where a stream is created, and the aliases of forks.

A fork is in the shard of its source, so everything that works on forks finds both in one shard. Its
name is at home in another, so the home shard has an alias: whoever looks for the name goes there
first. All PUTs of a name go to the owner of its home shard, which handles one at a time.

Invariants:

1. A stream is in the home shard of its name, or in the shard that the alias there names; never in
   both, never in a third.
2. The alias of a fork is committed before the fork is created.
3. A stream is created outside of its home shard only with a permit of that shard that was asked for
   before its alias was committed, or committed once more.
4. An alias is removed only after the shard that it names has said that the stream is not there, and
   has revoked its permits.
5. A shard that is opened anew knows no permit of before.

So a creation that arrives late (3, 5), from an owner that was replaced meanwhile or after a request
whose outcome was not known, fails once its alias was removed (4): at the commit of the alias, if
the home shard has another owner, or by its permit. An alias without a stream is harmless: a read
finds nothing there, a PUT creates the stream there, a fork of another shard removes it first.
"""

import asyncio
import logging
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from origin.calls import Answer, Call, Operations
from origin.cluster.clusterbuckets import ClusterBuckets
from origin.cluster.forwarding import Forwarding
from origin.cluster.peers import Peers
from origin.cluster.questions import Missing, Names, Number, Permit, Permitted, Revoke, WhereIs
from origin.cluster.view import ClusterShards
from origin.config import OriginConfig
from origin.creations import Revoked
from origin.freshness import no_owner
from origin.shard import Shard
from origin.shards import Elsewhere
from origin.storage.base import StorageFailed, StorageFull
from origin.streamroutes import parse_put
from protocol.errors import ProtocolError
from protocol.names import WEIR_GRANT, WEIR_HOP, WEIR_SHARD
from protocol.paths import Kind, bucket_of
from protocol.replies import RETRY_AFTER, Reply, no_bucket, problem, problem_of
from protocol.requests import Create

log = logging.getLogger("weir.cluster")

TRIES = 8  # of a PUT whose permits are revoked again and again
NO_PERMIT = -1  # for a stream that exists
SWEEP_STEP = 1000  # aliases that one question is about
REVOKED = "revoked"  # in the place of a permit, in an answer


class Placing:
    """The PUT of streams. `removed` counts aliases, for the metrics."""

    def __init__(
        self,
        config: OriginConfig,
        shards: ClusterShards,
        peers: Peers,
        forwarding: Forwarding,
        buckets: ClusterBuckets,
    ) -> None:
        self._http = config.http
        self._limits = config.limits
        self._shards = shards
        self._peers = peers
        self._forwarding = forwarding
        self._buckets = buckets
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.removed = 0
        self.operations: Operations = {Kind.STREAM: {"PUT": self._put}}

    async def _put(self, call: Call) -> Answer:
        create = parse_put(call, self._http)
        body = await call.body(self._limits)
        put = _Put(call, create, body, call.location(self._http))
        name = call.place.name
        if call.shard.number != self._shards.number_of(name):
            return await self._create_for_home(put)
        async with self._lock(name):
            for _ in range(TRIES):
                reply = await self._place(call.shard, put)
                if reply is not None:
                    return reply
        return problem(503, "busy", "Too much changes at once; try again.", RETRY_AFTER)

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    # -- at the owner of the home shard ------------------------------------------------------------

    async def _place(self, home: Shard, put: "_Put") -> Reply | None:
        """None if something changed meanwhile: all has to be asked again."""
        name, fork = put.name, put.create.fork
        aliased = await home.aliases.find(name)
        if aliased is None and (fork is None or name in home.registry.by_name):
            return await self._create_at_home(home, put)
        source = None if fork is None else await self._where_is(fork.source_name)
        if aliased is None and source == home.number:
            return await self._create_at_home(home, put)
        target = source if aliased is None else aliased
        assert target is not None
        permitted = await self._peers.ask(target, Permit(target, name), Permitted)
        if permitted.exists:
            return await self._create_at(target, put, NO_PERMIT)
        if source is not None and source != target:
            await self._remove_alias(home, name)
            return None
        if not await self._has_bucket(name):
            return no_bucket()
        await home.aliases.point(name, target)
        reply = await self._create_at(target, put, permitted.permit)
        if reply is not None and aliased is None and 400 <= reply.status < 500:
            return await self._refused(home, put, target, reply)
        return reply

    async def _create_at_home(self, home: Shard, put: "_Put") -> Reply | None:
        """As on one machine, but for the bucket, which may be elsewhere. A fork that is there needs
        no source; if it is not, the source may be elsewhere."""
        permit = None
        if put.create.fork is not None and put.name in home.registry.by_name:
            permit = NO_PERMIT
        elif bucket_of(put.name):
            permit = home.permits.current
            if not await self._has_bucket(put.name):
                return no_bucket()
        return await put.create_in(home, permit)

    async def _create_at(self, target: int, put: "_Put", permit: int) -> Reply | None:
        """By the owner of another shard, which may be this node."""
        try:
            return await put.create_in(self._shards.at(target), permit)
        except Elsewhere as elsewhere:
            if elsewhere.url is None:
                raise no_owner() from None
            to = elsewhere
        marks = {WEIR_HOP: "2", WEIR_SHARD: str(target), WEIR_GRANT: str(permit)}
        reply = await self._forwarding.fetch(put.call.request, to, marks, put.body)
        return None if (WEIR_GRANT, REVOKED) in reply.headers else reply

    async def _refused(self, home: Shard, put: "_Put", target: int, reply: Reply) -> Reply | None:
        """The alias was made for nothing, or the source is somewhere else now."""
        with suppress(ProtocolError):  # then a sweep removes it
            await self._remove_alias(home, put.name)
        fork = put.create.fork
        if fork is not None and reply.status == 404:
            if await self._where_is(fork.source_name) != target:
                return None
        return reply

    async def _where_is(self, name: str) -> int:
        home = self._shards.number_of(name)
        return (await self._peers.ask(home, WhereIs(name), Number)).value

    async def _has_bucket(self, name: str) -> bool:
        bucket = bucket_of(name)
        return not bucket or await self._buckets.exists(bucket)

    # -- at the owner of another shard -------------------------------------------------------------

    async def _create_for_home(self, put: "_Put") -> Reply:
        permit = put.call.headers.get("weir-grant", "")
        reply = await put.create_in(
            put.call.shard, int(permit) if permit.isdecimal() else NO_PERMIT
        )
        if reply is not None:
            return reply
        return problem(409, "permit-revoked", "Ask again.", ((WEIR_GRANT, REVOKED),))

    # -- aliases of streams that are gone ----------------------------------------------------------

    async def sweep(self) -> None:
        """Remove the aliases of this node's shards whose streams are gone."""
        for home in list(self._shards.all()):
            by_target: dict[int, list[str]] = {}
            for name, target in home.aliases.shards.items():
                by_target.setdefault(target, []).append(name)
            for target, names in by_target.items():
                for at in range(0, len(names), SWEEP_STEP):
                    try:
                        await self._sweep(home, target, names[at : at + SWEEP_STEP])
                    except (ProtocolError, StorageFailed, StorageFull) as error:
                        log.info("aliases of shard %d are kept for now: %s", home.number, error)
                        break

    async def _sweep(self, home: Shard, target: int, names: list[str]) -> None:
        missing = await self._peers.ask(target, Missing(target, names), Names)
        for name in missing.names:
            async with self._lock(name):
                await self._remove_alias(home, name)

    async def _remove_alias(self, home: Shard, name: str) -> None:
        """Unless its stream is there. The caller has the lock of the name."""
        aliased = await home.aliases.find(name)
        if aliased is None:
            return
        found = await self._peers.ask(aliased, Revoke(aliased, name), Permitted)
        if not found.exists:
            await home.aliases.remove(name)
            self.removed += 1


@dataclass(frozen=True, slots=True)
class _Put:
    call: Call
    create: Create
    body: bytes
    location: str

    @property
    def name(self) -> str:
        return self.call.place.name

    async def create_in(self, shard: Shard, permit: int | None) -> Reply | None:
        """None if the permit was revoked."""
        call = self.call
        try:
            with nullcontext() if shard is call.shard else shard.awaited(call.deadline):
                return await shard.creations.create(
                    self.name, self.create, self.body, self.location, permit
                )
        except Revoked:
            return None
        except ProtocolError as error:
            return problem_of(error)
