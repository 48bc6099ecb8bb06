"""Readers: plain, long-poll and SSE, from different beginnings, some of them without the right to.

A reader is in a session as long as it goes on from where it was; a session ends when it has had
enough, when the stream is gone or another, or when a snapshot has replaced what comes next.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random

from loadtest.verify.doors import LIVE_SECS, Answer, Door, Request
from loadtest.verify.history import LIVE, Mode, ReadResult
from loadtest.verify.keepers import Keeper, World
from loadtest.verify.keyring import Token, may_read
from loadtest.verify.messages import Decoder, Told, generation_of
from protocol import sse
from protocol.heads import ReplyHead
from protocol.offsets import NOW, START

SESSION_ANSWERS = (5, 60)
PAUSE_SECS = (0.1, 0.5)
SHUT_OUT_SECS = (0.5, 2.0)
CONDITIONAL = 0.5  # how often a plain reader at the tail asks only for news


@dataclass(slots=True)
class Progress:
    """Where a session is."""

    offset: str = START
    left: int = 1  # answers until the reader begins anew
    cursor: str = ""
    last: ReadResult | None = None
    head: ReplyHead = ReplyHead()  # of that
    generation: int = -1

    def query(self, live: str) -> dict[str, str]:
        cursor = {"cursor": self.cursor} if self.cursor else {}
        return {"offset": self.offset, "live": live} | cursor

    def move(self, read: ReadResult) -> None:
        generation = generation_of(read.ids[0]) if read.ids and "/" not in read.ids[0] else -1
        if self.generation >= 0 and generation not in (-1, self.generation):
            self.left = 0  # another incarnation: what we have of it is from its middle
            return
        if generation >= 0:
            self.generation = generation
        self.offset, self.last = read.next or self.offset, read
        self.cursor = read.cursor or self.cursor
        self.left = 0 if read.closed else self.left - 1


@dataclass
class Reader:
    world: World
    keeper: Keeper
    name: str
    subject: str
    mode: Mode
    door: Door | None = None  # the only one it takes
    renewing: float = 0.9  # how often it takes the newest token
    is_last: bool = False  # it waits in the last look
    _session: int = 0
    _progress: Progress = field(default_factory=Progress)
    _token: Token | None = None
    _heard: str = ""

    def __post_init__(self) -> None:
        self._random = Random(f"{self.world.random.random()} {self.name}")
        self._decoder = Decoder(self.keeper.stream, self.keeper.kind)
        self.allowed = may_read(self.subject, self.keeper.stream)

    async def run(self) -> None:
        await self.keeper.may_write.wait()
        while not self._is_over():
            if self._progress.left <= 0:
                await asyncio.sleep(self._random.uniform(*PAUSE_SECS))
                self._begin()
            await self._step()
            if not self.allowed:
                await asyncio.sleep(self._random.uniform(*SHUT_OUT_SECS))

    def _is_over(self) -> bool:
        return self.world.stopping.is_set()

    def _begin(self) -> None:
        """Mostly from the start of the stream."""
        offset = self._random.choice((START, START, START, NOW, "recent"))
        if offset == "recent":
            recent = self.keeper.recent
            offset = self._random.choice(recent) if recent else START
        self._begin_at(offset)

    def _begin_at(self, offset: str) -> None:
        """Another session."""
        self._session += 1
        self._progress = Progress(offset, self._answers_wanted())

    def _answers_wanted(self) -> int:
        return self._random.randint(*SESSION_ANSWERS)

    # -- the three ways ----------------------------------------------------------------------------

    async def _step(self) -> None:
        match self.mode:
            case "long-poll":
                await self._wait()
            case "sse":
                await self._follow()
            case _:
                await self._look()

    async def _look(self) -> None:
        """Go on, or look at the same range again and take the old answer where it still holds."""
        progress, last = self._progress, self._progress.last
        headers = {}
        etag = progress.head.etag
        if last and etag and last.asked != NOW and self._random.random() < CONDITIONAL:
            headers["If-None-Match"] = etag
            progress.offset = last.asked
        answer = await self._ask({"offset": progress.offset}, headers)
        if answer.status == 304 and last is not None:
            # A chunk that ended at a boundary stays as it is when more follows: it says so now.
            head = answer.head if answer.head.next_offset else progress.head
            self._record(answer, Told(last.ids, head=head))
            progress.offset = last.next
        else:
            await self._take(answer)
        if answer.status not in (200, 304) or (progress.last and progress.last.up_to_date):
            await asyncio.sleep(self._random.uniform(*PAUSE_SECS))

    async def _wait(self) -> None:
        answer = await self._ask(self._progress.query("long-poll"))
        await self._take(answer)
        if answer.outcome != "ok":
            await asyncio.sleep(self._random.uniform(*PAUSE_SECS))

    async def _follow(self) -> None:
        request = Request(self.keeper.stream, query=self._progress.query("sse"))
        async with self.world.doors.open(*self._choose(), request) as (answer, pieces):
            if answer.status == 200:
                await self._take_events(answer, pieces)
        if answer.status != 200:
            await self._take(answer)
        elif answer.trouble:
            self._record(answer, Told())
        if answer.status != 200 or answer.trouble:
            await asyncio.sleep(self._random.uniform(*PAUSE_SECS))

    async def _take_events(self, answer: Answer, pieces: AsyncIterator[bytes]) -> None:
        decoder = sse.Decoder()
        data: list[str] = []
        async for piece in pieces:
            for event in decoder.feed(piece):
                if event.kind == "data":
                    data.append(event.data)
                elif event.kind == "control":
                    answer.ended = self.world.doors.now()
                    told = self._decoder.events(data, sse.parse_control(event.data))
                    self._move(self._record(answer, told))
                    data = []
            if self._progress.left <= 0 or self._is_over():
                return

    # -- answers -----------------------------------------------------------------------------------

    async def _take(self, answer: Answer) -> None:
        """Record a whole answer and go where it says."""
        if answer.status in (200, 204) and not answer.trouble:
            found = self._decoder.ids([answer.body] if answer.status == 200 else [])
            self._progress.head = answer.head
            self._move(self._record(answer, Told(*found, answer.head)))
            return
        self._record(answer, self._leaked(answer))
        if answer.status == 410 and self.allowed:
            await self._bootstrap()
        elif answer.status in (400, 404, 410):
            self._progress.left = 0

    def _move(self, read: ReadResult) -> None:
        self._heard = max(self._heard, read.next)
        self._progress.move(read)

    async def _bootstrap(self) -> None:
        """Begin a session with a snapshot: by itself, or with all that follows it."""
        self._begin_at(START)
        mode = self._random.choice(("bootstrap", "snapshot"))
        answer = await self._ask(part=f"/{mode}")
        if mode == "snapshot" and answer.status == 307:
            began = answer.began
            name = answer.head.location.rpartition("/")[2]
            answer = await self._ask(part=f"/snapshot/{name}")
            answer.began = began
        if answer.status != 200 or answer.trouble:
            self._record(answer, self._leaked(answer), mode=mode)
            self._progress.left = 0
            return
        decode = self._decoder.bootstrap if mode == "bootstrap" else self._decoder.snapshot
        told = decode(answer.head, answer.body)
        self._record(answer, told, mode=mode)
        self._progress.generation = told.snapshot_of
        self._progress.offset = told.head.next_offset

    def _leaked(self, answer: Answer) -> Told:
        """Messages in an answer that should have none."""
        return Told(self._decoder.ids([answer.body])[0]) if answer.body else Told()

    # -- pieces ------------------------------------------------------------------------------------

    def _choose(self) -> tuple[Door, Token]:
        if self._token is None or self._random.random() < self.renewing:
            self._token = self.world.keyring.token(self.subject)
        return self.door or self.world.random.choice(self.keeper.front), self._token

    async def _ask(
        self,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        part: str = "",
    ) -> Answer:
        path = self.keeper.stream + part
        request = Request(path, headers=headers or {}, query=query or {})
        return await self.world.doors.ask(*self._choose(), request, LIVE_SECS)

    def _record(self, answer: Answer, told: Told, *, mode: str = "") -> ReadResult:
        """`mode` is given where no offset was asked for."""
        is_live = self.mode in LIVE and not mode
        read = ReadResult(
            stream=self.keeper.stream,
            who=self.name,
            allowed=self.allowed,
            mode=mode or self.mode,
            last=self.is_last,
            session=self._session,
            asked="" if mode else self._progress.offset,
            cursor_sent=self._progress.cursor if is_live else "",
            ids=told.ids,
            damage=told.damage,
            next=told.head.next_offset,
            cursor=told.head.cursor if is_live else "",
            up_to_date=told.head.up_to_date,
            closed=told.head.closed,
            snapshot=told.snapshot,
            snapshot_of=told.snapshot_of,
            **answer.as_operation(),
        )
        self.world.recorder.add(read)
        return read
