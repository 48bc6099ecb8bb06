"""What only a cluster needs: a pulse in each shard, readers of tails at every node, forks."""

import asyncio
from dataclasses import dataclass, field, replace

from loadtest.verify.doors import PLAIN_SECS, Answer, Door, Request
from loadtest.verify.history import HEAD, ForkResult
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.keyring import KEEPER, WRITER
from loadtest.verify.messages import Decoder, Message, Told, encode
from loadtest.verify.producers import RETRY_SECS, Producer
from loadtest.verify.readers import Reader
from protocol.names import (
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PRODUCER_SEQ,
    STREAM_FORK_OFFSET,
    STREAM_FORKED_FROM,
)
from protocol.offsets import START
from protocol.paths import stream_url

PULSE_SECS = 0.25
PULSE_TIMEOUT_SECS = 2.0  # then it asks elsewhere: a producer may repeat what it sent
WATCH_SECS = (0.2, 0.8)
WATCH_TIMEOUTS_SECS = (1.5, 1.5, 3.0, PLAIN_SECS)
BEFORE_TAIL = 20  # messages
HEADS = 0.3  # of the looks at a tail
REFUSALS = 3
FORK_SECS = (1.0, 4.0)
FORK_APPENDS = 3
FORK_PATIENCE_SECS = 30.0


@dataclass
class Pulse(Producer):
    """Appends all the time, so that its acknowledgements show when the shard takes writes."""

    shard: int = 0
    dead: set[str] = field(default_factory=set)  # doors that a balancer would know to be dead
    acknowledged: float = 0.0  # when the last append that was acknowledged had begun

    async def _try(self) -> bool:
        began = self.world.doors.now()
        is_done = await super()._try()
        if is_done:
            self.acknowledged = began
        return is_done

    async def _ask(self, subject: str, request: Request) -> Answer:
        alive = [door for door in self.keeper.front if door.name not in self.dead]
        door = self.world.random.choice(alive or self.keeper.front)
        token = self.world.keyring.token(subject)
        return await self.world.doors.ask(door, token, request, PULSE_TIMEOUT_SECS)


class Watcher(Reader):
    """Looks at the tail through any door, from a little before it. Mostly it does not wait long for
    an answer: so some of its requests are new when a process that was stopped goes on."""

    async def run(self) -> None:
        await self.keeper.may_write.wait()
        while not self._is_over():
            recent = list(self.keeper.recent)[-BEFORE_TAIL:]
            self._begin_at(self._random.choice(recent) if recent else START)
            secs = self._random.choice(WATCH_TIMEOUTS_SECS)
            if self._random.random() < HEADS:
                await self._look_at_head(secs)
            else:
                request = Request(self.keeper.stream, query={"offset": self._progress.offset})
                await self._take(await self.world.doors.ask(*self._choose(), request, secs))
            await asyncio.sleep(self._random.uniform(*WATCH_SECS))

    async def _look_at_head(self, secs: float) -> None:
        """Its answer says where the stream ends."""
        request = Request(self.keeper.stream, "HEAD")
        answer = await self.world.doors.ask(*self._choose(), request, secs)
        self._progress.offset = ""
        self._record(answer, Told(head=replace(answer.head, up_to_date=True)), mode=HEAD)


@dataclass
class Filler(Producer):
    """Appends large messages until there is no room for more."""

    async def fill(self, until: float) -> None:
        """Or until that time, or until somebody else has the stream."""
        refusals = 0
        while refusals < REFUSALS and self.world.doors.now() < until:
            if not self.keeper.may_write.is_set() or self.keeper.is_closed:
                return
            if self._generation != self.keeper.generation:
                self._generation, self._number = self.keeper.generation, 0
            if await self._try():
                self._number += 1
            else:
                refusals += 1
                await asyncio.sleep(RETRY_SECS[1])


@dataclass
class Forker:
    """Forks streams at any place into other shards, writes a little to the fork and reads it."""

    world: World
    sources: list[Keeper]
    name: str
    _count: int = 0

    async def run(self) -> None:
        random = self.world.random
        while not self.world.stopping.is_set():
            await asyncio.sleep(random.uniform(*FORK_SECS))
            keeper = random.choice(self.sources)
            if keeper.recent and keeper.may_write.is_set():
                self._count += 1
                await self._fork(keeper, random.choice(keeper.recent))

    async def _fork(self, keeper: Keeper, offset: str) -> None:
        world, stream = self.world, f"verify/forks/{self.name}-{self._count}"
        began, generation = world.doors.now(), keeper.generation
        headers = {
            "Content-Type": keeper.kind,
            STREAM_FORKED_FROM: stream_url(keeper.stream),
            STREAM_FORK_OFFSET: offset,
        }
        created = await self._insist(Request(stream, "PUT", headers), (200, 201))
        if created is None:
            return
        created_by = world.doors.now()
        messages = [Message(stream, 0, self.name, seq) for seq in range(FORK_APPENDS)]
        acknowledged = [
            message.id for message in messages if await self._append(stream, keeper.kind, message)
        ]
        for door in world.front:
            ids, damage = await self._read(stream, keeper.kind, door)
            if ids is not None:
                world.recorder.add(
                    ForkResult(
                        stream=stream,
                        source=keeper.stream,
                        generation=generation,
                        offset=offset,
                        door=door.name,
                        began=began,
                        ended=created_by,
                        ids=ids,
                        acknowledged=acknowledged,
                        damage=damage,
                    )
                )
        await self._insist(Request(stream, "DELETE"), (204,))

    async def _append(self, stream: str, kind: str, message: Message) -> bool:
        headers = {
            "Content-Type": kind,
            PRODUCER_ID: message.producer,
            PRODUCER_EPOCH: "0",
            PRODUCER_SEQ: str(message.seq),
        }
        request = Request(stream, "POST", headers, body=encode(kind, message))
        return await self._insist(request, (200, 204), WRITER) is not None

    async def _insist(
        self, request: Request, wanted: tuple[int, ...], subject: str = KEEPER
    ) -> Answer | None:
        """None if it is refused, or never answered."""
        until = self.world.doors.now() + FORK_PATIENCE_SECS
        while self.world.doors.now() < until:
            answer = await self.world.ask(subject, request)
            if answer.status in wanted and not answer.trouble:
                return answer
            if 400 <= answer.status < 500 and answer.status != 429:
                return None
            await asyncio.sleep(WATCH_SECS[1])
        return None

    async def _read(self, stream: str, kind: str, door: Door) -> tuple[list[str] | None, str]:
        """From its start to its tail; None if that was not possible."""
        decoder, offset, found = Decoder(stream, kind), START, list[str]()
        until = self.world.doors.now() + FORK_PATIENCE_SECS
        while self.world.doors.now() < until:
            token = self.world.keyring.token(KEEPER)
            request = Request(stream, query={"offset": offset})
            answer = await self.world.doors.ask(door, token, request)
            if answer.status != 200 or answer.trouble:
                if answer.status in (400, 404):
                    return found, f"answer {answer.status}"
                if answer.status == 410:
                    return None, ""
                await asyncio.sleep(WATCH_SECS[1])
                continue
            ids, damage = decoder.ids([answer.body])
            found += ids
            offset = answer.head.next_offset
            if damage or answer.head.up_to_date:
                return found, damage
        return None, ""
