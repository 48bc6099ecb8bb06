"""A whole run: clients and nemesis together for a while, then peace and a last look at all."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from random import Random

from loadtest.verify.availability import measure
from loadtest.verify.check import Findings, check_history
from loadtest.verify.doors import Door, open_doors
from loadtest.verify.fleet import Fleet, make_fleet
from loadtest.verify.history import MODES, End, Injected, Record, Recorder, Run, parse_lines
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.keyring import AREAS, INTRUDER, READERS, Keyring, serving_keys
from loadtest.verify.lastlook import look_last
from loadtest.verify.messages import BINARY, JSON, KINDS, TEXT
from loadtest.verify.nemesis import Nemesis
from loadtest.verify.plan import make_plan
from loadtest.verify.producers import Producer
from loadtest.verify.readers import Reader
from loadtest.verify.timeline import sort_history
from loadtest.verify.verdict import describe

FILE = "history.jsonl"  # in the folder of its run
FILES = "history*.jsonl"  # a cluster's run has several
SHORT = {JSON: "json", TEXT: "text", BINARY: "binary"}
STREAMS = {f"verify/{area}/{SHORT[kind]}": kind for area in AREAS for kind in KINDS}

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many clients there are, and how busy."""

    producers: int = 2  # of each stream
    readers: int = 1  # of each stream and mode
    pause_s: float = 0.25  # between two appends of a producer


async def verify(
    folder: Path, seed: int, seconds: float, crowd: Crowd, tell: Tell, left_out: Sequence[str] = ()
) -> Findings:
    """A run with a fleet of its own; its history, logs and data are kept in the folder."""
    keyring = Keyring()
    async with serving_keys(keyring) as jwks_url:
        fleet, origin = make_fleet(folder, jwks_url, left_out)
        parts = list(fleet.parts)
        plan = make_plan(seed, seconds, parts, list(STREAMS))
        for missing in fleet.missing:
            tell(f"left out: {missing}")
        tell("\n  ".join(["The plan:", *map(str, plan)]))
        started = datetime.now(UTC).isoformat(timespec="seconds")
        run = Run(seed, seconds, started, parts, plan)
        try:
            await fleet.start()
            with (folder / FILE).open("wb") as file:
                recorder = Recorder(file)
                await campaign(run, crowd, recorder, keyring, fleet.front, origin, fleet)
        finally:
            await fleet.kill()
    return judge(recorder.records, tell)


def read_history(path: Path) -> list[Record]:
    with path.open("rb") as file:
        return list(parse_lines(file))


def judge(records: Sequence[Record], tell: Tell) -> Findings:
    line = sort_history(records)
    findings = check_history(line)
    tell(describe(line, findings, measure(line)))
    return findings


async def campaign(
    run: Run,
    crowd: Crowd,
    recorder: Recorder,
    keyring: Keyring,
    front: list[Door],
    origin: Door,
    fleet: Fleet | None = None,
) -> None:
    """Everything between a fleet that stands and a history that is complete."""
    recorder.add(run)
    async with open_doors() as doors:
        random = Random(run.seed)
        world = World(doors, front, [origin], keyring, recorder, random, asyncio.Event())
        world.note_published(keyring.signing)
        keepers = {name: Keeper(world, name, kind) for name, kind in STREAMS.items()}
        await asyncio.gather(*(keeper.do("create") for keeper in keepers.values()))
        async with asyncio.TaskGroup() as group:
            readers = [
                group.create_task(reader.run(), name=reader.name)
                for reader in _readers(world, keepers, crowd)
            ]
            for keeper, number in product(keepers.values(), range(crowd.producers)):
                producer = Producer(world, keeper, f"p{number}", crowd.pause_s)
                group.create_task(producer.run(), name=producer.name)
            until = doors.now() + run.seconds
            await Nemesis(world, keepers, fleet, run.seed).run(run.plan)
            await asyncio.sleep(max(0.0, until - doors.now()))
            # Producers end by themselves: each append must have its line in the history.
            world.stopping.set()
            for reader in readers:
                reader.cancel()
        await look_last(world, list(keepers.values()))
        for (place, fault), count in sorted(fleet.injected().items() if fleet else ()):
            recorder.add(Injected(place=place, fault=fault, count=count))
        recorder.add(End(at=doors.now()))


def _readers(world: World, keepers: dict[str, Keeper], crowd: Crowd) -> Iterator[Reader]:
    """For each stream: some in each mode, two who may not read it, and one who never takes a new
    token, so that he may not either once its key is gone."""
    for stream, keeper in keepers.items():
        area = stream.split("/")[1]
        subjects = (READERS[area], READERS["*"])
        for mode, number in product(MODES, range(crowd.readers)):
            name = f"{mode}-{number} of {stream}"
            yield Reader(world, keeper, name, subjects[number % len(subjects)], mode)
        for subject in (READERS["b" if area == "a" else "a"], INTRUDER):
            mode = world.random.choice(MODES)
            yield Reader(world, keeper, f"{subject} at {stream}", subject, mode)
        yield Reader(world, keeper, f"idler at {stream}", READERS["*"], "catch-up", renewing=0.0)
