"""Ends live readers whose token is withdrawn: revoked, or its key removed.

A live reader sends its token only once, so the token must be checked again meanwhile: once for all
readers with the same token, slightly more often than tokens in use are looked up anyway, and at
once for a token that was not checked recently. Readers need no task or timer for this.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from gateway.calls import Call
from gateway.rules.access import Identity
from gateway.tasks import cancel
from gateway.tokens import RECHECK_SECS

log = logging.getLogger("weir.gateway")

PERIOD_SECS = RECHECK_SECS - 1.0  # so a withdrawal is as fast as for other reads
ASKED_AT_ONCE = 250

Withdrawn = Callable[[Sequence[Identity]], Awaitable[list[bool]]]


class Watch:
    """`withdrawn` is None if authentication is off."""

    def __init__(self, withdrawn: Withdrawn | None, period_s: float | None = None) -> None:
        self._withdrawn = withdrawn
        self._period_s = PERIOD_SECS if period_s is None else period_s
        self._calls: dict[Identity, dict[int, Call]] = {}
        self._asked: set[Identity] = set()  # since the last round
        self._new: set[Identity] = set()
        self._arrival = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def start(self) -> None:
        if self._withdrawn is not None:
            self._task = asyncio.create_task(self._run(self._withdrawn), name="withdrawals")

    async def stop(self) -> None:
        await cancel(self._task)

    def add(self, call: Call) -> None:
        if self._withdrawn is None:
            return
        identity = call.principal.identity
        self._calls.setdefault(identity, {})[id(call)] = call
        if identity not in self._asked:
            self._new.add(identity)
            self._arrival.set()

    def remove(self, call: Call) -> None:
        identity = call.principal.identity
        calls = self._calls.get(identity, {})
        calls.pop(id(call), None)
        if not calls:
            self._calls.pop(identity, None)

    async def _run(self, withdrawn: Withdrawn) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time() + self._period_s
        while True:
            asked = await self._next(due_at)
            if loop.time() >= due_at:
                due_at = loop.time() + self._period_s
                asked = set(self._calls)
                self._asked.clear()
            self._asked |= asked
            try:
                await self._check(list(asked), withdrawn)
            except Exception:
                log.exception("failed to check for withdrawn tokens")

    async def _next(self, due_at: float) -> set[Identity]:
        """New identities, or none when the next round is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due_at):
                await self._arrival.wait()
        self._arrival.clear()
        found, self._new = self._new, set()
        return found

    async def _check(self, asked: list[Identity], withdrawn: Withdrawn) -> None:
        for start in range(0, len(asked), ASKED_AT_ONCE):
            some = asked[start : start + ASKED_AT_ONCE]
            answers = await withdrawn(some)
            self._end(identity for identity, gone in zip(some, answers, strict=True) if gone)

    def _end(self, identities: Iterable[Identity]) -> None:
        for identity in identities:
            for call in list(self._calls.get(identity, {}).values()):
                if call.on_revoked is not None:
                    call.on_revoked()
