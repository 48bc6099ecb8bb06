"""What is done to a cluster, by name. Each does its harm, and undoes it when it is left.

`Blow` says to whom, and which shards they had: those have to come back.
"""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random

from loadtest.verify.cluster.clients import Filler
from loadtest.verify.cluster.links import Mode
from loadtest.verify.cluster.machines import S3, START_SECS, Machines, wait_until
from loadtest.verify.cluster.overview import Overview
from loadtest.verify.keepers import World
from loadtest.verify.plan import FULL_JOURNAL

FILL_SECS = 25.0
FLUSHING_SECS = 3.0


@dataclass(frozen=True, slots=True)
class Blow:
    victims: list[str]
    shards: list[int]
    began: float
    is_pause: bool = False


@dataclass(slots=True)
class Scene:
    """Where faults happen."""

    machines: Machines
    overview: Overview
    world: World
    random: Random
    fillers: list[Filler]
    dead: set[str] = field(default_factory=set)  # doors that nobody answers at

    @property
    def lease_secs(self) -> float:
        return self.machines.shape.lease_secs

    def blow(self, *victims: str, shards: Iterable[int] = (), is_pause: bool = False) -> Blow:
        return Blow(list(victims), list(shards), self.world.doors.now(), is_pause)

    async def kill(self, *names: str) -> None:
        self.dead.update(names)
        for name in names:
            await asyncio.to_thread(self.machines.parts[name].kill)
            self.machines.links[name].shut()

    async def start(self, *names: str) -> None:
        for name in names:
            await self.machines.links[name].start()
            await self.machines.start_again(name)
        self.dead.difference_update(names)

    def set_links(self, sources: Iterable[str], targets: Iterable[str], mode: Mode) -> None:
        for target in targets:
            for source in sources:
                self.machines.links[target].set(source, mode)
        if mode is Mode.FROZEN:
            self.world.note_frozen(is_frozen=True)

    def mend_links(self) -> None:
        for link in self.machines.links.values():
            for source in self.machines.nodes:
                link.set(source, Mode.PASS)
        self.world.note_frozen(is_frozen=False)


Act = Callable[[Scene], AbstractAsyncContextManager[Blow]]


# -- nodes -----------------------------------------------------------------------------------------


@asynccontextmanager
async def kill_owner(scene: Scene) -> AsyncIterator[Blow]:
    owner, shards = await scene.overview.richest()
    blow = scene.blow(owner, shards=shards)
    await scene.kill(owner)
    yield blow
    await scene.start(owner)


@asynccontextmanager
async def kill_machine(scene: Scene) -> AsyncIterator[Blow]:
    """An owner and a NATS server, as if they were on one machine."""
    owner, shards = await scene.overview.richest()
    neighbour = list(scene.machines.nats)[scene.machines.nodes.index(owner)]
    blow = scene.blow(owner, neighbour, shards=shards)
    await scene.kill(owner, neighbour)
    yield blow
    await scene.start(neighbour, owner)


@asynccontextmanager
async def kill_flushing(scene: Scene) -> AsyncIterator[Blow]:
    """Its uploads hang when it dies."""
    owner, shards = await scene.overview.richest()
    scene.set_links([owner], [S3], Mode.FROZEN)
    await asyncio.sleep(scene.random.uniform(0.5, FLUSHING_SECS))
    blow = scene.blow(owner, shards=shards)
    await scene.kill(owner)
    yield blow
    scene.mend_links()
    await scene.start(owner)


@asynccontextmanager
async def pause_owner(scene: Scene) -> AsyncIterator[Blow]:
    owner, shards = await scene.overview.richest()
    part = scene.machines.parts[owner]
    blow = scene.blow(owner, shards=shards, is_pause=True)
    scene.dead.add(owner)
    scene.world.note_frozen(is_frozen=True)
    part.send_signal(signal.SIGSTOP)
    yield blow
    part.send_signal(signal.SIGCONT)
    scene.world.note_frozen(is_frozen=False)
    scene.dead.discard(owner)


@asynccontextmanager
async def wipe_node(scene: Scene) -> AsyncIterator[Blow]:
    owner, shards = await scene.overview.richest()
    blow = scene.blow(owner, shards=shards)
    await scene.kill(owner)
    await asyncio.to_thread(shutil.rmtree, scene.machines.data_dir(owner), ignore_errors=True)
    yield blow
    await scene.start(owner)


# -- links -----------------------------------------------------------------------------------------


@asynccontextmanager
async def harm_nats_links(scene: Scene, mode: Mode) -> AsyncIterator[Blow]:
    owner, shards = await scene.overview.richest()
    blow = scene.blow(owner, shards=shards)
    scene.set_links([owner], scene.machines.nats, mode)
    yield blow
    scene.mend_links()


@asynccontextmanager
async def harm_s3_link(scene: Scene, mode: Mode) -> AsyncIterator[Blow]:
    owner, shards = await scene.overview.richest()
    blow = scene.blow(owner, shards=shards)
    scene.set_links([owner], [S3], mode)
    yield blow
    scene.mend_links()


@asynccontextmanager
async def harm_peer_links(scene: Scene, mode: Mode) -> AsyncIterator[Blow]:
    """In both directions."""
    owner, shards = await scene.overview.richest()
    others = [each for each in scene.machines.nodes if each != owner]
    blow = scene.blow(owner, shards=shards)
    scene.set_links(others, [owner], mode)
    scene.set_links([owner], others, mode)
    yield blow
    scene.mend_links()


# -- what they stand on ----------------------------------------------------------------------------


async def _nats_by_leads(scene: Scene) -> list[str]:
    """Servers, the one that leads most journals first."""
    counts = Counter({name: 0 for name in scene.machines.nats})
    counts.update(view.leader for view in (await scene.overview.journals()).values())
    return [name for name, _ in counts.most_common()]


@asynccontextmanager
async def _nats_killed(scene: Scene, *names: str) -> AsyncIterator[Blow]:
    blow = scene.blow(*names)
    await scene.kill(*names)
    yield blow
    await scene.start(*names)


@asynccontextmanager
async def kill_nats_leader(scene: Scene) -> AsyncIterator[Blow]:
    async with _nats_killed(scene, (await _nats_by_leads(scene))[0]) as blow:
        yield blow


@asynccontextmanager
async def kill_nats_follower(scene: Scene) -> AsyncIterator[Blow]:
    async with _nats_killed(scene, (await _nats_by_leads(scene))[-1]) as blow:
        yield blow


@asynccontextmanager
async def lose_quorum(scene: Scene) -> AsyncIterator[Blow]:
    async with _nats_killed(scene, *(await _nats_by_leads(scene))[:2]) as blow:
        yield blow


@asynccontextmanager
async def wipe_nats(scene: Scene) -> AsyncIterator[Blow]:
    """While the others have everything; `rounds` waits for that before each fault."""
    name = scene.random.choice(list(scene.machines.nats))
    async with _nats_killed(scene, name) as blow:
        store = scene.machines.nats[name].store
        await asyncio.to_thread(shutil.rmtree, store, ignore_errors=True)
        yield blow


@asynccontextmanager
async def kill_s3(scene: Scene) -> AsyncIterator[Blow]:
    blow = scene.blow(S3)
    await scene.kill(S3)
    yield blow
    scene.machines.s3.clear()
    await scene.start(S3)
    await wait_until(scene.machines.s3_stores, START_SECS, "the S3 server")


@asynccontextmanager
async def full_journal(scene: Scene) -> AsyncIterator[Blow]:
    """Nothing can be flushed, and much is written."""
    blow = scene.blow(S3)
    scene.set_links(scene.machines.nodes, [S3], Mode.CUT)
    until = scene.world.doors.now() + FILL_SECS
    await asyncio.gather(*(filler.fill(until) for filler in scene.fillers))
    yield blow
    scene.mend_links()


@dataclass(frozen=True, slots=True)
class Fault:
    """How it is done, and how long it lasts: seconds, unless it is until something happens."""

    act: Act
    secs: tuple[float, float] = (1.0, 6.0)
    in_leases: bool = False  # seconds are counted from the end of a lease
    until_taken: bool = False  # its shards take writes again
    until_opened: bool = False  # another node has just opened one of them


FAULTS = {
    "kill-owner": Fault(kill_owner, until_taken=True),
    "restart-owner": Fault(kill_owner, (0.0, 1.0)),
    "kill-machine": Fault(kill_machine, until_taken=True),
    "kill-flushing": Fault(kill_flushing, until_taken=True),
    "pause-owner": Fault(pause_owner, (1.0, 4.0), in_leases=True),
    "wake-owner": Fault(pause_owner, until_opened=True),
    "thaw-nats": Fault(partial(harm_nats_links, mode=Mode.FROZEN), until_opened=True),
    "wipe-node": Fault(wipe_node, until_taken=True),
    "kill-nats-leader": Fault(kill_nats_leader),
    "kill-nats-follower": Fault(kill_nats_follower),
    "wipe-nats": Fault(wipe_nats),
    "lose-quorum": Fault(lose_quorum, (3.0, 12.0)),
    "kill-s3": Fault(kill_s3),
    FULL_JOURNAL: Fault(full_journal, (0.0, 3.0)),
    "cut-nats": Fault(partial(harm_nats_links, mode=Mode.CUT), (-4.0, 4.0), in_leases=True),
    "freeze-nats": Fault(partial(harm_nats_links, mode=Mode.FROZEN), (-4.0, 4.0), in_leases=True),
    "slow-nats": Fault(partial(harm_nats_links, mode=Mode.SLOW)),
    "cut-s3": Fault(partial(harm_s3_link, mode=Mode.CUT), (2.0, 8.0)),
    "freeze-s3": Fault(partial(harm_s3_link, mode=Mode.FROZEN), (2.0, 8.0)),
    "cut-peers": Fault(partial(harm_peer_links, mode=Mode.CUT), (2.0, 8.0)),
    "freeze-peers": Fault(partial(harm_peer_links, mode=Mode.FROZEN), (2.0, 8.0)),
}
