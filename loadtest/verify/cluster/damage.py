"""Damage that no copy can undo: to an object, to a checkpoint, to a journal.

A shard of its own is filled for each round. Then bytes are changed under it, and its owner is
killed, so that another has to read them. Readers may be refused, and must be told why; they must
never get a wrong byte, and the other shards must not feel it. What can be put back is put back, and
then everything must be there again.
"""

import asyncio
import base64
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import nats
import obstore
from nats.aio.client import Client

from loadtest.errors import RunFailedError
from loadtest.verify.cluster.faults import Scene
from loadtest.verify.cluster.machines import START_SECS, wait_until
from loadtest.verify.doors import Door, Request
from loadtest.verify.keyring import KEEPER
from loadtest.verify.messages import JSON, Decoder, Message, encode
from loadtest.verify.timeline import Violation
from protocol.clustermap import shard_of
from protocol.names import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ
from protocol.offsets import START

NOTICE_SECS = 60.0  # until it is noticed, and until it is forgotten when it was put right
POLL_SECS = 0.3
ASK_SECS = 5.0
WRITER = "w"
LARGE, SMALL = (8, 30_000), (40, 200)  # messages and their size: those that are flushed, or not
SHOWN = 3
WHOLE, WRONG, NAMED = "whole", "wrong", "named"


@dataclass(slots=True)
class Result:
    """Of all rounds of one kind of damage."""

    rounds: int = 0
    seen: Counter[str] = field(default_factory=Counter)  # what readers got
    reasons: list[str] = field(default_factory=list)  # what the cluster says, once each
    violations: list[Violation] = field(default_factory=list)

    def describe(self, name: str) -> str:
        seen = ", ".join(f"{what} {count}" for what, count in self.seen.most_common())
        told = [*self.reasons[:SHOWN], *map(str, self.violations[:SHOWN])]
        verdict = f"BROKEN: {len(self.violations)}" if self.violations else "INTACT"
        lines = "".join(f"\n    {line}" for line in told)
        return f"{name}: {self.rounds} rounds; {verdict}; reads: {seen}{lines}"


@dataclass(frozen=True, slots=True)
class Patient:
    """A shard that will be damaged, and what its only stream holds."""

    shard: int
    stream: str
    ids: list[str]

    @property
    def folder(self) -> str:
        """Of its objects."""
        return f"verified/{self.shard:03d}"

    @property
    def journal(self) -> str:
        return f"WEIR-verified-{self.shard:03d}"


class Ward:
    """`shards` are those that nothing has been done to yet."""

    def __init__(self, scene: Scene, shards: int) -> None:
        self._scene = scene
        self._count = shards
        self._left = iter(range(shards - 1))  # the last stays healthy
        self._healthy = ""

    async def run(self, name: str, rounds: int) -> Result:
        result, harm = Result(), HARMS[name]
        if not self._healthy:
            self._healthy = (await self._admit(self._count - 1, SMALL)).stream
        for _ in range(rounds):
            patient = await self._admit(next(self._left), harm.content)
            if harm.is_cold:
                await self._await_flush(patient)
            else:
                await self._await_note(patient)
            async with harm.act(self._scene, patient):
                await self._change_owner(patient)
                await self._observe(name, patient, result)
            if harm.is_mended:
                await self._await_whole(name, patient, result)
            result.rounds += 1
        return result

    # -- filling a shard -------------------------------------------------------------------------

    async def _admit(self, shard: int, content: tuple[int, int]) -> Patient:
        names = (f"verify/damage/{shard}-{number}" for number in range(100_000))
        stream = next(name for name in names if shard_of(name, self._count) == shard)
        await self._insist(Request(stream, "PUT", {"Content-Type": JSON}))
        count, size_bytes = content
        messages = [Message(stream, 0, WRITER, seq) for seq in range(count)]
        for message in messages:
            await self._append(message, size_bytes)
        return Patient(shard, stream, [message.id for message in messages])

    async def _append(self, message: Message, size_bytes: int = 200) -> None:
        headers = {PRODUCER_ID: WRITER, PRODUCER_EPOCH: "0", PRODUCER_SEQ: str(message.seq)}
        body = encode(JSON, message, size_bytes)
        headers["Content-Type"] = JSON
        await self._insist(Request(message.stream, "POST", headers, body=body))

    async def _insist(self, request: Request) -> None:
        async def is_done() -> bool:
            answer = await self._scene.world.ask(KEEPER, request)
            return answer.status in (200, 201, 204)

        await wait_until(is_done, NOTICE_SECS, f"{request.method} {request.path}")

    async def _await_flush(self, patient: Patient) -> None:
        async def is_flushed() -> bool:
            view = (await self._scene.overview.shards()).get(patient.shard)
            return view is not None and view.journal_bytes == 0

        await wait_until(is_flushed, NOTICE_SECS, f"the flush of shard {patient.shard}")

    async def _await_note(self, patient: Patient) -> None:
        """Nodes note every two seconds how far their journals have come. What was written since
        cannot be missed if the end of a journal disappears."""
        async with _connected(self._scene) as client:

            async def is_noted() -> bool:
                view = (await self._scene.overview.shards()).get(patient.shard)
                if view is None or not view.last_batch:
                    return False
                subject = f"weir.verified.tails.{view.owner}"
                found = await _ask(
                    client, "STREAM.MSG.GET.WEIR-verified", {"last_by_subj": subject}
                )
                noted = json.loads(base64.b64decode(found["message"]["data"]))
                return int(noted.get(str(patient.shard), 0)) >= view.last_batch

            await wait_until(is_noted, NOTICE_SECS, f"the note about shard {patient.shard}")

    async def _change_owner(self, patient: Patient) -> None:
        """What it remembers and has cached is gone."""
        view = (await self._scene.overview.shards()).get(patient.shard)
        if view is None:
            return
        await self._scene.kill(view.owner)
        folder = self._scene.machines.data_dir(view.owner)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        await self._scene.start(view.owner)

    # -- reading it ------------------------------------------------------------------------------

    async def _observe(self, name: str, patient: Patient, result: Result) -> None:
        """Until it is noticed; a few reads more, because another node may own it by then."""
        until = self._scene.world.doors.now() + NOTICE_SECS
        reason = ""
        while not reason and self._scene.world.doors.now() < until:
            await asyncio.sleep(POLL_SECS)
            reason = await self._look(name, patient, result) or await self._offline(patient)
            if not reason and HARMS[name].may_heal and await self._is_whole(patient):
                reason = "the servers had another copy"
        if not reason:
            text = f"shard {patient.shard} is damaged, and nothing says so"
            result.violations.append(Violation("unnoticed", patient.stream, 0.0, text))
        elif reason not in result.reasons:
            result.reasons.append(reason)
        await self._look(name, patient, result)
        healthy = Message(self._healthy, 0, WRITER, SMALL[0] + result.rounds)
        await self._append(healthy)

    async def _offline(self, patient: Patient) -> str:
        view = (await self._scene.overview.shards()).get(patient.shard)
        return f"shard offline: {view.reason}" if view and view.reason else ""

    async def _look(self, name: str, patient: Patient, result: Result) -> str:
        """Through every door; the name of the damage, if one has it."""
        named = ""
        for door in self._scene.world.front:
            what, text = await self._read(patient, door)
            result.seen[what] += 1
            if what == WRONG:
                found = f"after {name} by {door.name}: {text}"
                result.violations.append(Violation("wrong-bytes", patient.stream, 0.0, found))
                return text
            if what == NAMED:
                named = text
        return named

    async def _read(self, patient: Patient, door: Door) -> tuple[str, str]:
        world, offset, found = self._scene.world, START, list[str]()
        decoder = Decoder(patient.stream, JSON)
        while True:
            request = Request(patient.stream, query={"offset": offset})
            answer = await world.doors.ask(door, world.keyring.token(KEEPER), request)
            if answer.trouble or answer.status != 200:
                code = _code_of(answer.body) or answer.trouble or str(answer.status)
                if 400 <= answer.status < 500:
                    return WRONG, f"answer {answer.status}"
                if found != patient.ids[: len(found)]:
                    return WRONG, f"{found} instead of {patient.ids}"
                return (NAMED, f"stream: {code}") if code == "damaged" else (code, code)
            ids, damage = decoder.ids([answer.body])
            found += ids
            offset = answer.head.next_offset
            if damage:
                return WRONG, damage
            if answer.head.up_to_date:
                wrong = f"{len(found)} messages instead of {len(patient.ids)}"
                return (WHOLE, "") if found == patient.ids else (WRONG, wrong)

    async def _await_whole(self, name: str, patient: Patient, result: Result) -> None:
        until = self._scene.world.doors.now() + NOTICE_SECS
        while self._scene.world.doors.now() < until:
            if await self._is_whole(patient):
                return
            await asyncio.sleep(POLL_SECS)
        text = f"after {name} was put right it could not be read"
        result.violations.append(Violation("unrecovered", patient.stream, 0.0, text))

    async def _is_whole(self, patient: Patient) -> bool:
        reads = [await self._read(patient, door) for door in self._scene.world.front]
        return all(what == WHOLE for what, _ in reads)


def _code_of(body: bytes) -> str:
    try:
        return str(json.loads(body).get("code", ""))
    except (ValueError, AttributeError):
        return ""


# -- what is done ----------------------------------------------------------------------------------


@asynccontextmanager
async def _changed_object(scene: Scene, patient: Patient, kind: str) -> AsyncIterator[None]:
    """One byte of one object; put back at the end."""
    store = scene.machines.s3.open_store()
    keys = sorted(
        each["path"] for part in obstore.list(store, f"{patient.folder}/{kind}/") for each in part
    )
    if not keys:
        raise RunFailedError(f"shard {patient.shard} has no {kind}")
    key = keys[-1]
    data = bytes(obstore.get(store, key).bytes())
    obstore.put(store, key, _flipped(data, scene.random))
    yield
    obstore.put(store, key, data)


@asynccontextmanager
async def damage_object(scene: Scene, patient: Patient) -> AsyncIterator[None]:
    async with _changed_object(scene, patient, "packs"):
        yield


@asynccontextmanager
async def damage_checkpoint(scene: Scene, patient: Patient) -> AsyncIterator[None]:
    async with _changed_object(scene, patient, "checkpoints"):
        yield


@asynccontextmanager
async def lose_messages(scene: Scene, patient: Patient) -> AsyncIterator[None]:
    """The first ones of the journal, which no checkpoint has."""
    async with _connected(scene) as client:
        state = (await _ask(client, f"STREAM.INFO.{patient.journal}", {}))["state"]
        seq = scene.random.randint(state["first_seq"] + 1, state["last_seq"] + 1)
        await _ask(client, f"STREAM.PURGE.{patient.journal}", {"seq": seq})
    yield


@asynccontextmanager
async def foreign_message(scene: Scene, patient: Patient) -> AsyncIterator[None]:
    """Somebody else publishes to the journal."""
    async with _connected(scene) as client:
        config = (await _ask(client, f"STREAM.INFO.{patient.journal}", {}))["config"]
        foreign = scene.random.randbytes(scene.random.randint(0, 200))
        await client.request(config["subjects"][0], foreign, timeout=ASK_SECS)
    yield


@asynccontextmanager
async def _connected(scene: Scene) -> AsyncIterator[Client]:
    places = scene.machines.nats.values()
    client = await nats.connect([f"nats://127.0.0.1:{place.port}" for place in places])
    try:
        yield client
    finally:
        await client.close()


async def _ask(client: Client, call: str, what: object) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{call}", json.dumps(what).encode(), timeout=ASK_SECS)
    found = dict(json.loads(answer.data))
    if "error" in found:
        raise RunFailedError(f"{call}: {found['error']}")
    return found


@asynccontextmanager
async def damage_copy(scene: Scene, patient: Patient) -> AsyncIterator[None]:
    """At one NATS server, the journal's leader or another."""
    name = scene.random.choice(list(scene.machines.nats))
    await _damage_files(scene, patient, [name])
    yield


@asynccontextmanager
async def damage_journal(scene: Scene, patient: Patient) -> AsyncIterator[None]:
    """At all of them."""
    await _damage_files(scene, patient, list(scene.machines.nats))
    yield


async def _damage_files(scene: Scene, patient: Patient, names: list[str]) -> None:
    """A byte in the files of these NATS servers, while none of them runs: in those of the stream,
    and in the log from which a server could restore them."""
    places = scene.machines.nats
    group = (await scene.overview.journals())[patient.journal].group
    await scene.kill(*places)
    for place in map(places.__getitem__, names):
        store = place.store / "jetstream"
        for folder in (store / "$G" / "streams" / patient.journal, store / "$SYS" / "_js_" / group):
            file = max((folder / "msgs").glob("*.blk"), key=lambda path: path.stat().st_size)
            _flip_file(file, scene.random)
    await scene.start(*places)
    await wait_until(scene.overview.nats_leader, START_SECS, "NATS")
    await asyncio.sleep(1.0)


def _flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _flip_file(path: Path, random: Random) -> None:
    path.write_bytes(_flipped(path.read_bytes(), random))


Act = Callable[[Scene, Patient], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Harm:
    """A journal that is damaged must not have been flushed."""

    act: Act
    content: tuple[int, int]
    is_cold: bool = False  # everything is in objects
    is_mended: bool = False
    may_heal: bool = False  # what lies below may have noticed, and have another copy

    @property
    def flush_secs(self) -> str:
        return "1.5" if self.is_cold else "600"


HARMS = {
    "damaged-object": Harm(damage_object, LARGE, is_cold=True, is_mended=True),
    "damaged-checkpoint": Harm(damage_checkpoint, LARGE, is_cold=True, is_mended=True),
    "lost-messages": Harm(lose_messages, SMALL),
    "foreign-message": Harm(foreign_message, SMALL),
    "damaged-copy": Harm(damage_copy, SMALL, may_heal=True),
    "damaged-journal": Harm(damage_journal, SMALL, may_heal=True),
}
