"""Carries out a plan: what is done to processes, keys and streams, and when it was over."""

import asyncio
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadtest.verify.fleet import Fleet
from loadtest.verify.history import Fault, Withdrawn
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.plan import FAULT_RATES, Step


@dataclass(slots=True)
class Nemesis:
    world: World
    keepers: Mapping[str, Keeper]
    fleet: Fleet | None
    seed: int
    _work: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def run(self, plan: Sequence[Step]) -> None:
        """Each step begins at its time from now, whatever the others are at."""
        began = self.world.doors.now()
        async with asyncio.TaskGroup() as group:
            for step in plan:
                await asyncio.sleep(max(0.0, began + step.at - self.world.doors.now()))
                group.create_task(self._do(step), name=str(step))

    async def _do(self, step: Step) -> None:
        match step.action:
            case "rotate":
                key = await self.world.keyring.rotate(self.world.note_published)
                self.world.recorder.add(Withdrawn(key=key, at=self.world.doors.now()))
            case "recreate" | "snapshot" | "close" as change:
                await self.keepers[step.target].do(change)
            case what:
                async with self._work[step.target]:  # one thing at a time is done to a part
                    began = self.world.doors.now()
                    await self._disturb(step)
                    ended = self.world.doors.now()
                self.world.recorder.add(
                    Fault(what=what, target=step.target, began=began, ended=ended)
                )

    async def _disturb(self, step: Step) -> None:
        assert self.fleet is not None
        name, part = step.target, self.fleet.parts[step.target]
        match step.action:
            case "kill" | "stop":
                await asyncio.to_thread(part.kill if step.action == "kill" else part.stop)
                await asyncio.sleep(step.secs)
                await part.start_again()
            case "pause":
                part.send_signal(signal.SIGSTOP)
                await asyncio.sleep(step.secs)
                part.send_signal(signal.SIGCONT)
            case "inject":
                self.fleet.set_faults(name, FAULT_RATES[name], self.seed)
                await asyncio.sleep(step.secs)
                self.fleet.set_faults(name, {}, self.seed)
            case unknown:
                raise ValueError(f"a plan cannot {unknown}")
