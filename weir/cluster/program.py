"""A third-party server as a child of ours: a process that starts it, tells when it is ready, and
ends with it.

Whoever kills the server ends this process as well; if this process is killed, the kernel kills the
server.
"""

import asyncio
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from weir.serve import raise_file_limit, stop_asked
from wire.children import Child, ChildFailed, describe_exit
from wire.programs import end_with_parent
from wire.settings import SettingsError

POLL_SECS = 0.1
STOP_SECS = 10.0

IsReady = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Program:
    """`stop_signal` is what ends it in good time without loss."""

    command: tuple[str, ...]
    folder: Path
    log: Path
    stop_signal: signal.Signals = signal.SIGTERM


def find_program(name: str) -> Path:
    """Beside this Python, where its package puts it, or on the PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise SettingsError(
            "--cluster",
            f"{name} is not installed: `make setup` in a checkout, "
            "`pip install weir-gateway[cluster,cluster-dev]` elsewhere",
        )
    return Path(found)


def serve_program(
    program: Program, is_ready: IsReady, on_ready: Callable[[int], None], child: Child
) -> int:
    """`on_ready` gets the process id of the server."""
    raise_file_limit()
    return asyncio.run(_serve(program, is_ready, on_ready, child))


async def _serve(
    program: Program, is_ready: IsReady, on_ready: Callable[[int], None], child: Child
) -> int:
    stop = asyncio.create_task(stop_asked(child).wait(), name="stop asked")
    process = await _start(program)
    ended = asyncio.create_task(process.wait(), name="program")
    ready = asyncio.create_task(_wait_until_ready(is_ready), name="readiness")
    try:
        await asyncio.wait((stop, ended, ready), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            on_ready(process.pid)
            await asyncio.wait((stop, ended), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise ChildFailed(1, f"{describe_exit(ended.result())}; its log is {program.log}")
        process.send_signal(program.stop_signal)
        await asyncio.wait((ended,), timeout=STOP_SECS)
    finally:
        for task in (stop, ready):
            task.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    return 0


async def _start(program: Program) -> asyncio.subprocess.Process:
    program.folder.mkdir(parents=True, exist_ok=True)
    program.log.parent.mkdir(parents=True, exist_ok=True)
    if program.log.exists():  # of the run before: it may say why it ended
        program.log.replace(program.log.with_suffix(".old.log"))
    with program.log.open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *program.command,
            cwd=program.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C must not reach it: it is stopped after its clients
            preexec_fn=end_with_parent,
        )


async def _wait_until_ready(is_ready: IsReady) -> None:
    """However long it takes: without the others of its cluster it may never be."""
    while True:
        if await is_ready():
            return
        await asyncio.sleep(POLL_SECS)
