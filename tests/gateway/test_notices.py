"""Notices between gateways and workers: acknowledged, delivered late, or told as a gap."""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from gateway import localnotices, notices, redisnotices
from gateway.localnotices import LocalNotices
from gateway.notices import Mailbox, Notice, Notices, SilentNotices
from gateway.redisnotices import RedisNotices
from tests.helpers.redis import RedisServer, running_redis
from tests.helpers.scripted_origin import until

PURGE = Notice("purge", "a/ß", "deleted")
# Where a limit is to be met it is short; elsewhere a busy machine must not meet it.
TIMEOUT_S, BEAT_SECS = 0.25, 0.1
PATIENT_S = 20.0


class Party:
    """A gateway or worker: what it was told. `broken` makes it fail to act on notices."""

    def __init__(self, carrier: Notices) -> None:
        self.carrier = carrier
        self.heard: list[Notice] = []
        self.gaps = 0
        self.broken = False

    async def start(self) -> "Party":
        await self.carrier.start(self._hear, self._count_gap)
        return self

    def _hear(self, notice: Notice) -> None:
        if self.broken:
            raise RuntimeError("broken")
        self.heard.append(notice)

    def _count_gap(self) -> None:
        self.gaps += 1


StartParty = Callable[..., Awaitable[Party]]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def run_dir() -> Iterator[Path]:
    with TemporaryDirectory(prefix="weir-run-") as folder:
        yield Path(folder)


@pytest.fixture
async def gateway(redis: RedisServer) -> AsyncIterator[StartParty]:
    """Start gateways that meet in Redis."""
    parties: list[Party] = []

    async def start(timeout_s: float = PATIENT_S, beat_s: float = PATIENT_S / 4) -> Party:
        carrier = RedisNotices(redis.url, timeout_s=timeout_s, beat_s=beat_s, first_pause_s=0.02)
        parties.append(Party(carrier))
        return await parties[-1].start()

    yield start
    for party in parties:
        await party.carrier.stop()


@pytest.fixture
async def worker(run_dir: Path) -> AsyncIterator[StartParty]:
    """Start workers that meet in a folder."""
    parties: list[Party] = []

    async def start(timeout_s: float = PATIENT_S) -> Party:
        carrier = LocalNotices(run_dir, len(parties), timeout_s=timeout_s)
        parties.append(Party(carrier))
        return await parties[-1].start()

    yield start
    for party in parties:
        await party.carrier.stop()


@pytest.fixture(params=["redis", "local"])
def party(request: pytest.FixtureRequest) -> StartParty:
    """Either carrier."""
    fixture = "gateway" if request.param == "redis" else "worker"
    start: StartParty = request.getfixturevalue(fixture)
    return start


# -- every carrier -------------------------------------------------------------------------------


async def test_a_notice_is_acted_on_by_all_others_before_publish_returns(party: StartParty) -> None:
    first, *others = [await party() for _ in range(4)]
    assert await first.carrier.publish(PURGE)
    assert [other.heard for other in others] == [[PURGE]] * 3
    assert first.heard == []
    assert (first.carrier.counts.published, first.carrier.counts.unacknowledged) == (1, 0)


async def test_nobody_else_is_everybody(party: StartParty) -> None:
    alone = await party()
    assert await alone.carrier.publish(PURGE)
    assert alone.carrier.counts.unacknowledged == 0


async def test_one_that_fails_to_act_does_not_acknowledge(
    party: StartParty, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = await party(TIMEOUT_S), await party(), await party()
    second.broken = True
    assert not await first.carrier.publish(PURGE)
    await until(lambda: third.heard == [PURGE])
    assert first.carrier.counts.unacknowledged == 1
    assert "failed to handle" in caplog.text


async def test_many_notices_at_once_from_all_sides(party: StartParty) -> None:
    parties = [await party() for _ in range(3)]
    sent = [Notice("purge", f"s{n}", "created") for n in range(39)]
    sent.append(Notice("purge", "s", "snapshot", "0_5"))
    work = (each.carrier.publish(notice) for each in parties for notice in sent)
    assert all(await asyncio.gather(*work))
    for each in parties:
        assert sorted(each.heard, key=_stream) == sorted(sent * 2, key=_stream)


def _stream(notice: Notice) -> str:
    return notice.stream


async def test_one_that_stopped_is_not_waited_for(party: StartParty) -> None:
    first, second, third = [await party() for _ in range(3)]
    await second.carrier.stop()
    assert not second.carrier.connected
    assert await first.carrier.publish(PURGE)
    assert (second.heard, third.heard) == ([], [PURGE])


async def test_no_carrier_is_silent() -> None:
    silent = Party(SilentNotices())
    await silent.start()
    assert await silent.carrier.publish(PURGE)
    assert (silent.heard, silent.carrier.counts.published) == ([], 1)
    await silent.carrier.stop()


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b"null",
        b"\xff",
        b'{"type":"notice","sender":"x","number":"1"}',
        b'{"type":"notice","sender":"x","number":1,"notice":{"kind":"purge","stream":"s"}}',
        b'{"type":"acks","sender":"x","numbers":' + b"[" * 5000,
        b'{"type":"gap","sender":"' + b"x" * notices.MAX_MESSAGE_BYTES + b'"}',
    ],
    ids=lambda message: ascii(message[:40]),
)
async def test_malformed_messages_are_counted_and_ignored(message: bytes) -> None:
    mailbox = Mailbox("me")
    mailbox.listen(lambda notice: pytest.fail("acted on"), lambda: pytest.fail("acted on"))
    assert mailbox.take(message) is None
    assert mailbox.counts.malformed == 1


async def test_an_acknowledgement_counts_once_per_receiver() -> None:
    mailbox, other = Mailbox("me"), Mailbox("other")
    with mailbox.delivery(PURGE) as (message, delivery):
        wanted = other.take(message)
        assert wanted is not None and wanted[0] == "me"
        delivery.expect(2)
        mailbox.take(other.encode_acks([wanted[1], wanted[1]]))
        assert not delivery.complete.done()
        mailbox.take(Mailbox("third").encode_acks([wanted[1]]))
        assert delivery.complete.done()


# -- Redis ---------------------------------------------------------------------------------------


async def test_a_killed_redis_costs_no_exception_and_little_time(
    gateway: StartParty, redis: RedisServer
) -> None:
    first, _ = await gateway(), await gateway()
    redis.kill()
    began = time.monotonic()
    assert not await first.carrier.publish(PURGE)
    assert not await first.carrier.publish(PURGE)
    assert time.monotonic() - began < PATIENT_S
    assert first.carrier.counts.unacknowledged == 2


async def test_a_restart_is_a_gap_for_everyone(gateway: StartParty, redis: RedisServer) -> None:
    first, second = await gateway(), await gateway()
    assert (first.gaps, second.gaps) == (0, 0)
    redis.restart()
    await until(lambda: first.gaps == 1 and second.gaps == 1)
    assert first.carrier.connected and second.carrier.connected
    assert await first.carrier.publish(PURGE)
    assert second.heard == [PURGE]


async def test_a_stopped_redis_is_noticed_and_becomes_a_gap(
    gateway: StartParty, redis: RedisServer
) -> None:
    first, second = await gateway(TIMEOUT_S, BEAT_SECS), await gateway(TIMEOUT_S, BEAT_SECS)
    redis.pause()
    assert not await first.carrier.publish(PURGE)
    await until(lambda: not first.carrier.connected and not second.carrier.connected)
    redis.resume()
    await until(lambda: first.gaps >= 1 and second.gaps >= 1)
    assert first.carrier.counts.gaps == first.gaps


async def test_a_quiet_subscription_is_kept(gateway: StartParty, redis: RedisServer) -> None:
    first, second = await gateway(beat_s=1.0), await gateway(beat_s=1.0)
    pings = "cmdstat_ping"
    redis.command("CONFIG", "RESETSTAT")
    await until(lambda: redis.command("INFO", "commandstats").get(pings, {}).get("calls", 0) > 4)
    assert (first.gaps, second.gaps) == (0, 0)
    assert await first.carrier.publish(PURGE)


async def test_a_notice_that_could_not_be_sent_is_sent_later(
    gateway: StartParty, redis: RedisServer
) -> None:
    """Only the sender's way to Redis is broken, so the others see no gap."""
    first, second = await gateway(TIMEOUT_S), await gateway()
    redis.command("ACL", "SETUSER", "default", "-publish")
    assert not await first.carrier.publish(PURGE)
    assert not await first.carrier.publish(PURGE)
    redis.command("ACL", "SETUSER", "default", "+publish")
    await until(lambda: second.heard == [PURGE])
    assert second.gaps == 0


async def test_too_many_unsent_notices_become_a_gap_of_the_others(
    gateway: StartParty, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redisnotices, "MAX_OWED", 2)
    first, second = await gateway(TIMEOUT_S), await gateway()
    redis.command("ACL", "SETUSER", "default", "-publish")
    for n in range(3):
        await first.carrier.publish(Notice("purge", f"s{n}", "changed"))
    redis.command("ACL", "SETUSER", "default", "+publish")
    await until(lambda: second.gaps == 1)
    assert (first.gaps, second.heard) == (0, [])


async def test_a_lost_subscriber_is_told_of_its_gap(
    gateway: StartParty, redis: RedisServer
) -> None:
    first, second = await gateway(), await gateway()
    redis.command("CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: first.gaps == 1 and second.gaps == 1)
    assert await first.carrier.publish(PURGE)


async def test_a_start_without_redis_ends_and_its_first_subscription_is_a_gap(
    gateway: StartParty, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redisnotices, "START_TIMEOUT_SECS", 0.05)
    redis.kill()
    late = await gateway(TIMEOUT_S, BEAT_SECS)
    assert not late.carrier.connected and not await late.carrier.publish(PURGE)
    redis.start()
    await until(lambda: late.gaps == 1)


async def test_a_subscriber_that_never_acknowledges_costs_the_time_limit(
    gateway: StartParty, redis: RedisServer
) -> None:
    first, second = await gateway(TIMEOUT_S), await gateway()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(redis.url.removeprefix("unix://"))
        deaf.sendall(b"SUBSCRIBE weir:notices\r\n")
        await until(lambda: b":1\r\n" in deaf.recv(1000, socket.MSG_PEEK))
        began = time.monotonic()
        assert not await first.carrier.publish(PURGE)
        assert TIMEOUT_S - 0.01 < time.monotonic() - began < PATIENT_S
    await until(lambda: second.heard == [PURGE])


async def test_a_crowd_of_notices_is_acknowledged(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "MAX_MESSAGE_BYTES", 1024)
    monkeypatch.setattr(redisnotices, "ACKS_EACH", 50)
    first, second = [Party(RedisNotices(redis.url, timeout_s=10)) for _ in range(2)]
    await first.start()
    await second.start()
    sent = [Notice("purge", f"s{n}", "created") for n in range(3000)]
    assert all(await asyncio.gather(*map(first.carrier.publish, sent)))
    assert second.heard == sent
    await first.carrier.stop()
    await second.carrier.stop()


async def test_foreign_messages_on_our_channels_do_no_harm(
    gateway: StartParty, redis: RedisServer
) -> None:
    first, second = await gateway(), await gateway()
    redis.command("PUBLISH", "weir:notices", secrets.token_bytes(100_000))
    redis.command("PUBLISH", "weir:notices", b"{}")
    await until(lambda: second.carrier.counts.malformed == 2)
    assert await first.carrier.publish(PURGE)
    assert second.gaps == 0


# -- unix sockets --------------------------------------------------------------------------------


async def test_a_dead_workers_socket_is_ignored_at_once(worker: StartParty, run_dir: Path) -> None:
    first, second = await worker(), await worker()
    leave_socket(run_dir / "worker-7.sock").close()
    (run_dir / "worker-x.sock").write_bytes(b"")
    (run_dir / "worker-8.sock").write_bytes(b"")
    assert await first.carrier.publish(PURGE)
    assert second.heard == [PURGE]


async def test_a_new_worker_takes_the_place_of_a_dead_one(
    worker: StartParty, run_dir: Path
) -> None:
    leave_socket(run_dir / "worker-1.sock").close()
    first, second = await worker(), await worker()
    assert await first.carrier.publish(PURGE)
    assert second.heard == [PURGE]


async def test_a_worker_that_does_not_answer_costs_the_time_limit(
    worker: StartParty, run_dir: Path
) -> None:
    first, second = await worker(TIMEOUT_S), await worker()
    with leave_socket(run_dir / "worker-7.sock"):
        began = time.monotonic()
        assert not await first.carrier.publish(PURGE)
        assert TIMEOUT_S - 0.01 < time.monotonic() - began < PATIENT_S
    await until(lambda: second.heard == [PURGE])


async def test_a_full_queue_gets_its_messages_when_there_is_room(
    worker: StartParty, run_dir: Path
) -> None:
    first = await worker(TIMEOUT_S)
    sent = [Notice("purge", f"s{n}", "changed") for n in range(100)]
    with leave_socket(run_dir / "worker-7.sock") as stuck:
        answers = await asyncio.gather(*(first.carrier.publish(notice) for notice in sent))
        assert not any(answers)
        heard = [message["notice"]["stream"] for message in await drain(stuck, 100)]
    assert heard == [notice.stream for notice in sent]


async def test_an_endless_backlog_becomes_a_gap(
    worker: StartParty, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(localnotices, "MAX_OWED", 5)
    first = await worker(TIMEOUT_S)
    with leave_socket(run_dir / "worker-7.sock") as stuck:
        capacity = queue_length(run_dir)
        work = (first.carrier.publish(PURGE) for _ in range(capacity + 6))
        await asyncio.gather(*work)
        messages = await drain(stuck, capacity + 1)
    assert [message["type"] for message in messages] == ["notice"] * capacity + ["gap"]


async def test_a_gap_message_reaches_the_worker(worker: StartParty, run_dir: Path) -> None:
    first = await worker()
    with leave_socket(run_dir / "worker-7.sock") as other:
        other.sendto(Mailbox("7").encode_gap(), str(run_dir / "worker-0.sock"))
        await until(lambda: first.gaps == 1)


def leave_socket(path: Path) -> socket.socket:
    """A worker's socket that nobody reads."""
    stuck = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stuck.setblocking(False)
    stuck.bind(str(path))
    return stuck


def queue_length(run_dir: Path) -> int:
    """How many datagrams a socket nobody reads takes on this machine."""
    path = run_dir / "probe.sock"
    with leave_socket(path), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        for number in range(100_000):
            try:
                probe.sendto(b"x", str(path))
            except BlockingIOError:
                return number
    raise AssertionError("a queue without end")


async def drain(stuck: socket.socket, count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []

    def read() -> bool:
        with suppress(BlockingIOError):
            messages.extend(map(msgspec.json.decode, stuck.recv(100_000).split(b"\n")))
        return len(messages) >= count

    await until(read)
    return messages
