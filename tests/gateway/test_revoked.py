"""Revoked tokens; a real Redis is killed and stopped."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.revoked import Revoked
from tests.helpers.redis import RedisServer, running_redis
from tests.helpers.scripted_origin import until

TIMEOUT_S = 1.5  # a busy machine must not meet it, and some tests wait for it
PAUSE_S = 0.02  # short, so that tests see it come back


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
async def revoked(redis: RedisServer) -> AsyncIterator[Revoked]:
    revoked = Revoked(redis.url, TIMEOUT_S, first_pause_s=PAUSE_S)
    yield revoked
    await revoked.close()


async def test_ids_and_subjects_can_be_revoked(revoked: Revoked, redis: RedisServer) -> None:
    redis.command("SET", "weir:revoked:jti:id-1", "1", "EX", "60")
    redis.command("SET", "weir:revoked:sub:mallory", "1")
    assert await revoked("id-1", "alice")
    assert await revoked("id-2", "mallory")
    assert not await revoked("id-2", "alice")
    assert not await revoked("mallory", "id-1")
    assert not await revoked("", "")
    assert revoked.unknown == 0


async def test_a_revocation_counts_at_once_and_can_be_lifted(
    revoked: Revoked, redis: RedisServer
) -> None:
    assert not await revoked("id", "alice")
    redis.command("SET", "weir:revoked:jti:id", "1")
    assert await revoked("id", "alice")
    redis.command("DEL", "weir:revoked:jti:id")
    assert not await revoked("id", "alice")


async def test_a_crowd_of_checks_is_few_round_trips(revoked: Revoked, redis: RedisServer) -> None:
    redis.command("SET", "weir:revoked:jti:id-7", "1")
    before = redis.command("INFO", "stats")["total_reads_processed"]
    checks = (revoked(f"id-{n}", f"subject-{n % 10}") for n in range(1000))
    assert [n for n, found in enumerate(await asyncio.gather(*checks)) if found] == [7]
    assert redis.command("INFO", "stats")["total_reads_processed"] - before < 50
    assert revoked.unknown == 0


async def test_without_redis_what_was_known_holds(revoked: Revoked, redis: RedisServer) -> None:
    redis.command("SET", "weir:revoked:sub:mallory", "1")
    assert await revoked("id-1", "mallory")
    redis.kill()
    assert await revoked("id-2", "mallory")
    assert not await revoked("id-3", "alice")
    assert (revoked.unknown, revoked.link.available) == (2, False)


async def test_a_stopped_redis_delays_checks_once(revoked: Revoked, redis: RedisServer) -> None:
    redis.command("SET", "weir:revoked:jti:id", "1")
    redis.pause()
    began = time.monotonic()
    answers = await asyncio.gather(*(revoked("id", f"s{n}") for n in range(2000)))
    assert not any(answers) and time.monotonic() - began < 10 * TIMEOUT_S
    redis.resume()
    await until(lambda: revoked.link.available)
    assert await revoked("id", "s")


@pytest.mark.parametrize("name", ["\ud800", "a\r\nDEL x", "*", "x" * 8000], ids=ascii)
async def test_hostile_ids_are_only_keys(revoked: Revoked, name: str) -> None:
    assert not await revoked(name, name)
    assert (revoked.unknown, revoked.link.available) == (0, True)
