"""`weir state`: the state of a stream of State messages, and with --follow its changes."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from protocol.state import RESET, Change, Control, Materialised, Message
from weir.client.access import token_of
from weir.client.escapes import shown
from weir.client.replay import Check, Replay
from weir.client.stream import Begun, CaughtUp, open_stream
from weir.client.view import message_json, message_line, state_json, state_table
from weir.exits import warn
from wire.settings import SettingsError

INTERRUPTED = 130


def run(arguments: argparse.Namespace) -> int:
    try:
        asyncio.run(_until_interrupted(_show(arguments)))
    except (KeyboardInterrupt, asyncio.CancelledError):  # the way to end --follow
        return 0 if arguments.follow else INTERRUPTED
    except BrokenPipeError:  # `weir state ... | head`: nobody reads the rest of the buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


async def _until_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """Uses a signal handler of the loop, which wakes it. Otherwise a signal that arrives just as
    the loop goes to sleep would be noticed only at the next event."""
    task = asyncio.create_task(work, name="until interrupted")
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    await task


async def _show(arguments: argparse.Namespace) -> None:
    check = None if arguments.schema is None else load_schemas(arguments.schema)
    replay = Replay(lambda text: warn(f"{text}; skipped"), check)
    view = View(as_json=arguments.json, only_type=arguments.type)
    caught_up = False
    async with (
        open_stream(arguments.url, token_of(arguments), warn) as stream,
        aclosing(stream.events(follow=arguments.follow)) as events,
    ):
        async for event in events:
            messages = replay.take(event)
            if caught_up:
                # A new beginning replaces everything that was shown before.
                view.show_messages([Control(RESET)] if isinstance(event, Begun) else messages)
            elif isinstance(event, CaughtUp):
                view.show_state(replay.state)
                caught_up = True


def load_schemas(path: str) -> Check:
    """The check by a file with a JSON Schema per entity type."""
    from protocol.schemas import InvalidSchema, parse_schemas  # slow to import

    try:
        return parse_schemas(Path(path).read_bytes()).check
    except (InvalidSchema, OSError) as error:
        raise SettingsError("--schema", shown(f"{path}: {error}")) from error


class View:
    """Prints states and changes."""

    def __init__(self, *, as_json: bool, only_type: str | None) -> None:
        self._as_json = as_json
        self._only_type = only_type

    def show_state(self, state: Materialised) -> None:
        if state.snapshot_open:
            warn("the stream ends inside a snapshot: this is only part of it")
        if self._only_type is not None:
            state = _only(state, self._only_type)
        if self._as_json:
            sys.stdout.writelines(state_json(state))
            print(flush=True)
        else:
            print(*state_table(state), sep="\n", flush=True)

    def show_messages(self, messages: Iterable[Message]) -> None:
        encode = message_json if self._as_json else message_line
        for message in messages:
            if not isinstance(message, Change) or self._only_type in (None, message.type):
                print(encode(message))
        sys.stdout.flush()


def _only(state: Materialised, kind: str) -> Materialised:
    only = Materialised()
    if kind in state.entities:
        only.entities[kind] = state.entities[kind]
    return only
