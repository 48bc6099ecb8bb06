"""Readers: plain, long-poll and SSE, from different beginnings, some of them without the right to.

A reader is in a session as long as it goes on from where it was; a session ends when it has had
enough, when the stream is gone or another, or when a snapshot has replaced its place. Everything
that comes is taken apart at once: the history has the messages' ids, not their bytes.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import Any

from loadtest.verify.doors import LIVE_SECS, TIMEOUT, Answer, Door
from loadtest.verify.history import FINAL, LIVE, Mode, Read
from loadtest.verify.keepers import Keeper, World, shown_id
from loadtest.verify.keyring import Token, may_read
from loadtest.verify.messages import BINARY, JSON, decode, generation_of
from protocol.heads import ReplyHead
from protocol.multipart import MultipartError, split_parts
from protocol.offsets import NOW, START
from protocol.sse import Decoder, parse_control

SESSION_ANSWERS = (5, 60)
PAUSE_SECS = (0.1, 0.5)
ENDLESS = 1 << 30
BEFORE_TAIL = 10  # messages that a listener is told at once
SHUT_OUT_SECS = (0.5, 2.0)
CONDITIONAL = 0.5  # how often a plain reader at the tail asks only for news


@dataclass(slots=True)
class Place:
    """Where a session is."""

    offset: str = START
    cursor: str = ""
    last: Read | None = None
    etag: str = ""  # of that
    generation: int = -1
    left: int = 1  # answers until the reader begins anew


class Reader:
    def __init__(
        self,
        world: World,
        keeper: Keeper,
        name: str,
        subject: str,
        mode: Mode,
        *,
        door: Door | None = None,
        renewing: float = 0.9,
    ) -> None:
        """`door` is the only one it takes; `renewing` how often it takes the newest token."""
        self._world = world
        self._keeper = keeper
        self.name = name
        self._subject = subject
        self._mode = mode
        self._door = door
        self._renewing = renewing
        self._random = Random(f"{world.random.random()} {name}")
        self._session = 0
        self._place = Place()
        self._token: Token | None = None
        self._listening = False
        self._heard = ""
        self.allowed = may_read(subject, keeper.stream)

    async def run(self) -> None:
        await self._keeper.may_write.wait()
        while not self._world.stopping.is_set():
            if self._place.left <= 0:
                await asyncio.sleep(self._random.uniform(*PAUSE_SECS))
                self._begin()
            await self._step()
            if not self.allowed:
                await asyncio.sleep(self._random.uniform(*SHUT_OUT_SECS))

    async def read_all(self, until: float) -> None:
        """From the start to the tail, once; whatever fails is tried again until time is up."""
        self._place = self._new_place(START)
        while self._world.doors.now() < until:
            answer = await self._ask({"offset": self._place.offset}, {})
            await self._take(answer)
            read = self._place.last
            if read is not None and read.up_to_date:
                return
            if answer.outcome != "ok":
                await asyncio.sleep(PAUSE_SECS[0])
            elif self._place.left <= 0:
                return  # there are two incarnations, which the history shows
            if self._place.left <= 0:
                self._place = self._new_place(START)

    async def listen(self) -> None:
        """Live, from a little before the tail, until the stream is closed or this is cancelled."""
        self._listening = True
        recent = list(self._keeper.recent)[-BEFORE_TAIL:]
        self._place = self._new_place(recent[0] if recent else self._keeper.tail)
        while True:
            await self._step()
            if self._place.last is not None and self._place.last.closed:
                return
            if self._place.left <= 0:
                self._place = self._new_place(self._keeper.tail)

    def is_at(self, offset: str) -> bool:
        """Whether it waits there, or beyond."""
        return self._place.offset >= offset

    def has_heard(self, offset: str) -> bool:
        return self._heard >= offset

    def give_up(self) -> None:
        """Write down that nothing came: silence leaves no line of its own."""
        self._asked = self._choose()
        now = self._world.doors.now()
        self._record(Answer(now, now, trouble=TIMEOUT))

    def _begin(self) -> None:
        """Mostly from the start of the stream."""
        offset = self._random.choice((START, START, START, NOW, "recent"))
        if offset == "recent":
            recent = self._keeper.recent
            offset = self._random.choice(recent) if recent else START
        self._place = self._new_place(offset)

    def _new_place(self, offset: str) -> Place:
        """Of another session."""
        self._session += 1
        left = (
            ENDLESS
            if self._mode == FINAL or self._listening
            else self._random.randint(*SESSION_ANSWERS)
        )
        return Place(offset, left=left)

    # -- the three ways ----------------------------------------------------------------------------

    async def _step(self) -> None:
        match self._mode:
            case "long-poll":
                await self._wait()
            case "sse":
                await self._follow()
            case _:
                await self._look()

    async def _look(self) -> None:
        """Go on, or look at the same range again and take the old answer where it still holds."""
        place, told = self._place, self._place.last
        headers = {}
        if told and place.etag and told.asked != NOW and self._random.random() < CONDITIONAL:
            headers["If-None-Match"] = place.etag
            place.offset = told.asked
        answer = await self._ask({"offset": place.offset}, headers)
        if answer.status == 304 and told is not None:
            self._record(
                answer,
                ids=told.ids,
                next=told.next,
                up_to_date=told.up_to_date,
                closed=told.closed,
            )
            place.offset = told.next
        else:
            await self._take(answer)
        if answer.status not in (200, 304) or (place.last and place.last.up_to_date):
            await asyncio.sleep(self._random.uniform(*PAUSE_SECS))

    async def _wait(self) -> None:
        place = self._place
        query = {"offset": place.offset, "live": "long-poll"}
        if place.cursor:
            query["cursor"] = place.cursor
        answer = await self._ask(query, {}, LIVE_SECS)
        await self._take(answer)
        if answer.outcome != "ok":
            await asyncio.sleep(self._random.uniform(*PAUSE_SECS))

    async def _follow(self) -> None:
        place = self._place
        query = {"offset": place.offset, "live": "sse"}
        if place.cursor:
            query["cursor"] = place.cursor
        door, token = self._choose()
        doors = self._world.doors
        async with doors.open(door, self._keeper.stream, token.header, query) as (answer, pieces):
            self._asked = door, token
            if answer.status == 200:
                await self._take_events(answer, pieces)
        if answer.status != 200:
            await self._take(answer)
        elif answer.trouble:
            self._record(answer)
        if answer.status != 200 or answer.trouble:
            await asyncio.sleep(self._random.uniform(*PAUSE_SECS))

    async def _take_events(self, answer: Answer, pieces: AsyncIterator[bytes]) -> None:
        decoder = Decoder()
        data: list[str] = []
        async for piece in pieces:
            for event in decoder.feed(piece):
                if event.kind == "data":
                    data.append(event.data)
                elif event.kind == "control":
                    answer.ended = self._world.doors.now()
                    self._take_pair(answer, data, parse_control(event.data))
                    data = []
            is_over = self._world.stopping.is_set() and not self._listening
            if self._place.left <= 0 or is_over:
                return

    def _take_pair(self, answer: Answer, data: list[str], control: ReplyHead) -> None:
        ids: list[str] = []
        damage = ""
        for text in data:
            body = b64decode(text) if self._keeper.kind == BINARY else text.encode()
            more, wrong = self._decode(body)
            ids += more
            damage = damage or wrong
        read = self._record(
            answer,
            ids=ids,
            damage=damage,
            next=control.next_offset,
            cursor=control.cursor,
            up_to_date=control.up_to_date,
            closed=control.closed,
        )
        self._move(read)

    # -- answers -----------------------------------------------------------------------------------

    async def _take(self, answer: Answer) -> None:
        """Record a whole answer and go where it says."""
        if answer.status in (200, 204) and not answer.trouble:
            head = answer.head
            ids, damage = self._decode(answer.body) if answer.status == 200 else ([], "")
            read = self._record(
                answer,
                ids=ids,
                damage=damage,
                next=head.next_offset,
                cursor=head.cursor if self._mode == "long-poll" else "",
                up_to_date=head.up_to_date,
                closed=head.closed,
            )
            self._place.etag = head.etag
            self._move(read)
            return
        self._record(answer, ids=self._leaked(answer))
        if answer.status == 410 and self.allowed:
            await self._bootstrap()
        elif answer.status in (400, 404, 410):
            self._place.left = 0

    def _move(self, read: Read) -> None:
        place = self._place
        self._heard = max(self._heard, read.next)
        generation = generation_of(read.ids[0]) if read.ids and "/" not in read.ids[0] else -1
        if place.generation >= 0 and generation not in (-1, place.generation):
            place.left = 0  # another incarnation: what we have of it is from its middle
            return
        if generation >= 0:
            place.generation = generation
        place.offset, place.last = read.next or place.offset, read
        place.cursor = read.cursor or place.cursor
        place.left = 0 if read.closed else place.left - 1

    async def _bootstrap(self) -> None:
        """Begin a session with a snapshot: by itself, or with all that follows it."""
        self._place = self._new_place(START)
        mode = self._random.choice(("bootstrap", "snapshot"))
        answer = await self._ask({}, {}, part=f"/{mode}")
        if mode == "snapshot" and answer.status == 307:
            began = answer.began
            answer = await self._ask({}, {}, part=_path_of(answer.head.location))
            answer.began = began
        if answer.status != 200 or answer.trouble:
            self._record(answer, mode=mode, ids=self._leaked(answer))
            self._place.left = 0
            return
        parts = _split(answer) if mode == "bootstrap" else [answer.body]
        self._take_snapshot(mode, answer, parts)

    def _take_snapshot(self, mode: str, answer: Answer, parts: list[bytes]) -> None:
        ids: list[str] = []
        snapshot = parts[0] if parts else b""
        damage = "" if parts else "the last part is missing"
        for part in parts[1:]:
            more, wrong = self._decode(b"[" + part + b"]" if self._keeper.kind == JSON else part)
            ids += more
            damage = damage or wrong
        told = json.loads(snapshot) if snapshot else {}
        if told and told["stream"] != self._keeper.stream:
            ids.insert(0, f"{told['stream']}/snapshot")
        read = self._record(
            answer,
            mode=mode,
            ids=ids,
            damage=damage,
            next=answer.head.next_offset,
            snapshot=told.get("count", 0),
            snapshot_of=told.get("generation", -1),
        )
        self._place.generation = read.snapshot_of
        self._place.offset = read.next

    def _decode(self, body: bytes) -> tuple[list[str], str]:
        messages, damage = decode(self._keeper.kind, body)
        return [shown_id(self._keeper.stream, message) for message in messages], damage

    def _leaked(self, answer: Answer) -> list[str]:
        """Messages in an answer that should have none."""
        return self._decode(answer.body)[0] if answer.body else []

    # -- pieces ------------------------------------------------------------------------------------

    def _choose(self) -> tuple[Door, Token]:
        if self._token is None or self._random.random() < self._renewing:
            self._token = self._world.keyring.token(self._subject)
        return self._door or self._world.choose_door(), self._token

    async def _ask(
        self,
        query: dict[str, str],
        headers: dict[str, str],
        timeout_s: float = LIVE_SECS,
        part: str = "",
    ) -> Answer:
        self._asked = door, token = self._choose()
        return await self._world.doors.ask(
            door,
            "GET",
            self._keeper.stream,
            token.header | headers,
            query=query,
            part=part,
            timeout_s=timeout_s,
        )

    def _record(self, answer: Answer, *, mode: str = "", **told: Any) -> Read:
        door, token = self._asked
        asked = "" if mode else self._place.offset
        read = Read(
            stream=self._keeper.stream,
            who=self.name,
            door=door.name,
            began=answer.began,
            ended=answer.ended,
            outcome=answer.outcome,
            status=answer.status,
            trouble=answer.trouble,
            allowed=self.allowed,
            key=token.key,
            mode=mode or self._mode,
            last=self._listening,
            session=self._session,
            asked=asked,
            cursor_sent="" if mode or self._mode not in LIVE else self._place.cursor,
            **told,
        )
        self._world.recorder.add(read)
        return read


def _path_of(location: str) -> str:
    """Of a snapshot, below its stream."""
    return f"/snapshot/{location.rpartition('/')[2]}"


def _split(answer: Answer) -> list[bytes]:
    """The parts of a bootstrap; none if its end is missing."""
    try:
        return [part.body for part in split_parts(answer.head.content_type, answer.body)]
    except MultipartError:
        return []
