"""Reads of stored parts (chunks, snapshots, bootstraps), in an encoding the client accepts."""

from contextlib import suppress

from gateway.answers import Answers
from gateway.asking import TooLarge
from gateway.cache import Cache
from gateway.calls import Call
from gateway.config import CacheConfig
from gateway.encodings import Forms
from gateway.outcomes import HIT
from gateway.passes import Passes
from gateway.reads import Got
from protocol.replies import Reply


class CatchUp:
    def __init__(self, config: CacheConfig, cache: Cache, passes: Passes, answers: Answers) -> None:
        self.forms = Forms(config, cache.recount)
        self._cache = cache
        self._passes = passes
        self._answers = answers

    def begin(self, call: Call) -> None:
        entry = self._cache.fresh(call.stream, call.route.part)
        if entry is not None:
            form = self.forms.ready(entry, call.head.headers.get("accept-encoding"))
            if form is not None:
                call.settle(HIT)
                self._answers.send_part(call, entry, form)
                return
        self._answers.spawn(call, self._read(call))

    async def _read(self, call: Call) -> None:
        got: Got | None = None
        with suppress(TooLarge):
            got = await self._cache.get(call.stream, call.route.path, call.route.part, call.asker)
        if got is None:
            await self._passes.stream(call)
            return
        call.note(got)
        entry = got.outcome
        if isinstance(entry, Reply):
            self._answers.send_reply(call, entry, error="upstream-refused")
            return
        form = await self.forms.make(entry, call.head.headers.get("accept-encoding"))
        self._answers.send_part(call, entry, form)
