"""Who is asked about, how often, and what happens to those whose token was withdrawn."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from gateway.calls import Call
from gateway.rules.access import EVERYTHING, Identity, Principal
from gateway.tokens import RECHECK_SECS
from gateway.watch import ASKED_AT_ONCE, PERIOD_SECS, Watch
from tests.helpers.parts import KeptExchange, quiet, soon
from wire.heads import make_head

MARGIN_S = 0.5  # for the question itself


class Asked:
    """Stands for the tokens: what was asked, and what it says."""

    def __init__(self) -> None:
        self.times: Counter[Identity] = Counter()
        self.largest = 0
        self.withdrawn: set[Identity] = set()

    async def __call__(self, identities: Sequence[Identity]) -> list[bool]:
        self.times.update(identities)
        self.largest = max(self.largest, len(identities))
        return [identity in self.withdrawn for identity in identities]


def follow(watch: Watch, token_id: str, ended: list[str], subject: str = "s") -> Call:
    call = Call(make_head("GET", "/", "", {}, 0), KeptExchange(), "id", 0.0, 0, "")
    call.principal = Principal(subject, EVERYTHING, 0.0, token_id=token_id)
    call.on_revoked = lambda: ended.append(token_id)
    watch.add(call)
    return call


@asynccontextmanager
async def watching(asked: Asked, period_s: float = 3600.0) -> AsyncIterator[Watch]:
    watch = Watch(asked, period_s)
    watch.start()
    try:
        yield watch
    finally:
        await watch.stop()


def test_no_token_goes_without_a_question_for_longer_than_a_read_would() -> None:
    assert 0 < PERIOD_SECS <= RECHECK_SECS - MARGIN_S


async def test_a_newcomer_is_asked_about_at_once_and_all_who_have_his_token_with_him() -> None:
    asked = Asked()
    async with watching(asked) as watch:
        calls = [follow(watch, "a", []) for _ in range(1000)]
        await soon(lambda: bool(asked.times))
        calls += [follow(watch, "a", []) for _ in range(1000)]
        follow(watch, "b", [])
        await soon(lambda: len(asked.times) == 2)
        await quiet()
        assert asked.times == {("a", "s", b""): 1, ("b", "s", b""): 1}


async def test_everyone_is_asked_about_again_in_each_round() -> None:
    asked: Asked = Asked()
    ended: list[str] = []
    async with watching(asked, 0.01) as watch:
        follow(watch, "a", ended)
        follow(watch, "b", ended)
        await soon(lambda: asked.times["a", "s", b""] > 3)
        asked.withdrawn.add(("b", "s", b""))
        await soon(lambda: bool(ended))
    assert set(ended) == {"b"}


async def test_a_crowd_of_tokens_is_asked_about_in_portions() -> None:
    asked = Asked()
    async with watching(asked) as watch:
        for number in range(3 * ASKED_AT_ONCE):
            follow(watch, f"t-{number}", [])
        await soon(lambda: len(asked.times) == 3 * ASKED_AT_ONCE)
    assert asked.largest == ASKED_AT_ONCE


async def test_who_has_left_is_neither_asked_about_nor_ended() -> None:
    asked, ended = Asked(), list[str]()
    async with watching(asked, 0.01) as watch:
        stays, leaves = follow(watch, "a", ended), follow(watch, "a", ended)
        await soon(lambda: asked.times["a", "s", b""] > 0)
        watch.remove(leaves)
        watch.remove(stays)
        assert len(watch) == 0
        asked.withdrawn.add(("a", "s", b""))
        before = asked.times.total()
        await asyncio.sleep(0.05)
        assert asked.times.total() <= before + 1 and ended == []


async def test_a_failed_question_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []
    told: list[RuntimeError | list[bool]] = [RuntimeError("away"), [True]]
    answers = iter(told)

    async def withdrawn(identities: Sequence[Identity]) -> list[bool]:
        answer = next(answers, [False])
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = Watch(withdrawn, 0.01)
    watch.start()
    follow(watch, "a", ended)
    await soon(lambda: ended == ["a"])
    await watch.stop()
    assert "failed to check" in caplog.text
