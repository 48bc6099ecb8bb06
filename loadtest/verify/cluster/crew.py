"""All clients of an episode, with streams in every shard."""

import asyncio
from collections.abc import Iterator
from itertools import count, cycle
from random import Random

from loadtest.verify.cluster.clients import PULSE_SECS, Filler, Forker, Pulse, Watcher
from loadtest.verify.cluster.pauses import PULSE
from loadtest.verify.history import MODES, Stall
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.keyring import READERS
from loadtest.verify.messages import JSON, KINDS, PLAIN_WRITER, TEXT
from loadtest.verify.plan import endless_changes
from loadtest.verify.producers import Appender, Producer
from loadtest.verify.readers import Reader
from protocol.clustermap import shard_of

FILL_BYTES = 40_000  # characters: 60 KB, which an append may have
TICK_SECS, STALL_SECS = 0.1, 0.2


class Crew:
    def __init__(
        self,
        world: World,
        shards: int,
        name: str,
        *,
        streams: int,
        pause_s: float,
        fills: bool,
    ) -> None:
        self._world = world
        self._pause_s = pause_s
        self._random = Random(world.random.random())
        beating = _keepers(world, shards, f"verify/{name}/pulse", shards, [TEXT])
        self._busy = _keepers(world, streams, f"verify/{name}/busy", shards, KINDS)
        filled = _keepers(world, shards if fills else 0, f"verify/{name}/fill", shards, [JSON])
        self._changing = {keeper.stream: keeper for keeper in [*self._busy, *filled]}
        self.keepers = [*beating, *self._busy, *filled]
        self.fillers = [Filler(world, each, "fill", 0.0, FILL_BYTES) for each in filled]
        self.pulses = [
            Pulse(world, keeper, PULSE, PULSE_SECS, shard=shard)
            for shard, keeper in enumerate(beating)
        ]
        self._forker = Forker(world, self._busy, name)
        self._endless: list[asyncio.Task[None]] = []
        self._ending: list[asyncio.Task[None]] = []

    def start(self, group: asyncio.TaskGroup, dead: set[str]) -> None:
        """`dead` are doors that a balancer would know to be so."""
        for pulse in self.pulses:
            pulse.dead = dead
        for reader in self._readers():
            self._endless.append(group.create_task(reader.run(), name=reader.name))
        self._endless.append(group.create_task(self._change(group), name="changes"))
        self._endless.append(group.create_task(self._watch_clock(), name="clock"))
        # These end by themselves: each append must have its line in the history.
        writers: list[Producer | Forker] = [*self.pulses, *self._writers(), self._forker]
        self._ending += [group.create_task(each.run(), name=each.name) for each in writers]

    def stop(self, *, is_well: bool) -> None:
        self._world.stopping.set()
        for task in self._endless if is_well else [*self._endless, *self._ending]:
            task.cancel()

    def _writers(self) -> Iterator[Producer]:
        for keeper in self._busy:
            yield Producer(self._world, keeper, "p0", self._pause_s)
            yield Appender(self._world, keeper, PLAIN_WRITER, self._pause_s)

    def _readers(self) -> Iterator[Reader]:
        """Of each busy stream in each mode; of tails, in each shard."""
        for keeper in self._busy:
            for mode in MODES:
                name = f"{mode} of {keeper.stream}"
                yield Reader(self._world, keeper, name, READERS["*"], mode)
        for keeper in [pulse.keeper for pulse in self.pulses] + self._busy:
            name = f"watcher of {keeper.stream}"
            yield Watcher(self._world, keeper, name, READERS["*"], "catch-up")

    async def _watch_clock(self) -> None:
        """Note when this process itself was held up."""
        doors = self._world.doors
        while True:
            began = doors.now()
            await asyncio.sleep(TICK_SECS)
            if doors.now() - began > TICK_SECS + STALL_SECS:
                self._world.recorder.add(Stall(began=began + TICK_SECS, ended=doors.now()))

    async def _change(self, group: asyncio.TaskGroup) -> None:
        """Streams are closed, compacted, deleted and made anew all the time."""
        began = self._world.doors.now()
        for step in endless_changes(self._random, list(self._changing)):
            await asyncio.sleep(max(0.0, began + step.at - self._world.doors.now()))
            keeper = self._changing[step.target]
            if keeper.is_busy:
                continue
            what = "recreate" if keeper.is_closed else step.action
            task = group.create_task(keeper.do(what), name=f"{what} {keeper.stream}")
            self._ending.append(task)


def _keepers(
    world: World, number: int, prefix: str, shards: int, kinds: tuple[str, ...] | list[str]
) -> list[Keeper]:
    """One in each shard, and so on. Every other has no clients at gateways, and so its changes are
    made at the nodes themselves."""
    kind_of = dict(zip(range(number), cycle(kinds), strict=False))
    fronts = (world.front, world.origins)
    return [
        Keeper(world, _name_in(at % shards, shards, f"{prefix}-{at}"), kind_of[at], fronts[at % 2])
        for at in range(number)
    ]


def _name_in(shard: int, shards: int, prefix: str) -> str:
    names = (f"{prefix}-{number}" for number in count())
    return next(name for name in names if shard_of(name, shards) == shard)
