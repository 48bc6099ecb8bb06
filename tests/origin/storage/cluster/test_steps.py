"""Others are served while a long loop runs."""

import asyncio

from origin.storage.cluster.steps import STEP, in_steps


async def test_others_have_a_turn_between_steps() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    seen = [number async for number in in_steps(range(3 * STEP))]
    beside.cancel()
    assert seen == list(range(3 * STEP))
    assert turns == 3
