"""Each stream has a keeper: it creates, closes, compacts, deletes and re-creates it, and audits it.

An audit reads straight from the origin what is new since the last one. The incarnation's audits
together are the truth that everybody's answers are held against.

A request whose outcome is unknown may still be on its way. Before a new incarnation begins, the
keeper waits until any such ghost has arrived somewhere or died: the protocol could not tell it
from a request that is meant for the new one.
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Literal

from loadtest.errors import RunFailedError
from loadtest.verify.doors import Answer, Door, Doors, Request
from loadtest.verify.history import Change, Outcome, Published, Recorder, Truth
from loadtest.verify.keyring import KEEPER, Keyring
from loadtest.verify.messages import JSON, Decoder
from protocol.names import STREAM_CLOSED
from protocol.offsets import START

GHOST_SECS = 8.0
RETRY_SECS = 0.2
PATIENCE_SECS = 120.0
RECENT_OFFSETS = 200

Action = Literal["create", "close", "delete", "snapshot"]


@dataclass(slots=True)
class World:
    """What all clients of a run share."""

    doors: Doors
    front: list[Door]  # ways in, for everyone but the auditors
    origins: list[Door]
    keyring: Keyring
    recorder: Recorder
    random: Random
    stopping: asyncio.Event
    is_guarded: bool = True  # every door asks for a token
    _frozen: bool = False
    _frozen_at: float = inf
    _thawed_at: float = -inf

    async def ask(self, subject: str, request: Request, front: list[Door] | None = None) -> Answer:
        """By any door, or by one of these, with the newest token."""
        token = self.keyring.token(subject)
        door = self.random.choice(front or self.front)
        return await self.doors.ask(door, token, request)

    def note_frozen(self, *, is_frozen: bool) -> None:
        """A process or a link keeps what it was sent, and may deliver it later."""
        self._frozen = is_frozen
        if is_frozen:
            self._frozen_at = self.doors.now()
        else:
            self._thawed_at = self.doors.now()

    async def outlive_ghosts(self, last_unknown: float) -> None:
        """Until whatever got no answer has arrived somewhere or died."""
        while True:
            was_frozen = last_unknown + GHOST_SECS >= self._frozen_at
            if not (was_frozen and self._frozen):
                since = max(last_unknown, self._thawed_at) if was_frozen else last_unknown
                if self.doors.now() >= since + GHOST_SECS:
                    return
            await asyncio.sleep(RETRY_SECS)

    def note_published(self, key: str) -> None:
        self.recorder.add(Published(key=key, at=self.doors.now()))


class Keeper:
    def __init__(
        self, world: World, stream: str, kind: str, front: list[Door] | None = None
    ) -> None:
        self._world = world
        self._front = front
        self.stream = stream
        self.kind = kind
        self.generation = -1
        self.may_write = asyncio.Event()
        self.is_closed = False
        self.recent: deque[str] = deque(maxlen=RECENT_OFFSETS)  # offsets, for readers to begin at
        self._audited, self._count = START, 0
        self._writing = 0
        self._all_quiet = asyncio.Event()
        self._all_quiet.set()
        self._last_unknown = -inf
        self._work = asyncio.Lock()

    @property
    def front(self) -> list[Door]:
        """Ways in for its clients."""
        return self._front or self._world.front

    @property
    def is_busy(self) -> bool:
        """Whether it is at something, so that more would have to wait."""
        return self._work.locked()

    @property
    def tail(self) -> str:
        """At the last audit."""
        return self._audited

    # -- for producers -----------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around each request that appends."""
        self._writing += 1
        self._all_quiet.clear()
        try:
            yield
        finally:
            self._writing -= 1
            if not self._writing:
                self._all_quiet.set()

    def note_offset(self, offset: str) -> None:
        """Of an acknowledgement; empty if a fault took it away."""
        if offset:
            self.recent.append(offset)

    def note_unknown(self) -> None:
        self._last_unknown = self._world.doors.now()

    # -- changes -----------------------------------------------------------------------------------

    async def do(self, what: str) -> None:
        """One thing after another."""
        async with self._work:
            match what:
                case "create":
                    await self._create()
                case "recreate":
                    self.may_write.clear()
                    await self._all_quiet.wait()
                    await self._audit()
                    await self._insist("delete")
                    await self._create()
                case "close":  # what producers have under way is before it or refused
                    await self._insist("close")
                    self.is_closed = True
                case "snapshot":
                    await self._audit()
                    if self._count:
                        await self._insist("snapshot")
                case "audit":
                    await self._audit()
                case unknown:
                    raise ValueError(f"a keeper cannot {unknown}")

    async def _create(self) -> None:
        self.generation += 1
        self._audited, self._count = START, 0
        self.recent.clear()
        self.is_closed = False
        await self._world.outlive_ghosts(self._last_unknown)
        await self._insist("create")
        self.may_write.set()

    async def _insist(self, action: Action) -> None:
        """Until it is done, or certainly cannot be."""
        since, first = self._world.doors.now(), True
        while True:
            # Through a gateway, if clients use one: it must know of what is no longer there.
            doors = [door for door in self.front if not door.is_origin] or self.front
            answer = await self._world.ask(KEEPER, self._request(action), doors)
            outcome = _outcome(action, answer, first)
            self._world.recorder.add(
                Change(
                    action=action,
                    generation=self.generation,
                    stream=self.stream,
                    who=KEEPER,
                    next=answer.head.next_offset,
                    offset=self._audited if action == "snapshot" else "",
                    **answer.as_operation() | {"outcome": outcome},
                )
            )
            if outcome == "ok" or (action == "snapshot" and answer.status in (400, 404, 409, 410)):
                return
            if outcome == "unknown":
                first = False
                self.note_unknown()
            await self._pause(since, action)

    async def _pause(self, since: float, what: str) -> None:
        """Before another try. A fleet that never serves again is no matter of promises."""
        if self._world.doors.now() > since + PATIENCE_SECS:
            raise RunFailedError(f"no {what} of {self.stream} within {PATIENCE_SECS:.0f} s")
        await asyncio.sleep(RETRY_SECS)

    def _request(self, action: Action) -> Request:
        match action:
            case "create":
                return Request(self.stream, "PUT", {"Content-Type": self.kind})
            case "delete":
                return Request(self.stream, "DELETE")
            case "close":
                return Request(self.stream, "POST", {STREAM_CLOSED: "true"})
            case "snapshot":
                made_of = {"stream": self.stream, "generation": self.generation}
                body = json.dumps(made_of | {"count": self._count}).encode()
                path, headers = f"{self.stream}/snapshot/{self._audited}", {"Content-Type": JSON}
                return Request(path, "PUT", headers, body=body)

    # -- the truth ---------------------------------------------------------------------------------

    async def _audit(self) -> None:
        """All that came since the last audit."""
        world, is_over = self._world, False
        while not is_over:
            since = world.doors.now()
            request = Request(self.stream, query={"offset": self._audited})
            while (answer := await self._ask_origin(request)).trouble:
                await self._pause(since, "audit")
            ids, damage = Decoder(self.stream, self.kind).ids([answer.body])
            reached, is_over = answer.head.next_offset, answer.head.up_to_date
            if answer.status != 200:  # but it must be there
                ids, damage, reached, is_over = [], f"answer {answer.status}", self._audited, True
            world.recorder.add(
                Truth(
                    stream=self.stream,
                    generation=self.generation,
                    began=answer.began,
                    ended=answer.ended,
                    asked=self._audited,
                    next=reached,
                    ids=ids,
                    closed=answer.head.closed,
                    damage=damage,
                )
            )
            self._audited = reached
            self._count += len(ids)

    async def _ask_origin(self, request: Request) -> Answer:
        world = self._world
        return await world.doors.ask(world.random.choice(world.origins), None, request)


def _outcome(action: Action, answer: Answer, first: bool) -> Outcome:
    """A stream that is not there is deleted, and closing what is closed is fine."""
    if action == "delete" and answer.status == 404 and not first:
        return "ok"
    return answer.outcome
