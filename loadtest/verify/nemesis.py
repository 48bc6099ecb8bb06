"""Carries out a plan: what is done to processes, keys and streams, and when it was over."""

import asyncio
import signal
from collections.abc import Mapping, Sequence

from loadtest.verify.fleet import Fleet
from loadtest.verify.history import Fault, Withdrawn
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.plan import FAULT_RATES, Step


class Nemesis:
    def __init__(
        self, world: World, keepers: Mapping[str, Keeper], fleet: Fleet | None, seed: int
    ) -> None:
        self._world = world
        self._keepers = keepers
        self._fleet = fleet
        self._seed = seed

    async def run(self, plan: Sequence[Step]) -> None:
        """Each step begins at its time from now, whatever the others are at."""
        began = self._world.doors.now()
        async with asyncio.TaskGroup() as group:
            for step in plan:
                await asyncio.sleep(max(0.0, began + step.at - self._world.doors.now()))
                group.create_task(self._do(step), name=str(step))

    async def _do(self, step: Step) -> None:
        match step.action:
            case "rotate":
                key = await self._world.keyring.rotate(self._world.note_published)
                self._world.recorder.add(Withdrawn(key=key, at=self._world.doors.now()))
            case "recreate":
                await self._keepers[step.target].recreate()
            case "snapshot":
                await self._keepers[step.target].snapshot()
            case "close":
                await self._keepers[step.target].close()
            case _:
                await self._disturb(step)

    async def _disturb(self, step: Step) -> None:
        assert self._fleet is not None
        part = self._fleet.parts[step.target]
        async with part.work:
            began = self._world.doors.now()
            match step.action:
                case "kill":
                    await part.kill()
                    await asyncio.sleep(step.secs)
                    await part.start()
                case "stop":
                    await part.stop()
                    await asyncio.sleep(step.secs)
                    await part.start()
                case "pause":
                    part.signal(signal.SIGSTOP)
                    await asyncio.sleep(step.secs)
                    part.signal(signal.SIGCONT)
                case "inject":
                    self._fleet.set_faults(part.name, FAULT_RATES[part.name], self._seed)
                    await asyncio.sleep(step.secs)
                    self._fleet.set_faults(part.name, {}, self._seed)
                case unknown:
                    raise ValueError(f"a plan cannot {unknown}")
            self._world.recorder.add(
                Fault(
                    what=step.action,
                    target=step.target,
                    began=began,
                    ended=self._world.doors.now(),
                )
            )
