"""One fault after another: each is healed, and every shard takes writes again before the next."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from loadtest.errors import RunFailedError
from loadtest.verify.cluster.clients import Pulse
from loadtest.verify.cluster.faults import FAULTS, Blow, Fault, Scene
from loadtest.verify.history import Fault as FaultRecord
from loadtest.verify.history import Round
from loadtest.verify.plan import CLUSTER

REST_SECS = (1.0, 3.0)
TAKEN_SECS = 40.0  # that a shard may be without an owner while it is waited for
RECOVERY_SECS = 60.0
WHOLE_SECS = 120.0  # until all NATS servers have everything again
POLL_SECS = 0.05
QUICK_POLL_SECS = 0.01
SLOW_POLL_SECS = 0.3


@dataclass(slots=True)
class Rounds:
    scene: Scene
    pulses: list[Pulse]

    async def run(self, names: Iterable[str], until: float) -> bool:
        """Whether the cluster is well at the end; no round begins after `until`."""
        world = self.scene.world
        for name in names:
            await asyncio.sleep(self.scene.random.uniform(*REST_SECS))
            if world.doors.now() >= until:
                break
            if not await self._round(name):
                return False
        return True

    async def _round(self, name: str) -> bool:
        scene, fault = self.scene, FAULTS[name]
        await self._await_whole()
        async with fault.act(scene) as blow:
            await self._hold(fault, blow)
        healed = scene.world.doors.now()
        recovered = await self._taken(range(len(self.pulses)), healed, RECOVERY_SECS)
        ended = scene.world.doors.now()
        stuck = [] if recovered else await self._stuck(healed)
        record = scene.world.recorder.add
        record(FaultRecord(what=name, target=CLUSTER, began=blow.began, ended=ended))
        record(
            Round(
                fault=name,
                victims=blow.victims,
                shards=blow.shards,
                began=blow.began,
                healed=healed,
                recovered=ended if recovered else 0.0,
                stuck=stuck,
                paused=blow.is_pause,
            )
        )
        return recovered

    async def _hold(self, fault: Fault, blow: Blow) -> None:
        scene = self.scene
        if fault.until_taken:
            await self._taken(blow.shards, blow.began + POLL_SECS, TAKEN_SECS)
            return
        if fault.until_opened:
            await self._opened(blow)
            return
        secs = scene.random.uniform(*fault.secs) + fault.in_leases * scene.lease_secs
        await asyncio.sleep(max(0.5, secs))

    async def _opened(self, blow: Blow) -> None:
        """Wait until another node has opened one of these shards, and not a moment longer."""
        world, overview = self.scene.world, self.scene.overview
        until = world.doors.now() + TAKEN_SECS
        while world.doors.now() < until:
            shards = await overview.shards(without=blow.victims)
            if any(shards[each].state == "open" for each in blow.shards if each in shards):
                return
            await asyncio.sleep(QUICK_POLL_SECS)

    async def _taken(self, shards: Iterable[int], since: float, secs: float) -> bool:
        """Wait until each of these has acknowledged something that was sent later than that."""
        world, wanted = self.scene.world, set(shards)
        pulses = [pulse for pulse in self.pulses if pulse.shard in wanted]
        until = world.doors.now() + secs
        while any(pulse.acknowledged <= since for pulse in pulses):
            if world.doors.now() > until:
                return False
            await asyncio.sleep(POLL_SECS)
        return True

    async def _stuck(self, since: float) -> list[str]:
        shards = await self.scene.overview.shards()
        found = []
        for pulse in self.pulses:
            if pulse.acknowledged <= since:
                view = shards.get(pulse.shard)
                state = f"{view.state} at {view.owner} {view.reason}" if view else "no live owner"
                found.append(f"shard {pulse.shard} is {state.strip()}")
        return found

    async def _await_whole(self) -> None:
        """A second fault before NATS has all copies again would be a loss of its quorum."""
        streams = len(self.pulses) + 1
        until = self.scene.world.doors.now() + WHOLE_SECS
        while not await self.scene.overview.nats_is_whole(streams):
            if self.scene.world.doors.now() > until:
                raise RunFailedError(f"NATS had not all copies again within {WHOLE_SECS:.0f} s")
            await asyncio.sleep(SLOW_POLL_SECS)
