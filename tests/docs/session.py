"""A terminal of the newcomer: commands are typed one after another, and may leave others running.

What a command in the background prints comes when it comes: after each command the session waits
until the terminal shows what the document shows.
"""

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.docs.snippets import Exchange, agrees

STEP_SECS = 30.0


class Session:
    def __init__(self, folder: Path) -> None:
        self._ended, told = os.pipe()  # a byte for each command: what is printed stays as it is
        self._told = told
        self._shell = subprocess.Popen(
            ["bash", "-e"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[told],
            start_new_session=True,  # to end what is left running
        )
        os.close(told)
        assert self._shell.stdout is not None
        self._waiting = select.poll()  # `select` takes no file above 1023
        for file in (self._shell.stdout.fileno(), self._ended):
            self._waiting.register(file, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
        os.close(self._ended)

    def type(self, step: Exchange, seconds: float = STEP_SECS) -> None:
        """Fails unless the terminal shows, in time, what the document shows."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        text = f"{{\n{step.command}\n}} </dev/null\necho >&{self._told}\n"
        self._shell.stdin.write(text.encode())
        self._shell.stdin.flush()
        output = self._shell.stdout.fileno()
        printed, ended, until = b"", False, time.monotonic() + seconds
        while not (ended and agrees(step.output, printed.decode(errors="replace"))):
            left = max(0.0, until - time.monotonic())
            ready = self._waiting.poll(left * 1000)
            pieces = {file: os.read(file, 1 << 16) for file, _ in ready}
            printed += pieces.get(output, b"")
            if not all(pieces.values()) or not pieces:  # `bash -e` ended, or too late
                text = printed.decode(errors="replace")
                raise AssertionError(f"$ {step.command}\n{text}\n-- not --\n{step.output}")
            ended = ended or self._ended in pieces
