"""`weir verify --cluster`: clients, faults and a history for each kind of fault, and a verdict."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from math import inf
from pathlib import Path
from random import Random

import aiohttp

from loadtest.verify.check import Findings, check_history
from loadtest.verify.cluster.clusterreport import Summary, Tally, describe_cluster
from loadtest.verify.cluster.crew import Crew
from loadtest.verify.cluster.damage import HARMS, Result, Ward
from loadtest.verify.cluster.faults import FAULTS, Scene
from loadtest.verify.cluster.machines import Machines, Shape
from loadtest.verify.cluster.rounds import Rounds
from loadtest.verify.doors import Doors, open_doors
from loadtest.verify.history import End, Recorder, Run
from loadtest.verify.keepers import World
from loadtest.verify.keyring import Keyring, serving_keys
from loadtest.verify.lastlook import look_last
from loadtest.verify.plan import CLUSTER, FULL_JOURNAL, Step
from loadtest.verify.run import Tell
from loadtest.verify.timeline import sort_history


@dataclass(frozen=True, slots=True)
class Campaign:
    """Which faults, in which order, and how busy the clients are."""

    seed: int = 1
    seconds: float = 300.0
    faults: Sequence[str] = tuple(FAULTS)
    damage: Sequence[str] = ()  # each kind with a cluster of its own, at the end
    rounds: int = 0  # of each fault; 0: all in turn, for some seconds
    sequence: Sequence[str] = ()  # instead of all that: these, one after another
    pause_s: float = 0.5  # between two appends of a producer
    streams: int = 16  # that are worked with, besides a pulse in each shard

    def episodes(self) -> Iterator[tuple[str, list[str]]]:
        """Each with a history of its own: its name, and its faults in order."""
        if self.sequence:
            yield "sequence", list(self.sequence)
        elif self.rounds:
            for name in self.faults:
                yield name, [name] * self.rounds
        else:
            yield "all", []


async def verify_cluster(folder: Path, campaign: Campaign, shape: Shape, tell: Tell) -> Findings:
    findings = Findings([], [], [])
    if campaign.faults:
        findings = await verify_faults(folder, campaign, shape, tell)
    damaged = await verify_damage(folder, campaign, shape, tell)
    return Findings(findings.violations + damaged.violations, [], findings.missing)


async def verify_faults(folder: Path, campaign: Campaign, shape: Shape, tell: Tell) -> Findings:
    keyring = Keyring()
    findings, summaries = Findings([], [], []), list[Summary]()
    async with serving_keys(keyring) as jwks_url:
        machines = Machines(folder, jwks_url, shape)
        try:
            await machines.start()
            for number, (name, faults) in enumerate(campaign.episodes()):
                episode = Episode(machines, keyring, campaign, number, name)
                tally = await episode.run(faults)
                tell(tally.describe())
                summaries.append(tally.summary())
                findings.violations.extend(tally.findings.violations)
                findings.missing.extend(tally.findings.missing)
                if not tally.line.is_over:
                    break  # the cluster did not recover
        finally:
            await machines.kill()
    tell(describe_cluster(summaries))
    return findings


async def verify_damage(folder: Path, campaign: Campaign, shape: Shape, tell: Tell) -> Findings:
    """Each kind with a cluster of its own: damaged shards stay so."""
    findings = Findings([], [], [])
    for name in campaign.damage:
        here = replace(
            shape,
            shards=max(1, campaign.rounds) + 1,
            settings={**shape.settings, "DS_CLUSTER__FLUSH_SECS": HARMS[name].flush_secs},
        )
        result = await _damage(folder / name, name, campaign, here)
        tell(result.describe(name))
        findings.violations.extend(result.violations)
    return findings


async def _damage(folder: Path, name: str, campaign: Campaign, shape: Shape) -> Result:
    keyring = Keyring()
    async with serving_keys(keyring) as jwks_url:
        machines = Machines(folder, jwks_url, shape)
        try:
            await machines.start()
            async with open_doors() as doors, aiohttp.ClientSession() as session:
                random = Random(campaign.seed)
                world = _world(machines, keyring, doors, Recorder(BytesIO()), random)
                scene = Scene(machines, machines.overview(session), world, random, [])
                return await Ward(scene, shape.shards).run(name, max(1, campaign.rounds))
        finally:
            await machines.kill()


def _world(
    machines: Machines, keyring: Keyring, doors: Doors, recorder: Recorder, random: Random
) -> World:
    return World(
        doors,
        machines.doors,
        machines.node_doors,
        keyring,
        recorder,
        random,
        asyncio.Event(),
        is_guarded=False,
    )


class Episode:
    """Clients and one fault after another, then peace and a last look at all."""

    def __init__(
        self, machines: Machines, keyring: Keyring, campaign: Campaign, number: int, name: str
    ) -> None:
        self._machines = machines
        self._keyring = keyring
        self._campaign = campaign
        self._number = number
        self._name = name

    async def run(self, faults: Sequence[str]) -> Tally:
        campaign = self._campaign
        seed = campaign.seed + self._number
        started = datetime.now(UTC).isoformat(timespec="seconds")
        plan = [Step(0.0, fault, CLUSTER) for fault in faults]
        run = Run(seed, campaign.seconds, started, list(self._machines.parts), plan)
        with (self._machines.folder / f"history-{self._name}.jsonl").open("wb") as file:
            recorder = Recorder(file)
            recorder.add(run)
            async with open_doors() as doors, aiohttp.ClientSession() as session:
                world = _world(self._machines, self._keyring, doors, recorder, Random(seed))
                world.note_published(self._keyring.signing)
                await self._campaign_in(world, session, faults)
        line = sort_history(recorder.records)
        return Tally(self._name, line, check_history(line), self._machines.shape.shards)

    async def _campaign_in(
        self, world: World, session: aiohttp.ClientSession, faults: Sequence[str]
    ) -> None:
        campaign = self._campaign
        crew = Crew(
            world,
            self._machines.shape.shards,
            f"e{self._number}",
            streams=campaign.streams,
            pause_s=campaign.pause_s,
            fills=FULL_JOURNAL in (faults or campaign.faults),
        )
        await asyncio.gather(*(keeper.do("create") for keeper in crew.keepers))
        overview = self._machines.overview(session)
        scene = Scene(self._machines, overview, world, Random(world.random.random()), crew.fillers)
        async with asyncio.TaskGroup() as group:
            crew.start(group, scene.dead)
            is_well = await Rounds(scene, crew.pulses).run(*self._order(faults, world))
            crew.stop(is_well=is_well)
        if is_well:  # else nobody would come to an end
            await look_last(world, crew.keepers)
            world.recorder.add(End(at=world.doors.now()))

    def _order(self, faults: Sequence[str], world: World) -> tuple[Iterator[str], float]:
        if faults:
            return iter(faults), inf
        return _shuffled(world.random, self._campaign.faults), self._campaign.seconds


def _shuffled(random: Random, faults: Sequence[str]) -> Iterator[str]:
    """Each in turn, in an order of its own each time."""
    while True:
        yield from random.sample(faults, len(faults))
