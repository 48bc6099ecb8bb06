"""What waits for slow readers: in order, within its room, and never in the way of the origin."""

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import AuthConfig, GatewayConfig, ServingConfig
from gateway.spool import BLOCK_BYTES, MEMORY_BYTES, STEP_BYTES, Outlet, Overflow, Spool, Spools
from protocol.errors import ProtocolError
from tests.helpers.parts import KeptExchange

MIB = 1024 * 1024


def make_spools(total: int = 64 * MIB, each: int = 32 * MIB, mode: str = "jwt") -> Spools:
    serving = ServingConfig(max_spool_bytes=total, max_spool_bytes_per_subject=each)
    return Spools(GatewayConfig(gateway=serving, auth=AuthConfig(mode=mode, jwks="keys.json")))


@pytest.fixture
def spools() -> Spools:
    return make_spools()


def refusal(spool: Spool, length: int | None) -> tuple[int, str]:
    with pytest.raises(ProtocolError) as refused:
        spool.reserve(length)
    assert ("Retry-After", "1") in refused.value.headers
    return refused.value.status, refused.value.code


async def rest_of(spool: Spool) -> bytes:
    found = b""
    while data := await spool.get():
        assert len(data) <= MEMORY_BYTES
        found += data
    return found


async def test_a_little_stays_in_memory_and_the_rest_is_on_disk(spools: Spools) -> None:
    data = [bytes([number]) * (40 * 1024) for number in range(100)]
    with spools.open("a") as spool:
        spool.reserve(None)
        for piece in data:
            await spool.put(piece)
        assert spool._memory_bytes <= MEMORY_BYTES
        assert await rest_of(spool) == b"".join(data)
        assert not spool
    assert spools.bytes == 0


Step = int | None  # so many bytes come, or some are taken


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(1, 3 * MEMORY_BYTES)), max_size=40))
def test_bytes_leave_in_the_order_in_which_they_came(steps: list[Step]) -> None:
    async def check() -> None:
        came, left = b"", b""
        with make_spools().open("a") as spool:
            for number, step in enumerate(steps):
                if step is None:
                    left += await spool.get()
                else:
                    came += bytes([number]) * step
                    await spool.put(bytes([number]) * step)
                assert bool(spool) == (len(left) < len(came))
            assert left + await rest_of(spool) == came

    asyncio.run(check())


async def test_a_reader_who_keeps_up_uses_little_room(spools: Spools) -> None:
    with spools.open("a") as spool:
        spool.reserve(None)
        for _ in range(200):
            await spool.put(bytes(MEMORY_BYTES + 1))
            await rest_of(spool)
        assert spools.bytes == STEP_BYTES


def test_room_for_a_known_length_is_taken_before_it_begins(spools: Spools) -> None:
    with spools.open("a") as one, spools.open("a") as two, spools.open("b") as other:
        one.reserve(20 * MIB)
        assert refusal(two, 20 * MIB) == (429, "too-much-unread-of-subject")
        other.reserve(30 * MIB)
        with spools.open("c") as third:
            assert refusal(third, 20 * MIB) == (503, "too-much-unread")
            third.reserve(MEMORY_BYTES)  # which needs no disk
        assert spools.bytes == 50 * MIB
    assert spools.bytes == 0


def test_what_is_larger_than_any_room_begins_if_there_is_no_other(spools: Spools) -> None:
    with spools.open("a") as huge:
        huge.reserve(1024 * MIB)
        assert spools.bytes == 32 * MIB
        with spools.open("a") as second:
            assert refusal(second, 1024 * MIB) == (429, "too-much-unread-of-subject")


def test_without_tokens_everybody_is_one_and_may_have_all() -> None:
    spools = make_spools(total=64 * MIB, each=MIB, mode="off")
    with spools.open("") as spool:
        spool.reserve(64 * MIB)


async def test_an_unknown_length_ends_where_the_room_ends() -> None:
    spools = make_spools(each=2 * STEP_BYTES)
    with spools.open("a") as spool:
        spool.reserve(None)
        with pytest.raises(Overflow):
            for _ in range(100):
                await spool.put(bytes(MIB))
        assert spools.bytes == 2 * STEP_BYTES
        with spools.open("a") as second:
            assert refusal(second, None) == (429, "too-much-unread-of-subject")
    assert spools.bytes == 0


async def test_a_full_disk_is_told_in_the_log_and_ends_the_answer(
    spools: Spools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gateway.spool.os.pwrite", refuse)
    with spools.open("a") as spool:
        spool.reserve(None)
        with pytest.raises(Overflow):
            await spool.put(bytes(MIB))
    assert "No space left" in caplog.text


async def test_a_file_is_not_closed_while_it_is_written(
    spools: Spools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number could be another connection's by then."""
    writing, may_go_on, done = threading.Event(), threading.Event(), list[str]()

    def write(self: Spool, position: int, data: bytes) -> None:
        writing.set()
        may_go_on.wait(5)
        done.append("written")

    monkeypatch.setattr(Spool, "_write_at", write)
    monkeypatch.setattr(Spool, "_close_file", lambda self: done.append("closed"))
    with spools.open("a") as spool:
        spool.reserve(None)
        task = asyncio.create_task(spool.put(bytes(MIB)))
        await asyncio.to_thread(writing.wait, 5)
        task.cancel()
        await asyncio.wait([task])
    assert done == []
    may_go_on.set()
    await asyncio.to_thread(spools.close)
    assert done == ["written", "closed"]


def framed(data: bytes) -> bytes:
    return b"<" + data + b">"


async def given_out(
    spools: Spools, pieces: list[bytes], pace: Callable[[KeptExchange, int], None]
) -> tuple[KeptExchange, Outlet]:
    exchange = KeptExchange()
    with spools.open("a") as spool:
        spool.reserve(None)
        outlet = Outlet(exchange, spool, framed)
        for number, piece in enumerate(pieces):
            pace(exchange, number)
            async with asyncio.timeout(5):
                await outlet.take(piece)
        exchange.room.set()
        await outlet.empty()
    return exchange, outlet


def stop_reading(exchange: KeptExchange, number: int) -> None:
    exchange.room.clear()
    exchange.unread = MIB if number else 0


def read_now_and_then(exchange: KeptExchange, number: int) -> None:
    exchange.unread = MIB if number % 3 else 0


@pytest.mark.parametrize("pace", [stop_reading, read_now_and_then])
async def test_what_a_client_has_no_room_for_does_not_hold_up_the_origin(
    spools: Spools, pace: Callable[[KeptExchange, int], None]
) -> None:
    pieces = [bytes([65 + number]) * 50_000 for number in range(20)]
    exchange, outlet = await given_out(spools, pieces, pace)
    whole = exchange.data.replace(b"<", b"").replace(b">", b"")
    assert whole == b"".join(pieces)
    assert outlet.sent == len(whole)


async def test_a_client_is_given_no_more_at_once_than_he_has_room_for(spools: Spools) -> None:
    class Measuring(KeptExchange):
        def write(self, data: bytes | memoryview) -> None:
            super().write(data)
            self.unread += len(data)

    exchange = Measuring()
    with spools.open("a") as spool:
        spool.reserve(None)
        await Outlet(exchange, spool, bytes).take(bytes(MIB))
    assert len(exchange.data) <= 2 * BLOCK_BYTES
