"""Producers: each appends its messages one by one and moves on only when one was acknowledged.

A try whose outcome is unknown is made again with the same number, maybe through another door: the
producer headers make that safe. Now and then somebody without the right to write tries as well.
"""

import asyncio
from dataclasses import dataclass

import msgspec

from loadtest.verify.doors import Answer, Request
from loadtest.verify.history import Append
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.keyring import INTRUDER, WRITER
from loadtest.verify.messages import Message, encode
from protocol.names import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ

RETRY_SECS = (0.05, 0.3)
FORBIDDEN = 0.02  # how often an intruder tries his luck


@dataclass
class Producer:
    world: World
    keeper: Keeper
    name: str
    pause_s: float
    size_bytes: int = 0  # of a JSON message; 0: different ones
    _generation: int = -1
    _number: int = 0

    async def run(self) -> None:
        random = self.world.random
        while not self.world.stopping.is_set():
            if not self.keeper.may_write.is_set():
                await self.keeper.may_write.wait()
                continue
            # From here to the request nothing is awaited: the incarnation is the one that is open.
            if self._generation != self.keeper.generation:
                self._generation, self._number = self.keeper.generation, 0
            if self.keeper.is_closed:
                await asyncio.sleep(self.pause_s)
            elif await self._try():
                self._number += 1
                await asyncio.sleep(random.uniform(0, 2 * self.pause_s))
            else:
                await asyncio.sleep(random.uniform(*RETRY_SECS))
            if self.world.is_guarded and random.random() < FORBIDDEN:
                await self._send(self._message()._replace(producer=INTRUDER, seq=0), INTRUDER)

    async def say_one(self, until: float) -> None:
        """One message, the first of this producer, until it is acknowledged or time is up."""
        self._generation, self._number = self.keeper.generation, 0
        while self.world.doors.now() < until:
            if await self._try():
                return
            await asyncio.sleep(RETRY_SECS[0])

    def _message(self) -> Message:
        return Message(self.keeper.stream, self._generation, self.name, self._number)

    async def _try(self) -> bool:
        """Whether the message at hand is acknowledged now."""
        with self.keeper.writing():
            answer = await self._send(self._message(), WRITER)
        if answer.outcome == "unknown":
            self.keeper.note_unknown()
        if answer.outcome != "ok":
            return False
        if self._tells_its_end(answer):
            self.keeper.note_offset(answer.head.next_offset)
        return True

    def _tells_its_end(self, answer: Answer) -> bool:
        """A producer's 204 has the tail of the moment: what it sent was there before."""
        return answer.status == 200

    async def _send(self, message: Message, subject: str) -> Answer:
        """The incarnation is the epoch: what comes too late for its own is refused by the next."""
        keeper = self.keeper
        headers = {"Content-Type": keeper.kind, **self._headers(message)}
        body = encode(keeper.kind, message, self.size_bytes)
        answer = await self._ask(subject, Request(keeper.stream, "POST", headers, body=body))
        self.world.recorder.add(
            Append(
                id=message.id,
                stream=keeper.stream,
                who=message.producer,
                allowed=subject == WRITER,
                next=answer.head.next_offset,
                code=_code_of(answer),
                **answer.as_operation(),
            )
        )
        return answer

    def _headers(self, message: Message) -> dict[str, str]:
        return {
            PRODUCER_ID: message.producer,
            PRODUCER_EPOCH: str(message.generation),
            PRODUCER_SEQ: str(message.seq),
        }

    async def _ask(self, subject: str, request: Request) -> Answer:
        return await self.world.ask(subject, request, self.keeper.front)


class Appender(Producer):
    """Appends without producer headers, so it never repeats what may have been stored."""

    async def _try(self) -> bool:
        await super()._try()
        return True

    def _headers(self, message: Message) -> dict[str, str]:
        return {}

    def _tells_its_end(self, answer: Answer) -> bool:
        return True


def _code_of(answer: Answer) -> str:
    """The name that a refusal has."""
    if answer.outcome != "refused" or not answer.body:
        return ""
    try:
        problem = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return str(problem.get("code", "")) if isinstance(problem, dict) else ""
