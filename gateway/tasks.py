"""Tasks with an owner: none is lost, and all end with their owner."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait(self, seconds: float) -> None:
        """Until all have ended, including those started meanwhile, or time is up."""
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while self._running and (left := end - now()) > 0:
            await asyncio.wait(self._running, timeout=left)

    async def cancel(self) -> None:
        await cancel(*self._running)


async def cancel(*tasks: "asyncio.Task[None] | None") -> None:
    """Cancel these tasks, ignoring None, and wait until they have ended."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
