"""Connections dealt out: within the total and each share, in turn, and none lost."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.slots import OURS, Payers, Slots
from tests.helpers.parts import quiet


def start(slots: Slots, subject: str) -> "asyncio.Task[str]":
    return asyncio.create_task(slots.take(Payers(subject)))


async def granted(*tasks: "asyncio.Task[str]") -> list[bool]:
    await quiet()
    return [task.done() for task in tasks]


async def end(*tasks: "asyncio.Task[str]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_subject_gets_his_share_and_others_the_rest() -> None:
    slots = Slots(4, 2)
    taken = [slots.take_now(Payers(who)) for who in "aaabbb"]
    assert taken == ["a", "a", None, "b", "b", None]


async def test_lines_take_turns_however_long_one_is() -> None:
    slots = Slots(1, 1)
    assert slots.take_now(Payers("x")) == "x"
    greedy = [start(slots, "a") for _ in range(50)]
    await quiet()
    modest = [start(slots, "b") for _ in range(2)]
    await quiet()
    order = []
    for payer in ("x", "a", "b", "a"):
        slots.release(payer)
        await quiet()
        order.append((sum(t.done() for t in greedy), sum(t.done() for t in modest)))
    assert order == [(1, 0), (1, 1), (2, 1), (2, 2)]
    await end(*greedy, *modest)


async def test_who_has_his_share_is_passed_over() -> None:
    slots = Slots(3, 2)
    for who in "aab":
        assert slots.take_now(Payers(who))
    first, second = start(slots, "a"), start(slots, "b")
    await quiet()
    slots.release("b")
    assert await granted(first, second) == [False, True]
    slots.release("a")
    assert await granted(first) == [True]


async def test_what_several_wait_for_is_paid_by_whoever_can() -> None:
    slots = Slots(4, 2)
    for who in "aa":
        assert slots.take_now(Payers(who)) == "a"
    assert await slots.take(Payers("a", lambda: ["b", "c"])) == "b"


async def test_who_joins_a_request_that_waits_can_pay_for_it() -> None:
    """Else whoever shares with a greedy one would wait with him."""
    slots = Slots(4, 2)
    for who in "aa":
        slots.take_now(Payers(who))
    payers = Payers("a")
    waiting = asyncio.create_task(slots.take(payers))
    assert await granted(waiting) == [False]
    payers.add("b")
    assert await waiting == "b"
    assert not slots._lines


async def test_who_leaves_leaves_nothing_behind() -> None:
    slots = Slots(1, 1)
    slots.take_now(Payers("x"))
    waiting = asyncio.create_task(slots.take(Payers("a", lambda: ["b"])))
    await quiet()
    await end(waiting)
    assert not slots._lines
    slots.release("x")
    assert slots.take_now(Payers("c")) == "c"


async def test_what_comes_as_one_leaves_goes_to_the_next() -> None:
    slots = Slots(1, 1)
    slots.take_now(Payers("x"))
    leaving, staying = start(slots, "a"), start(slots, "b")
    await quiet()
    slots.release("x")  # it is given to the first ...
    leaving.cancel()  # ... who has not seen it yet
    assert await staying == "b"
    await asyncio.wait([leaving])


async def test_nobody_s_requests_are_ours() -> None:
    assert Slots(1, 1).take_now(Payers()) == OURS


def test_what_nobody_holds_cannot_be_released() -> None:
    with pytest.raises(KeyError):
        Slots(1, 1).release("a")


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["take", "end", "leave"])))


@given(STEPS, st.integers(1, 5), st.integers(1, 3))
def test_never_more_than_there_is_nor_less_than_is_asked_for(
    steps: list[tuple[str, str]], most: int, share: int
) -> None:
    async def check() -> None:
        slots, tasks = Slots(most, share), list[tuple[str, "asyncio.Task[str]"]]()
        for subject, step in steps:
            if step == "take":
                tasks.append((subject, start(slots, subject)))
            else:
                wanted = step == "end"
                found = [p for p in tasks if p[0] == subject and p[1].done() == wanted]
                for pair in found[:1]:
                    tasks.remove(pair)
                    if wanted:
                        slots.release(pair[1].result())
                    else:
                        await end(pair[1])
            await quiet(5)
            held = Counter(who for who, task in tasks if task.done())
            waiting = {who for who, task in tasks if not task.done()}
            assert held.total() <= most and max(held.values(), default=0) <= share
            assert held.total() == most or all(held[who] == share for who in waiting)
        await end(*(task for _, task in tasks))

    asyncio.run(check())
