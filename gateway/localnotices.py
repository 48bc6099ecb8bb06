"""Notices between the workers of one machine, carried by unix sockets."""

import asyncio
import logging
import os
import re
import socket
from collections import deque
from contextlib import suppress
from itertools import accumulate, islice, takewhile
from pathlib import Path

from gateway.notices import ACK_TIMEOUT_SECS, MAX_OWED, Mailbox, Notice, OnGap, OnNotice
from gateway.tasks import cancel

SOCKET_NAME = re.compile(r"worker-([0-9]{1,6})\.sock")
DATAGRAM_BYTES = 32 * 1024
RESEND_SECS = 0.001  # to a worker whose queue is full
SLOW_RESEND_SECS = 0.05
RECEIVE_BATCH = 64

_log = logging.getLogger("weir.gateway")


class LocalNotices:
    """Datagrams between the sockets `worker-<n>.sock` in one private folder.

    The socket of a dead worker refuses at once, so nobody waits for it. A worker whose queue is
    full gets its messages as soon as there is room.
    """

    def __init__(self, run_dir: Path, worker: int, *, timeout_s: float = ACK_TIMEOUT_SECS) -> None:
        self._run_dir = run_dir
        self._path = run_dir / f"worker-{worker}.sock"
        self._timeout_s = timeout_s
        self._mailbox = Mailbox(str(worker))
        self.counts = self._mailbox.counts
        self._socket: socket.socket | None = None
        self._unsent: dict[str, deque[bytes]] = {}
        self._resending: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def start(self, on_notice: OnNotice, on_gap: OnGap) -> None:
        self._mailbox.listen(on_notice, on_gap)
        self._path.unlink(missing_ok=True)  # left by the worker that we replace
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._path))
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    async def publish(self, notice: Notice) -> bool:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        with self._mailbox.delivery(notice) as (message, delivery):
            delivery.expect(sum(self._send(peer, message) for peer in self._peers()))
            return await delivery.confirmed(deadline)

    async def stop(self) -> None:
        await cancel(self._resending)
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)

    def _peers(self) -> list[str]:
        names = map(SOCKET_NAME.fullmatch, os.listdir(self._run_dir))
        return [found[1] for found in names if found and found[1] != self._mailbox.name]

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(RECEIVE_BATCH):
                if self._socket is None:  # stopped while handling a message
                    return
                self._take(self._socket.recv(2 * DATAGRAM_BYTES))

    def _take(self, datagram: bytes) -> None:
        """One message per line; acknowledgements are sent together."""
        acks: dict[str, list[int]] = {}
        for message in datagram.split(b"\n"):
            if wanted := self._mailbox.take(message):
                acks.setdefault(wanted[0], []).append(wanted[1])
        for sender, numbers in acks.items():
            self._send(sender, self._mailbox.encode_acks(numbers))

    def _send(self, peer: str, message: bytes) -> bool:
        """Send it now, or later if the peer has no room; False if the peer is gone."""
        waiting = self._unsent.get(peer)
        if waiting is None:
            sent = self._try_send(peer, message)
            if sent is not None:
                return sent
            waiting = self._unsent[peer] = deque()
        if len(waiting) >= MAX_OWED:
            waiting.clear()
            message = self._mailbox.encode_gap()
        waiting.append(message)
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(self._resend(), name="notices resend")
        return True

    def _try_send(self, peer: str, message: bytes) -> bool | None:
        """None when the peer's queue is full."""
        if self._socket is None or not peer.isdigit():
            return False
        try:
            self._socket.sendto(message, str(self._run_dir / f"worker-{peer}.sock"))
        except BlockingIOError:
            return None
        except OSError:  # refused, or no such socket
            return False
        return True

    async def _resend(self) -> None:
        pause_s = RESEND_SECS
        while self._unsent:
            await asyncio.sleep(pause_s)
            progress = [self._resend_to(peer) for peer in list(self._unsent)]
            pause_s = RESEND_SECS if any(progress) else min(2 * pause_s, SLOW_RESEND_SECS)

    def _resend_to(self, peer: str) -> bool:
        """Send waiting messages, many per datagram: queues are short. False if still full."""
        waiting, progress = self._unsent[peer], False
        while waiting:
            bundle = _bundle(waiting)
            sent = self._try_send(peer, b"\n".join(bundle))
            if sent is None:
                return progress
            if not sent:
                break
            progress = True
            for _ in bundle:
                waiting.popleft()
        del self._unsent[peer]
        return True


def _bundle(messages: deque[bytes]) -> list[bytes]:
    """As many of the first messages as fit in one datagram, at least one."""
    sizes = accumulate(len(message) + 1 for message in messages)
    fitting = sum(1 for _ in takewhile(lambda size: size <= DATAGRAM_BYTES, sizes))
    return list(islice(messages, max(1, fitting)))
