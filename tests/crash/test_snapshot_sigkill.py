"""The real server, killed while snapshots are published and what they cover is given back.

Each round kills it under writers, publishers, readers, forks and buckets, starts it again and
looks at everything before the next one: the latest snapshot is the acknowledged one or one that
was under way, whole; a bootstrap is that snapshot and exactly what follows; nothing else is left.

WEIR_CRASH_ROUNDS sets how often each mode is killed, WEIR_CRASH_SEED repeats a run.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pytest

from protocol.offsets import position_of
from tests.crash.fleet import JSON, SETTINGS, TEXT, Answer, Fleet
from tests.helpers.offsets import nameless
from tests.helpers.scripted_origin import until
from tests.helpers.server import run_weir
from tests.origin.storage.driver import blob_names

ROUNDS = int(os.environ.get("WEIR_CRASH_ROUNDS", "4"))
SEED = int(os.environ.get("WEIR_CRASH_SEED", random.randrange(1 << 32)))
MOMENT_SECS = 1.0  # until it is killed anyhow
KEPT_FORKS = 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 8 * ROUNDS)]


def blob_of(root: str, offset: int) -> bytes:
    """A snapshot tells by its bytes of which stream it is, and up to where; some are large."""
    size = min(3 * offset, 400_000) + (400_000 if offset % 5 == 0 else 1)
    return random.Random(f"{root} {offset}").randbytes(size)


@dataclass(slots=True)
class Line:
    """One stream: what was acknowledged, and what the kill left in doubt."""

    path: str
    content_type: str
    root: str = ""  # of which stream its snapshots are
    messages: list[bytes] = field(default_factory=list)  # as stored
    flying: list[bytes] = field(default_factory=list)
    published: int | None = None
    attempted: set[int] = field(default_factory=set)

    @property
    def content(self) -> bytes:
        return b"".join(self.messages)

    @property
    def sent(self) -> bytes:
        return self.content + b"".join(self.flying)

    @property
    def ends(self) -> list[int]:
        return list(accumulate(map(len, self.messages), initial=0))

    def after(self, offset: int) -> list[bytes]:
        """The messages from an offset on, as a bootstrap brings them."""
        first = self.ends.index(offset)
        strip = 1 if self.content_type == JSON else 0
        return [message[: len(message) - strip] for message in self.messages[first:]]


class Story:
    """Who does what during a round. A step returns False when its answer never came."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self.lines: list[Line] = []
        self.passing: list[Line] = []  # forks and short-lived streams that must be there
        self.unsure: list[Line] = []  # those that may be there
        self.gone: list[str] = []
        self.buckets: dict[str, bool | None] = {}
        self.counts = {"appends": 0, "publications": 0, "reads": 0, "bootstraps": 0, "forks": 0}
        self._numbers = iter(range(1_000_000))

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer | None:
        if not self._fleet.is_up:
            return None
        return await self._fleet.ask(method, path, query=query, headers=headers, body=body)

    async def begin(self) -> None:
        assert (await self._fleet.insist("PUT", "/ds/kept"))[0].status == 201
        self.buckets["/ds/kept"] = True
        for path in ("/v1/stream/text", "/ds/kept/text", "/v1/stream/json", "/ds/kept/json"):
            line = Line(path, JSON if "json" in path else TEXT, path)
            answer, _ = await self._fleet.insist(
                "PUT", path, headers={"Content-Type": line.content_type}
            )
            assert answer.status == 201
            self.lines.append(line)

    def clients(self) -> list[Awaitable[None]]:
        steps: list[tuple[Callable[[], Awaitable[bool]], float]] = [
            (self.fork, 0.02),
            (self.pass_by, 0.03),
            (self.use_bucket, 0.03),
        ]
        for line in self.lines:
            steps.append((lambda line=line: self.append(line), 0.002))  # type: ignore[misc]
            steps.append((lambda line=line: self.publish(line), 0.01))  # type: ignore[misc]
            steps.append((lambda line=line: self.read(line), 0.005))  # type: ignore[misc]
            steps.append((lambda line=line: self.bootstrap(line), 0.02))  # type: ignore[misc]
        return [self._repeat(step, pause_s) for step, pause_s in steps]

    async def _repeat(self, step: Callable[[], Awaitable[bool]], pause_s: float) -> None:
        going = True
        while going:
            going = await step()
            await asyncio.sleep(pause_s)

    # -- steps ---------------------------------------------------------------------------------

    async def append(self, line: Line) -> bool:
        number = len(line.messages)
        text = f"{line.path}:{number}:{'x' * self._rng.choice([0, 10, 300, 4000])}"
        if line.content_type == TEXT:
            body = f"{text}\n".encode()
            line.flying = [body]
        else:
            messages = [json.dumps(text)] * self._rng.randint(1, 3)
            body = f"[{','.join(messages)}]".encode()
            line.flying = [f"{message},".encode() for message in messages]
        answer = await self.ask(
            "POST", line.path, headers={"Content-Type": line.content_type}, body=body
        )
        if answer is None:
            return False
        assert answer.status == 204, answer
        assert answer.next_offset == len(line.sent)
        line.messages += line.flying
        line.flying = []
        self.counts["appends"] += 1
        return True

    async def publish(self, line: Line) -> bool:
        offset = self._rng.choice(line.ends[-4:])
        line.attempted.add(offset)
        answer = await self.ask(
            "PUT",
            f"{line.path}/snapshot/{nameless(offset)}",
            headers={"Content-Type": TEXT},
            body=blob_of(line.root, offset),
        )
        if answer is None:
            return False
        if answer.status == 410:
            assert line.published is not None and offset < line.published, answer
            assert earliest(answer) == line.published
        else:
            assert answer.status == 204, answer
            assert line.published is None or offset >= line.published
            line.published = offset
            self.counts["publications"] += 1
        return True

    async def read(self, line: Line) -> bool:
        """From anywhere: the bytes that were sent, or 410 where a snapshot stands for them."""
        start, known = self._rng.choice(line.ends), line.published or 0
        answer = await self.ask("GET", line.path, query=f"?offset={nameless(start)}")
        if answer is not None:
            if answer.status == 410:
                assert start < earliest(answer) <= max(line.attempted)
            else:
                assert answer.status == 200, answer
                assert start >= known, f"{start} was read behind the snapshot at {known}"
                assert line.sent.startswith(answer.stored, start)
            self.counts["reads"] += 1
        return self._fleet.is_up

    async def bootstrap(self, line: Line) -> bool:
        known, tail = line.published or 0, len(line.content)
        answer = await self.ask("GET", f"{line.path}/bootstrap")
        if answer is not None:
            assert answer.status == 200, answer
            offset, snapshot, messages = parse_bootstrap(answer)
            assert offset >= known and answer.next_offset >= tail
            assert snapshot == (blob_of(line.root, offset) if offset_named(answer) else b"")
            mark = b"," if line.content_type == JSON else b""
            rest = b"".join(message + mark for message in messages)
            assert len(rest) == answer.next_offset - offset
            assert line.sent.startswith(rest, offset)
            self.counts["bootstraps"] += 1
        return self._fleet.is_up

    async def fork(self) -> bool:
        """A fork at some boundary; the oldest one goes."""
        source = self._rng.choice(self.lines)
        offset, known = self._rng.choice(source.ends[-5:]), source.published
        fork = Line(f"/v1/stream/fork/{next(self._numbers)}", source.content_type, source.root)
        fork.messages = source.messages[: source.ends.index(offset)]
        fork.published, fork.attempted = known, source.attempted
        headers = {
            "Content-Type": source.content_type,
            "Stream-Forked-From": source.path,
            "Stream-Fork-Offset": nameless(offset),
        }
        if not await self._create(fork, headers, (201, 410)):
            return False
        forks = [line for line in self.passing if line.path.startswith("/v1/stream/fork/")]
        self.counts["forks"] += 1
        return len(forks) <= KEPT_FORKS or await self._delete(forks[0])

    async def pass_by(self) -> bool:
        """A stream that lives for one snapshot."""
        return await self._live_and_die(f"/v1/stream/passing/{next(self._numbers)}")

    async def use_bucket(self) -> bool:
        bucket = f"/ds/buck{next(self._numbers)}"
        self.buckets[bucket] = None
        answer = await self.ask("PUT", bucket)
        if answer is None:
            return False
        assert answer.status == 201, answer
        self.buckets[bucket] = True
        if not await self._live_and_die(f"{bucket}/s"):
            return False
        self.buckets[bucket] = None
        answer = await self.ask("DELETE", bucket)
        if answer is None:
            return False
        assert answer.status == 204, answer
        self.buckets[bucket] = False
        return True

    async def _live_and_die(self, path: str) -> bool:
        line = Line(path, TEXT, path)
        return (
            await self._create(line, {"Content-Type": TEXT}, (201,))
            and await self.append(line)
            and await self.publish(line)
            and await self._delete(line)
        )

    async def _create(self, line: Line, headers: dict[str, str], statuses: tuple[int, ...]) -> bool:
        self.unsure.append(line)
        answer = await self.ask("PUT", line.path, headers=headers)
        if answer is None:
            return False
        assert answer.status in statuses, answer
        self.unsure.remove(line)
        if answer.status == 201:
            self.passing.append(line)
        else:
            self.gone.append(line.path)
        return True

    async def _delete(self, line: Line) -> bool:
        self.passing.remove(line)
        self.unsure.append(line)
        answer = await self.ask("DELETE", line.path)
        if answer is None:
            return False
        assert answer.status == 204, answer
        self.unsure.remove(line)
        self.gone.append(line.path)
        return True

    # -- after a start -------------------------------------------------------------------------

    async def check(self, snapshots: int) -> None:
        """`snapshots` are in the folder: as many as there are streams that have one."""
        for line in self.lines + self.passing:
            await self._check_line(line)
        for line in self.unsure:
            if (await self._now("HEAD", line.path)).status == 404:
                self.gone.append(line.path)
            else:
                self.passing.append(line)
                await self._check_line(line)
        self.unsure = []
        for path in self.gone:
            assert (await self._now("HEAD", path)).status == 404, path
            assert (await self._now("GET", f"{path}/bootstrap")).status == 404, path
        await self._check_buckets()
        named = [line for line in self.lines + self.passing if line.published is not None]
        assert snapshots == len(named), "a snapshot's file that no stream names"

    async def _check_line(self, line: Line) -> None:
        head = await self._now("HEAD", line.path)
        assert head.status == 200, (line.path, head)
        if head.next_offset == len(line.sent):
            line.messages += line.flying
        line.flying = []
        assert head.next_offset == len(line.content), f"{line.path}: acknowledged bytes are missing"
        self._settle_snapshot(line, head)
        start = line.published or 0
        if line.published is not None:
            await self._check_snapshot(line, line.published)
        below = [nameless(end) for end in line.ends if end < start]
        for offset in ["-1", *below[-2:]] if below else []:
            answer = await self._now("GET", line.path, query=f"?offset={offset}")
            assert (answer.status, earliest(answer)) == (410, start), (line.path, offset)
        stored, position = b"", start
        while True:
            answer = await self._now("GET", line.path, query=f"?offset={nameless(position)}")
            assert answer.status == 200, (line.path, position, answer)
            stored, position = stored + answer.stored, answer.next_offset
            if answer.is_up_to_date:
                break
        assert stored == line.content[start:], line.path
        answer = await self._now("GET", f"{line.path}/bootstrap")
        begin, snapshot, messages = parse_bootstrap(answer)
        assert begin == start and answer.next_offset == len(line.content)
        assert snapshot == (b"" if line.published is None else blob_of(line.root, start))
        assert messages == line.after(start), line.path

    def _settle_snapshot(self, line: Line, head: Answer) -> None:
        found = head.headers.get("stream-snapshot-offset")
        if found is None:
            assert line.published is None, f"{line.path}: its snapshot is lost"
            return
        offset = int(found.rpartition("_")[2])
        assert line.published is None or offset >= line.published, f"{line.path} went back"
        assert offset in line.attempted
        line.published, line.attempted = offset, {offset}

    async def _check_snapshot(self, line: Line, offset: int) -> None:
        latest = await self._now("GET", f"{line.path}/snapshot")
        assert latest.status == 307
        place, _, named = latest.headers["location"].rpartition("/")
        assert place.endswith(f"{line.path}/snapshot") and position_of(named) == offset
        answer = await self._now("GET", f"{line.path}/snapshot/{nameless(offset)}")
        assert answer.status == 200, (line.path, offset, answer)
        assert answer.body == blob_of(line.root, offset), f"{line.path}: not the bytes of {offset}"

    async def _check_buckets(self) -> None:
        for bucket, there in self.buckets.items():
            answer = await self._now("GET", bucket)
            assert answer.status == (200 if there else 404) or there is None, (bucket, answer)
            streams = [line.path for line in self.lines + self.passing]
            inside = [path for path in streams if path.startswith(f"{bucket}/")]
            if answer.status == 404:
                assert not inside, "a stream without its bucket"
            else:
                assert json.loads(answer.body)["streams"] == len(inside)
            self.buckets[bucket] = answer.status == 200

    async def _now(self, method: str, path: str, query: str = "") -> Answer:
        answer = await self._fleet.ask(method, path, query=query)
        assert answer is not None, f"{method} {path}: no answer"
        return answer


def earliest(answer: Answer) -> int:
    return int(answer.headers["stream-earliest-offset"].rpartition("_")[2])


def offset_named(answer: Answer) -> bool:
    return answer.headers["stream-snapshot-offset"] != "-1"


def parse_bootstrap(answer: Answer) -> tuple[int, bytes, list[bytes]]:
    """(where the updates begin, the snapshot, each message)"""
    boundary = answer.headers["content-type"].partition("boundary=")[2].encode()
    pieces = (b"\r\n" + answer.body).split(b"\r\n--" + boundary)
    assert pieces[0] == b"" and pieces[-1] == b"--\r\n"
    snapshot, *messages = [piece.partition(b"\r\n\r\n")[2] for piece in pieces[1:-1]]
    begin = position_of(answer.headers["stream-snapshot-offset"])
    assert begin is not None
    return begin, snapshot, messages


# -- the moment of the kill ------------------------------------------------------------------------


def wait_for_moment(data: Path, look: Callable[[Path], object]) -> None:
    """Until what `look` sees has changed."""
    before, until = look(data), time.monotonic() + MOMENT_SECS
    while look(data) == before and time.monotonic() < until:
        time.sleep(0.0005)


def newest_blobs(data: Path) -> object:
    return blob_names(data)


def catalog_size(data: Path) -> object:
    return (data / "catalog").stat().st_size


def oldest_journal(data: Path) -> object:
    return min((path.name for path in (data / "journal").glob("*.journal")), default="")


MOMENTS: dict[str, list[Callable[[Path], object]]] = {
    "file-durable": [newest_blobs, catalog_size, oldest_journal],
    "file-fast": [newest_blobs, catalog_size, oldest_journal],
    "acid": [newest_blobs],
}


@pytest.mark.parametrize("mode", MOMENTS)
async def test_snapshots_survive_sigkill(mode: str, tmp_path: Path) -> None:
    print(f"WEIR_CRASH_SEED={SEED}")
    rng = random.Random(SEED)
    data = tmp_path / "data"
    settings = SETTINGS | {"DS_STORAGE__CHECKPOINT_SECS": "0.05"}
    async with Fleet(tmp_path, mode, rng, settings) as fleet:
        await fleet.start()
        story = Story(fleet, rng)
        await story.begin()
        for round_ in range(ROUNDS):
            clients = asyncio.gather(*story.clients())
            await asyncio.sleep(rng.uniform(0.05, 0.3))
            if round_ % 2:
                await asyncio.to_thread(wait_for_moment, data, rng.choice(MOMENTS[mode]))
            if round_ == ROUNDS - 1:  # a slow machine needs longer until everything has happened
                await until(lambda: all(story.counts.values()), 60)
            await fleet.kill()
            await clients
            if round_ == ROUNDS - 1:
                checked = await asyncio.to_thread(run_weir, "fsck", str(data))
                assert checked.returncode == 0, checked
            if round_ % 4 == 2:
                await fleet.start_and_kill_early()
            await fleet.start()
            await story.check(len(blob_names(data)))
        print(f"{fleet.kills} kills, {story.counts}")
