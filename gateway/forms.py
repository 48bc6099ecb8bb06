"""The form of a stored part that a client gets: compressed once, kept with the part."""

import asyncio
from collections.abc import Callable

from gateway.config import CacheConfig
from gateway.encodings import choose, compress, compressible
from gateway.entries import Entry, Form

INLINE_BYTES = 16 * 1024  # compressed on the loop; more than that in a thread


class Forms:
    """`recount` is told of each entry that has grown by a form."""

    def __init__(self, config: CacheConfig, recount: Callable[[Entry], None]) -> None:
        self._min_bytes = config.compress_min_bytes if config.compress else None
        self._recount = recount
        self._compressing: dict[tuple[int, str], asyncio.Task[None]] = {}

    def ready(self, entry: Entry, accept: str | None) -> Form | None:
        """The form for this `Accept-Encoding`, if it has been made."""
        return entry.form(self._encoding(entry, accept))

    async def make(self, entry: Entry, accept: str | None) -> Form:
        encoding = self._encoding(entry, accept)
        if encoding and entry.form(encoding) is None:
            await self._compress(entry, encoding)
        form = entry.form(encoding) or entry.form()
        assert form is not None
        return form

    def chosen(self, accept: str | None) -> str:
        """The encoding for entries that are compressed at all."""
        return "" if self._min_bytes is None else choose(accept)

    def squeezes(self, entry: Entry) -> bool:
        if self._min_bytes is None or len(entry.body) < self._min_bytes:
            return False
        return compressible(entry.content_type)

    def _encoding(self, entry: Entry, accept: str | None) -> str:
        return choose(accept) if accept is not None and self.squeezes(entry) else ""

    async def _compress(self, entry: Entry, encoding: str) -> None:
        """Once for all who want it."""
        if len(entry.body) <= INLINE_BYTES:
            self._add(entry, encoding, compress(entry.body, encoding))
            return
        key = (id(entry), encoding)
        task = self._compressing.get(key)
        if task is None:
            task = asyncio.create_task(self._compress_aside(entry, encoding), name="compress")
            self._compressing[key] = task
            task.add_done_callback(lambda _: self._compressing.pop(key, None))
        await asyncio.shield(task)

    async def _compress_aside(self, entry: Entry, encoding: str) -> None:
        self._add(entry, encoding, await asyncio.to_thread(compress, entry.body, encoding))

    def _add(self, entry: Entry, encoding: str, body: bytes) -> None:
        plain = entry.form()
        assert plain is not None
        gains = len(body) < len(entry.body)
        made = Form(encoding, body, entry.etag_of(encoding)) if gains else plain
        entry.forms[encoding] = made
        self._recount(entry)
