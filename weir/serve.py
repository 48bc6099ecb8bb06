"""What every serving process needs: its stop signal, its file limit, its address."""

import asyncio
import resource
import signal

from wire.children import Child


def stop_asked(child: Child | None) -> asyncio.Event:
    """Set by SIGTERM and SIGINT; in a child by SIGTERM and by the end of its parent."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if child is None:
        loop.add_signal_handler(signal.SIGINT, stop.set)
        return stop
    life_fd = child.life_fd

    def leave() -> None:
        loop.remove_reader(life_fd)
        stop.set()

    loop.add_reader(life_fd, leave)
    return stop


def raise_file_limit() -> None:
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
