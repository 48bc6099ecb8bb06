"""The real server, killed again and again under its clients: nothing acknowledged is lost.

WEIR_CRASH_ROUNDS sets how often it is killed (25 unless told), WEIR_CRASH_SEED repeats a run.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.crash.fleet import (
    JSON,
    TEXT,
    Fleet,
    Ledger,
    PlainWriter,
    Sent,
    Watcher,
    Writer,
    create,
    repeat,
)

ROUNDS = int(os.environ.get("WEIR_CRASH_ROUNDS", "25"))
SEED = int(os.environ.get("WEIR_CRASH_SEED", random.randrange(1 << 32)))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 8 * ROUNDS)]


@pytest.mark.parametrize("mode", ["file-durable", "acid"])
async def test_acknowledged_work_survives_sigkill(mode: str, tmp_path: Path) -> None:
    print(f"WEIR_CRASH_SEED={SEED}")
    rng = random.Random(SEED)
    async with Fleet(tmp_path, mode, rng) as fleet:
        await fleet.start()
        story = Story(fleet, rng)
        await story.begin()
        clients = asyncio.gather(*story.clients())
        for round_ in range(ROUNDS):
            await asyncio.wait({clients}, timeout=rng.uniform(0.02, 0.8))
            if clients.done():
                break
            await fleet.kill()
            if round_ % 5 == 4:
                await fleet.start_and_kill_early()
            await fleet.start()
        story.stopping.set()
        await clients
        print(f"{fleet.kills} kills, {story.total} appends acknowledged")
        assert fleet.kills >= ROUNDS
        await story.check_states()
        await fleet.kill()
        await fleet.start()
        await story.check()
        assert await fleet.stop() == 0
        await fleet.start()
        await story.check_contents()


class Story:
    """Who writes what during a run, and what must be true at its end."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self._ledgers: list[Ledger] = []
        self._watchers: list[Watcher] = []
        self._writers: list[tuple[Ledger, str, Writer]] = []
        self.stopping = asyncio.Event()

    @property
    def total(self) -> int:
        return sum(ledger.count for ledger in self._ledgers)

    async def begin(self) -> None:
        for number in range(4):
            ledger = await self._create(f"text/{number}", TEXT)
            self._watch(ledger)
            for producer in ("p", "q") if number == 0 else ("p",):
                self._writer(ledger, producer)
        for number in range(3):
            ledger = await self._create(f"json/{number}", JSON)
            self._watch(ledger)
            self._writer(ledger, "p")
        self._plain = await self._create("plain", TEXT)
        self._watch(self._plain)
        self._sequenced = await self._create("sequenced", TEXT)

    async def _create(self, name: str, content_type: str) -> Ledger:
        ledger = await create(self._fleet, name, content_type)
        self._ledgers.append(ledger)
        return ledger

    def _writer(self, ledger: Ledger, producer: str) -> Writer:
        writer = Writer(self._fleet, ledger, producer, random.Random(self._rng.random()))
        self._writers.append((ledger, producer, writer))
        return writer

    def _watch(self, ledger: Ledger) -> None:
        self._watchers.append(Watcher(self._fleet, ledger.name))

    def clients(self) -> list["asyncio.Future[None]"]:
        plain = PlainWriter(self._fleet, self._plain, random.Random(self._rng.random()))
        work = [repeat(self.stopping, writer.append, 0.004) for _, _, writer in self._writers]
        work += [repeat(self.stopping, watcher.look, 0.01) for watcher in self._watchers]
        work.append(repeat(self.stopping, plain.append, 0.01))
        work.append(self._write_sequenced())
        work.append(self._open_and_close())
        work.append(self._create_and_delete())
        return [asyncio.ensure_future(each) for each in work]

    async def _write_sequenced(self) -> None:
        """A producer that also sends Stream-Seq: both are remembered or neither."""
        writer = self._writer(self._sequenced, "p")
        number = 0
        while not self.stopping.is_set():
            await writer.append(seq=f"{number:06d}")
            number += 1
            await asyncio.sleep(0.01)

    async def _open_and_close(self) -> None:
        """Short lives: a stream, a few appends, the last of them closes it."""
        number = 0
        while not self.stopping.is_set():
            ledger = await self._create(f"closed/{number}", self._rng.choice([TEXT, JSON]))
            writer = self._writer(ledger, "p")
            for _ in range(self._rng.randrange(4)):
                await writer.append()
            await writer.append(close=True)
            number += 1
            await asyncio.sleep(0.03)

    async def _create_and_delete(self) -> None:
        number = 0
        while not self.stopping.is_set():
            name = f"deleted/{number}"
            ledger = await self._create(name, TEXT)
            writer = Writer(self._fleet, ledger, "p", self._rng)
            for _ in range(self._rng.randrange(4)):
                await writer.append()
            answer, lost = await self._fleet.insist("DELETE", name)
            assert answer.status == 204 or (lost and answer.status == 404), answer
            ledger.deleted = True
            if number % 4 == 3:  # the same name again: nothing of the old stream may be in it
                again = await self._create(name, TEXT)
                await Writer(self._fleet, again, "new", self._rng).append()
            number += 1
            await asyncio.sleep(0.03)

    # -- the end -------------------------------------------------------------------------------

    async def check_states(self) -> None:
        """Before the last restart and after it the same must be true."""
        alive = {ledger.name for ledger in self._ledgers if not ledger.deleted}
        for ledger in self._ledgers:
            if ledger.deleted and ledger.name not in alive:
                answer, _ = await self._fleet.insist("HEAD", ledger.name)
                assert answer.status == 404, (ledger.name, answer)

    async def check(self) -> None:
        await self.check_states()
        await self.check_contents()
        await self._check_producers()
        await self._check_sequence()
        await self.check_contents()

    async def check_contents(self) -> None:
        contents: dict[str, bytes] = {}
        for ledger in self._ledgers:
            if not ledger.deleted:
                stored, tail, closed = await self._fleet.read_all(ledger.name)
                assert len(stored) == tail
                assert closed == (ledger.closed_by is not None), ledger.name
                check_ledger(ledger, stored)
                contents[ledger.name] = stored
        for watcher in self._watchers:
            assert watcher.answers, f"{watcher.name} was never read"
            assert contents[watcher.name].startswith(watcher.seen), watcher.name

    async def _check_producers(self) -> None:
        """The last number is a duplicate, a gap is a gap, and the next number is taken."""
        for ledger, producer, writer in self._writers:
            last = len(ledger.sent[producer]) - 1
            if last < 0:
                continue
            url, body = ledger.name, b'"again"'
            again, _ = await self._fleet.insist(
                "POST", url, headers=writer.headers(last) | closing(ledger), body=body
            )
            assert (again.status, again.headers["producer-seq"]) == (204, str(last)), again
            if ledger.closed_by is not None:
                late, _ = await self._fleet.insist(
                    "POST", url, headers=writer.headers(last + 1), body=body
                )
                assert late.status == 409 and late.is_closed, late
                continue
            gap, _ = await self._fleet.insist(
                "POST", url, headers=writer.headers(last + 2), body=body
            )
            assert (gap.status, gap.headers["producer-expected-seq"]) == (409, str(last + 1))
            await writer.append(seq="~" if ledger.last_seq else None)

    async def _check_sequence(self) -> None:
        headers = {"Content-Type": TEXT, "Stream-Seq": self._plain.last_seq or ""}
        answer, _ = await self._fleet.insist("POST", "plain", headers=headers, body=b"again")
        assert answer.status == 409 and b"seq-regression" in answer.body


def closing(ledger: Ledger) -> dict[str, str]:
    return {} if ledger.closed_by is None else {"Stream-Closed": "true"}


def check_ledger(ledger: Ledger, stored: bytes) -> None:
    """Everything promised is there once, each producer's appends in order, at the right place."""
    pending = {producer: list(sent) for producer, sent in ledger.sent.items()}
    position = 0
    while position < len(stored):
        producer = next((p for p, sent in pending.items() if is_next(sent, stored, position)), None)
        assert producer is not None, (
            f"{ledger.name}: nobody was promised {stored[position : position + 60]!r} at {position}"
        )
        append = pending[producer].pop(0)
        position += len(append.stored)
        assert append.end in (None, position), f"{ledger.name}: acknowledged at another offset"
    lost = {producer: len(sent) for producer, sent in pending.items() if sent}
    assert not lost, f"{ledger.name}: acknowledged appends are missing: {lost}"


def is_next(sent: list[Sent], stored: bytes, position: int) -> bool:
    return bool(sent) and stored.startswith(sent[0].stored, position)


def test_checker_sees_every_kind_of_loss() -> None:
    """Guard the guard: a wrong history must not pass."""
    ledger = Ledger("s", TEXT, {"p": [Sent(b"p:0:\n", 5), Sent(b"p:1:\n", None)]})
    check_ledger(ledger, b"p:0:\np:1:\n")
    for wrong in [b"p:0:\n", b"p:1:\np:0:\n", b"p:0:\np:0:\np:1:\n", b"p:0:\np:1:\np:1:\n", b""]:
        with pytest.raises(AssertionError):
            check_ledger(ledger, wrong)
    moved = Ledger("s", TEXT, {"p": [Sent(b"p:0:\n", 6)]})
    with pytest.raises(AssertionError):
        check_ledger(moved, b"p:0:\n")
